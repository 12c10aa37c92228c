"""Interrupts raise exceptions, and are found behind the errors that they caused."""

import logging
import os
import signal

import pytest

from pubsub_lib.command.signals import Terminated, handler_kept, interrupted_in_order, interruption, is_no_interrupt


def test_interruption_is_found_behind_the_errors_that_it_caused() -> None:
    with pytest.raises(OSError, match="second") as second:
        try:
            try:
                raise Terminated
            finally:
                raise ValueError("first")
        except ValueError as first:
            raise OSError("second") from first
    assert isinstance(interruption(second.value), Terminated)
    assert interruption(OSError("alone")) is None


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)])
def test_signal_raises_only_inside_the_block_and_no_library_logs_it(
    number: signal.Signals, kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    before = signal.getsignal(number)
    with pytest.raises(kind) as raised, interrupted_in_order():
        try:
            with handler_kept():
                signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.kill(os.getpid(), number)
        finally:
            logging.getLogger().error("interrupted while waiting")
    assert raised.type is kind
    assert signal.getsignal(number) is before
    assert caplog.messages == []
    logging.getLogger().error("again")
    assert caplog.messages == ["again"]


def record(error: BaseException | None) -> logging.LogRecord:
    """A log record with the traceback of this error; None: without one."""
    shown = None if error is None else (type(error), error, None)
    return logging.LogRecord("sqlalchemy.pool", logging.ERROR, "base.py", 1, "exception in a reset", (), shown)


def test_log_record_of_an_interrupt_is_dropped_and_no_other() -> None:
    behind = RuntimeError("the reset failed")
    behind.__context__ = Terminated()
    assert not is_no_interrupt(record(KeyboardInterrupt()))
    assert not is_no_interrupt(record(Terminated()))
    assert not is_no_interrupt(record(behind))
    assert is_no_interrupt(record(RuntimeError("the server is gone")))
    assert is_no_interrupt(record(None))
