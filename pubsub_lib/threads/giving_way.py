"""Long work of one thread that lets the other threads of the program run.

A thread that waits for the interpreter's lock gets it after ``sys.getswitchinterval()``, 5 ms by default, or when the
working thread sleeps. A message's way through a program needs this lock several times.
"""

import time
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

MAX_RUN: Final = 0.0001
"""Seconds after which a thread sleeps at the next opportunity."""
PAUSE: Final = 0.00005
"""Seconds that it sleeps. With 0 it would take the lock again before a waiting thread runs."""


def giving_way(items: Iterable[T]) -> Iterator[T]:
    """The items. Between two of them the thread sleeps when it has worked for :data:`MAX_RUN`. Blocks."""
    begun = time.monotonic()
    for item in items:
        yield item
        if time.monotonic() - begun >= MAX_RUN:
            time.sleep(PAUSE)
            begun = time.monotonic()
