"""An orderly end of a command: a signal breaks it off once, so that everything that it started is ended with it.

Without this SIGTERM ends Python at once, and child processes live on.
"""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130
"""Exit status of a command that was broken off."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def interrupt_on_signals() -> None:
    """SIGINT and SIGTERM raise KeyboardInterrupt in the main thread, the first time. For the main thread.

    A shell starts commands in the background with SIGINT ignored; this ends that.
    """
    for number in _SIGNALS:
        signal.signal(number, _interrupt)


def run(prog: str, main: Callable[[], int]) -> int:
    """The exit status of ``main``; a signal ends it in order, with one line on standard error."""
    interrupt_on_signals()
    try:
        return main()
    except KeyboardInterrupt:
        print(f"{prog}: interrupted; every process was stopped", file=sys.stderr)
        return INTERRUPTED


@contextmanager
def uninterrupted() -> Iterator[None]:
    """SIGINT and SIGTERM that come in the block take effect at its end. For the main thread.

    Around the start of a child and the note of it, so that none is started and forgotten. Blocking the signals would
    not do: another thread would receive them, and Python would still act in the main one.
    """
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _frame: came.append(number)) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # a second one must not break off the cleaning up
    raise KeyboardInterrupt
