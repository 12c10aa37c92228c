"""How a command ends that is interrupted, or whose output nobody reads any more: as ``pubsub-db`` does."""

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn


class Terminated(KeyboardInterrupt):
    """SIGTERM: ends a command in the same order as Ctrl-C does."""


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
    """Ctrl-C raises KeyboardInterrupt inside, SIGTERM :class:`Terminated`, so that scratch folders go and Spark is
    stopped; libraries log nothing from then on.
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
    logging.disable()  # whoever waits for Spark would log the interrupt, with a traceback
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


@contextlib.contextmanager
def handler_kept() -> Iterator[None]:
    """Around what sets a handler of its own for Ctrl-C, as Spark does: it asks Spark, which is busy, and complains."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def interruption(error: BaseException) -> KeyboardInterrupt | None:
    """The interrupt that an error is, or came from: a JVM that got the same signal cannot be stopped in order."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__ or cause.__context__
    return cause
