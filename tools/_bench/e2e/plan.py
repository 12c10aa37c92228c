"""What is measured: the cells (writers, changes, watchers, paced or not), their sizes, and the values."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

VALUE_BYTES: Final = 200
"""Bytes of a value as compact JSON."""
KEYS: Final = 100
"""Keys of each writer; no two writers share a key."""
PROBE: Final = "probe"
"""A key which is written until every watcher has received it once."""
RATE: Final = 100.0
"""Transactions a second of a paced cell, of all writers together."""
MAX_EVENTS: Final = 4_000.0
"""Maximum number of handler calls a second in a paced cell: a larger one has a lower rate, or it would only queue."""

Changes = Sequence[tuple[str, Mapping[str, Any]]]
"""Keys with their values: one transaction."""


class Cell(msgspec.Struct, frozen=True):
    """One measurement. ``transactions``: of all writers. ``rate``: transactions a second; 0: as fast as possible."""

    writers: int
    changes: int
    watchers: int
    transactions: int
    rate: float = 0.0

    @property
    def each(self) -> int:
        """The transactions of one writer."""
        return max(1, self.transactions // self.writers)

    @property
    def events(self) -> int:
        """The handler calls of one watcher."""
        return self.writers * self.each * self.changes

    @property
    def short(self) -> str:
        """For the table: ``1×10×1``, writers, changes and watchers."""
        return f"{self.writers}×{self.changes}×{self.watchers}{f' {self.rate:g}/s' if self.rate else ''}"

    def transaction(self, writer: int, number: int) -> Changes:
        """The writer's transaction with this number, stamped with the current time."""
        first, now = number * self.changes, time.monotonic_ns()
        return [(key(writer, each), value(each, now)) for each in range(first, first + self.changes)]

    def expected(self) -> dict[str, int]:
        """The number of the last value of each key."""
        total = self.each * self.changes
        return {
            key(writer, each): each for writer in range(self.writers) for each in range(max(0, total - KEYS), total)
        }


def key(writer: int, number: int) -> str:
    """The key of a writer's change with this number."""
    return f"w{writer}-{number % KEYS:03d}"


def value(number: int, stamp: int) -> dict[str, Any]:
    """An object of ``VALUE_BYTES`` bytes as compact JSON: its number, and the time of its transaction."""
    return {"n": number, "pad": "x" * (VALUE_BYTES - len(f'{{"n":{number},"pad":"","t":{stamp}}}')), "t": stamp}


def cell(writers: int, changes: int, watchers: int, quick: bool = False, paced: bool = False) -> Cell:
    """A cell with the number of transactions that takes a few seconds."""
    calls = changes * watchers
    if not paced:
        return Cell(writers, changes, watchers, 8 if quick else max(20, min(1000, 20_000 // calls)))
    rate = max(1.0, min(RATE, MAX_EVENTS / calls))
    return Cell(writers, changes, watchers, 8 if quick else max(20, int(3 * rate)), rate)


def judged(quick: bool) -> Sequence[Cell]:
    """The cells that the required ratios need."""
    return [cell(1, 1, 1, quick), cell(4, 1, 1, quick), cell(1, 1, 1, quick, paced=True)]


def others(quick: bool, matrix: bool) -> Iterator[Cell]:
    """The cells without a requirement: one for each further size; with ``matrix`` all."""
    done = judged(quick)
    if not matrix:
        sizes = [(1, 10, 2)] if quick else [(1, 10, 1), (1, 100, 1), (1, 1, 10), (1, 1, 100)]
        yield from (cell(*size, quick) for size in sizes)
        return
    for paced in (False, True):
        for writers in (1, 4):
            for changes in (1, 10, 100):
                for watchers in (1, 10, 100):
                    made = cell(writers, changes, watchers, quick, paced)
                    if made not in done:
                        yield made
