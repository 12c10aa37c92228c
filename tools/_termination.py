"""Termination of a command by a signal: KeyboardInterrupt is raised once, so that clean-up ends all child processes.

Without this SIGTERM would end Python at once, and child processes would continue to run.
"""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130
"""Exit status of an interrupted command."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def interrupt_on_signals() -> None:
    """Make the first SIGINT or SIGTERM raise KeyboardInterrupt in the main thread. Call it in the main thread.

    A shell starts background commands with SIGINT ignored; this call enables SIGINT again.
    """
    for number in _SIGNALS:
        signal.signal(number, _interrupt)


def run(prog: str, main: Callable[[], int]) -> int:
    """Call ``main`` and return its exit status. A signal interrupts it, with one line on standard error."""
    interrupt_on_signals()
    try:
        return main()
    except KeyboardInterrupt:
        print(f"{prog}: interrupted; every process was stopped", file=sys.stderr)
        return INTERRUPTED


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay SIGINT and SIGTERM to the end of the block. Call it in the main thread.

    It protects the start of a child and its registration, so that no child is started and not registered. Blocking
    the signals is not enough: another thread would receive them, and Python would still act in the main thread.
    """
    received: list[int] = []
    before = {number: signal.signal(number, lambda number, _frame: received.append(number)) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        signal.raise_signal(received[0])


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # a second signal must not interrupt the clean-up
    raise KeyboardInterrupt
