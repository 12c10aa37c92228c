"""Answers of relays against rules R1 to R4, in virtual time: how old they are, and which of them count."""

import random

import msgspec
import pytest

from pubsub_lib.core.answer_time import lacking
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, ZERO, AnswerAge, Delta, Full, Incomplete, Point, SyncAnswer, Want
from pubsub_lib.core.transitions import State
from tests.unit.core.builders import CALM, Bench, History

INFINITE = float("inf")


def following(topic: str = "t", limits: Limits = Limits()) -> tuple[History, Bench]:  # noqa: B008 - frozen
    """A store with two links, and a replica that has them since long ago."""
    history = History()
    history.some(2, "t")
    bench = Bench(history, (topic,), limits=limits).synced()
    bench.now += 50.0
    return history, bench


def begun(bench: Bench) -> float:
    """A delta sync begins; returns when."""
    bench.tracker.verify(bench.now)
    bench.wait()
    assert bench.is_syncing()
    return bench.now


def by_relay(
    history: History, bench: Bench, age: float, *, least: float | None = None, applied: float = INFINITE,
    asked_after: float = 0.0,
) -> SyncAnswer:  # fmt: skip
    """The answer of a relay that has this history, and proved it ``age`` seconds before the question arrived."""
    answer = history.answer(bench.running.wants)
    ages = {name: AnswerAge(age, age if least is None else least, applied) for name in answer.chains}
    return SyncAnswer(answer.store, answer.chains, answer.store_id, ages, asked_after)


def prove(history: History, bench: Bench) -> float:
    """A hello proves what the replica has; returns the latest moment that the proof may be of."""
    nonce = bench.ask().nonce
    if bench.is_syncing():
        bench.answer()  # it polled
    bench.receive(history.reading(), nonce=nonce)
    return bench.now


# -- rule R1 -----------------------------------------------------------------------------------------------------


def test_rule_r1_delta_of_a_relay_proves_what_it_proved_before_the_question() -> None:
    history, bench = following()
    asked = begun(bench)
    bench.now += 1.0
    bench.answer(by_relay(history, bench, 4.0))
    assert bench.staleness() == pytest.approx(bench.now - asked + 4.0)


def test_rule_r1_proof_after_the_question_counts_from_then_on() -> None:
    history, bench = following()
    begun(bench)
    bench.now += 1.0
    bench.answer(by_relay(history, bench, -0.75, least=0.1))
    assert bench.staleness() == pytest.approx(0.25)


def test_rule_r1_proof_is_never_of_the_future() -> None:
    history, bench = following()
    begun(bench)
    bench.answer(by_relay(history, bench, -9.0))
    assert bench.staleness() == 0.0


def test_rule_r1_primary_proves_the_moment_of_the_question() -> None:
    _, bench = following()
    begun(bench)
    bench.now += 1.0
    bench.answer()
    assert bench.staleness() == pytest.approx(1.0)


@pytest.mark.parametrize("relayed", [False, True])
def test_rule_r1_answer_counts_from_the_question_to_the_server_that_answered(relayed: bool) -> None:
    """Another server was asked before, and hung for 6 s."""
    history, bench = following()
    asked = begun(bench) + 6.0
    bench.now += 7.0
    answer = by_relay(history, bench, 0.5, asked_after=6.0)
    bench.answer(answer if relayed else msgspec.structs.replace(answer, ages=None))
    assert bench.staleness() == pytest.approx(bench.now - asked + (0.5 if relayed else 0.0))


def test_rule_r1_answer_of_unknown_age_is_no_proof() -> None:
    history = History()
    history.some(2)
    bench = Bench(history)
    bench.wait(CALM.hello_wait)
    answer = history.answer(bench.running.wants)
    bench.answer(SyncAnswer(answer.store, answer.chains, answer.store_id, {}))
    assert bench.known() == history.head("t")
    assert bench.is_synced()
    assert bench.staleness() == INFINITE


