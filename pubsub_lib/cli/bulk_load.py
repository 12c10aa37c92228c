"""Load lines in transactions, in bounded memory. After any interruption the load can be run again.

No progress is stored: a line whose object already has its value writes and publishes nothing. Loading the same file
again from its beginning therefore completes an interrupted run. The repeated lines cost reading, not writing.
"""

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from pubsub_lib.cli.jsonl import Line, Numbered, Reader
from pubsub_lib.command.exit_codes import FileError
from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import InvalidValueError
from pubsub_lib.store import Store, Transaction

BATCH: Final = 1000
"""Default number of lines of one transaction."""
_BATCH_BYTES: Final = 1 << 20
"""Maximum number of bytes of a transaction with more than one line. It bounds the memory, and how long others wait."""


class Loaded(msgspec.Struct):
    """The progress of a load; ``line`` and all lines before it are committed."""

    line: int = 0
    lines: int = 0
    """Number of lines that were read, without blank and skipped ones."""
    changes: int = 0
    """Number of changes in the database; less than ``lines`` when objects already had their values."""
    transactions: int = 0
    position: int | None = None
    """Position of the last change."""


def max_lines(limits: Limits) -> int:
    """The largest batch that always fits a transaction: an object that moves between topics makes two changes."""
    return max(1, limits.max_transaction_changes // 2)


def load(store: Store, reader: Reader, loaded: Loaded, batch: int, first: int, report: Callable[[], None]) -> None:
    """Commit the lines from number ``first`` on, up to ``batch`` in each transaction; call ``report`` after each.

    ``loaded`` is up to date also when the load fails. Raises FileError for a broken line, after the lines before it
    were committed; StoreError.
    """
    lines = _Ahead(reader.read(first), min(_BATCH_BYTES, store.limits.max_transaction_bytes))
    with _rare_collections():
        while lines.more():
            _commit(store, reader, loaded, lines.take(batch), report)
            if lines.broken is not None:
                raise lines.broken


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Let Python search for cyclic garbage once for some transactions, which leave hardly any. By default it searches
    the objects of one transaction many times, and takes a sixth of the processor time.
    """
    before = gc.get_threshold()
    gc.set_threshold(20 * BATCH, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _commit(store: Store, reader: Reader, loaded: Loaded, part: Iterable[Numbered], report: Callable[[], None]) -> None:
    """Commit in one transaction, or in several when the store rejects one as too large. Raises as :func:`load`."""
    broken: FileError | None = None
    number, count = loaded.line, 0
    taken: list[tuple[int, bytes]] = []  # not the values, which take many times as much memory
    try:
        with store.transaction() as tx:
            for each in part:
                taken.append((each.number, each.data))
                try:
                    _record(tx, each.line)
                except InvalidValueError as error:
                    broken, number = reader.broken(each.number, str(error)), each.number - 1
                    break
                number, count = each.number, count + 1
    except InvalidValueError as error:
        # All lines together are too large. This cannot be predicted: MySQL has another limit, an object that
        # moves makes two changes, and canonical JSON may be longer (1e9).
        if count < 2:
            reason = str(error).removesuffix(": split it")
            raise reader.broken(taken[0][0], f"it fits no transaction: {reason}") from error
        for half in (taken[: count // 2], taken[count // 2 :]):
            _commit(store, reader, loaded, (reader.numbered(*each) for each in half), report)
        return
    loaded.line, loaded.lines = number, loaded.lines + count
    if tx.commit is not None:
        loaded.changes += sum(len(link.changes) for link in tx.commit.links)
        loaded.transactions += 1
        loaded.position = tx.commit.point.position
    report()
    if broken is not None:
        raise broken


def _record(tx: Transaction, line: Line) -> None:
    if line.action == "delete":
        tx.delete(line.table, line.key, missing_ok=True)
    else:
        tx.set(line.table, line.key, line.value, topic=line.topic)


class _Ahead:
    """Reads one line ahead, and keeps a read error until the lines before it are committed."""

    def __init__(self, lines: Iterator[Numbered], max_bytes: int) -> None:
        self._lines = lines
        self._max_bytes = max_bytes
        self.broken: FileError | None = None
        self._next = self._read()

    def more(self) -> bool:
        return self._next is not None or self.broken is not None

    def take(self, maximum: int) -> Iterator[Numbered]:
        size = 0
        for _ in range(maximum):
            if self._next is None or (size and size + len(self._next.data) > self._max_bytes):
                return
            size += len(self._next.data)
            yield self._next
            self._next = self._read()

    def _read(self) -> Numbered | None:
        try:
            return next(self._lines, None)
        except FileError as error:
            self.broken = error
            return None
