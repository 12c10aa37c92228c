"""What a service knows of agents: how long, how many, and through relays."""

import msgspec

from pubsub_lib.sync.agent_registry import AgentRegistry
from pubsub_lib.sync.agents import KEPT_INTERVALS, MAX_HOPS, MAX_LEFT_OUT, decode_announcement, encode
from tests.unit.sync.some_agents import agent, announcement


def names(registry: AgentRegistry, now: float) -> list[str]:
    return [each.name for each in registry.known(now).agents]


def test_agent_disappears_after_three_of_its_intervals() -> None:
    registry = AgentRegistry("own")
    assert registry.receive(announcement("b", interval=10.0), 100.0)
    assert registry.receive(announcement("a", interval=20.0), 100.0)
    assert names(registry, 100.0) == ["a", "b"]
    assert names(registry, 129.9) == ["a", "b"]
    assert names(registry, 100.0 + KEPT_INTERVALS * 10.0) == ["a"]
    assert names(registry, 160.0) == []


def test_age_grows_until_the_next_announcement() -> None:
    registry = AgentRegistry("own")
    registry.receive(announcement("a"), 100.0)
    assert registry.known(107.0).agents[0].age == 7.0
    registry.receive(announcement("a"), 108.0)
    assert registry.known(109.0).agents[0].age == 1.0
    assert registry.known(107.0).agents[0].age == 0.0, "a clock that another thread read before"


def test_agent_that_leaves_disappears_at_once() -> None:
    registry = AgentRegistry("own")
    registry.receive(announcement("a"), 0.0)
    assert registry.receive(announcement("a", leaving=True), 1.0)
    assert names(registry, 1.0) == []
    assert registry.receive(announcement("unknown", leaving=True), 1.0)


def test_sender_alone_cannot_pretend_to_be_old_or_far_away() -> None:
    registry = AgentRegistry("own")
    announced = announcement("a")
    old = announced.__class__(agent=agent("a", age=50.0, hops=3), interval=10.0)
    registry.receive(old, 0.0)
    found = registry.known(1.0).agents[0]
    assert (found.age, found.hops) == (1.0, 0)


def test_announcement_of_a_relay_replaces_all_that_was_below_it() -> None:
    registry = AgentRegistry("own")
    registry.receive(announcement("relay", agent("a", age=2.0), agent("b", hops=1)), 10.0)
    found = {each.name: (each.age, each.hops) for each in registry.known(15.0).agents}
    assert found == {"a": (7.0, 1), "b": (5.0, 2), "relay": (5.0, 0)}
    registry.receive(announcement("relay", agent("b")), 20.0)
    assert names(registry, 20.0) == ["b", "relay"]
    assert names(registry, 50.0) == [], "the relay and all that it had announced"


def test_agent_that_changed_its_relay_is_there_once_by_its_last_announcement() -> None:
    registry = AgentRegistry("own")
    registry.receive(announcement("relay-1", agent("a", age=20.0, parent="relay-1")), 100.0)
    registry.receive(announcement("relay-2", agent("a", age=1.0, parent="relay-2")), 100.0)
    registry.receive(announcement("relay-3", agent("a", age=9.0, parent="relay-3")), 100.0)
    found = [each for each in registry.known(100.0).agents if each.name == "a"]
    assert [(each.parent, each.age) for each in found] == [("relay-2", 1.0)]


def test_two_agents_of_one_name_are_two() -> None:
    registry = AgentRegistry("own")
    registry.receive(announcement("relay", agent("a", uuid="u1"), agent("a", uuid="u2")), 0.0)
    assert [each.uuid for each in registry.known(0.0).agents] == ["u1", "u2", "u-relay"]


def test_relays_that_announce_themselves_to_one_another_end() -> None:
    """A dead agent goes round between two relays as many times as relays may pass an agent on."""
    one, two = AgentRegistry("u-one"), AgentRegistry("u-two")
    one.receive(announcement("dead", interval=1.0), 0.0)
    rounds = 0
    while "dead" in names(one, rounds) or "dead" in names(two, rounds):
        two.receive(announcement("one", *one.known(rounds).agents, interval=10.0), rounds)
        one.receive(announcement("two", *two.known(rounds).agents, interval=10.0), rounds)
        rounds += 1
        assert rounds <= MAX_HOPS + KEPT_INTERVALS
    assert names(one, rounds) == ["two"], "it is never below itself"
    assert one.receive(announcement("one"), rounds), "the answer names it"
    assert names(one, rounds) == ["two"]


