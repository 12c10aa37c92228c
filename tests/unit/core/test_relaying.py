"""A relay: what it sends on and when, how old that is in its hellos, and what it answers (rules R1, R2 and R6)."""

import random

import msgspec
import pytest

from pubsub_lib.core.cache import Cache
from pubsub_lib.core.effects import StartSync
from pubsub_lib.core.envelope import Envelope, Hello, HelloRequest
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, AnswerAge, Delta, Full, Head, Incomplete, Link, Point, SyncAnswer, Want
from pubsub_lib.core.relay_contents import Question, RelayedState
from pubsub_lib.core.relaying import Relay, RelayStep
from tests.unit.core.builders import CALM, STORE, UUID, Bench, History, envelope, hello

OWN = "ab" * 16
OTHER = "cd" * 16


class Rig:
    """A relay of some topics under a publisher, with its outputs. ``now`` is the virtual time."""

    def __init__(
        self, history: History, topics: tuple[str, ...] = ("t",), uuid: str = OWN, settling: float = 0.0
    ) -> None:
        self.history = history
        self.now = 100.0
        state = RelayedState(CALM, Limits(), random.Random(0), Cache(), self.now)
        self.relay = Relay("relay-1", uuid, CALM, Limits(), state, self.now, settling)
        self.sent: list[Link] = []
        self.envelopes: list[Envelope] = []
        self.asked: list[HelloRequest] = []
        self.answers: list[tuple[str, SyncAnswer | None]] = []
        self.hellos: list[Hello] = []
        """The hello replies."""
        self.broadcasts: list[Hello] = []
        self.sync: StartSync | None = None
        self.do(self.relay.subscribe(topics, self.now))

    def do(self, step: RelayStep) -> RelayStep:
        """Record a step's outputs, and make the hellos that are due."""
        self.envelopes.extend(step.envelopes)
        self.sent.extend(message.link for each in step.envelopes for message in each.messages)
        self.asked.extend(HelloRequest(each.nonce, each.topics) for each in step.result.hello_requests)
        self.answers.extend((each.asker, self.relay.contents.answer(each, self.now)) for each in step.ready)
        self.sync = step.result.sync or self.sync
        while (made := self.relay.next_hello(self.now)) is not None:
            assert made.hello is not None
            (self.hellos if made.hello.nonce else self.broadcasts).append(made.hello)
        return step

    def synced(self) -> "Rig":
        """Read everything from the store."""
        self.wait(CALM.hello_wait)
        while self.sync is not None:
            number, wants = self.sync.number, self.sync.wants
            self.sync = None
            self.do(self.relay.sync_done(number, self.history.answer(wants), self.now))
            self.wait(0.1)
        self.prove()
        self.hellos.clear()
        return self

    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.now += seconds
        self.do(self.relay.tick(self.now))

    def feed(self, *links: Link) -> None:
        """The publisher above sends links, each in its own envelope."""
        for link in links:
            self.do(self.relay.feed(envelope(link), self.now))

    def prove(self, *, age: float = 0.0, uuid: str = UUID, path: tuple[bytes, ...] = ()) -> RelayStep:
        """The publisher above answers the last hello request."""
        reply = hello(self.history.reading(), nonce=self.asked[-1].nonce, age=age, uuid=uuid)
        assert reply.hello is not None
        reply = msgspec.structs.replace(reply, hello=msgspec.structs.replace(reply.hello, path=path))
        return self.do(self.relay.feed(reply, self.now))

    def question(self, want: Want, *, refresh: bool = False, topic: str = "t", nonce: str = "") -> None:
        """A replica below asks for a sync. ``nonce``: of its last hello request."""
        self.do(self.relay.sync_requested("child", StartSync(1, {topic: want}, {}, refresh, nonce), self.now))

    def part(self) -> Delta | Incomplete | Full:
        """The topic's part of the only answer."""
        [(_, answer)] = self.answers
        assert answer is not None
        return answer.chains["t"]

    def ask(self, *topics: str) -> None:
        """A replica below asks for a hello reply."""
        self.do(self.relay.hello_requested(HelloRequest("nonce", topics), self.now))

    def ask_again(self, nonce: str) -> None:
        """The hello request of a replica arrives, which has connected."""
        self.do(self.relay.hello_requested(HelloRequest(nonce, ("t",)), self.now))


