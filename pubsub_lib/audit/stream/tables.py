"""Spark's stream of files from the spool, and the run data of each batch (docs/audit.md, "Following")."""

import shutil
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pubsub_lib.audit.durable import make, sync, write_whole
from pubsub_lib.audit.ingest.input import SCHEMA
from pubsub_lib.audit.ingest.overlaps import Numbered, without_overlaps
from pubsub_lib.audit.ingest.run_ends import ReadPart, ends_before, run_and_part
from pubsub_lib.audit.spark.addresses import path_of, to_read, to_write
from pubsub_lib.audit.stream.part_clocks import read_clocks
from pubsub_lib.audit.stream.runs import JournalPart, without_copies
from pubsub_lib.audit.stream.spool import domain_of, folder_of, taken_of
from pubsub_lib.errors import JournalError
from pubsub_lib.journal.compaction import PARQUET_SUFFIX
from pubsub_lib.journal.parquet_metadata import empty_problem, torn_problem
from pubsub_lib.journal.reading import check_whole

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES_PER_BATCH: Final = 1000
_SPOOL, _BATCHES, _STATE, _ONCE = "spool", "batches", "stream", "once"


class WindowRows(msgspec.Struct, frozen=True):
    """The data of all batches. ``unusable``: per domain, (run, part) of files that are empty or damaged."""

    good: dict[str, list[JournalPart]]
    unusable: dict[str, set[tuple[str, int]]]
    problems: list[str]


