"""Long work sleeps between its items, and passes them on as they are."""

import time

import pytest

from pubsub_lib.threads import giving_way as module
from pubsub_lib.threads.giving_way import MAX_RUN, PAUSE, giving_way


class Clock:
    """In place of ``time``: a clock that the work moves on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


def test_thread_sleeps_after_it_has_worked_for_long(clock: Clock) -> None:
    found = []
    for item in giving_way(range(10)):
        found.append(item)
        clock.now += 0.4 * MAX_RUN
    assert found == list(range(10))
    work = 1.2 * MAX_RUN
    assert clock.slept == pytest.approx([(work + PAUSE) * count for count in (1, 2, 3)])


def test_thread_with_little_work_does_not_sleep(clock: Clock) -> None:
    assert list(giving_way("abc")) == ["a", "b", "c"]
    assert clock.slept == []
    assert list(giving_way([])) == []


def test_pause_is_a_real_one() -> None:
    """Without one a waiting thread gets the interpreter's lock only after the switch interval."""
    begun = time.monotonic()
    for _ in giving_way(range(2)):
        while time.monotonic() - begun < 2 * MAX_RUN:
            pass
    assert time.monotonic() - begun >= 2 * MAX_RUN + PAUSE