def test_rule_r1_proof_keeps_the_latest_moment_that_it_may_be_of() -> None:
    history, bench = following()
    begun(bench)
    bench.now += 1.0
    bench.answer(by_relay(history, bench, 4.0, least=2.0))
    assert bench.tracker.freshness.of["t"].latest == bench.now - 2.0


def test_rule_r1_proof_by_a_publishers_hello_may_be_of_the_moment_of_its_arrival() -> None:
    history, bench = following()
    received = prove(history, bench)
    assert bench.tracker.freshness.of["t"].latest == received


# -- rule R2 -----------------------------------------------------------------------------------------------------


def test_rule_r2_later_answer_behind_known_shows_another_history() -> None:
    history, bench = following()
    bench.feed(history.one())
    restored = history.restored(1)
    bench.now += 5.0
    begun(bench)
    bench.now += 1.0
    bench.answer(SyncAnswer(restored.point, {"t": Delta([], restored.head("t"))}, ages={"t": AnswerAge(-0.5, 0.1)}))
    assert bench.state() is State.FULL_DUE
    assert bench.tracker.syncs.next_time() <= bench.now, "the full sync begins at once"


def test_rule_r2_earlier_answer_behind_known_is_no_proof_and_no_other_history() -> None:
    history, bench = following()
    lagging = history.restored(2)
    bench.feed(history.one())
    begun(bench)
    bench.now += 1.0
    before = bench.staleness()
    bench.answer(SyncAnswer(lagging.point, {"t": Delta([], lagging.head("t"))}, ages={"t": AnswerAge(9.0, 9.0)}))
    assert bench.state() is State.DELTA_DUE
    assert bench.staleness() == before
    assert bench.tracker.counters.refused == 1


def test_rule_r2_delta_that_links_overtook_during_the_sync_is_dropped() -> None:
    history, bench = following()
    begun(bench)
    answer = by_relay(history, bench, 0.0)
    bench.now += 1.0
    bench.feed(history.one())
    bench.answer(answer)
    assert bench.state() is State.FOLLOWING
    assert bench.tracker.counters.refused == 0


def test_rule_r2_answer_at_knowns_position_with_another_nonce_shows_another_history() -> None:
    history, bench = following()
    other = history.restored(1, seed=9)
    other.one()
    begun(bench)
    ages = {"t": AnswerAge(30.0, 30.0)}
    bench.answer(SyncAnswer(other.point, {"t": Delta([], other.head("t"))}, ages=ages))
    assert bench.state() is State.FULL_DUE


# -- rule R3 -----------------------------------------------------------------------------------------------------


def resynced(bench: Bench) -> None:
    """A full sync begins."""
    bench.tracker.resync(["t"], bench.now)
    bench.wait()
    assert bench.running.wants["t"].after is None


def test_rule_r3_full_answer_must_be_newer_than_the_proof() -> None:
    history, bench = following()
    proved = prove(history, bench)
    bench.now += 1.0
    resynced(bench)
    bench.answer(by_relay(history, bench, bench.now - proved))
    assert bench.state() is State.FULL_DUE
    bench.wait(CALM.max_sync_backoff)
    bench.answer(by_relay(history, bench, bench.now - proved - 0.01))
    assert bench.state() is State.FOLLOWING


@pytest.mark.parametrize("counted", [False, True])
def test_rule_r3_delta_counts_although_hellos_came_while_another_server_hung(counted: bool) -> None:
    """Under writes these name heads on the way to that of the answer."""
    history, bench = following()
    first = begun(bench)
    history.some(1, "t")
    bench.receive(history.reading(), nonce=bench.ask().nonce)
    bench.now += 2.0
    history.some(1, "t")
    hung = bench.now - first
    bench.answer(by_relay(history, bench, 0.5, applied=hung + 0.5, asked_after=hung if counted else 0.0))
    assert (bench.known() == history.head("t")) is counted


