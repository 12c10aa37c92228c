"""Rules 6 and 7: hello replies, their proofs, and polling."""

import random
from itertools import pairwise

import pytest

from pubsub_lib.core.answer_time import AnswerTime
from pubsub_lib.core.effects import RequestHello
from pubsub_lib.core.freshness import (
    MAX_PENDING,
    MAX_REQUESTS,
    Freshness,
    FreshnessMonitor,
    HeadReading,
)
from pubsub_lib.core.model import ALL, EMPTY, ZERO, Heads, Point
from pubsub_lib.core.request_portions import REQUEST_TOPICS, cut
from pubsub_lib.core.sequencer import HELLO_TOPICS
from pubsub_lib.core.transitions import State
from tests.unit.core.builders import CALM, Bench, History

IDLE = CALM.max_idle_time
STALE = CALM.stale_after


def following() -> tuple[History, Bench]:
    history = History()
    history.some(2)
    return history, Bench(history).synced()


# -- rule 6 ------------------------------------------------------------------------------------------------------


def test_rule_06_hello_reply_is_requested_every_max_idle_time_busy_or_not() -> None:
    history, bench = following()
    asked: list[float] = []
    before = len(bench.requests)
    for _ in range(160):
        bench.feed(history.one())
        bench.wait(0.25)
        if len(bench.requests) > before:
            before = len(bench.requests)
            bench.receive(history.reading(), nonce=bench.requests[-1].nonce)
            asked.append(bench.now)
    assert len(asked) == int(40 / IDLE)
    assert all(0.9 * IDLE < later - earlier < 1.1 * IDLE for earlier, later in pairwise(asked))


def test_rule_06_every_hello_request_has_a_new_nonce_and_names_all_topics() -> None:
    history = History()
    bench = Bench(history, ("a", "b")).synced()
    for _ in range(20):
        bench.ask()
        if bench.is_syncing():
            bench.answer()
    rounds = bench.requests[1:]
    assert len({request.nonce for request in bench.requests}) == len(bench.requests)
    assert all(set(request.topics) == {"a", "b"} for request in rounds)


def test_rule_06_replica_of_everything_requests_the_stores_head() -> None:
    request = Bench(History(), (ALL,)).requests[0]
    assert request == RequestHello(request.nonce, (ALL,))


def test_rule_06_broadcast_may_start_the_clock_but_is_no_proof() -> None:
    history, bench = following()
    bench.wait(1.0)
    stale = bench.staleness()
    bench.receive(history.reading())
    assert bench.staleness() == stale
    history.one()
    bench.receive(history.reading())
    assert bench.state() is State.HOLDING


def test_rule_06_reply_to_an_unknown_or_forgotten_request_is_no_proof() -> None:
    history, bench = following()
    first = bench.ask().nonce
    for _ in range(MAX_REQUESTS):
        bench.receive(history.reading(), nonce=bench.ask().nonce)
    stale = bench.staleness()
    bench.wait(1.0)
    history.one()
    for nonce in (first, "0" * 24):
        bench.receive(history.reading(), nonce=nonce)
    assert bench.staleness() == stale + 1.0
    assert bench.state() is State.FOLLOWING, "nor does it start the clock"


def test_rule_06_several_publishers_answer_the_same_request() -> None:
    history, bench = following()
    nonce = bench.ask().nonce
    bench.receive(history.reading(), nonce=nonce, age=0.9)
    bench.receive(history.reading(), nonce=nonce, age=0.1)
    assert bench.staleness() == pytest.approx(0.1)


def test_rule_06_reply_to_a_portion_ends_the_wait_of_its_topics_only() -> None:
    history = History()
    history.one("t0")
    bench = Bench(history, [f"t{number}" for number in range(HELLO_TOPICS + 1)])
    first, last = bench.requests
    bench.receive(Heads(history.point, dict.fromkeys(last.topics, EMPTY)), nonce=last.nonce)
    assert bench.state(last.topics[0]) is State.FULL_DUE
    assert bench.state(first.topics[0]) is State.JOINING