def test_number_of_agents_is_bounded() -> None:
    registry = AgentRegistry("own", max_agents=3)
    assert registry.receive(announcement("relay", agent("a"), agent("b"), agent("c"), agent("d"), left_out=5), 0.0)
    known = registry.known(0.0)
    assert [each.name for each in known.agents] == ["a", "b", "relay"]
    assert known.left_out == 7
    assert not registry.receive(announcement("e"), 29.0)
    assert registry.receive(announcement("relay", agent("a")), 29.0), "those that are known may go on"
    assert registry.receive(announcement("e"), 29.0)
    assert not registry.receive(announcement("f"), 29.0)
    assert registry.receive(announcement("g"), 60.0), "the others have disappeared"
    assert names(registry, 60.0) == ["g"]


def test_size_of_agents_is_bounded() -> None:
    size = len(encode(agent("a")))
    registry = AgentRegistry("own", max_bytes=3 * size)
    for name in "abc":
        assert registry.receive(announcement(name), 0.0)
    assert not registry.receive(announcement("d"), 0.0)
    for _ in range(5):
        assert registry.receive(announcement("c"), 0.0)
    assert registry.receive(announcement("c", leaving=True), 0.0)
    assert registry.receive(announcement("d"), 0.0)
    assert names(registry, 0.0) == ["a", "b", "d"]


def test_relay_gets_the_places_of_those_that_disappeared() -> None:
    registry = AgentRegistry("own", max_agents=3)
    registry.receive(announcement("x"), 0.0)
    registry.receive(announcement("relay", agent("a"), agent("b")), 31.0)
    assert registry.known(31.0).left_out == 0


def test_known_agent_without_a_place_for_its_news_stays() -> None:
    registry = AgentRegistry("own", max_bytes=2 * len(encode(agent("a"))))
    assert registry.receive(announcement("a"), 0.0)
    assert registry.receive(announcement("b"), 0.0)
    longer = announcement("a", interval=10.0)
    longer = msgspec.structs.replace(longer, agent=msgspec.structs.replace(longer.agent, host="h" * 200))
    assert not registry.receive(longer, 20.0)
    assert names(registry, 20.0) == ["a", "b"]
    assert names(registry, 30.0) == [], "it has the time of what it announced before"


def test_numbers_of_agents_without_a_place_cannot_make_an_announcement_invalid() -> None:
    registry = AgentRegistry("own")
    for name in ("a", "b"):
        registry.receive(announcement(name, left_out=MAX_LEFT_OUT), 0.0)
    known = registry.known(0.0)
    above = announcement("relay", *known.agents, left_out=known.left_out)
    assert decode_announcement(encode(above)) == above


def test_agents_that_passed_through_too_many_relays_are_counted() -> None:
    registry = AgentRegistry("own")
    registry.receive(announcement("relay", agent("far", hops=MAX_HOPS), agent("near")), 0.0)
    assert (names(registry, 0.0), registry.known(0.0).left_out) == (["near", "relay"], 1)


def test_gauges_are_the_number_and_the_largest_staleness() -> None:
    registry = AgentRegistry("own")
    assert registry.gauges(0.0) == {"known": 0.0, "left_out": 0.0, "unsynced": 0.0, "max_staleness": 0.0}
    registry.receive(announcement("relay", agent("a", staleness=7.5), left_out=2), 0.0)
    assert registry.gauges(1.0) == {"known": 2.0, "left_out": 2.0, "unsynced": 0.0, "max_staleness": 8.5}
    registry.receive(announcement("relay", agent("a", staleness=None)), 1.0)
    assert registry.gauges(1.0) == {"known": 2.0, "left_out": 0.0, "unsynced": 1.0, "max_staleness": 0.5}
    assert registry.gauges(3.0)["max_staleness"] == 2.5, "it may have been stopped since"