def test_rule_r3_full_answer_must_be_newer_than_known() -> None:
    history, bench = following()
    lagging = history.restored(2)
    bench.now += 1.0
    bench.feed(history.one())
    reached = bench.now
    bench.now += 1.0
    resynced(bench)
    bench.answer(by_relay(lagging, bench, bench.now - reached))
    assert bench.known() == history.head("t")
    assert bench.state() is State.FULL_DUE


def test_rule_r3_any_full_answer_counts_while_nothing_is_known() -> None:
    history = History()
    history.some(2)
    bench = Bench(history)
    bench.wait(CALM.hello_wait)
    bench.answer(by_relay(history, bench, 1000.0))
    assert bench.known() == history.head("t")


def test_rule_r3_changes_older_than_the_proof_are_refused() -> None:
    history, bench = following()
    dead = history.restored(2)
    dead.one()
    proved = prove(history, bench)
    bench.now += 1.0
    begun(bench)
    assert bench.answer(by_relay(dead, bench, bench.now - proved, applied=bench.now - proved)) == []
    assert bench.known() == history.head("t")
    assert bench.state() is State.DELTA_DUE


def test_rule_r3_changes_that_the_relay_had_after_the_proof_are_used() -> None:
    history, bench = following()
    proved = prove(history, bench)
    later = history.one()
    bench.now += 1.0
    begun(bench)
    assert bench.answer(by_relay(history, bench, 9.0, applied=bench.now - proved - 0.01)) == [later]


def test_rule_r3_changes_of_an_answer_newer_than_the_proof_are_used() -> None:
    history, bench = following()
    proved = prove(history, bench)
    later = history.one()
    bench.now += 1.0
    begun(bench)
    assert bench.answer(by_relay(history, bench, bench.now - proved - 0.01)) == [later]


def test_rule_r3_links_without_changes_must_be_newer_than_the_proof() -> None:
    history, bench = following()
    proved = prove(history, bench)
    bridge = history.commit(("t", "k9", "1"))[0]
    empty = SyncAnswer(
        history.point,
        {"t": Delta([type(bridge)("t", bridge.prev, bridge.point, [], 2, 0, bridge.tx_prev, 1)], bridge.point)},
        ages={"t": AnswerAge(9.0, 9.0, applied=0.0)},
    )
    bench.now += 1.0
    begun(bench)
    assert proved < bench.now
    assert bench.answer(empty) == []
    assert bench.state() is State.DELTA_DUE


def test_rule_r3_refused_answer_is_a_failed_sync_and_the_next_asks_for_a_new_proof() -> None:
    history, bench = following()
    dead = history.restored(2)
    dead.one()
    prove(history, bench)
    bench.now += 1.0
    begun(bench)
    assert not bench.running.refresh
    bench.answer(by_relay(dead, bench, 5.0))
    assert bench.tracker.syncs.failures == 1
    bench.wait(CALM.sync_backoff / 2)
    assert not bench.is_syncing()
    bench.wait(CALM.sync_backoff)
    assert bench.running.refresh


def test_rule_r3_does_not_hold_for_the_primary() -> None:
    history, bench = following()
    begun(bench)
    later = history.one()
    answer = history.answer(bench.running.wants)
    bench.now += 1.0
    bench.tracker.freshness.of["t"].latest = bench.now
    assert bench.answer(answer) == [later]


def test_rule_r3_refused_chain_does_not_hold_up_another_one() -> None:
    history = History()
    history.some(2, "a")
    history.some(2, "b")
    bench = Bench(history, ("a", "b")).synced()
    bench.now += 50.0
    prove(history, bench)
    later = history.one("b")
    bench.now += 1.0
    history.one("a")
    begun(bench)
    answer = history.answer(bench.running.wants)
    ages = {"a": AnswerAge(50.0, 50.0), "b": AnswerAge(-0.1, 0.0)}
    assert bench.answer(SyncAnswer(answer.store, answer.chains, ages=ages)) == [later]
    assert (bench.state("a"), bench.state("b")) == (State.DELTA_DUE, State.FOLLOWING)


