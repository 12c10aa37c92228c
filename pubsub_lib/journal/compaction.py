"""Converts finished append files to Parquet, and removes old files. Run as a program by a journal's maintenance:
``python -m pubsub_lib.journal.compaction FOLDER KEEP_BYTES KEEP_SECONDS``.
"""

import contextlib
import itertools
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from pubsub_lib.errors import JournalError
from pubsub_lib.journal.appending import OPEN_SUFFIX, being_written, claim
from pubsub_lib.journal.entries import inconvertible, parse, rows
from pubsub_lib.journal.parquet_metadata import RECORDS_KEY, metadata_of
from pubsub_lib.journal.rows import Row, arrow_schema, as_columns
from pubsub_lib.journal.seal import CHECKSUM_KEY, UNSEALED, seal
from pubsub_lib.logs import logger

_log = logger(__name__)

PARQUET_SUFFIX: Final = ".parquet"
BAD_SUFFIX: Final = ".unreadable"
_SLICE: Final = 50_000  # rows that are in memory at once
MAX_GAP: Final = 86_400.0
"""Seconds that the time between two files, in the order of their times, counts at most. So a host's clock that is years
ahead for a while removes no evidence: files age by the time in which the folder is written."""
_STALE: Final = 3600.0  # seconds after which no process can still be about to begin an empty file


class Compacted(msgspec.Struct):
    """The result of one call: files converted to Parquet, files that were not journals, removed files. A file with an
    I/O error is in none of them.
    """

    rolled: int = 0
    unreadable: int = 0
    removed: int = 0


def compact(folder: Path, keep_bytes: int | None = None, keep_seconds: float | None = None) -> Compacted:
    """Convert every finished append file to a Parquet file of the same name; before and after that, remove finished
    files over ``keep_bytes`` or ``keep_seconds``, the oldest first. The append files that are still there afterwards
    count, too: those that could not be converted.

    By atomic rename: readers see the one form or the other, or both for a moment (the records are the same, and
    readers count a record once). Any process may do this at any time, several at once. A file that cannot be converted
    or removed is logged and skipped; the next call retries it. Raises OSError when the folder cannot be listed, and
    ImportError without pyarrow.
    """
    done = Compacted()
    # Before: the conversion needs disk space, and its errors must not keep old files.
    _retain(_finished(folder, (PARQUET_SUFFIX, BAD_SUFFIX)), keep_bytes, keep_seconds, done)
    try:
        for path in sorted(folder.glob(f"*{OPEN_SUFFIX}")):
            try:
                _claim_and_compact(path, done)
            except OSError as error:
                why = error.strerror or error
                _log.warning(
                    "%s is not converted to Parquet (%s), retrying; free space or correct its rights", path, why
                )
    finally:  # also without pyarrow
        suffixes = (PARQUET_SUFFIX, BAD_SUFFIX, OPEN_SUFFIX)  # the new files count as well
        _retain(_finished(folder, suffixes), keep_bytes, keep_seconds, done)
    return done


def _claim_and_compact(path: Path, done: Compacted) -> None:
    fd = claim(path)
    if fd is None:
        return  # still being written, or another process has claimed it
    try:
        _compact_one(path, done)
    finally:
        os.close(fd)


def _compact_one(path: Path, done: Compacted) -> None:
    """Convert one file. The caller has claimed it."""
    stat = path.stat()
    if stat.st_size == 0:  # its writer is about to lock it, or was killed just then
        if time.time() - stat.st_mtime > _STALE:
            path.unlink()
        return
    target = path.with_suffix(PARQUET_SUFFIX)
    for left in path.parent.glob(f".{target.name}.*"):
        left.unlink(missing_ok=True)  # left by a killed process: this one has claimed the append file
    try:
        write_parquet(path, target)
    except JournalError as error:
        _log.warning("%s", error)
        path.rename(path.with_suffix(BAD_SUFFIX))
        done.unreadable += 1
    else:
        path.unlink()
        done.rolled += 1


