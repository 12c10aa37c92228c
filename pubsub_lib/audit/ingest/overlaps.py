"""Records that are in two files count once (audit-verdicts.md, "Words", *Record*)."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from pubsub_lib.journal.parquet_metadata import SCHEMA_KEY, TORN_KEY
from pubsub_lib.journal.rows import COLUMNS

Ranges = Mapping[str, tuple[int, int]]
"""Per run the lowest and the highest number of its records in a file."""
_PLACE: Final = {name: place for place, name in enumerate(COLUMNS)}
"""The index of each column in a file. The nested column is the last."""
_BATCH: Final = 10_000
"""Number of records that are Python objects at once."""


class Numbered(msgspec.Struct, frozen=True):
    """A Parquet file and the numbers of its records. ``shown``: its name in problems."""

    path: Path
    shown: str
    ranges: Ranges


def ranges_of(path: Path, about: pq.FileMetaData) -> Ranges:
    """The ranges of a file, by its metadata; of a file with several runs by its records."""
    found: dict[str, tuple[int, int]] = {}
    for place in range(about.num_row_groups):
        group = about.row_group(place)
        run, number = (group.column(_PLACE[name]).statistics for name in ("run", "number"))
        if not run or not number or run.min != run.max or run.null_count or number.null_count:
            return _ranges_of_records(path)
        low, high = found.get(run.min, (number.min, number.max))
        found[run.min] = min(low, number.min), max(high, number.max)
    return found


def _ranges_of_records(path: Path) -> Ranges:
    records = pq.ParquetFile(path).read(["run", "number"])
    if records["run"].null_count or records["number"].null_count:
        raise ValueError("a record has no run or no number")
    found = records.group_by("run").aggregate([("number", "min"), ("number", "max")])
    return {row["run"]: (row["number_min"], row["number_max"]) for row in found.to_pylist()}


def without_overlaps(files: Sequence[Numbered], scratch: Path) -> tuple[list[Path], list[str]]:
    """Files with the same records, in which each run and number occurs in one file only, and the problems. Files that
    share records are written again into ``scratch``, without those that an earlier file has.

    Where files disagree about a record, none of them keeps it. A damaged one of these files is not used. Blocks while
    it reads files whose numbers overlap. Raises OSError.
    """
    left_out: dict[int, dict[str, set[int]]] = defaultdict(dict)
    groups = [*_overlapping(files)]
    damaged = {place: _damage(files[place].path) for place in sorted({each for _, places in groups for each in places})}
    damaged = {place: why for place, why in damaged.items() if why}
    problems = [
        f"{files[place].shown} is damaged ({why}); remove it or copy it again" for place, why in damaged.items()
    ]
    for run, together in groups:
        places = [place for place in together if place not in damaged]
        shared = _shared(run, [files[place].path for place in places])
        if len(shared):
            problems += _leave_out(run, shared, {place: files[place] for place in places}, left_out)
    kept = [_without(each.path, left_out[place], scratch) if place in left_out else each.path
            for place, each in enumerate(files) if place not in damaged]  # fmt: skip
    return [path for path in kept if path is not None], problems


def _overlapping(files: Sequence[Numbered]) -> Iterator[tuple[str, list[int]]]:
    """Each run and the indexes of its files whose ranges overlap, in the order of the files."""
    by_run: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for place, each in enumerate(files):
        for run, (low, high) in each.ranges.items():
            by_run[run].append((low, high, place))
    for run, ranges in by_run.items():
        together: list[int] = []
        until = 0
        for low, high, place in sorted(ranges):
            if together and low > until:
                if len(together) > 1:
                    yield run, sorted(together)
                together = []
            until = max(until, high) if together else high
            together.append(place)
        if len(together) > 1:
            yield run, sorted(together)


def _damage(path: Path) -> str:
    """Why not all records of the file can be read; "" when they can. Raises OSError of the system."""
    try:
        pq.ParquetFile(path).read().validate(full=True)
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        return str(error).partition("\n")[0]
    return ""


def _of_run(table: pa.Table, run: str) -> pa.Table:
    return table.filter(pc.equal(table["run"], run))


def _shared(run: str, paths: Sequence[Path]) -> pa.Array:
    """The numbers of the run that are in two of these files or more."""
    each = [_of_run(pq.ParquetFile(path).read(["run", "number"]), run)["number"].unique() for path in paths]
    counted = pa.table({"number": pa.chunked_array(each)}).group_by("number").aggregate([([], "count_all")])
    return counted.filter(pc.greater(counted["count_all"], 1))["number"].combine_chunks()


def _leave_out(
    run: str, shared: pa.Array, files: Mapping[int, Numbered], left_out: dict[int, dict[str, set[int]]]
) -> list[str]:
    """Note which file leaves out which numbers. Returns the problem when files disagree."""
    first: dict[int, tuple[int, bytes]] = {}
    disagree: dict[int, tuple[int, int]] = {}
    for place, each in files.items():
        for number, digest in _digests(each.path, run, shared):
            other, known = first.setdefault(number, (place, digest))
            if other != place:
                left_out[place].setdefault(run, set()).add(number)
            if known != digest:
                disagree.setdefault(number, (other, place))
    for place in files if disagree else ():
        left_out[place].setdefault(run, set()).update(disagree)
    if not disagree:
        return []
    number = min(disagree)
    one, two = (files[place].shown for place in disagree[number])
    which = f"{len(disagree)}, the first is number {number}"
    problem = f"{one} and {two} have different records with the same numbers of the run {run} ({which}); "
    return [f"{problem}none of these records is used; remove the invalid file"]


def _digests(path: Path, run: str, shared: pa.Array) -> Iterator[tuple[int, bytes]]:
    """The numbers of the run's shared records, and a digest of each record: all records of a large file do not fit in
    memory as Python objects.
    """
    for batch in pq.ParquetFile(path).iter_batches(_BATCH):
        records = _of_run(pa.Table.from_batches([batch]), run)
        for row in records.filter(pc.is_in(records["number"], value_set=shared)).to_pylist():
            for change in row["changes"]:
                del change["before"]  # known only where the same file shows it
            yield row["number"], xxhash.xxh3_128_digest(msgspec.msgpack.encode(row))


def _without(path: Path, numbers: Mapping[str, set[int]], scratch: Path) -> Path | None:
    """The file without these numbers of its runs, in ``scratch``; None when no record is left."""
    table = pq.ParquetFile(path).read()
    for run, of_run in numbers.items():
        there = pc.and_(pc.equal(table["run"], run), pc.is_in(table["number"], value_set=pa.array(of_run, pa.int64())))
        table = table.filter(pc.invert(there))
    if not table.num_rows:
        return None
    about = table.schema.metadata or {}  # without the checksum, which is that of the whole file
    table = table.replace_schema_metadata({key: about[key] for key in (SCHEMA_KEY, TORN_KEY) if key in about})
    scratch.mkdir(parents=True, exist_ok=True)
    made = scratch / path.name
    pq.write_table(table, made, compression="zstd")
    return made