def test_rule_06_replies_of_two_rounds_are_accepted_with_any_number_of_requests() -> None:
    live = FreshnessMonitor(CALM, random.Random(1), 0.0)
    many = REQUEST_TOPICS * (MAX_REQUESTS + 5)
    for number in range(many):
        live.add(str(number), 0.0)
    nonces = []
    for turn in range(6):
        for number, portion in enumerate(cut([str(each) for each in range(many)])):
            nonces.append(f"{turn}.{number}")
            live.request_sent(nonces[-1], portion, float(turn))
    asked = len(nonces) // 6
    assert all(live.request_of(nonce) is not None for nonce in nonces[-2 * asked :])
    assert len([nonce for nonce in nonces if live.request_of(nonce) is not None]) <= 3 * asked


# -- rule 7 ------------------------------------------------------------------------------------------------------


def test_rule_07_reply_proves_as_of_its_request_less_the_readings_age() -> None:
    history, bench = following()
    nonce = bench.ask().nonce
    bench.wait(2.0)
    bench.receive(history.reading(), nonce=nonce, age=0.7)
    assert bench.staleness() == pytest.approx(2.7), "not from its arrival"


def test_rule_07_completed_sync_proves_as_of_its_request() -> None:
    history = History()
    bench = Bench(history)
    assert bench.staleness() == float("inf")
    bench.wait(CALM.hello_wait)
    begun = bench.now
    bench.wait(3.0)
    bench.answer()
    assert bench.staleness() == pytest.approx(bench.now - begun)


def test_rule_07_reply_counts_when_known_reaches_its_head() -> None:
    history, bench = following()
    link = history.one()
    nonce = bench.ask().nonce
    stale = bench.staleness()
    bench.receive(history.reading(), nonce=nonce)
    assert bench.staleness() == stale
    bench.feed(link)
    assert bench.staleness() == 0.0


def test_rule_07_reply_with_a_passed_head_counts_at_once() -> None:
    history, bench = following()
    nonce = bench.ask().nonce
    reading = history.reading()
    bench.feed(*history.some(3))
    bench.receive(reading, nonce=nonce)
    assert bench.staleness() == 0.0


def test_rule_07_reading_of_the_configured_age_counts_on_a_busy_chain() -> None:
    history, bench = following()
    bench.ask()
    reading = history.reading()
    for _ in range(3000):  # links a second
        bench.feed(history.one(key="busy"))
    bench.now += 1.0
    bench.receive(reading, nonce=bench.requests[-1].nonce, age=1.0)
    assert bench.staleness() == pytest.approx(2.0)


def test_rule_07_head_of_another_history_does_not_count() -> None:
    history, bench = following()
    other = history.restored(1)
    other.some(3)
    nonce = bench.ask().nonce
    stale = bench.staleness()
    bench.receive(other.reading(), nonce=nonce)
    bench.feed(*history.some(5))
    assert bench.staleness() == stale


def test_rule_07_no_reply_counts_during_a_full_sync() -> None:
    history, bench = following()
    nonce = bench.ask().nonce
    stale = bench.staleness()
    bench.tracker.mismatched("t", bench.now)
    bench.receive(history.reading(), nonce=nonce)
    assert bench.staleness() == stale


def restored_for(bench: Bench, history: History, position: int) -> History:
    """The store is restored to a position, and the replica reads everything of it."""
    bench.history = history.restored(position)
    bench.receive(bench.history.reading(), nonce=bench.ask().nonce)
    while bench.is_syncing() or bench.tracker.syncs.waits:
        if bench.is_syncing():
            bench.answer()
        bench.wait(max(0.0, bench.tracker.syncs.next_time() - bench.now) if bench.tracker.syncs.waits else 0.0)
    return bench.history


