"""One file of a journal as Spark can read it, and the facts about it that the gathering of journals needs."""

import os
import time
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.parquet as pq

from pubsub_lib.audit.ingest.growing import End, end_of
from pubsub_lib.audit.ingest.overlaps import Ranges, ranges_of
from pubsub_lib.errors import JournalError
from pubsub_lib.journal.appending import being_written
from pubsub_lib.journal.compaction import PARQUET_SUFFIX, write_parquet
from pubsub_lib.journal.parquet_metadata import (
    as_damaged,
    empty_problem,
    is_cut,
    is_sealed,
    is_torn,
    torn_problem,
)
from pubsub_lib.journal.reading import check_parquet

_BEGINS: Final = 60.0
"""Seconds after which no process can still be about to begin an empty file."""


class SourceFile(msgspec.Struct, frozen=True):
    """A file and its Parquet form, the numbers of its records, and how many it has. ``torn``: the problem of records
    that are missing at its end. ``sealed``: whether a checksum shows that its records were not altered.
    """

    path: Path
    readable: Path
    ranges: Ranges
    records: int
    torn: str
    sealed: bool = True

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
    check_name(path)
    found = _readable(path, scratch)
    return None if found is None else _begin(path, *found)


def check_name(path: Path) -> None:
    """Raise JournalError when Spark cannot open a file of this name, which may hold any bytes."""
    if not path.name.isascii() and os.fsencode(path.name).decode(errors="ignore") != path.name:
        raise JournalError(f"the name of {path} is not UTF-8; rename it")


def may_begin(about: os.stat_result) -> bool:
    """Whether a process may be about to lock an empty file and to write it."""
    return time.time() - about.st_mtime < _BEGINS


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
        about, growing = path.stat(), being_written(path)
        if about.st_size == 0:
            if growing or may_begin(about):
                return None
            raise JournalError(empty_problem(path, begun=False))
        scratch.mkdir(parents=True, exist_ok=True)
        made = as_parquet(path, scratch / f"{path.stem}{PARQUET_SUFFIX}")
        content = pq.read_metadata(made)
        if growing and not content.num_rows and not is_torn(content.metadata):
            return made, "written"
        if not growing or not is_cut(content.metadata):
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
    if end != "written" and not about.num_rows:
        torn = torn or empty_problem(path, begun=True)
    return SourceFile(path, readable, ranges, about.num_rows, torn, is_sealed(about.metadata))