def write_parquet(source: Path, target: Path, *, objects_apart: bool = False) -> None:
    """An append file as Parquet, by atomic rename. Raises JournalError, OSError, ImportError.

    ``objects_apart``: the records of objects are in row groups of their own, so that a reader of other records skips
    them by their statistics. The records are then not in order.
    """
    import pyarrow.parquet as pq

    changed = source.stat()
    contents = parse(source.read_bytes(), source.name)
    schema = arrow_schema().with_metadata(metadata_of(contents))
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with pq.ParquetWriter(temporary, schema, compression="zstd", write_page_checksum=True) as writer:
            found = rows(contents, source.name)
            records = 0
            while part := list(itertools.islice(found, _SLICE)):
                records += len(part)
                table = _table(part, schema, source.name)
                for group in _apart(table) if objects_apart else (table,):
                    writer.write_table(group)
            writer.add_key_value_metadata({RECORDS_KEY: str(records).encode(), CHECKSUM_KEY: UNSEALED})
        seal(temporary)
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.utime(temporary, ns=(changed.st_atime_ns, changed.st_mtime_ns))  # retention counts the age of the records
        temporary.rename(target)
    finally:
        temporary.unlink(missing_ok=True)


def _apart(table: Any) -> Iterator[Any]:
    """The records of objects, and all others, each if there are any."""
    import pyarrow.compute as pc

    of_objects = pc.equal(table["kind"], "object")
    yield from (each for each in (table.filter(of_objects), table.filter(pc.invert(of_objects))) if each.num_rows)


def _table(part: list[Row], schema: Any, name: str) -> Any:
    """The rows as a ``pyarrow.Table``. Raises JournalError, for example for a number beyond 64 bits."""
    import pyarrow as pa

    try:
        return pa.Table.from_pydict(as_columns(part), schema=schema)
    except (ValueError, TypeError, OverflowError) as error:  # Arrow's own are subclasses of these
        raise inconvertible(name, error) from error


_File = tuple[float, int, Path]
"""When a file was changed last, and its size."""


def _finished(folder: Path, suffixes: Sequence[str]) -> list[_File]:
    """The files that no process writes any more, the oldest first."""
    files = []
    for path in folder.iterdir():
        if path.suffix in suffixes:
            with contextlib.suppress(FileNotFoundError):  # another process removes files, too
                stat = path.stat()
                if path.suffix != OPEN_SUFFIX or (stat.st_size and not _may_grow(path)):
                    files.append((stat.st_mtime, stat.st_size, path))
    return sorted(files)


def _may_grow(path: Path) -> bool:
    try:
        return being_written(path)
    except PermissionError:  # of another user, whose own compaction removes it
        return True


def _retain(files: Sequence[_File], keep_bytes: int | None, keep_seconds: float | None, done: Compacted) -> None:
    total = sum(size for _, size, _ in files)
    for age, (_, size, path) in zip(_ages([changed for changed, _, _ in files], time.time()), files, strict=True):
        too_much = keep_bytes is not None and total > keep_bytes
        too_old = keep_seconds is not None and age > keep_seconds
        if too_much or too_old:
            try:
                removed = _remove(path)
            except OSError as error:
                _log.warning("%s is old and cannot be removed (%s); correct its rights", path, error.strerror)
                continue
            total -= size
            done.removed += removed


def _remove(path: Path) -> bool:
    """False: another process has claimed the append file, to convert or to remove it."""
    if path.suffix != OPEN_SUFFIX:
        path.unlink(missing_ok=True)
        return True
    fd = claim(path)
    if fd is None:
        return False
    try:
        path.unlink()
    finally:
        os.close(fd)
    return True


def _ages(changed: list[float], now: float) -> list[float]:
    """The ages of files with these times, the oldest first, in seconds."""
    ages, age, newer = [], 0.0, now
    for each in reversed(changed):
        age += min(max(newer - each, 0.0), MAX_GAP)
        ages.append(age)
        newer = each
    return ages[::-1]


if __name__ == "__main__":
    os.nice(10)
    try:
        compact(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
    except ImportError as error:
        sys.exit(f"the conversion to Parquet needs {error.name}; install it: pip install 'pubsub-lib[journal]'")
    except OSError as error:
        sys.exit(f"the journals in {sys.argv[1]} cannot be listed ({error.strerror}); correct the folder's rights")
