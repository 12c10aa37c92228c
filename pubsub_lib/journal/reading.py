"""Reading journals in both forms."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from pubsub_lib.errors import JournalError
from pubsub_lib.journal.appending import OPEN_SUFFIX
from pubsub_lib.journal.compaction import BAD_SUFFIX, PARQUET_SUFFIX
from pubsub_lib.journal.entries import parse, rows
from pubsub_lib.journal.parquet_metadata import SCHEMA_KEY, is_sealed, lacks_seal
from pubsub_lib.journal.rows import COLUMNS, SCHEMA, Row, arrow_schema, from_dict
from pubsub_lib.journal.seal import check_seal

_BATCH: Final = 4096
"""Number of records of a Parquet file that are rows at once."""
_NO_CHECKSUM: Final = "its checksum is missing"


class Found(msgspec.Struct, frozen=True):
    """The journal files of some folders. A file that exists in both forms counts as Parquet."""

    parquet: Sequence[Path]
    append: Sequence[Path]
    set_aside: Sequence[Path] = ()
    """Files that a journal's maintenance could not convert."""


def find(folders: Sequence[Path]) -> Found:
    """The files in these folders (not below), sorted. Raises JournalError when a folder cannot be listed.

    Each folder is scanned twice: a scan of a large folder may return neither the old nor the new name of a file that
    is converted meanwhile.
    """
    parquet: list[Path] = []
    append: list[Path] = []
    set_aside: list[Path] = []
    for folder in folders:
        try:
            names = sorted({*folder.iterdir(), *folder.iterdir()})
        except OSError as error:
            raise JournalError(
                f"the journals' folder {folder} cannot be read ({error.strerror}); name one that exists"
            ) from error
        rolled = [each for each in names if each.suffix == PARQUET_SUFFIX and not each.name.startswith(".")]
        stems = {each.stem for each in rolled}
        parquet += rolled
        append += [each for each in names if each.suffix == OPEN_SUFFIX and each.stem not in stems]
        set_aside += [each for each in names if each.suffix == BAD_SUFFIX]
    return Found(parquet, append, set_aside)


def read(path: Path) -> Iterator[Row]:
    """The rows of one file of either form, in its order. Raises JournalError: invalid, truncated, newer schema,
    unreadable, or missing.

    Reading stops at the torn tail of an append file: its writer was killed, or its disk was full.
    """
    if path.suffix == PARQUET_SUFFIX:
        yield from _read_parquet(path)
        return
    try:
        data = path.read_bytes()
    except OSError as error:
        raise JournalError(
            f"{path} cannot be read ({error.strerror}); check which process deletes journal files"
        ) from error
    yield from rows(parse(data, path.name), path.name)


def unreadable(path: Path, error: OSError) -> str:
    """The error sentence for a file that the system cannot read."""
    if isinstance(error, FileNotFoundError):
        return f"{path} cannot be read (it was deleted); check which process deletes journal files"
    return f"{path} cannot be read ({error.strerror}); correct its rights or its disk"


def check_parquet(path: Path) -> None:
    """Raises JournalError when a Parquet file is not a journal that this program can read, does not match its checksum,
    or has none although its version should have one, and OSError when the system cannot read the file, or it was
    deleted: then it may be a valid one. Blocks while it reads the file.
    """
    if lacks_seal(_opened(path).metadata.metadata):
        raise _damaged(path, _NO_CHECKSUM)


def _opened(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # First: a changed bit in Parquet's metadata may lead its reader astray in any way.
        sealed = check_seal(path)
        if sealed == "wrong":
            raise _damaged(path, "its checksum does not match its content")
        file = pq.ParquetFile(path, page_checksum_verification=True)
    except OSError as error:
        if error.errno:  # an error of the system; Arrow's own errors have no errno
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        raise JournalError(f"{path} is not a complete Parquet file; remove it or copy it again") from error
    except (pa.ArrowException, ValueError) as error:
        raise JournalError(f"{path} is not a complete Parquet file; remove it or copy it again") from error
    version = (file.metadata.metadata or {}).get(SCHEMA_KEY, b"")
    if sealed == "none" and is_sealed(file.metadata.metadata):
        raise _damaged(path, _NO_CHECKSUM)
    if not version.isdigit():
        raise JournalError(f"{path} is not a journal; remove it from the journals' folder")
    if int(version) > SCHEMA:
        raise JournalError(
            f"{path} has the schema version {int(version)}, this program reads up to {SCHEMA}; "
            "read it with a newer version of this library"
        )
    if not file.schema_arrow.equals(arrow_schema()):
        raise JournalError(f"{path} does not have the columns of a journal; remove it from the journals' folder")
    return file


def _read_parquet(path: Path) -> Iterator[Row]:
    import pyarrow as pa

    try:
        file = _opened(path)
    except OSError as error:
        raise JournalError(unreadable(path, error)) from error
    try:
        for batch in file.iter_batches(_BATCH, columns=list(COLUMNS)):
            yield from (from_dict(each) for each in batch.to_pylist())
    except (OSError, pa.ArrowException, ValueError) as error:
        raise _damaged(path, error) from error


def check_whole(path: Path) -> None:
    """As :func:`check_parquet`, but reads the whole file. Blocks meanwhile."""
    import pyarrow as pa

    try:
        for _ in _opened(path).iter_batches(columns=list(COLUMNS)):
            pass
    except (pa.ArrowException, ValueError) as error:
        raise _damaged(path, error) from error
    except OSError as error:
        if error.errno:
            raise
        raise _damaged(path, error) from error  # Arrow's own


def _damaged(path: Path, error: object) -> JournalError:
    return JournalError(f"{path} is damaged ({' '.join(str(error).split())}); remove it or copy it again")
