"""Single keys from a terminal. The terminal's mode is restored however the block ends."""

import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pubsub_lib.errors import ConfigError

Pressed = Callable[[float], str]
"""Waits at most this number of seconds for a key and returns it; "" when no key was pressed."""


@contextmanager
def keys() -> Iterator[Pressed]:
    """Read keys from stdin without Return and without showing them; Ctrl-C still interrupts.

    Raises ConfigError when stdin or stdout is not a terminal.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError("this needs a terminal; for a pipe or a file use watch, or status -f json")
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor, termios.TCSANOW)
    try:
        yield lambda seconds: _wait(descriptor, seconds)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _wait(descriptor: int, seconds: float) -> str:
    if not select.select([descriptor], [], [], seconds)[0]:
        return ""
    # An empty read means that the terminal was closed: no key can come any more.
    return os.read(descriptor, 16).decode(errors="replace") or "q"
