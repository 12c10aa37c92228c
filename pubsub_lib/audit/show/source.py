"""The records of one file of a journal, in memory that does not depend on the size of the file."""

import stat
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final

import msgspec

from pubsub_lib.audit.show.decoding import KINDS, entry_of
from pubsub_lib.audit.show.files import JournalFile
from pubsub_lib.errors import JournalError
from pubsub_lib.journal.compaction import PARQUET_SUFFIX
from pubsub_lib.journal.entries import Contents, Entry, Header, rows_of
from pubsub_lib.journal.parquet_metadata import metadata_of, torn_problem
from pubsub_lib.journal.previous_versions import with_previous
from pubsub_lib.journal.reading import read, unreadable
from pubsub_lib.journal.rows import Row
from pubsub_lib.journal.streaming import AppendReader

TOGETHER: Final = 50_000
"""Number of records among which the replaced version of a change is looked for."""
_MAX_NAMES: Final = 5
"""Maximum number of unknown kinds that a sentence names."""


class Source:
    """One file. ``records`` reads it once; then ``problems`` has one sentence for each kind of record that could not be
    read. One thread at a time.
    """

    def __init__(self, file: JournalFile) -> None:
        self.path = file.path
        self.file = file
        self.problems: list[str] = []
        self.first: Row | None = None
        """The first record that was read."""
        self.count = 0
        """Number of records that were read."""
        self.growing = False
        """Whether a process was writing the file when it was opened."""
        self._unknown: dict[str, None] = {}
        self._of_unknown_kinds = 0
        self._undecodable = 0
        self._undecoded = ""

    def records(self) -> Iterator[Row]:
        """The records in the order of the file, up to the size that it had when it was opened.

        Blocks while it reads. Never raises because of the file or its content: they are problems.
        """
        try:
            for row in self._rows():
                self.count += 1
                self.first = self.first or row
                if row.kind not in KINDS:
                    self._of_unknown_kinds += 1
                    if len(self._unknown) <= _MAX_NAMES:
                        self._unknown[row.kind] = None
                yield row
        except JournalError as error:
            self.problems.append(str(error))
        except FileNotFoundError:
            self.problems.append(f"{self.path} does not exist; name a file or a folder of journals")
        except OSError as error:
            self.problems.append(unreadable(self.path, error))
        except ModuleNotFoundError as error:
            self.problems.append(
                f"{self.path} cannot be read ({error.name} is not installed); run: pip install pubsub-lib[journal]"
            )
        self._conclude()

    def _conclude(self) -> None:
        if self._of_unknown_kinds:
            names = list(self._unknown)
            shown = ", ".join([*names[:_MAX_NAMES], *(["…"] if len(names) > _MAX_NAMES else [])])
            self.problems.append(
                f"{self.path} has {_records(self._of_unknown_kinds)} of unknown kinds ({shown}), shown as far as "
                "possible; a newer version of this library may have written them"
            )
        if self._undecodable:
            self.problems.append(
                f"{self.path} has {_records(self._undecodable)} that cannot be decoded ({self._undecoded}); another "
                "program may have written them; all others are shown"
            )

    def _rows(self) -> Iterator[Row]:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            converted = self.path.with_suffix(PARQUET_SUFFIX)
            if not converted.exists():
                raise
            self.path, found = converted, converted.stat()
        if not stat.S_ISREG(found.st_mode):  # to open a pipe would block
            raise JournalError(f"{self.path} is not a file; name a file or a folder of journals")
        if found.st_size == 0:
            raise JournalError(f"{self.path} is empty; its writer has just begun it, or was killed then")
        if self.path.suffix == PARQUET_SUFFIX:
            yield from self._of_parquet()
            return
        yield from _with_previous(self._appended())

    def _appended(self) -> Iterator[Row]:
        with AppendReader(self.path) as reader:
            self.growing = reader.being_written()
            for body in reader.frames():
                yield from self._decoded(reader.header, body)
            torn = metadata_of(Contents(reader.header, (), reader.torn, reader.damaged))
        problem = torn_problem(str(self.path), torn, self.count + self._undecodable)
        self.problems += [problem] if problem else []

    def _decoded(self, header: Header, body: bytes) -> list[Row]:
        entry: Entry | None = None
        try:
            entry = entry_of(body)
            return list(rows_of(header, entry))
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - another program wrote it; one entry must not hide the others
            self._skipped(f"{type(error).__name__}: {error}", 1 if entry is None else entry.records)
            return []

    def _skipped(self, why: str, records: int) -> None:
        self._undecodable += records
        self._undecoded = self._undecoded or why

    def _of_parquet(self) -> Iterator[Row]:
        import pyarrow.parquet as pq

        for row in read(self.path):
            if _is_whole(row):
                yield row
            else:
                self._skipped("a column has no value", 1)
        problem = torn_problem(str(self.path), pq.read_metadata(self.path).metadata, self.count + self._undecodable)
        self.problems += [problem] if problem else []


def _is_whole(row: Row) -> bool:
    """Whether all columns have values: a Parquet file of another program may lack some."""
    if None in msgspec.structs.astuple(row):
        return False
    return all(None not in msgspec.structs.astuple(each)[:-1] for each in row.changes)  # all but ``before``


def _with_previous(rows: Iterable[Row]) -> Iterator[Row]:
    """:func:`with_previous`, which remembers all objects of its rows, for some rows at a time."""
    left = iter(rows)
    for row in left:
        yield from with_previous(chain((row,), islice(left, TOGETHER - 1)))


def _records(number: int) -> str:
    return "1 record" if number == 1 else f"{number} records"
