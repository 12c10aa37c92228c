"""Logging by the standard library: every module has its logger by :func:`logger`, and gives fields by :func:`fields`.

The library adds no handler and sets no level; the program does. The exception is the logger of the library's connection
pool, which has the level WARNING like those of SQLAlchemy (:data:`pubsub_lib.store.fork_safety.pool_log`).

Repeated lines of one kind are logged at most ``BURST`` times in ``INTERVAL``. The last of these lines announces that
more will be left out, because no line may follow. The next line that is logged ends with the number of lines that were
left out.

An exception of a program's filter or handler loses its line and nothing else: the thread that logs continues.

Values are escaped where they are not printable, so that names and addresses of other programs cannot forge a line.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

BURST: Final = 10
"""Maximum number of lines of one kind (module, level and text without its values) in one interval."""
INTERVAL: Final = 10.0
"""Seconds."""
PREFIX: Final = "pubsub_"
"""Prefix of the fields' names in a record, so that they differ from all others."""


@dataclass
class _Kind:
    """Counts of one kind's records since its interval began."""

    began: float
    logged: int = 0
    left_out: int = 0


class RepeatFilter(logging.Filter):
    """Lets at most ``burst`` records of one kind pass in ``interval`` seconds. Any thread; keeps no record.

    The last record of a burst announces at its end that more will be left out. The first record that passes after some
    were left out has their number at its end and in its field ``pubsub_left_out``.
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
        """Forget all records: between tests."""
        with self._lock:
            self._kinds.clear()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this record is logged."""
        now = self._clock()
        with self._lock:
            kind = self._kinds.setdefault((record.levelno, record.msg), _Kind(now))
            if now - kind.began >= self._interval:
                kind.began, kind.logged = now, 0
            if kind.logged >= self._burst:
                kind.left_out += 1
                return False
            kind.logged += 1
            last = kind.logged == self._burst
            left_out, kind.left_out = kind.left_out, 0
        record.args = _printable_args(record.args)
        if last:
            rest = self._interval - (now - kind.began)
            record.msg = f"{record.msg} [more like this will be left out for {rest:.0f} s]"
        if left_out:
            record.msg = f"{record.msg} [{left_out} more like this were left out]"
            setattr(record, f"{PREFIX}left_out", left_out)
        return True


def printable(text: str) -> str:
    r"""A text that is safe for a terminal and for a log of one line each: control characters, ends of lines, and
    characters that change the writing direction become ``\x1b``, ``\n``, ``\u202e``. All other text stays unchanged.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def printable_json(text: str) -> str:
    """As :func:`printable`, for JSON text: it uses JSON's own escapes, so that the value stays the same."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def _printable_args(args: Any) -> Any:
    """The values of a record: texts and errors may contain what other programs wrote."""
    if isinstance(args, Mapping):
        return {name: _printable_arg(each) for name, each in args.items()}
    return tuple(map(_printable_arg, args)) if isinstance(args, tuple) else args


def _printable_arg(arg: object) -> object:
    if not isinstance(arg, str | BaseException):
        return arg
    text = str(arg)
    return arg if text.isprintable() else printable(text)


def logger(name: str, *, limited: bool = True) -> logging.Logger:
    """The logger of a module. ``limited``: with a limit for repeated lines; a message must be a constant text with its
    values as arguments, because the text identifies the kind.
    """
    found = logging.getLogger(name)
    if limited and not any(isinstance(each, RepeatFilter) for each in found.filters):
        found.addFilter(RepeatFilter())
    if not isinstance(found.handle, _Guard):
        found.handle = _Guard(found.handle)  # type: ignore[method-assign]
    return found


class _Guard:
    """Gives records to filters and handlers. The standard library catches exceptions of its own handlers only."""

    def __init__(self, handle: Callable[[logging.LogRecord], object]) -> None:
        self._handle = handle

    def __call__(self, record: logging.LogRecord) -> None:
        try:
            self._handle(record)
        except Exception:  # noqa: BLE001 - a program's filter or handler may raise any
            report_lost(record)


_reporter: Final = logging.Handler()


def report_lost(record: logging.LogRecord) -> None:
    """Print the current exception, which lost this record, in the way of the standard library's handlers."""
    with suppress(ValueError):  # stderr is closed
        _reporter.handleError(record)


def fields(**given: object) -> dict[str, object]:
    """Structured fields of a log line, for ``extra=``: ``fields(topic="t")`` becomes ``record.pubsub_topic``."""
    return {f"{PREFIX}{name}": value for name, value in given.items()}