def test_rule_r3_delta_that_passes_the_head_of_a_later_reading_is_used_up_to_it() -> None:
    history, bench = following()
    undone = history.restored(2, seed=5)
    kept = undone.one()
    history = undone.restored(3)
    undone.one()
    undone.one()
    bench.receive(history.reading(), nonce=bench.ask().nonce)  # its head is beyond known: the reading is pending
    bench.now += 1.0
    if not bench.is_syncing():
        begun(bench)
    assert bench.answer(by_relay(undone, bench, 30.0, applied=30.0)) == [kept]
    assert bench.known() == history.head("t")


def asked(bench: Bench) -> str:
    """The nonce of a hello request that is sent now."""
    bench.do(bench.tracker.request_hellos(bench.now))
    return bench.requests[-1].nonce


def test_rule_r3_delta_beyond_the_head_that_a_relays_hello_named_needs_no_other_delta() -> None:
    """Under writes: the links after that head are on their way, and the relay has no newer proof."""
    history, bench = following()
    nonce, _ = asked(bench), history.some(2)
    bench.receive(history.reading(), nonce=nonce, age=0.1)
    begun(bench)
    later = history.some(2)
    assert len(bench.answer(by_relay(history, bench, 0.1, least=0.0, applied=5.0))) == 2
    syncs = len(bench.syncs)
    bench.feed(*later)
    bench.wait(2 * CALM.message_delay_window)
    assert bench.known() == history.head("t")
    assert (len(bench.syncs), bench.state()) == (syncs, State.FOLLOWING)
    assert (bench.tracker.counters.refused, bench.tracker.syncs.failures) == (0, 0)


def test_rule_r3_begin_of_a_delta_proves_no_more_than_the_reading_it_leads_to() -> None:
    history, bench = following()
    nonce, first = asked(bench), history.one()
    bench.receive(history.reading(), nonce=nonce, age=2.0)
    proved, verified = bench.now - 2.0, bench.tracker.freshness.of["t"].verified_at
    history.one()
    begun(bench)
    assert bench.answer(by_relay(history, bench, 0.5, least=0.0, applied=60.0)) == [first]
    assert bench.staleness() == pytest.approx(bench.now - proved)
    assert bench.tracker.covered() == first.point.position
    assert bench.tracker.freshness.of["t"].verified_at == verified


def test_rule_r3_delta_that_the_relay_had_after_the_proof_is_used_up_to_the_next_head() -> None:
    history, bench = following()
    old = bench.ask()
    proved = prove(history, bench)
    bench.now += 0.5
    first = history.one()
    bench.receive(history.reading(), nonce=old.nonce)  # read at any time since the request
    history.one()
    begun(bench)
    assert bench.answer(by_relay(history, bench, 30.0, applied=bench.now - proved - 0.01)) == [first]


def test_rule_r3_reading_that_is_not_newer_than_the_proof_saves_no_delta() -> None:
    history, bench = following()
    old = bench.ask()
    prove(history, bench)
    bench.now += 0.5
    history.one()
    bench.receive(history.reading(), nonce=old.nonce)  # read at any time since the request
    history.one()
    begun(bench)
    assert bench.answer(by_relay(history, bench, 30.0, applied=30.0)) == []
    assert (bench.state(), bench.tracker.counters.refused) == (State.DELTA_DUE, 1)


def test_rule_r3_delta_is_used_up_to_the_reading_that_is_newer_than_those_before_it() -> None:
    history, bench = following()
    nonce, first = asked(bench), history.one()
    bench.receive(history.reading(), nonce=nonce)
    history.one()
    bench.now += 0.1
    bench.receive(history.reading(), nonce=nonce)  # perhaps of the time before the other one
    history.one()
    begun(bench)
    assert bench.answer(by_relay(history, bench, 60.0, applied=60.0)) == [first]