def test_rule_07_full_sync_resets_the_position_covered_by_an_undone_history() -> None:
    fresh = Freshness(100.0)
    fresh.count(HeadReading(100.0, Point(9, 1), publisher=True, latest=100.0), 100.0)
    fresh.restart(Point(2, 7), HeadReading(100.0, Point(2, 7), publisher=False, latest=100.0), 100.0)
    assert fresh.covered == 2, "also at the same clock time"


def test_rule_07_full_sync_drops_pending_readings_of_an_undone_history() -> None:
    history, bench = following()
    behind, ahead = history.some(2)
    history.some(5, "other")
    bench.receive(history.reading(), nonce=bench.ask().nonce)  # of position 9, not here yet
    restored_for(bench, history, 1)
    assert bench.tracker.covered() == 1
    again = history.restored(4)  # another backup, which ends at the head of t
    bench.feed(*again.links[1:2], behind, ahead)
    assert bench.known() == ahead.point
    again.some(3, "other")
    assert bench.tracker.covered() == 4, "positions 5 to 9 belong to an undone history"


def test_rule_07_head_of_an_undone_history_is_no_proof_after_a_full_sync() -> None:
    history, bench = following()
    late = history.reading()
    restored_for(bench, history, 1).some(1)
    stale = bench.staleness()
    bench.wait(1.0)
    nonce = bench.ask().nonce
    asked = bench.now
    bench.receive(late, nonce=nonce)
    assert not bench.tracker.chain("t").passed(late.topics["t"].point)
    assert bench.staleness() > stale + asked - bench.now, "the head of an undone history was taken as a proof"
    assert bench.tracker.freshness.of["t"].proof < asked


def test_rule_07_late_older_reply_does_not_lower_the_proof() -> None:
    history, bench = following()
    early = bench.ask().nonce
    reading = history.reading()
    late = bench.ask().nonce
    bench.receive(history.reading(), nonce=late)
    assert bench.staleness() == 0.0
    bench.wait(0.5)
    bench.receive(reading, nonce=early)
    assert bench.staleness() == pytest.approx(0.5)


def test_rule_07_late_older_reply_starts_no_polling() -> None:
    history, bench = following()
    reading = history.reading()
    early = bench.ask().nonce
    for _ in range(2):
        nonce = bench.ask().nonce
        bench.receive(history.reading(), nonce=nonce)
    bench.receive(reading, nonce=early, age=STALE)  # a proof that is older than polling begins
    bench.wait(0.1)
    assert not bench.tracker.freshness.is_polling(bench.now)
    assert not bench.is_syncing()


def test_rule_07_staleness_is_that_of_the_oldest_topic() -> None:
    history = History()
    history.one("a")
    history.one("b")
    bench = Bench(history, ("a", "b")).synced()
    nonce = bench.ask().nonce
    stale = bench.staleness()
    reading = history.reading()
    bench.receive(Heads(reading.store, {"a": reading.topics["a"]}), nonce=nonce)
    assert bench.staleness() == stale
    bench.receive(reading, nonce=nonce)
    assert bench.staleness() == 0.0


def test_rule_07_without_a_fresh_proof_the_store_is_polled_until_a_publisher_is_fresh_again() -> None:
    history, bench = following()
    start = bench.now
    while not bench.is_syncing():
        bench.wait(0.25)
    assert STALE - 1.0 <= bench.now - start <= STALE + 0.5
    polls = [bench.now]
    while len(polls) < 4:
        bench.answer()
        while not bench.is_syncing():
            bench.wait(0.25)
        polls.append(bench.now)
        assert bench.running.causes == {"t": "polled"}
    assert all(b - a == pytest.approx(CALM.poll_interval, abs=0.3) for a, b in pairwise(polls))
    bench.answer()
    assert bench.staleness() < STALE, "a poll is a proof of freshness but does not end the polling"
    bench.receive(history.reading(), nonce=bench.requests[-1].nonce)
    syncs = len(bench.syncs)
    bench.wait(CALM.poll_interval)
    bench.wait(CALM.poll_interval)
    assert len(bench.syncs) == syncs


