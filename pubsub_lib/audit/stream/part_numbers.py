"""Which parts of their runs files are that were renamed (docs/audit.md, "Following").

The name of a file shows which part of its run it is. So do the numbers of its records, when the part before it is
known: they go on where that one ends.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.parquet as pq

from pubsub_lib.audit.ingest.overlaps import Ranges, ranges_of
from pubsub_lib.audit.ingest.run_ends import run_and_part
from pubsub_lib.audit.stream.spool import taken_of
from pubsub_lib.journal.compaction import PARQUET_SUFFIX

_RUN: Final = 32
"""Length of the id of a run."""
Part = tuple[str, int]
"""A run and the number of one of its parts."""


class NumberedFile(msgspec.Struct, frozen=True):
    """A file of one run. ``number``: that of the part; 0 when its name has none. ``first``, ``last``: the numbers of
    its records.
    """

    stem: str
    number: int
    first: int
    last: int


def part_numbers(files: Iterable[NumberedFile], opened: AbstractSet[int]) -> dict[str, int]:
    """The numbers of the parts of one run, by the stem of the journal file; 0 where neither the name nor the records
    show it. ``opened``: the parts that are being written.
    """
    whole: dict[str, NumberedFile] = {}
    for each in files:
        stem, _ = taken_of(each.stem)
        known = whole.get(stem, each)
        first, last = min(known.first, each.first), max(known.last, each.last)
        whole[stem] = NumberedFile(stem, known.number, first, last)
    taken = {each.number for each in whole.values()} | opened
    found = {}
    before = until = 0
    for each in sorted(whole.values(), key=lambda one: (one.first, one.number == 0, one.stem)):
        number = each.number
        if not number and each.first == until + 1 and before + 1 not in taken:
            number = before + 1
            taken.add(number)
        if number:
            before, until = number, each.last
        found[each.stem] = number
    return found


class SpooledParts:
    """The parts whose files are in the spool. Only one thread may use it."""

    def __init__(self, spool: Path) -> None:
        """``spool``: the folder of a domain."""
        self._spool = spool
        self._ranges: dict[Path, Ranges] = {}

    def parts(self, stems: Iterable[str], opened: Mapping[str, AbstractSet[int]]) -> set[Part]:
        """The parts of the runs of these journal files. Reads the end of each file whose name is not that of a journal.
        Raises OSError.
        """
        found, renamed = set(), set()
        for stem in stems:
            place = run_and_part(stem)
            if place[1] and len(place[0]) == _RUN and not place[0].strip("0123456789abcdef"):
                found.add(place)
            else:
                renamed.add(stem)
        return found | self._renamed(renamed, opened) if renamed else found

    def _renamed(self, stems: AbstractSet[str], opened: Mapping[str, AbstractSet[int]]) -> set[Part]:
        of_run: dict[str, list[NumberedFile]] = defaultdict(list)
        paths = sorted(self._spool.glob(f"[!.]*{PARQUET_SUFFIX}"))
        runs = {run for path in paths if taken_of(path.stem)[0] in stems for run in self._of(path)}
        for path in paths:
            named, part = run_and_part(taken_of(path.stem)[0])
            if taken_of(path.stem)[0] in stems or named in runs:
                for run, (low, high) in self._of(path).items():
                    of_run[run].append(NumberedFile(path.stem, part if run == named else 0, low, high))
        return {
            (run, number)
            for run, files in of_run.items()
            for number in part_numbers(files, opened.get(run, frozenset())).values()
            if number
        }

    def _of(self, path: Path) -> Ranges:
        if path not in self._ranges:
            try:
                self._ranges[path] = ranges_of(path, pq.read_metadata(path))
            except (ValueError, TypeError):  # damaged since it was checked: Spark's stream reports it
                self._ranges[path] = {}
        return self._ranges[path]