def test_rule_r3_delta_to_the_head_of_a_newer_reading_is_used() -> None:
    history, bench = following()
    nonce, first = asked(bench), history.one()
    bench.receive(history.reading(), nonce=nonce)
    begun(bench)
    assert bench.answer(by_relay(history, bench, 60.0, applied=60.0)) == [first]
    assert bench.state() is State.FOLLOWING


def test_rule_r3_late_hello_behind_a_relays_older_delta_proves_nothing() -> None:
    history, bench = following()
    undone = history.restored(2, seed=5)
    undone.one()
    begun(bench)
    ask = bench.ask()
    bench.now += 0.1
    bench.answer(by_relay(undone, bench, 9.0, applied=9.0))
    assert bench.known() == undone.head("t")
    before = bench.staleness()
    bench.receive(history.reading(), nonce=ask.nonce)
    assert bench.staleness() == before
    ask = bench.ask()
    bench.receive(history.reading(), nonce=ask.nonce)
    assert bench.tracker.counters.foreign == 1, "the next hello shows the changed history"


def test_rule_r3_chain_that_a_relay_leaves_out_is_a_failed_sync() -> None:
    history, bench = following()
    begun(bench)
    bench.answer(SyncAnswer(history.point, {}, ages={}))
    assert bench.state() is State.DELTA_DUE
    assert (bench.tracker.counters.refused, bench.tracker.counters.syncs_failed) == (0, 1)
    assert bench.tracker.syncs.failure.startswith("the answer lacks the topic 't'; ")


def test_sentence_about_an_answer_names_a_few_of_the_topics_that_it_lacks() -> None:
    assert lacking(["b", "a"]).startswith("the answer lacks the topics 'a', 'b'; ")
    assert lacking(list("hgfedcba")).startswith("the answer lacks the topics 'a', 'b', 'c', 'd', 'e' and 3 more; ")


def test_rule_r3_answer_that_is_only_not_newer_is_no_failed_sync() -> None:
    history, bench = following()
    lagging = history.restored(2)
    bench.feed(history.one())
    begun(bench)
    bench.answer(SyncAnswer(lagging.point, {"t": Delta([], lagging.head("t"))}, ages={"t": AnswerAge(9.0, 9.0)}))
    assert (bench.tracker.counters.refused, bench.tracker.counters.syncs_failed) == (1, 0)
    assert (bench.tracker.syncs.failures, bench.tracker.syncs.failure) == (1, "")


# -- rule R4 -----------------------------------------------------------------------------------------------------


def test_rule_r4_what_was_received_after_the_answers_moment_still_waits() -> None:
    history, bench = following()
    lagging = history.restored(2)
    history.one()
    bench.now += 1.0
    bench.feed(history.one("t", "x"))  # waits for the link before it
    assert bench.state() is State.HOLDING
    bench.now += 0.5
    begun(bench)
    bench.answer(by_relay(lagging, bench, 1.0))
    assert bench.state() is State.HOLDING
    assert bench.tracker.chain("t").reorder_buffer.messages == 1


def test_rule_r4_link_that_did_not_fit_in_after_the_answers_moment_is_still_missed() -> None:
    history, bench = following(limits=Limits(max_waiting_bytes=1))
    lagging = history.restored(2)
    history.one()
    bench.now += 1.0
    bench.feed(history.one("t", "x"))
    assert (bench.tracker.counters.overflowed, bench.tracker.chain("t").reorder_buffer.messages) == (1, 0)
    bench.wait()
    bench.answer(by_relay(lagging, bench, 1.0))
    assert bench.state() is State.HOLDING
    bench.wait(CALM.message_delay_window)
    bench.answer()
    assert bench.known() == history.point


def test_rule_r4_what_was_received_before_the_answers_moment_is_dropped() -> None:
    history, bench = following()
    undone = history.restored(2, seed=5)
    undone.one()
    bench.feed(undone.one("t", "x"))
    bench.now += 0.5
    begun(bench)
    bench.answer(by_relay(history, bench, 0.25))
    assert bench.state() is State.FOLLOWING
    assert bench.tracker.chain("t").reorder_buffer.messages == 0


