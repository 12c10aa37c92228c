"""Logging by the standard library: every module has its logger by :func:`logger`, and gives fields by :func:`fields`.

The library adds no handler and sets no level; that is the program's. What a fault makes a module say again and again is
said at most ``BURST`` times in ``INTERVAL``. The last of these lines says that more will be left out, as none may ever
follow it; how much was left out stands at the end of the next line.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

BURST: Final = 10
"""Lines of one kind (module, level and text without its values) in one interval."""
INTERVAL: Final = 10.0
"""Seconds."""
PREFIX: Final = "pubsub_"
"""Of the fields' names in a record, so that they meet no others."""


@dataclass
class _Kind:
    """What was said of one kind since its interval began."""

    began: float
    said: int = 0
    left_out: int = 0


class RepeatFilter(logging.Filter):
    """Lets at most ``burst`` records of one kind pass in ``interval`` seconds. Any thread; keeps no record.

    The last of a burst says at its end that more would not be said; the first that passes after some were left out says
    how many, and has it in its field ``pubsub_left_out``.
    """

    def __init__(
        self, burst: int = BURST, interval: float = INTERVAL, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._burst = burst
        self._interval = interval
        self._clock = clock
        self._lock = threading.Lock()
        self._kinds: dict[tuple[int, object], _Kind] = {}

    def reset(self) -> None:
        """Begin anew, as if nothing had been said: between tests."""
        with self._lock:
            self._kinds.clear()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this record is said."""
        now = self._clock()
        with self._lock:
            kind = self._kinds.setdefault((record.levelno, record.msg), _Kind(now))
            if now - kind.began >= self._interval:
                kind.began, kind.said = now, 0
            if kind.said >= self._burst:
                kind.left_out += 1
                return False
            kind.said += 1
            last = kind.said == self._burst
            left_out, kind.left_out = kind.left_out, 0
        if last:
            rest = self._interval - (now - kind.began)
            record.msg = f"{record.msg} [more like this will be left out for {rest:.0f} s]"
        if left_out:
            record.msg = f"{record.msg} [{left_out} more like this were left out]"
            setattr(record, f"{PREFIX}left_out", left_out)
        return True


def logger(name: str) -> logging.Logger:
    """The logger of a module, whose repeats are limited. Messages are constant texts with their values as arguments:
    the text tells the kind.
    """
    found = logging.getLogger(name)
    if not any(isinstance(each, RepeatFilter) for each in found.filters):
        found.addFilter(RepeatFilter())
    return found


def fields(**given: object) -> dict[str, object]:
    """Structured fields of a log line, for ``extra=``: ``fields(topic="t")`` becomes ``record.pubsub_topic``."""
    return {f"{PREFIX}{name}": value for name, value in given.items()}
