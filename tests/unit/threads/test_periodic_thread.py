"""A periodic thread survives exceptions of its step, and ends at ``close``."""

import itertools
import logging
import threading
import time

import pytest
from _patience import longest
from _processes import poll

from pubsub_lib.errors import StoreUnavailable, WaitTimeout
from pubsub_lib.threads import periodic_thread as module
from pubsub_lib.threads.periodic_thread import PeriodicThread

LONG = longest(120.0)


def run_through(errors: list[BaseException], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> int:
    """Run a step that raises these errors one after the other, until it works. Returns the number of failures."""
    monkeypatch.setattr(module, "AFTER_FAILURE", 0.001)
    well = threading.Event()

    def step(now: float) -> float:
        if errors:
            raise errors.pop(0)
        well.set()
        return now + LONG

    loop = PeriodicThread("testing", step)
    with caplog.at_level(logging.INFO):
        loop.start()
        assert well.wait(LONG)
        assert loop.close(LONG)
    return loop.failures


def test_thread_survives_every_exception_and_logs_each_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    moods: list[BaseException] = [StoreUnavailable("out"), StoreUnavailable("out"), KeyError("a bug")]
    assert run_through(moods, monkeypatch, caplog) == 3
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR", "INFO"]
    assert "out" in caplog.records[0].message


def test_thread_survives_an_exception_of_its_log_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, lost_lines: list[logging.LogRecord]
) -> None:
    log = logging.getLogger(module.__name__)

    def refuse(record: logging.LogRecord) -> bool:
        raise ZeroDivisionError

    log.addFilter(refuse)
    try:
        assert run_through([StoreUnavailable("out"), KeyError("a bug")], monkeypatch, caplog) == 2
    finally:
        log.removeFilter(refuse)
    assert [record.levelname for record in lost_lines] == ["WARNING", "ERROR", "INFO"]
    lost_lines.clear()


def test_step_that_raised_is_called_again_after_its_own_pause() -> None:
    pauses, done = [0.0, 0.0, LONG], threading.Event()

    def step(now: float) -> float:
        raise StoreUnavailable("out")

    def pause() -> float:
        if len(pauses) == 1:
            done.set()
        return pauses.pop(0)

    loop = PeriodicThread("testing", step, pause)
    loop.start()
    assert done.wait(LONG)
    assert loop.close(LONG)
    assert loop.failures == 3


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("error", [MemoryError(), UnprintableError(), WaitTimeout(), SystemExit(3)])
def test_thread_survives_and_logs_an_error_of_any_kind(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run_through([error, error], monkeypatch, caplog)
    failed, again = caplog.records
    assert type(error).__name__ in caplog.text
    assert (failed.levelname, again.getMessage()) == (
        "WARNING" if isinstance(error, WaitTimeout) else "ERROR", "testing works again",
    )  # fmt: skip


def test_close_ends_a_long_wait_and_is_idempotent() -> None:
    stepped = threading.Event()

    def step(now: float) -> float:
        stepped.set()
        return now + LONG

    loop = PeriodicThread("testing", step)
    loop.start()
    assert stepped.wait(LONG)
    began = time.monotonic()
    assert loop.close(LONG)
    assert loop.close(LONG)
    assert time.monotonic() - began < LONG / 2


def test_close_before_start_and_while_a_step_hangs() -> None:
    assert PeriodicThread("testing", lambda now: now).close(0.0)
    gate, inside = threading.Event(), threading.Event()

    def step(now: float) -> float:
        inside.set()
        gate.wait(LONG)
        return now

    loop = PeriodicThread("testing", step)
    loop.start()
    assert inside.wait(LONG)
    assert not loop.close(0.01)
    gate.set()
    assert loop.close(LONG)


def test_step_is_called_again_at_the_time_that_it_returned() -> None:
    times: list[float] = []
    done = threading.Event()

    def step(now: float) -> float:
        times.append(now)
        if len(times) == 3:
            done.set()
            return now + LONG
        return now + 0.05

    loop = PeriodicThread("testing", step)
    loop.start()
    assert done.wait(LONG)
    loop.close(LONG)
    assert all(later - earlier >= 0.05 for earlier, later in itertools.pairwise(times))
    assert loop.last_success >= times[-1]


def test_running_for_is_the_time_since_the_running_step_began() -> None:
    gate, inside = threading.Event(), threading.Event()

    def step(now: float) -> float:
        inside.set()
        gate.wait(LONG)
        raise StoreUnavailable("out")  # a failed step has ended too

    loop = PeriodicThread("testing", step)
    assert loop.running_for(time.monotonic()) == 0.0
    loop.start()
    assert inside.wait(LONG)
    now = time.monotonic()
    assert 50.0 <= loop.running_for(now + 50.0) < 50.0 + LONG
    gate.set()
    assert poll(lambda: loop.running_for(time.monotonic() + 50.0) == 0.0, LONG)
    assert loop.close(LONG)
