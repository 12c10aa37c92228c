"""Rule 9: one sync at a time, jitter, rate limit, backoff, no need forgotten."""

import random

import pytest

from pubsub_lib.core.sync_scheduler import SyncScheduler
from pubsub_lib.core.timing import Timing
from tests.unit.core.builders import Bench, History

TIMING = Timing(sync_jitter=0.5, sync_interval=2.0, sync_backoff=1.0, max_sync_backoff=8.0, sync_timeout=10.0)
PLAIN = Timing(sync_jitter=0.0, sync_interval=2.0, sync_backoff=1.0, max_sync_backoff=8.0, sync_timeout=10.0)


def scheduler(timing: Timing = PLAIN) -> SyncScheduler:
    return SyncScheduler(timing, random.Random(1), 0.0)


def test_rule_09_no_sync_begins_without_need() -> None:
    one = scheduler()
    assert not one.may_begin(1e9)
    assert one.next_time() == float("inf")


def test_rule_09_one_sync_at_a_time() -> None:
    one = scheduler()
    one.need(0.0)
    assert one.may_begin(0.0)
    one.begin(0.0, 1)
    one.need(0.0)
    assert not one.may_begin(9.0)
    one.ended(1.0)
    assert one.may_begin(3.0), "the need that arose meanwhile is remembered"


def test_rule_09_one_sync_for_all_topics_that_need_one() -> None:
    history = History()
    for topic in ("a", "b", "c"):
        history.one(topic)
    bench = Bench(history, ("a", "b", "c")).synced()
    history.one("a")
    history.one("c")
    bench.receive(history.reading())
    bench.wait(1.0)
    assert bench.running.wants.keys() == {"a", "c"}


def test_rule_09_jitter_is_random_and_within_its_maximum(rng: random.Random) -> None:
    starts = set()
    for _ in range(200):
        one = SyncScheduler(TIMING, rng, 0.0)
        one.need(10.0)
        first = one.next_time()
        assert 10.0 <= first <= 10.5
        one.need(10.4)
        assert one.next_time() == first, "a further need does not postpone the first"
        assert not one.may_begin(first - 1e-6)
        assert one.may_begin(first)
        starts.add(round(first, 1))
    assert len(starts) > 3


def test_rule_09_rate_limit_between_syncs() -> None:
    one = scheduler()
    one.need(0.0)
    one.begin(0.0, 1)
    one.ended(5.0)
    one.need(5.0)
    assert one.next_time() == 7.0
    assert not one.may_begin(6.9)
    assert one.may_begin(7.0)


def test_rule_09_backoff_doubles_up_to_a_maximum_and_ends_with_success() -> None:
    one, now, waits = scheduler(), 0.0, []
    for _ in range(2000):
        one.need(now)
        now = one.next_time()
        one.begin(now, 1)
        one.failed(now)
        one.need(now)
        waits.append(one.next_time() - now)
    assert waits[:5] == pytest.approx([1.0, 2.0, 4.0, 8.0, 8.0])
    assert max(waits) <= 8.0 + 1e-6
    assert one.failures == 2000
    one.begin(now, 1)
    one.ended(now)
    assert one.failures == 0


def test_pause_that_the_source_asked_for_replaces_the_doubled_wait() -> None:
    one, now, waits = scheduler(), 0.0, []
    for pause in (3.0, 3.0, 0.0, None, 5.0, None):  # never shorter than the first wait
        one.need(now)
        now = one.next_time()
        one.begin(now, 1)
        one.failed(now, pause)
        one.need(now)
        waits.append(one.next_time() - now)
    assert waits == pytest.approx([3.0, 3.0, 1.0, 1.0, 5.0, 2.0])
    assert one.failures == 2


def test_rule_09_second_fault_within_the_rate_limit_is_remembered() -> None:
    history = History()
    bench = Bench(history, timing=PLAIN).synced()
    lost = []
    for _ in range(2):
        lost.append(history.one())
        bench.receive(history.reading())
        bench.wait(1.0)
        if bench.sync is None:
            bench.wait(PLAIN.sync_interval)
        assert bench.answer() == lost[-1:]


def test_sync_times_out() -> None:
    one = scheduler()
    one.need(0.0)
    one.begin(0.0, 1)
    assert one.next_time() == 10.0
    assert not one.timed_out(9.9)
    assert one.timed_out(10.0)
    one.failed(10.0)
    assert not one.timed_out(99.0)


def test_every_sync_has_its_own_number() -> None:
    one = scheduler()
    assert [one.begin(0.0, 1), one.begin(0.0, 2)] == [1, 2]
    assert (one.turn, one.running) == (2, True)


def test_need_now_continues_the_sync_at_once() -> None:
    one = scheduler()
    one.need(0.0)
    one.begin(0.0, 1)
    one.ended(1.0)
    one.need_now(1.0)
    assert one.may_begin(1.0)


def test_no_need_cancels_a_due_sync() -> None:
    one = scheduler()
    one.need(0.0)
    assert one.waits
    one.no_need()
    assert one.next_time() == float("inf")
    assert not one.may_begin(1.0)


def failed(times: int, at: float = 0.0) -> SyncScheduler:
    """A scheduler whose last syncs failed; the next one is due."""
    one = scheduler()
    one.need(at)
    for _ in range(times):
        one.begin(at, 1)
        one.failed(at)
        one.need(at)
    return one


def test_wait_after_failures_ends_when_the_source_changes() -> None:
    one = failed(4)
    assert one.next_time() == 8.0
    one.source_changed(1.0)
    assert one.may_begin(1.0)
    one.begin(1.0, 1)
    one.failed(1.0)
    one.need(1.0)
    assert one.next_time() == 2.0, "the wait begins again with the shortest"


def test_pause_that_the_old_source_asked_for_ends_when_the_source_changes() -> None:
    one = scheduler()
    one.begin(0.0, 1)
    one.failed(0.0, pause=5.0)
    one.need(0.0)
    one.source_changed(1.0)
    assert one.may_begin(1.0)


@pytest.mark.parametrize("pause", [None, 5.0])
def test_sync_at_the_old_source_that_fails_later_delays_none_at_the_new_one(pause: float | None) -> None:
    one = failed(4)
    one.begin(8.0, 1)
    one.source_changed(9.0)
    assert not one.may_begin(9.0)
    one.failed(12.0, pause)
    one.need(12.0)
    assert one.may_begin(12.0)
    one.begin(12.0, 1)
    one.failed(12.0)
    one.need(12.0)
    assert one.next_time() == 13.0


def test_rule_09_rate_limit_holds_when_the_source_changes() -> None:
    one = failed(1)
    one.begin(1.0, 1)
    one.ended(1.0)
    one.need(1.0)
    one.source_changed(1.5)
    assert one.next_time() == 1.0 + PLAIN.sync_interval
