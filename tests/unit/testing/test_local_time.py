"""The clock that jumps: what is due runs first, then time goes to the next moment, never beyond what was allowed."""

import math
import threading

import pytest

from pubsub_lib.errors import WaitTimeout
from pubsub_lib.testing.local_time import INSTANT, LocalTime, TimeCondition


class Alarm:
    """Rings at these moments."""

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


def test_time_jumps_from_moment_to_moment_and_stops_where_it_must() -> None:
    time = LocalTime()
    alarm, other = Alarm(time, 0.0, 5.0, 5.0), Alarm(time, 7.0)
    for _ in range(10):
        time.step(6.0 - time.now())
    assert (alarm.rang, other.rang, time.now()) == ([0.0, 5.0, 5.0], [], 6.0)
    time.remove(other)
    time.step(10.0)
    assert (other.rang, time.now()) == ([], 16.0)


def test_a_wait_that_nothing_can_end_ends() -> None:
    time = LocalTime()
    with pytest.raises(WaitTimeout, match="no planned work can end this wait"):
        time.step()


def test_a_part_that_is_due_and_does_nothing_cannot_stop_the_clock() -> None:
    class Idle(Alarm):
        def run(self, now: float) -> bool:
            return False

    time = LocalTime()
    Idle(time, 0.0)
    time.step()
    assert time.now() == INSTANT


def test_a_waiting_condition_turns_with_its_lock_released() -> None:
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
