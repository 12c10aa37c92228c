"""Rule 13: the bound is one formula, and the tracker keeps it."""

import random

import pytest

from pubsub_lib.core.timing import Timing, anchor_bound, lost_message_bound, no_publisher_bound, reconnection_bound
from pubsub_lib.errors import ConfigError
from tests.unit.core.builders import Bench, History

TIMING = Timing(sync_timeout=3.0)
STEP = 0.05
SYNC_TIME = 1.0


def follow_until(bench: Bench, position: int, maximum: float, *, publisher: bool) -> None:
    """Run until the replica has a position; a publisher and the store answer as slowly as allowed."""
    began, reading_of = bench.now, (0.0, bench.history.reading())
    answers: list[tuple[float, str]] = []
    asked = len(bench.requests)
    while bench.tracker.chain("t").known_position < position:
        bench.wait(STEP)
        assert bench.now - began <= maximum + 1e-6
        answers += [(bench.now + TIMING.round_trip, request.nonce) for request in bench.requests[asked:]]
        asked = len(bench.requests)
        if bench.now - reading_of[0] >= TIMING.reading_age:
            reading_of = (bench.now, bench.history.reading())
        for answer in [each for each in answers if each[0] <= bench.now]:
            answers.remove(answer)
            if publisher:
                bench.receive(reading_of[1], nonce=answer[1], age=bench.now - reading_of[0])
        if bench.is_syncing() and bench.now - bench.began >= SYNC_TIME - STEP:
            bench.answer()


@pytest.mark.parametrize("moment", range(20))
def test_rule_13_lost_change_is_applied_within_the_bound(moment: int, rng: random.Random) -> None:
    history = History()
    history.one()
    bench = Bench(history, timing=TIMING).synced()
    for _ in range(rng.randrange(100)):
        bench.wait(STEP)
        if len(bench.requests) > 1:
            bench.receive(history.reading(), nonce=bench.requests[-1].nonce)
    history.one()
    bound = lost_message_bound(TIMING, SYNC_TIME)
    follow_until(bench, history.point.position, bound + 3 * STEP, publisher=True)


@pytest.mark.parametrize("moment", range(20))
def test_rule_13_change_lost_before_a_connection_is_applied_within_its_bound(moment: int, rng: random.Random) -> None:
    history = History()
    history.one()
    bench = Bench(history, timing=TIMING).synced()
    for _ in range(rng.randrange(100)):
        bench.wait(STEP)
        if len(bench.requests) > 1:
            bench.receive(history.reading(), nonce=bench.requests[-1].nonce)
    bench.wait(TIMING.max_idle_time - 1)
    history.one()
    bench.tracker.connected(bench.now)
    bound = reconnection_bound(TIMING, SYNC_TIME)
    assert bound < lost_message_bound(TIMING, SYNC_TIME)
    follow_until(bench, history.point.position, bound + 3 * STEP, publisher=True)


@pytest.mark.parametrize("moment", range(5))
def test_rule_13_change_without_any_publisher_is_applied_within_the_bound(moment: int, rng: random.Random) -> None:
    history = History()
    history.one()
    bench = Bench(history, timing=TIMING).synced()
    for _ in range(rng.randrange(100)):
        bench.wait(STEP)
    history.one()
    bound = no_publisher_bound(TIMING, SYNC_TIME)
    follow_until(bench, history.point.position, bound + 3 * STEP, publisher=False)
    history.one()
    follow_until(bench, history.point.position, bound + 3 * STEP, publisher=False)


def test_rule_13_the_formula_sums_the_configured_times() -> None:
    timing = Timing(
        max_idle_time=100.0,
        reading_age=20.0,
        round_trip=3.0,
        message_delay_window=0.4,
        poll_interval=0.05,
        sync_timeout=1000.0,
        sync_interval=2000.0,
        sync_jitter=3000.0,
    )
    assert timing.sync_wait == 6000.0
    assert lost_message_bound(timing, 0.006) == pytest.approx(6123.406)
    assert lost_message_bound(timing, 0.006, sync_wait=1.0) == pytest.approx(124.406)
    assert no_publisher_bound(timing, 0.006) == pytest.approx(6300.056)
    assert reconnection_bound(timing, 0.006, sync_wait=1.0) == pytest.approx(20 + 0.5 + 3 + 0.4 + 1.006)
    assert no_publisher_bound(timing, 0.006, sync_wait=0.0) == pytest.approx(300.056)


def test_rule_14_bound_of_a_wrong_read_follows_from_the_verify_interval() -> None:
    assert anchor_bound(Timing(verify_interval=60.0), 1.0, sync_wait=2.0) == pytest.approx(108.0)
    assert anchor_bound(Timing(verify_interval=60.0, sync_timeout=6.0), 1.0) == pytest.approx(105.0 + 7.5 + 1.0)
    assert anchor_bound(Timing(verify_interval=0.0), 1.0) == float("inf")


@pytest.mark.parametrize(
    ("timing", "message"),
    [
        (Timing(sync_backoff=5.0, max_sync_backoff=4.0), r"max_sync_backoff \(4.0 s\) is below sync_backoff"),
        (Timing(max_idle_time=1.0, reading_age=2.0), r"reading_age \(2.0 s\) plus round_trip"),
    ],
)
def test_contradicting_times_are_refused_by_name(timing: Timing, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        timing.check()


def test_the_defaults_are_consistent() -> None:
    timing = Timing()
    assert timing.check() is timing
    assert timing.stale_after == 3 * timing.max_idle_time
