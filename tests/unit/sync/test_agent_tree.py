"""The tree that follows from the parents that agents name."""

from typing import Any, Literal

import msgspec

from pubsub_lib.sync.agent_tree import Node, tree_of
from pubsub_lib.sync.agents import MAX_AGENTS, Agents
from tests.unit.sync.some_agents import agent


def service(name: str = "api-1", role: Literal["origin", "relay"] = "origin") -> Agents:
    return Agents(service=name, uuid=f"u-{name}", role=role, address="", version="1", agents=[], left_out=0)


def relay(name: str, parent: str = "", **changes: Any) -> Any:
    return agent(name, role="relay", parent=parent, **changes)


def shown(nodes: list[Node]) -> list[str]:
    return [f"{'-' * node.depth}{node.name} {node.role} {node.below}" for node in nodes]


def test_agents_are_below_the_parents_that_they_name() -> None:
    agents = [
        agent("a", parent="r2"), agent("b", parent="r1"), agent("c"), relay("r1"), relay("r2", "r1"), relay("r3"),
    ]  # fmt: skip
    nodes = tree_of([service("api-2"), service("api-1")], agents)
    assert shown(nodes) == [
        "api-1, api-2 origin 6", "-c replica 0", "-r1 relay 3", "--b replica 0", "--r2 relay 1", "---a replica 0",
        "-r3 relay 0",
    ]  # fmt: skip
    assert [node.agent for node in nodes] == [None, agents[2], agents[3], agents[1], agents[4], agents[0], agents[5]]


def test_service_that_is_named_as_the_parent_is_the_root() -> None:
    assert shown(tree_of([service()], [agent("a", parent="api-1")])) == ["api-1 origin 1", "-a replica 0"]


def test_service_without_agents_is_alone() -> None:
    assert shown(tree_of([service()], [])) == ["api-1 origin 0"]


def test_relay_that_was_asked_alone_is_the_root() -> None:
    agents = [agent("a", parent="r1"), agent("b")]
    assert shown(tree_of([service("r1", "relay")], agents)) == ["r1 relay 2", "-a replica 0", "-b replica 0"]
    both = tree_of([service("r1", "relay"), service("r2", "relay")], [agent("a", parent="r2")])
    assert shown(both) == ["r1 relay 0", "r2 relay 1", "-a replica 0"]


def test_relay_that_was_asked_and_announced_itself_is_there_once() -> None:
    found = tree_of([service("r1", "relay"), service()], [relay("r1"), agent("a", parent="r1")])
    assert shown(found) == ["api-1 origin 2", "-r1 relay 1", "--a replica 0"]


def test_parent_that_did_not_announce_itself_is_unknown() -> None:
    found = tree_of([service()], [agent("a", parent="r9"), agent("b", parent="r8"), agent("c")])
    assert shown(found) == [
        "api-1 origin 1", "-c replica 0", "r8 unknown 1", "-b replica 0", "r9 unknown 1", "-a replica 0",
    ]  # fmt: skip


def test_agents_are_below_the_last_start_of_a_relay() -> None:
    old, new = relay("r1", uuid="old", age=50.0), relay("r1", uuid="new", age=1.0)
    found = tree_of([service()], [agent("a", parent="r1"), old, new])
    assert [(node.depth, node.agent and node.agent.uuid) for node in found] == [
        (0, None), (1, "old"), (1, "new"), (2, "u-a"),
    ]  # fmt: skip


def test_agents_are_below_that_one_of_two_relays_with_one_name_which_they_listen_to() -> None:
    one, two = (
        relay("r1", uuid=f"u-{at}", address=at, age=age) for at, age in (("tcp://1:1", 5.0), ("tcp://2:1", 1.0))
    )
    of_one, of_two, elsewhere = (
        agent(name, parent="r1", listens_to=(at,)) for name, at in (("a", "tcp://1:1"), ("b", "tcp://2:1"), ("c", "x"))
    )
    found = tree_of([service()], [of_one, of_two, elsewhere, one, two])
    assert [(node.depth, node.agent and node.agent.uuid) for node in found] == [
        (0, None), (1, "u-tcp://1:1"), (2, "u-a"), (1, "u-tcp://2:1"), (2, "u-b"), (2, "u-c"),
    ]  # fmt: skip


def test_replica_is_no_parent() -> None:
    found = tree_of([service()], [agent("a"), agent("b", parent="a")])
    assert shown(found) == ["api-1 origin 1", "-a replica 0", "a unknown 1", "-b replica 0"]


def test_agents_below_themselves_are_last() -> None:
    agents = [agent("a", parent="r1"), relay("r1", "r2"), relay("r2", "r1"), relay("self", "self")]
    found = tree_of([service()], agents)
    assert shown(found) == ["api-1 origin 0", "r1 relay 2", "-a replica 0", "-r2 relay 0", "self relay 0"]


def test_long_chain_is_listed() -> None:
    agents = [relay(f"r{each}", f"r{each + 1}") for each in range(MAX_AGENTS - 1)]
    found = tree_of([service()], [*agents, relay(f"r{MAX_AGENTS - 1}")])
    assert [node.depth for node in found] == list(range(MAX_AGENTS + 1))
    assert [node.below for node in found] == list(range(MAX_AGENTS, -1, -1))


def test_relays_that_know_each_other_have_no_root() -> None:
    """They name each other in sync_url, and were both asked."""
    relays = [relay("r1"), relay("r2", "r1")]
    services = [msgspec.structs.replace(service(each.name, "relay"), uuid=each.uuid) for each in relays]
    assert shown(tree_of(services, relays)) == ["unknown unknown 2", "-r1 relay 1", "--r2 relay 0"]