def test_rule_07_replies_from_old_readings_do_not_stop_polling() -> None:
    # Publishers that are cut off from the database answer, but with readings that grow old.
    history, bench = following()
    reading, read = history.reading(), bench.now
    link = history.one()
    while not bench.is_syncing():
        nonce = bench.ask().nonce
        bench.receive(reading, nonce=nonce, age=bench.now - read)
        assert bench.now < read + STALE + 2 * IDLE
    assert bench.running.causes == {"t": "polled"}
    assert bench.answer() == [link]


def test_rule_07_topic_without_proof_is_polled_while_others_have_one() -> None:
    history = History()
    history.one("a")
    history.one("b")
    bench = Bench(history, ("a", "b")).synced()
    while not bench.is_syncing():
        reading = history.reading()
        bench.receive(Heads(reading.store, {"a": reading.topics["a"]}), nonce=bench.ask().nonce)
    assert bench.running.wants.keys() == {"b"}


# -- the parts ---------------------------------------------------------------------------------------------------


def test_pending_readings_are_bounded_and_the_newest_stay() -> None:
    _, bench = following()
    chain = bench.tracker.chain("t")
    fresh = Freshness(0.0)
    for position in range(10, 10 + 3 * MAX_PENDING):
        reading = HeadReading(float(position), Point(position, 1), publisher=True, latest=0.0)
        fresh.add_reading(chain, Point(position, 1), reading, 0.0)
    assert len(fresh.pending) == MAX_PENDING
    assert Point(9 + 3 * MAX_PENDING, 1) in fresh.pending


def test_better_of_two_readings_of_one_head_counts() -> None:
    _, bench = following()
    fresh = Freshness(0.0)
    head = Point(9, 9)
    for time, publisher in ((5.0, True), (7.0, False), (6.0, False)):
        fresh.add_reading(bench.tracker.chain("t"), head, HeadReading(time, Point(9, 1), publisher, time), 8.0)
    fresh.reached(head, 8.0)
    assert (fresh.proof, fresh.publisher_proof) == (7.0, 7.0)


def test_monitor_without_chains_has_nothing_due() -> None:
    monitor = FreshnessMonitor(CALM, random.Random(1), 0.0)
    assert monitor.next_time() == float("inf")
    assert monitor.to_poll(1e9) == []
    monitor.add("t", 100.0)
    assert monitor.next_time() <= 100.0
    assert monitor.periodic(100.0)
    assert not monitor.periodic(100.0 + IDLE - 0.1)
    assert not monitor.is_polling(100.0 + STALE - 0.1)
    assert monitor.is_polling(100.0 + STALE)
    monitor.poll_delay = CALM.parent_wait
    assert not monitor.is_polling(100.0 + STALE + CALM.round_trip - 0.1)
    assert monitor.is_polling(100.0 + STALE + CALM.round_trip)
    monitor.remove("t")
    assert monitor.next_time() == float("inf")


def test_empty_topic_can_be_proved_fresh() -> None:
    history = History()
    bench = Bench(history).synced()
    assert bench.known() == ZERO
    nonce = bench.ask().nonce
    bench.receive(Heads(ZERO, {"t": EMPTY}), nonce=nonce)
    assert bench.staleness() == 0.0


def test_rule_r5_new_topic_counts_as_unproved_since_it_was_followed() -> None:
    history = History()
    history.some(2)
    bench = Bench(history).synced()
    bench.now += 7.0
    assert bench.tracker.freshness.unproved(bench.now) == pytest.approx(bench.staleness())
    bench.do(bench.tracker.subscribe(["new"], bench.now))
    bench.receive(history.reading(), nonce=bench.ask().nonce)
    bench.now += 1.0
    assert bench.staleness() == float("inf")
    assert bench.tracker.freshness.unproved(bench.now) < 7.0


