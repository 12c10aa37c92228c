"""One file of a journal as Spark can read it, and the facts about it that the gathering of journals needs."""

from pathlib import Path

import msgspec
import pyarrow.parquet as pq

from pubsub_lib.audit.ingest.growing import End, end_of
from pubsub_lib.audit.ingest.overlaps import Ranges, ranges_of
from pubsub_lib.errors import JournalError
from pubsub_lib.journal.appending import being_written
from pubsub_lib.journal.compaction import PARQUET_SUFFIX, write_parquet
from pubsub_lib.journal.parquet_metadata import as_damaged, is_cut, torn_problem
from pubsub_lib.journal.reading import check_parquet


class SourceFile(msgspec.Struct, frozen=True):
    """A file and its Parquet form, the numbers of its records, and how many it has. ``torn``: the problem of records
    that are missing at its end.
    """

    path: Path
    readable: Path
    ranges: Ranges
    records: int
    torn: str

    @property
    def first(self) -> tuple[str, int] | None:
        """Run and number of the first record; None: the file is empty."""
        return min(((run, low) for run, (low, _) in self.ranges.items()), default=None)


def source_file(path: Path, scratch: Path) -> SourceFile | None:
    """The file, checked, with its Parquet form, which is made in ``scratch`` if it has none; None: it was just created
    and is still empty.

    Blocks while it reads the file, and for some seconds when the end of a locked file is not a whole record. Raises
    JournalError for a file that is not a journal, and OSError.
    """
    found = _readable(path, scratch)
    return None if found is None else _begin(path, *found)


def as_parquet(path: Path, made: Path) -> Path:
    """The file itself, checked, when it is Parquet; else its Parquet form in ``made``, written whole or not at all.

    Blocks while it reads the file. Raises JournalError for a file that is not a journal, and OSError.
    """
    if path.suffix == PARQUET_SUFFIX:
        check_parquet(path)
        return path
    write_parquet(path, made, objects_apart=True)
    return made


def _readable(path: Path, scratch: Path) -> tuple[Path, End] | None:
    """The file itself, or its Parquet form in ``scratch``, and the state of its end; None: the file was just created
    and is still empty.
    """
    try:
        if path.suffix == PARQUET_SUFFIX:
            return as_parquet(path, path), "torn"
        if path.stat().st_size == 0:
            return None
        growing = being_written(path)
        scratch.mkdir(parents=True, exist_ok=True)
        made = as_parquet(path, scratch / f"{path.stem}{PARQUET_SUFFIX}")
        if not growing or not is_cut(pq.read_metadata(made).metadata):
            return made, "torn"
        if not being_written(path):
            return _readable(path, scratch)  # it is finished now: it may be longer, and its end counts
        return made, end_of(path)
    except FileNotFoundError:
        # A running participant may have converted the file meanwhile: to the same name with another suffix.
        finished = path.with_suffix(PARQUET_SUFFIX)
        if finished == path or not finished.exists():
            raise
        return as_parquet(finished, finished), "torn"


def _begin(path: Path, readable: Path, end: End) -> SourceFile:
    """The facts about a file, by the metadata of the Parquet form. ``end``: what a record that is not whole at its end
    means. Raises JournalError.
    """
    try:
        about = pq.read_metadata(readable)
        ranges = ranges_of(readable, about)
    except (ValueError, TypeError) as error:  # a text that is not UTF-8, for example
        raise JournalError(f"{path} is damaged ({error}); remove it or copy it again") from error
    metadata = as_damaged(about.metadata) if end == "damaged" else about.metadata
    torn = "" if end == "written" else torn_problem(str(path), metadata, about.num_rows)
    return SourceFile(path, readable, ranges, about.num_rows, torn)