def test_rule_r4_proof_after_the_question_also_covers_what_came_since() -> None:
    history, bench = following()
    undone = history.restored(2, seed=5)
    undone.one()
    begun(bench)
    bench.now += 0.5
    bench.feed(undone.one("t", "x"))
    bench.now += 0.5
    bench.answer(by_relay(history, bench, -0.75, least=0.1))
    assert bench.state() is State.FOLLOWING


def test_rule_r4_begin_of_a_delta_covers_nothing_after_the_reading_it_leads_to() -> None:
    """The answer's moment is later than that reading: a link in between is in neither."""
    history, bench = following()
    nonce, _ = asked(bench), history.one()
    reading = history.reading()
    history.one()
    bench.now += 0.5
    bench.feed(history.one())  # the link before it was lost
    bench.now += 0.5
    bench.receive(reading, nonce=nonce)
    begun(bench)
    assert len(bench.answer(by_relay(history, bench, 0.25, least=0.0, applied=60.0))) == 1
    assert bench.known() == reading.topics["t"].point
    assert bench.tracker.chain("t").reorder_buffer.messages == 1
    assert bench.state() is State.HOLDING


def test_rule_r4_begin_of_a_delta_covers_what_was_received_before_the_reading_it_leads_to() -> None:
    """Else that reading would prove a link that a restore has undone before it."""
    history, bench = following()
    kept = history.one()
    undone = history.restored(3, seed=5)
    bench.feed(undone.one())  # it waits for the link before it
    bench.now += 0.1
    bench.receive(history.reading(), nonce=asked(bench))
    begun(bench)
    assert bench.answer(by_relay(undone, bench, 30.0, applied=60.0)) == [kept]
    assert bench.known() == history.head("t")
    assert bench.state() is State.FOLLOWING


# -- rule 6 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("relayed", "requests"), [(True, 1), (False, 0)])
def test_rule_06_relays_answer_after_a_connection_replaces_no_hello_request(relayed: bool, requests: int) -> None:
    """Only a hello reply of the parent ends the polls: they would bring links that are on their way again."""
    history, bench = following()
    bench.tracker.connected(bench.now)
    begun(bench)
    bench.answer(by_relay(history, bench, 0.0) if relayed else None)
    before = len(bench.requests)
    bench.wait(CALM.connect_jitter)
    assert len(bench.requests) == before + requests


# -- all of them, at random --------------------------------------------------------------------------------------


class Truth:
    """The store's heads over time, and when each point was committed."""

    def __init__(self) -> None:
        self.history = History(1)
        self.shown: list[tuple[float, Point]] = [(0.0, ZERO)]
        self.parents: dict[Point, Point] = {}
        self.committed: dict[Point, float] = {ZERO: 0.0}

    def commit(self, now: float, key: str) -> None:
        """One more transaction."""
        link = self.history.one("t", key)
        self.parents[link.point], self.committed[link.point] = link.prev, now
        self.shown.append((now, link.point))

    def restore(self, now: float, position: int, seed: int) -> None:
        """The store goes back."""
        self.history = self.history.restored(position, seed)
        self.shown.append((now, self.history.head("t")))

    def is_honest(self, known: Point, since: float, *, late: bool) -> bool:
        """Whether ``known`` is what the store showed at some moment since then, or that and later commits. ``late``: or
        that and links that were received before, which a restore may have undone.
        """
        for index, (at, head) in enumerate(self.shown):
            ended = self.shown[index + 1][0] if index + 1 < len(self.shown) else INFINITE
            if ended < since:
                continue
            point, later = known, True
            while point != head and point != ZERO:
                later = later and (late or self.committed[point] >= max(at, since) - 1e-9)
                point = self.parents[point]
            if point == head and later:
                return True
        return False