def test_rule_r5_parent_that_knows_a_newer_head_counts_for_as_long_as_a_sync_may_hang() -> None:
    history = History()
    history.some(2)
    bench = Bench(history).synced()
    bench.receive(history.reading(), nonce=bench.ask().nonce)
    proved = bench.now
    history.some(1)  # only a sync would bring it, and none ends
    freshness, first = bench.tracker.freshness, float("inf")
    while bench.now < first + CALM.sync_timeout:
        bench.now += CALM.max_idle_time
        bench.receive(history.reading(), nonce=bench.ask().nonce)
        first = min(first, bench.now)
        assert freshness.unheard(bench.now) == max(0.0, bench.now - first - CALM.sync_timeout)
        assert freshness.unproved(bench.now) == bench.now - proved, "a replica that reads from its parent leaves it"
        assert freshness.unheard(bench.now, readable=False) == bench.now - proved, "the parent answers no syncs"
    bench.now = first + CALM.sync_timeout + CALM.stale_after + 1.0
    bench.receive(history.reading(), nonce=bench.ask().nonce)
    late = bench.now - first - CALM.sync_timeout
    assert freshness.unheard(bench.now) == pytest.approx(late), "a head that no sync brings"
    assert late > CALM.stale_after


def test_rule_r5_new_parent_has_the_time_of_a_sync_also_after_a_long_outage() -> None:
    history = History()
    history.some(2)
    bench = Bench(history).synced()
    bench.receive(history.reading(), nonce=bench.ask().nonce)
    bench.now += 3 * CALM.sync_timeout
    history.some(1)
    bench.receive(history.reading(), nonce=bench.ask().nonce)
    assert bench.tracker.freshness.unheard(bench.now) == 0.0
    bench.now += CALM.max_idle_time
    bench.receive(history.reading(), nonce=bench.ask().nonce)
    assert bench.tracker.freshness.unheard(bench.now) == 0.0


def test_rule_r5_reading_of_the_store_does_not_count_as_the_parents_proof() -> None:
    history = History()
    history.some(2)
    bench = Bench(history).synced()
    bench.now += CALM.stale_after + 1.0
    bench.tracker.verify(bench.now)
    bench.wait(1.0)
    bench.answer()
    freshness = bench.tracker.freshness
    assert freshness.unproved(bench.now) < 2.0
    assert freshness.unheard(bench.now) > CALM.stale_after
    bench.receive(history.reading(), nonce=bench.ask().nonce)
    assert freshness.unheard(bench.now) == 0.0


LIAR = ("api-1", "2" * 32)
READ = AnswerTime(2.0, 2.0, 1)


def covered(position: int, at: float = 1.0, source: tuple[str, str] | None = LIAR) -> FreshnessMonitor:
    """A chain that a publisher stated to be complete up to a position."""
    live = FreshnessMonitor(CALM, random.Random(1), 0.0)
    live.add("t", 0.0)
    live.of["t"].count(HeadReading(at, Point(position, 9), source is not None, at, source), at)
    return live


@pytest.mark.parametrize(
    ("position", "changed", "denied"),
    [(11, None, True), (10, None, False), (10, 11, False), (10, 10, True), (10, 8, True), (2**62, None, True)],
)
def test_rule_14_reading_denies_a_covered_position(position: int, changed: int | None, denied: bool) -> None:
    """Beyond the store's own, or with a change of the topic before it that the replica did not have."""
    live = covered(position)
    live.judge("t", Point(10, 1), READ, changed)
    assert live.denied == ([(LIAR, 1.0)] if denied else [])
    assert live.of["t"].covered == (0 if denied else position)
    live.judge("t", Point(10, 1), READ, changed)
    assert len(live.denied) == denied, "once"


def test_rule_14_what_was_stated_after_the_reading_began_is_not_denied() -> None:
    live = covered(11, at=2.5)
    live.judge("t", Point(10, 1), READ)
    assert live.denied == []
    assert live.of["t"].covered == 11