def relaying(topics: tuple[str, ...] = ("t",)) -> tuple[History, Rig]:
    """A relay that has two links of each topic."""
    history = History()
    for topic in topics:
        history.some(2, topic)
    return history, Rig(history, topics).synced()


# -- links -------------------------------------------------------------------------------------------------------


def test_relay_sends_a_link_on_as_it_is_under_its_own_name_and_numbers() -> None:
    history, rig = relaying()
    links = history.some(2)
    rig.feed(*links)
    assert rig.sent == links
    assert [(each.service, each.uuid, each.sequence) for each in rig.envelopes] == [
        ("relay-1", OWN, 1), ("relay-1", OWN, 2)
    ]  # fmt: skip
    assert {each.store_id for each in rig.envelopes} == {STORE}


def test_relay_sends_a_link_only_after_it_was_applied() -> None:
    history, rig = relaying()
    first, second, third = history.some(3)
    rig.feed(third, second)
    assert rig.sent == []
    rig.feed(first)
    assert rig.sent == [first, second, third]


@pytest.mark.parametrize("relayed", [False, True])
def test_rule_r1_links_count_from_the_question_to_the_server_that_answered(relayed: bool) -> None:
    """Another server was asked before, and hung for 6 s."""
    history, rig = relaying()
    known = history.head("t")
    history.some(2)
    rig.relay.state.tracker.verify(rig.now)
    rig.wait(0.0)
    assert rig.sync is not None
    answer = history.answer(rig.sync.wants)
    ages = {"t": AnswerAge(0.25, 0.0, 0.5)} if relayed else None
    rig.now += 6.0
    rig.do(rig.relay.sync_done(rig.sync.number, msgspec.structs.replace(answer, ages=ages, asked_after=6.0), rig.now))
    found = rig.relay.contents.answer(Question("child", {"t": Want(after=known)}, False, rig.now, {}), rig.now)
    assert found is not None
    assert found.ages is not None
    assert found.ages["t"].applied == pytest.approx(0.25 if relayed else 0.0)


def test_relay_sends_on_what_a_delta_brought() -> None:
    history, rig = relaying()
    missed = history.some(2)
    rig.relay.state.tracker.verify(rig.now)
    rig.wait(0.0)
    assert rig.sync is not None
    rig.do(rig.relay.sync_done(rig.sync.number, history.answer(rig.sync.wants), rig.now))
    assert rig.sent == missed


def test_rule_14_relay_sends_on_what_waited_for_its_publishers_lease() -> None:
    history, rig = relaying()
    rig.relay.directory_read([OTHER], rig.now)
    link = history.one()
    rig.feed(link)
    assert rig.sent == []
    for step in rig.relay.directory_read([OTHER, UUID], rig.now):
        rig.do(step)
    assert rig.sent == [link]


def test_relay_counts_a_link_that_is_too_large_for_its_frames() -> None:
    history, rig = relaying()
    rig.relay.sequencer._limits = Limits(max_frame_bytes=400)
    rig.feed(history.one(value='"' + "x" * 500 + '"'))
    assert rig.sent == []
    assert rig.relay.oversized == 1
    assert rig.relay.contents.head("t").point == history.head("t")


# -- hellos ------------------------------------------------------------------------------------------------------


def test_rule_r1_hello_has_the_relays_own_known_and_the_age_of_its_proof() -> None:
    history, rig = relaying()
    known = history.heads["t"]
    history.one()
    rig.now += 0.5
    rig.ask("t")
    [made] = rig.hellos
    assert made.heads == {"t": known}
    assert made.age >= 0.5
    assert made.least_age == 0.5
    assert made.nonce == "nonce"


def test_rule_r1_hello_waits_for_a_renewed_proof_which_is_asked_for_once() -> None:
    _, rig = relaying()
    rig.now += 2 * CALM.reading_age
    asked = len(rig.asked)
    rig.ask("t")
    rig.ask("t")
    assert (len(rig.asked), rig.hellos) == (asked + 1, [])
    rig.now += 0.25
    rig.prove()
    assert [made.age for made in rig.hellos] == [0.25], "both requests have the same nonce here"