class Stream:
    """Reads the spool in batches. Each batch writes one small file, the same one when the batch is repeated. Only one
    thread may use a stream.
    """

    def __init__(self, spark: "SparkSession", checkpoint: Path) -> None:
        """Creates the missing folders below ``checkpoint``."""
        self._spark = spark
        self._checkpoint = checkpoint
        self.spool = checkpoint / _SPOOL
        self._read: dict[Path, dict[str, list[JournalPart]]] = {}
        self.torn: dict[str, list[tuple[str, int]]] = {}
        """Per domain run and number of the last record before bytes or files that were not read, as of the last
        :meth:`parts`.
        """
        self._about: dict[Path, tuple[int, str]] = {}
        self._checked: dict[Path, tuple[int, int]] = {}
        """The time of change and the size of files that Spark had not read, when they were checked."""
        self._notes: list[str] = []
        self._restored = False
        for name in (_SPOOL, _BATCHES, _STATE):
            make(checkpoint / name)

    def advance(self) -> None:
        """Read all new files in the spool. Blocks for some seconds. Raises Spark's errors, and OSError.

        The first call reads all files when what the batches before it left is not whole.
        """
        if not self._restored and (torn := self._torn()):
            self._begin_again(f"{torn} is not whole, as after a power loss")
        self._restored = True
        self._read_new()

    def _read_new(self) -> None:
        rows = (
            self._spark.readStream.schema(SCHEMA)
            .option("recursiveFileLookup", "true")
            .option("maxFilesPerTrigger", FILES_PER_BATCH)
            .option("maxFileAge", "36500d")  # a file may be copied here long after it was written
            # A damaged file with a sound end is found below, by its number of rows; it must not end the stream.
            .option("ignoreCorruptFiles", "true")
            .option("parquet.page.verify-checksum.enabled", "true")
            .parquet(to_read(self.spool))
        )
        query = (
            rows.select("*", "_metadata.file_path")
            .writeStream.foreachBatch(self._batch)
            .option("checkpointLocation", to_write(self._checkpoint / _STATE))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def _torn(self) -> Path | None:
        """A file of Spark's checkpoint, or of a batch, that is empty, torn or missing."""
        state = self._checkpoint / _STATE
        for path in sorted(state.rglob("[!.]*")):
            if path.is_file() and not _is_whole(path):
                return path
        last = max((int(each.name) for each in state.glob("commits/[!.]*")), default=-1)
        committed = {self._checkpoint / _BATCHES / _batch_name(number) for number in range(last + 1)}
        for path in sorted(committed.union(self._batches())):
            try:
                self._read[path] = msgspec.json.decode(path.read_bytes(), type=dict[str, list[JournalPart]])
            except (FileNotFoundError, msgspec.MsgspecError):
                return path
        return None

    def _begin_again(self, why: str) -> None:
        """Let the next batches read the whole spool. When this fails or is interrupted, the next reading repeats it,
        because batches that Spark's checkpoint names are missing.
        """
        self._notes.append(f"{why}; all journals are read again, and no result is lost")
        self._restored = False
        self._read.clear()
        self._checked.clear()
        state, aside = self._checkpoint / _STATE, self._checkpoint / f".{_STATE}.old"
        shutil.rmtree(aside, ignore_errors=True)
        for path in self._batches():
            path.unlink()
        sync(self._checkpoint / _BATCHES)
        state.rename(aside)
        sync(self._checkpoint)
        make(state)
        shutil.rmtree(aside)

    def _skipped(self) -> Path | None:
        """A file that Spark has not read whole, although it is: an error of the system has passed. Each state of a file
        is checked once.
        """
        found = None
        reported = self._reported()
        for path in self.spool.glob(f"*/[!.]*{PARQUET_SUFFIX}"):
            part = reported.get(domain_of(path.parent.name), {}).get(path.stem)
            if part is not None and part.whole:
                continue
            about = path.stat()
            state = about.st_mtime_ns, about.st_size
            if self._checked.get(path) != state:
                if _records(path):
                    found = path
                self._checked[path] = state
        return found

    def _batch(self, rows: "DataFrame", number: int) -> None:
        from pyspark.sql import functions as F  # noqa: N812

        found = rows.groupBy("file_path").agg(
            F.first("run").alias("run"),
            F.first("side").alias("side"),
            F.first("name").alias("name"),
            F.first("host").alias("host"),
            F.count("*").alias("rows"),
            F.min("number").alias("first"),
            F.max("number").alias("last"),
            F.min("wall").alias("first_wall"),
            F.max("wall").alias("last_wall"),
            F.max(F.when(F.col("kind") == "mark", F.col("wall"))).alias("last_mark"),
            F.max(F.col("kind") == "close").alias("closed"),
        )
        parts: dict[str, list[JournalPart]] = {}
        for row in found.collect():
            values = row.asDict()
            path = path_of(values.pop("file_path"))
            about = pq.read_metadata(path)
            whole = values.pop("rows") == about.num_rows
            stem, _ = taken_of(path.stem)
            torn = torn_problem(stem, about.metadata, about.num_rows)
            clocks = read_clocks(path) if whole and about.num_rows else None
            named, place = run_and_part(stem)
            place = place if named == values["run"] else 0
            part = JournalPart(stem=path.stem, number=place, whole=whole, torn=torn, clocks=clocks, **values)
            parts.setdefault(domain_of(path.parent.name), []).append(part)
        for of_domain in parts.values():
            of_domain.sort(key=lambda each: each.stem)
        write_whole(self._checkpoint / _BATCHES / _batch_name(number), msgspec.json.encode(parts))

    def parts(self, given_up: Mapping[str, AbstractSet[tuple[str, int]]]) -> WindowRows:
        """The parts of all files in the spool. ``given_up``: per domain each (run, part) that is lost. Blocks while it
        checks the new files. Raises Spark's errors, and OSError.
        """
        if path := self._skipped():
            checked = self._checked.copy()
            self._begin_again(f"Spark did not read {path}, which is whole")
            self.advance()
            self._checked = checked  # not before: these files are checked again when that reading fails
        reported = self._reported()
        found = WindowRows({}, {}, [])
        self.torn = {}
        for folder in sorted(self.spool.iterdir()):
            domain = domain_of(folder.name)
            good, unusable = found.good.setdefault(domain, []), found.unusable.setdefault(domain, set())
            bad: list[tuple[Path, bool]] = []
            for path in sorted(folder.glob(f"[!.]*{PARQUET_SUFFIX}")):
                part = reported.get(domain, {}).get(path.stem)
                if part is None or not part.whole:
                    bad.append((path, part is not None))
                    continue
                if part.clocks is None:  # of an earlier version
                    part = msgspec.structs.replace(part, clocks=read_clocks(path))
                    reported[domain][path.stem] = part
                good.append(part)
            good[:], copies = without_copies(good)
            found.problems.extend(copies)
            # A file that ended in the middle of a record may have grown later.
            last = {taken_of(part.stem)[0]: part for part in sorted(good, key=lambda each: each.last)}
            for part in last.values():
                if part.torn:
                    found.problems.append(part.torn)
                    self.torn.setdefault(domain, []).append((part.run, part.last))
            for path, read in bad:
                stem, _ = taken_of(path.stem)
                if stem not in last:
                    unusable.add(run_and_part(stem))
                found.problems.extend(self._unusable(path, read=read, alone=stem not in last))
            parts = [ReadPart(each.run, each.number, each.last) for each in good]
            unread = (unusable | given_up.get(domain, frozenset())) - {run_and_part(stem) for stem in last}
            if ends := ends_before(unread, parts):
                self.torn[domain] = sorted({*self.torn.get(domain, ()), *ends})
        return found

    def noted(self) -> list[str]:
        """The sentences since the last call about events that make no evidence incomplete."""
        notes, self._notes = self._notes, []
        return notes

    def _batches(self) -> list[Path]:
        return sorted((self._checkpoint / _BATCHES).glob("[!.]*.json"))

    def _reported(self) -> dict[str, dict[str, JournalPart]]:
        """Per domain the parts of the batches, by their stems."""
        found: dict[str, dict[str, JournalPart]] = {}
        for path in self._batches():
            if path not in self._read:
                self._read[path] = msgspec.json.decode(path.read_bytes(), type=dict[str, list[JournalPart]])
            for domain, parts in self._read[path].items():
                found.setdefault(domain, {}).update((each.stem, each) for each in parts)
        return found

    def _unusable(self, path: Path, *, read: bool, alone: bool) -> list[str]:
        """The problem of a file that Spark did not read whole (``read``: in part; ``alone``: the spool has no other
        records of the journal file); none when the file has no records. Called only for the few files without rows in
        Spark; their metadata is cached.
        """
        if path not in self._about:
            try:
                about = pq.read_metadata(path)
            except (OSError, pa.ArrowException, ValueError) as error:
                if isinstance(error, OSError) and error.errno:  # Arrow's own errors have no errno
                    raise
                return [_damaged(path)]
            stem = taken_of(path.stem)[0]
            torn = torn_problem(stem, about.metadata, about.num_rows)
            self._about[path] = about.num_rows, torn or ("" if about.num_rows else empty_problem(stem, begun=True))
        records, torn = self._about[path]
        if read or records:
            return [_damaged(path)]
        return [torn] if torn and alone else []

    def files(self, domain: str, parts: Iterable[JournalPart]) -> tuple[list[Path], list[str]]:
        """The files of these parts in the spool, or beside it without the records that another one has, too; and the
        problems of files that disagree. Blocks when files overlap. Raises OSError.
        """
        numbered = [
            Numbered(
                self.spool / folder_of(domain) / f"{each.stem}{PARQUET_SUFFIX}",
                each.stem,
                {each.run: (each.first, max(each.first, each.last))},
            )
            for each in parts
        ]
        return without_overlaps(numbered, self._checkpoint / _ONCE / folder_of(domain))


def _batch_name(number: int) -> str:
    return f"{number:09d}.json"


def _damaged(path: Path) -> str:
    return f"{taken_of(path.stem)[0]} is damaged; its records count as lost"


def _records(path: Path) -> int:
    """The number of records in a file; 0 when it is damaged. Blocks while it reads the file. Raises OSError."""
    try:
        check_whole(path)
    except JournalError:
        return 0
    return int(pq.read_metadata(path).num_rows)


def _is_whole(path: Path) -> bool:
    """Whether a file of Spark's checkpoint is whole: lines of JSON, after one with a version."""
    first, *lines = path.read_bytes().splitlines() or [b""]
    try:
        for line in lines if first.startswith(b"v") else (first,):
            msgspec.json.decode(line)
    except msgspec.MsgspecError:
        return False
    return True
