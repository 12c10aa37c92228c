"""Signals that end a command: Ctrl-C and SIGTERM."""

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import NoReturn


class Terminated(KeyboardInterrupt):
    """SIGTERM: ends a command through the same clean-up as Ctrl-C."""


@contextlib.contextmanager
def _handled(handlers: Mapping[signal.Signals, Callable[[int, FrameType | None], None]]) -> Iterator[None]:
    """Set these handlers for the block. On another thread than the main one it does nothing: only that one may."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def sigterm_raises() -> Iterator[None]:
    """SIGTERM raises :class:`Terminated` inside."""
    with _handled({signal.SIGTERM: _raise}):
        yield


@contextlib.contextmanager
def interrupted_in_order() -> Iterator[None]:
    """Inside the block, Ctrl-C raises KeyboardInterrupt and SIGTERM raises :class:`Terminated`, so that scratch folders
    are removed and Spark is stopped. From the signal until the end of the block, libraries log nothing.
    """
    disabled = logging.root.manager.disable
    with _handled({signal.SIGINT: _interrupt, signal.SIGTERM: _interrupt}):
        try:
            yield
        finally:
            logging.disable(disabled)


def _raise(number: int, _frame: FrameType | None) -> NoReturn:
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    logging.disable()  # py4j, which waits for Spark, would log the interrupt with a traceback
    _raise(number, frame)


@contextlib.contextmanager
def handler_kept() -> Iterator[None]:
    """Restore the Ctrl-C handler after the block. PySpark sets its own handler, which calls the busy JVM and fails."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def interruption(error: BaseException) -> KeyboardInterrupt | None:
    """The interrupt behind an error, if any. A JVM that got the same signal fails to stop and hides the interrupt."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__ or cause.__context__
    return cause


def is_no_interrupt(record: logging.LogRecord) -> bool:
    """A filter for the log handlers of a command: False for a record whose exception is an interrupt, or has one behind
    it. SQLAlchemy logs an interrupt that meets the reset of a connection as an error, and raises the interrupt again.
    """
    error = record.exc_info[1] if record.exc_info else None
    return error is None or interruption(error) is None