def test_rule_r1_hello_has_the_true_age_when_no_proof_comes_in_time() -> None:
    _, rig = relaying()
    rig.now += 4.0
    rig.ask("t")
    rig.wait(CALM.round_trip)
    [made] = rig.hellos
    assert made.age >= 4.0 + CALM.round_trip
    assert rig.relay.next_time() > rig.now


def test_relay_leaves_out_topics_that_it_does_not_follow() -> None:
    _, rig = relaying()
    rig.ask("t", "unknown")
    assert [set(made.heads) for made in rig.hellos] == [{"t"}]
    rig.ask("unknown")
    rig.ask(ALL)
    assert len(rig.hellos) == 1
    assert rig.relay.unserved == 2


def test_relay_leaves_out_a_topic_that_waits_for_a_full_sync() -> None:
    _, rig = relaying(("a", "b"))
    rig.relay.state.resync(["a"], rig.now)
    rig.ask("a", "b")
    assert [set(made.heads) for made in rig.hellos] == [{"b"}]


def test_topics_with_an_old_proof_do_not_age_the_others() -> None:
    history, rig = relaying(("a", "b"))
    rig.now += 3.0
    history.one("a")
    rig.ask("a", "b")
    rig.prove()  # the head of a is beyond known
    rig.wait(CALM.round_trip)
    ages = {topic: made.age for made in rig.hellos for topic in made.heads}
    assert ages["a"] >= 3.0
    assert ages["b"] < 3.0


def test_rule_r1_broadcast_without_topics_has_the_age_of_the_stores_point() -> None:
    history, rig = relaying()
    rig.wait(CALM.max_idle_time)
    rig.wait(CALM.round_trip)
    made = rig.broadcasts[-1]
    assert (made.heads, made.store) == ({}, history.point)
    assert made.age >= CALM.max_idle_time


def test_relay_sends_its_first_hello_soon_after_its_objects_arrived() -> None:
    """However long it waited for them: the relays below it wait for that hello."""
    history = History()
    history.some(2)
    rig = Rig(history)
    while rig.now < 190.0:
        rig.wait(0.5)
    assert rig.sync is not None
    assert rig.broadcasts == []
    rig.do(rig.relay.sync_done(rig.sync.number, history.answer(rig.sync.wants), rig.now))
    while not rig.broadcasts:
        due = rig.relay.next_time()
        assert due <= 190.5 + CALM.round_trip
        rig.wait(max(due - rig.now, 0.0))
    assert rig.broadcasts[0].store == history.point


def test_rule_r1_relay_with_a_silent_parent_sends_hellos_with_their_age() -> None:
    """Its clock thread is late each time, as every thread is."""
    _, rig = relaying()
    rig.broadcasts.clear()
    until = rig.now + 4 * CALM.max_idle_time
    while rig.now < until:
        rig.wait(max(rig.relay.next_time() - rig.now, 0.0) + 0.002)
    assert len(rig.broadcasts) == 3
    assert rig.broadcasts[-1].age >= 3 * CALM.max_idle_time
    assert len(rig.asked) < 20, "it asks above once for each hello, beside its regular requests"


