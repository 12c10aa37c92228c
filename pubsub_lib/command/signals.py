"""Exit codes and signal handling of an interrupted command, and of one whose output pipe is closed."""

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn


class Terminated(KeyboardInterrupt):
    """SIGTERM: ends a command through the same clean-up as Ctrl-C."""


@contextlib.contextmanager
def sigterm_raises() -> Iterator[None]:
    """SIGTERM raises :class:`Terminated` inside."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set a handler
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Terminated


@contextlib.contextmanager
def interrupted_in_order() -> Iterator[None]:
    """Inside the block, Ctrl-C raises KeyboardInterrupt and SIGTERM raises :class:`Terminated`, so that scratch folders
    are removed and Spark is stopped. From the signal until the end of the block, libraries log nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set a handler
        return
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    disabled = logging.root.manager.disable
    try:
        yield
    finally:
        logging.disable(disabled)
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    logging.disable()  # py4j, which waits for Spark, would log the interrupt with a traceback
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


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
