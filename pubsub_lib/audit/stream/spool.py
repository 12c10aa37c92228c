"""What a follower has taken of each journal file, as files of its own that never change.

``<stem>.parquet`` is the rest of a file that grows no more. ``<stem>~<number>.parquet`` has records of an append file,
up to this number: a copy of it may grow later. No record is in two files.
"""

import math
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

import pyarrow.compute as pc
import pyarrow.parquet as pq

from pubsub_lib.audit.durable import make, rename
from pubsub_lib.audit.ingest.overlaps import ranges_of
from pubsub_lib.errors import JournalError
from pubsub_lib.journal.compaction import PARQUET_SUFFIX, write_parquet
from pubsub_lib.journal.parquet_metadata import SCHEMA_KEY, TORN_KEY, is_sealed
from pubsub_lib.journal.reading import check_parquet

WHOLE: Final = math.inf
"""In place of the number of the last record: the file grows no more."""
_PIECE: Final = re.compile(r"(.+)~(\d+)")


def folder_of(domain: str) -> str:
    """The name of the folder of a domain. The domain may have any characters."""
    return f"domain={quote(domain, safe='')}"


def domain_of(folder: str) -> str:
    """The domain of a folder that ``folder_of`` named."""
    return unquote(folder.removeprefix("domain="))


def taken_of(stem: str) -> tuple[str, float]:
    """By the stem of a file in the spool: the stem of the journal file, and the number up to which it is taken."""
    match = _PIECE.fullmatch(stem)
    return (match[1], int(match[2])) if match else (stem, WHOLE)


class Spool:
    """The folders of all domains. Only one thread may use a spool."""

    def __init__(self, root: Path, domains: Iterable[str]) -> None:
        """Creates the missing folders."""
        self._root = root
        for domain in domains:
            make(root / folder_of(domain))

    def taken(self, domain: str) -> dict[str, float]:
        """Per stem of a journal file the number up to which it is taken."""
        found: dict[str, float] = {}
        for path in (self._root / folder_of(domain)).glob(f"[!.]*{PARQUET_SUFFIX}"):
            stem, until = taken_of(path.stem)
            found[stem] = max(until, found.get(stem, 0))
        return found

    def put(self, path: Path, domain: str, after: float | None) -> float:
        """Take the records of a journal file after this number, or all. Returns the number up to which it is taken now.

        Blocks while it reads the file. Raises JournalError for a file that is not a journal, and OSError.
        """
        folder = self._root / folder_of(domain)
        beside, rest = folder / f".{path.stem}.new", folder / f".{path.stem}.rest"
        if path.suffix == PARQUET_SUFFIX:
            check_parquet(path)
            if after is not None and _last(path) <= after:
                return after
            shutil.copyfile(path, beside)  # a link would change with a file that is copied again
            _check_copy(beside, path)
            until, target = WHOLE, folder / path.name
        else:
            write_parquet(path, beside, objects_apart=True)
            until = _last(beside)
            if after is not None and until <= after:
                beside.unlink()
                return after
            target = folder / f"{path.stem}~{until}{PARQUET_SUFFIX}"
        if after is None:
            rename(beside, target)
        else:
            _write_after(beside, int(after), rest)
            rename(rest, target)
            beside.unlink()
        return until


def has_seal(path: Path) -> bool:
    """Whether a checksum shows that the records of a journal file that was taken were not altered: of an append file
    those of its frames. Blocks while it reads the end of the file. Raises OSError.
    """
    return path.suffix != PARQUET_SUFFIX or is_sealed(pq.read_metadata(path).metadata)


def _check_copy(copy: Path, path: Path) -> None:
    try:
        check_parquet(copy)
    except JournalError as error:
        raise JournalError(f"{path} changed while it was copied; remove it or copy it again") from error


def _last(path: Path) -> int:
    """The number of the last record; 0 without any. Raises JournalError."""
    try:
        return max((high for _, high in ranges_of(path, pq.read_metadata(path)).values()), default=0)
    except (ValueError, TypeError) as error:
        raise JournalError(f"{path} is damaged ({error}); remove it or copy it again") from error


def _write_after(path: Path, number: int, target: Path) -> None:
    """Write the records after this number. The checksum is that of the whole file, so it is left out."""
    table = pq.ParquetFile(path).read()
    about = table.schema.metadata or {}
    kept = table.filter(pc.greater(table["number"], number))
    kept = kept.replace_schema_metadata({key: about[key] for key in (SCHEMA_KEY, TORN_KEY) if key in about})
    pq.write_table(kept, target, compression="zstd")