class Looks:
    """Counts the topics that the relay looks at."""

    def __init__(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = 0
        serves, head = rig.relay.contents.serves, rig.relay.contents.head

        def looked(topic: str) -> bool:
            self.number += 1
            return serves(topic)

        def read(topic: str) -> Head:
            self.number += 1
            return head(topic)

        monkeypatch.setattr(rig.relay.contents, "serves", looked)
        monkeypatch.setattr(rig.relay.contents, "head", read)


MANY = tuple(f"t{number}" for number in range(300))


@pytest.mark.parametrize("waits", ["hello request", "question"])
def test_link_passes_without_a_look_at_all_topics_while_the_proofs_are_renewed(
    waits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    history, rig = relaying(MANY)
    rig.now += 2 * CALM.reading_age
    if waits == "question":
        wants = {topic: Want() for topic in MANY}
        rig.do(rig.relay.sync_requested("child", StartSync(1, wants, {}, True), rig.now))
    else:
        rig.ask(*MANY)
    assert (rig.hellos, rig.answers) == ([], [])
    links = history.some(50, "t7")
    looks = Looks(rig, monkeypatch)
    rig.feed(*links)
    assert rig.sent[-50:] == links
    assert looks.number <= 3 * len(links)
    rig.wait(CALM.round_trip)
    assert rig.hellos or rig.answers, "with the true age"


def test_hello_reply_costs_a_look_at_its_own_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    _, rig = relaying(MANY)
    looks = Looks(rig, monkeypatch)
    for topic in MANY[:20]:
        rig.ask(topic)
    assert len(rig.hellos) == 20
    assert looks.number <= 5 * 20


def test_progress_of_a_relay_has_the_heads_of_all_topics() -> None:
    history, rig = relaying(("a", "b"))
    rig.feed(*history.some(2, "a"))
    progress = rig.relay.sequencer.progress()
    assert progress.sequences == {"a": 2}
    assert progress.heads is not None
    assert progress.heads.topics == history.heads


# -- rule R6 -----------------------------------------------------------------------------------------------------


def test_rule_r6_hello_names_the_publishers_above_the_nearest_first() -> None:
    _, rig = relaying()
    rig.prove(uuid=OTHER, path=(bytes(range(16)),))
    rig.ask("t")
    assert rig.hellos[-1].path == (bytes.fromhex(OTHER), bytes.fromhex(UUID), bytes(range(16)))


def test_rule_r6_relay_refuses_a_parent_that_is_below_it() -> None:
    history, rig = relaying()
    before = rig.relay.contents.proof("t")
    rig.now += 1.0
    rig.wait(CALM.max_idle_time)
    step = rig.prove(uuid=OTHER, path=(bytes.fromhex(UUID), bytes.fromhex(OWN)))
    assert step.loop == ("api-1", OTHER)
    assert rig.relay.contents.proof("t") == before
    link = history.one()
    step = rig.relay.feed(envelope(link, uuid=OTHER), rig.now)
    assert (step.loop, step.envelopes) == (("api-1", OTHER), ())
    assert rig.prove(uuid=OTHER).loop is None, "it has another parent now"


def test_rule_r6_publisher_that_is_silent_leaves_the_path() -> None:
    _, rig = relaying()
    assert rig.relay.path(rig.now) == (bytes.fromhex(UUID),)
    assert rig.relay.path(rig.now + CALM.stale_after + 1.0) == ()


def test_rule_r6_parent_that_was_left_leaves_the_path_at_once() -> None:
    """That parent may choose this relay now."""
    _, rig = relaying()
    rig.relay.parent_changed()
    rig.prove(uuid=OTHER)
    rig.relay.parent_changed()
    assert rig.relay.path(rig.now) == ()
    rig.wait(1.0)
    rig.prove()
    assert rig.relay.hello({"t": 0}, rig.now, nonce="", goodbye=False).path == (bytes.fromhex(UUID),)


def test_rule_r6_parent_that_is_chosen_again_is_judged_by_its_next_hello() -> None:
    """A link of it may arrive before the hello reply."""
    history, rig = relaying()
    assert rig.prove(uuid=OTHER, path=(bytes.fromhex(OWN),)).loop is not None
    rig.relay.parent_changed()
    link = history.one()
    assert rig.do(rig.relay.feed(envelope(link, uuid=OTHER), rig.now)).loop is None
    assert rig.sent == [link]
    assert rig.prove(uuid=OTHER, path=(bytes.fromhex(OWN),)).loop is not None


# -- answers -----------------------------------------------------------------------------------------------------


def test_relay_answers_a_delta_from_its_log() -> None:
    history, rig = relaying()
    known = history.head("t")
    links = history.some(2)
    rig.feed(links[0])
    rig.now += 0.25
    rig.feed(links[1])
    rig.question(Want(after=known))
    [(asker, answer)] = rig.answers
    assert asker == "child"
    assert answer is not None
    part = answer.chains["t"]
    assert isinstance(part, Delta)
    assert (part.links, part.head) == (links, history.head("t"))
    assert answer.ages is not None
    assert answer.ages["t"].applied == 0.25


def test_relay_has_the_links_that_a_replica_misses_while_it_changes_its_parent() -> None:
    """At 60 transactions a second: until its parent is left, and this one has proved it fresh."""
    history, rig = relaying()
    known = history.head("t")
    missed = history.some(int(60 * (CALM.stale_after + CALM.max_idle_time)))
    for link in missed:
        rig.do(rig.relay.feed(envelope(link), rig.now))
    rig.question(Want(after=known))
    part = rig.part()
    assert isinstance(part, Delta)
    assert part.links == missed


def test_logs_of_all_topics_have_one_bound() -> None:
    topics = tuple(f"t{number}" for number in range(20))
    history, rig = relaying(topics)
    space = rig.relay.contents._space
    space._max_bytes = 20_000
    value = '"' + "x" * 200 + '"'
    for _ in range(10):
        for topic in topics:
            rig.feed(history.one(topic, value=value))
            rig.relay.contents.log()
            assert space.used <= 20_000
    assert space.used > 15_000
    last = [len(rig.relay.contents._logs[topic]) for topic in topics]
    assert max(last) - min(last) <= 1, "each topic's log reaches back as far"


def test_relay_that_was_started_again_answers_with_older_links_that_it_read() -> None:
    history, _ = relaying()
    known = history.head("t")
    links = history.some(3)
    again = Rig(history).synced()
    wants = {"t": Want(after=known)}
    again.question(wants["t"])
    assert isinstance(again.part(), Incomplete)
    contents = again.relay.contents
    assert contents.lacking({**wants, "unknown": Want(after=known)}) == wants
    again.now += 0.5
    contents.join(msgspec.structs.replace(history.answer(wants), store_id=b"\1" * 16), again.now, again.now)
    assert contents.lacking(wants) == wants, "the links of another store are not used"
    older = msgspec.structs.replace(history.answer(wants), asked_after=0.75)
    contents.join(older, again.now - 1.0, again.now)
    assert contents.lacking(wants) == {}
    answer = contents.answer(Question("child", wants, False, again.now, {}), again.now)
    assert answer is not None
    part = answer.chains["t"]
    assert isinstance(part, Delta)
    assert (part.links, part.head) == (links, history.head("t"))
    assert answer.ages is not None
    assert answer.ages["t"].applied == 0.25


def test_relay_answers_a_delta_from_another_history_as_incomplete() -> None:
    _, rig = relaying()
    rig.question(Want(after=Point(2, 99)))
    assert isinstance(rig.part(), Incomplete)


def test_rule_r2_relay_that_lags_states_where_it_is() -> None:
    history, rig = relaying()
    head = history.head("t")
    rig.question(Want(after=Point(9, 99)))
    assert rig.part() == Delta([], head)


def test_rule_r3_relay_renews_its_proof_before_a_full_answer() -> None:
    history, rig = relaying()
    rig.now += 0.1
    rig.question(Want())
    assert rig.answers == []
    rig.now += 0.25
    rig.prove()
    [(_, answer)] = rig.answers
    assert answer is not None
    part = answer.chains["t"]
    assert isinstance(part, Full)
    assert [(each.key, each.version) for each in part.topics["t"].records] == [("k0", 1), ("k1", 2)]
    assert answer.ages is not None
    assert answer.ages["t"].age == 0.0
    assert part.head == history.head("t")


def test_relay_answers_with_its_age_when_no_proof_comes_in_time() -> None:
    _, rig = relaying()
    rig.now += 3.0
    rig.question(Want(), refresh=True)
    rig.wait(CALM.round_trip)
    [(_, answer)] = rig.answers
    assert answer is not None
    assert answer.ages is not None
    assert answer.ages["t"].age >= 3.0


def test_relay_leaves_out_of_an_answer_what_it_does_not_have() -> None:
    _, rig = relaying(("a", "b"))
    rig.relay.state.resync(["a"], rig.now)
    wants = {"a": Want(after=Point(2, 1)), "b": Want(after=Point(2, 1)), "unknown": Want()}
    step = rig.relay.sync_requested("child", StartSync(1, wants, {}), rig.now)
    assert step.unfollowed == ["unknown"]
    rig.do(step)
    rig.wait(CALM.round_trip)
    [(_, answer)] = rig.answers
    assert answer is not None
    assert answer.ages is not None
    assert (set(answer.chains), set(answer.ages)) == ({"b"}, {"b"})
    assert rig.relay.unserved == 1


def test_relay_that_has_nothing_of_a_question_lets_the_sync_fail() -> None:
    _, rig = relaying()
    rig.question(Want(), topic="unknown")
    assert rig.answers == [("child", None)]


def test_rule_r3_time_of_a_link_is_handed_on_by_relays() -> None:
    """A relay that got a link from another one does not have it for less time than that one."""
    history, above = relaying()
    below = Rig(history).synced()
    known = history.head("t")
    above.feed(history.one())
    above.now += 30.0
    below.now += 30.0
    below.relay.state.tracker.verify(below.now)
    below.wait(0.0)
    assert below.sync is not None
    above.do(above.relay.sync_requested("below", below.sync, above.now))
    above.wait(CALM.round_trip)
    [(_, answer)] = above.answers
    assert answer is not None
    below.do(below.relay.sync_done(below.sync.number, answer, below.now))
    below.question(Want(after=known))
    below.wait(CALM.round_trip)
    [(_, answer)] = below.answers
    assert answer is not None
    assert answer.ages is not None
    assert answer.ages["t"].applied >= 30.0


# -- just after the start ------------------------------------------------------------------------------------------

SETTLING = 30.0


def test_restarted_relay_costs_a_replica_that_connects_late_one_delta() -> None:
    """The replica polls the started relay before its driver has connected: a delta then would lack the next link."""
    history = History()
    history.some(2)
    below = Bench(history).synced()
    rig = Rig(history, settling=SETTLING).synced()
    rig.feed(*history.some(2))
    below.wait(CALM.stale_after)
    polled = below.running
    rig.do(rig.relay.sync_requested("below", polled, rig.now))
    rig.wait(0.1)
    rig.feed(history.one())  # lost for the replica
    rig.ask_again(polled.nonce)
    [(_, answer)] = rig.answers
    below.answer(answer)
    last = history.one()
    rig.feed(last)
    below.feed(last)
    below.receive(history.reading(), nonce=polled.nonce)
    below.wait(CALM.message_delay_window)
    assert below.known() == history.head("t")
    assert len([sync for sync in below.syncs if sync.wants["t"].after is not None]) == 1, below.syncs


def test_started_relay_answers_a_replica_that_receives_its_links_at_once() -> None:
    history, rig = started()
    rig.ask_again("asked")
    rig.question(Want(after=history.head("t")), nonce="asked")
    assert len(rig.answers) == 1


def test_started_relay_answers_all_objects_and_replicas_without_a_nonce_at_once() -> None:
    history, rig = started()
    rig.question(Want(after=history.head("t")))
    assert len(rig.answers) == 1
    rig.question(Want(), nonce="not asked")
    rig.wait(0.0)
    rig.prove()
    assert len(rig.answers) == 2


def test_started_relay_holds_a_delta_for_a_bounded_time() -> None:
    history, rig = started()
    rig.question(Want(after=history.head("t")), nonce="not asked")
    rig.ask_again("of another one")
    held = rig.relay.settled_at
    rig.wait(held - 0.001 - rig.now)
    assert rig.answers == []
    assert rig.relay.next_time() <= held
    rig.wait(held - rig.now)
    assert len(rig.answers) == 1
    rig.prove()
    rig.question(Want(after=history.head("t")), nonce="not asked")
    assert len(rig.answers) == 2


def test_released_question_waits_for_a_young_proof() -> None:
    history, rig = started()
    rig.question(Want(after=history.head("t")), refresh=True, nonce="asked")
    rig.wait(5 * CALM.reading_age)
    rig.ask_again("asked")
    assert rig.answers == []
    rig.prove()
    [(_, answer)] = rig.answers
    assert answer is not None
    assert answer.ages is not None
    assert answer.ages["t"].age == -5 * CALM.reading_age, "the age is that at the question's arrival"


def started() -> tuple[History, Rig]:
    """A relay that was just started, and has two links."""
    history = History()
    history.some(2)
    return history, Rig(history, settling=SETTLING).synced()
