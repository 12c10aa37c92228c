"""Shutdown signalling of the service, with requests to reload. What it shares with commands is tested there."""

import contextlib
import os
import signal
from collections.abc import Callable

import pytest
from _patience import longest

from pubsub_lib.command.stop_signal import SIGNALS
from pubsub_lib.service.shutdown import RELOAD, ShutdownSignal

LONG = longest(120.0)


def test_reload_ends_the_wait_without_a_shutdown() -> None:
    with ShutdownSignal() as signals:
        assert not signals.take_reload()
        signal.raise_signal(RELOAD)
        signal.raise_signal(RELOAD)
        assert not signals.wait(LONG)
        assert signals.take_reload()
        assert not signals.take_reload()
        assert not signals.wait(0.0)
        signal.raise_signal(RELOAD)
        signals.ask()
        assert signals.wait(LONG)


@pytest.mark.parametrize("end", [lambda signals: signals.ask(), lambda _: signal.raise_signal(signal.SIGTERM)])
def test_shutdown_is_not_lost_behind_requests_to_reload(end: Callable[[ShutdownSignal], None]) -> None:
    with ShutdownSignal() as signals:
        assert signals._ends is not None
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(signals._ends[1], bytes([RELOAD]) * 1024)
        end(signals)
        assert signals.wait(LONG)


@pytest.mark.parametrize("number", SIGNALS)
def test_second_signal_does_not_end_the_service_at_once(number: signal.Signals) -> None:
    with ShutdownSignal() as signals:
        signal.raise_signal(number)
        signal.raise_signal(number)
        assert signals.wait(LONG)


def test_handler_of_reload_is_restored() -> None:
    before = signal.getsignal(RELOAD)
    with ShutdownSignal():
        assert signal.getsignal(RELOAD) != before
    assert signal.getsignal(RELOAD) is before