def test_rule_14_answer_of_a_relay_denies_nothing() -> None:
    live = covered(11)
    live.judge("t", Point(10, 1), AnswerTime(2.0, 2.0, 1, relayed=True))
    assert live.denied == []
    assert live.of["t"].covered == 11


def test_rule_14_position_that_rises_all_the_time_is_denied() -> None:
    """The publisher replies again during each reading, with a higher position."""
    live = covered(11)
    for number in range(20):
        live.of["t"].count(HeadReading(3.0, Point(12 + number, 9), True, 3.0, LIAR), 3.0)
    live.judge("t", Point(10, 1), READ)
    assert live.denied == [(LIAR, 1.0)]
    assert live.of["t"].covered == 0


def test_rule_14_position_that_becomes_false_is_denied_by_the_next_reading() -> None:
    live = covered(10)
    live.of["t"].count(HeadReading(1.5, Point(99, 9), True, 1.5, LIAR), 1.5)
    live.judge("t", Point(10, 1), READ)
    assert live.denied == [], "the first position was true"
    live.judge("t", Point(10, 1), AnswerTime(4.0, 4.0, 1))
    assert live.denied == [(LIAR, 1.5)]


def test_rule_14_late_reading_of_a_publisher_covers_nothing() -> None:
    """The store was restored and read; a service that cannot read it answers from before the restore."""
    live = covered(5, source=None)
    fresh = live.of["t"]
    fresh.verified_at = 3.0
    fresh.count(HeadReading(2.9, Point(100, 9), True, 2.9, LIAR), 12.0)
    assert fresh.covered == 5
    fresh.count(HeadReading(3.1, Point(100, 9), True, 3.1, LIAR), 12.0)
    assert fresh.covered == 100


def test_rule_14_position_that_the_store_itself_gave_accuses_no_publisher() -> None:
    live = covered(11, source=None)
    live.judge("t", Point(10, 1), READ)
    assert live.denied == []


def test_rule_14_denied_position_does_not_return_by_a_pending_reading() -> None:
    live = covered(11)
    fresh = live.of["t"]
    for point, store in ((Point(5, 1), 11), (Point(6, 1), 9)):
        fresh.pending[point] = HeadReading(1.0, Point(store, 9), True, 1.0, LIAR)
    live.judge("t", Point(10, 1), READ)
    assert [*fresh.pending] == [Point(6, 1)]


def test_rule_14_nothing_that_a_contradicted_publisher_stated_counts_any_more() -> None:
    live = covered(11)
    live.add("u", 0.0)
    other = ("api-2", "3" * 32)
    live.of["u"].count(HeadReading(1.0, Point(9, 9), True, 1.0, other), 1.0)
    for fresh in live.of.values():
        fresh.pending = {Point(5, 1): HeadReading(1.0, Point(5, 1), True, 1.0, LIAR),
                         Point(6, 1): HeadReading(1.0, Point(6, 1), True, 1.0, other)}  # fmt: skip
    assert not live.is_polling(2.0)
    live.distrust([LIAR], 2.0)
    assert live.is_polling(2.0)
    assert (live.of["t"].covered, live.of["u"].covered) == (0, 9)
    assert all([*fresh.pending] == [Point(6, 1)] for fresh in live.of.values())


def test_better_store_of_two_readings_of_one_head_keeps_its_publisher() -> None:
    live = covered(1)
    history, bench = following()
    chain, fresh, head = bench.tracker.chain("t"), live.of["t"], Point(history.point.position + 5, 5)
    fresh.add_reading(chain, head, HeadReading(1.0, Point(20, 1), True, 1.0, LIAR), 1.0)
    fresh.add_reading(chain, head, HeadReading(2.0, Point(19, 1), True, 2.0, ("api-2", "3" * 32)), 2.0)
    assert (fresh.pending[head].store, fresh.pending[head].source) == (Point(20, 1), LIAR)
