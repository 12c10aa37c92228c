"""The local clock: due work runs first; then the clock jumps to the next due time, but not beyond the limit."""

import math
import threading

import pytest

from pubsub_lib.errors import WaitTimeout
from pubsub_lib.testing.local_time import INSTANT, LocalScheduler, LocalTime, TimeCondition


class Alarm:
    """A part that is due at these times."""

    def __init__(self, time: LocalTime, *moments: float) -> None:
        self.moments = list(moments)
        self.rang: list[float] = []
        time.add(self)

    def run(self, now: float) -> bool:
        if self.moments and self.moments[0] <= now:
            self.rang.append(now)
            del self.moments[0]
            return True
        return False

    def next_time(self) -> float:
        return self.moments[0] if self.moments else math.inf


def test_clock_jumps_between_due_times_and_stops_at_the_limit() -> None:
    time = LocalTime()
    alarm, other = Alarm(time, 0.0, 5.0, 5.0), Alarm(time, 7.0)
    for _ in range(10):
        time.step(6.0 - time.now())
    assert (alarm.rang, other.rang, time.now()) == ([0.0, 5.0, 5.0], [], 6.0)
    time.remove(other)
    time.step(10.0)
    assert (other.rang, time.now()) == ([], 16.0)


def test_wait_without_planned_work_raises() -> None:
    time = LocalTime()
    with pytest.raises(WaitTimeout, match="no planned work can end this wait"):
        time.step()


def test_due_part_without_work_does_not_stop_the_clock() -> None:
    class Idle(Alarm):
        def run(self, now: float) -> bool:
            return False

    time = LocalTime()
    Idle(time, 0.0)
    time.step()
    assert time.now() == INSTANT


def test_time_condition_steps_with_its_lock_released() -> None:
    time = LocalTime()
    free: list[bool] = []

    class Other(Alarm):
        def run(self, now: float) -> bool:
            if not super().run(now):
                return False
            taken = threading.Thread(target=take)
            taken.start()
            taken.join()
            return True

    def take() -> None:
        if condition.acquire(timeout=5.0):
            free.append(True)
            condition.release()

    condition = TimeCondition(time, threading.RLock())
    alarm = Other(time, 3.0)
    with condition:
        assert condition.wait_for(lambda: alarm.rang, timeout=10.0) == [3.0]
        assert time.now() == 3.0
        assert not condition.wait_for(lambda: len(alarm.rang) > 1, timeout=10.0)
        assert time.now() == 13.0
    assert free == [True]


def test_loop_of_a_scheduler_runs_when_it_is_due_until_it_is_closed() -> None:
    time = LocalTime()
    moments = [2.0, 2.0, 5.0, math.inf]
    ran: list[float] = []

    def step(now: float) -> float:
        ran.append(now)
        return moments.pop(0)

    scheduler = LocalScheduler(time)
    loop = scheduler.loop("clock", step, lambda: moments[0])
    time.step(1.0)
    loop.start()
    loop.wake()
    for _ in range(5):
        time.step(1.0)
    assert (ran, scheduler.now(), scheduler.threaded) == ([2.0, 2.0], 4.0, False)
    assert loop.close(0.0)
    time.step(10.0)
    assert ran == [2.0, 2.0]