class Lagging:
    """A relay: the store's history of some moment."""

    def __init__(self) -> None:
        self.history = History(1)
        self.proved = 0.0
        self.applied: dict[Point, float] = {}

    def catch_up(self, truth: Truth, now: float) -> None:
        """Read the store now."""
        self.history = truth.history.restored(truth.history.point.position)
        self.proved = now
        have = {link.point for link in self.history.links}
        self.applied = {point: at for point, at in self.applied.items() if point in have}
        for point in have:
            self.applied.setdefault(point, now)

    def answer(self, wants: dict[str, Want], asked: float, now: float) -> SyncAnswer:
        """Answer from what the relay has, with its age."""
        known = self.history.head("t")
        part = self.history.answer(wants).chains["t"]
        after = wants["t"].after
        if isinstance(part, Incomplete) and after is not None and after.position > known.position:
            part = Delta([], known)  # behind the question: rule R2 judges
        first = part.links[0].point if isinstance(part, Delta) and part.links else None
        applied = asked - self.applied[first] if first is not None else INFINITE
        age = AnswerAge(asked - self.proved, now - self.proved, applied)
        return SyncAnswer(self.history.point, {"t": part}, ages={"t": age})


@pytest.mark.parametrize("seed", [*range(60), 137, 273])
def test_rules_r1_to_r4_never_claim_less_than_the_true_staleness(seed: int) -> None:
    """A replica that syncs from two relays, which lag behind a store that is restored now and then."""
    rng = random.Random(seed)
    truth, relays = Truth(), (Lagging(), Lagging())
    truth.commit(100.0, "a")
    bench = Bench(truth.history)
    used = 0
    heads: set[Point] = set()
    for step in range(120):
        bench.wait(rng.choice((0.0, 0.1, 0.6, 1.3)) + 1e-6)
        dice = rng.random()
        if dice < 0.3:
            truth.commit(bench.now, f"k{step}")
            if rng.random() < 0.4:
                bench.feed(truth.history.links[-1])
        elif dice < 0.36:
            truth.restore(bench.now, rng.randint(0, truth.history.point.position), seed * 1000 + step)
        elif dice < 0.6:
            rng.choice(relays).catch_up(truth, bench.now)
        elif dice < 0.7:
            bench.receive(truth.history.reading(), nonce=bench.requests[-1].nonce)
        elif bench.is_syncing():
            relay, asked = rng.choice(relays), bench.now
            answer = relay.answer(dict(bench.running.wants), asked, asked)
            bench.now += rng.choice((0.0, 0.2))
            used += 1
            bench.answer(answer)
            heads.add(relay.history.head("t"))
        elif rng.random() < 0.3:
            bench.tracker.resync(["t"], bench.now)
        else:
            bench.tracker.verify(bench.now)
        known = bench.known()
        if known is not None and bench.staleness() < INFINITE:
            since = bench.now - bench.staleness()
            assert truth.is_honest(known, since, late=known not in heads), (step, known, since, truth.shown)
    assert used > 5
    for relay in relays:
        relay.catch_up(truth, bench.now + 30.0)
    bench.wait(30.0)
    bench.tracker.verify(bench.now)
    for _ in range(20):
        bench.wait(CALM.max_sync_backoff)
        if bench.is_syncing():
            for relay in relays:
                relay.catch_up(truth, bench.now)
            answer = relays[0].answer(dict(bench.running.wants), bench.now - 0.1, bench.now)
            bench.answer(answer)
    assert bench.known() == truth.history.head("t")


def test_full_of_everything_is_judged_as_one_chain() -> None:
    history, bench = following(ALL)
    prove(history, bench)
    bench.now += 1.0
    bench.tracker.resync([ALL], bench.now)
    bench.wait()
    answer = by_relay(history, bench, 40.0)
    assert isinstance(answer.chains[ALL], Full)
    bench.answer(answer)
    assert bench.state(ALL) is State.FULL_DUE
