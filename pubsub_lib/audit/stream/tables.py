"""Spark's stream of files from the spool, and the run data of each batch (docs/audit.md, "Following")."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow.parquet as pq

from pubsub_lib.audit.ingest.input import SCHEMA
from pubsub_lib.audit.ingest.overlaps import Numbered, without_overlaps
from pubsub_lib.audit.ingest.run_ends import ReadPart, ends_before, run_and_part
from pubsub_lib.audit.spark.addresses import path_of, to_read, to_write
from pubsub_lib.audit.stream.durable import make, write_whole
from pubsub_lib.audit.stream.intake import domain_of, folder_of
from pubsub_lib.audit.stream.part_clocks import read_clocks
from pubsub_lib.audit.stream.runs import JournalPart
from pubsub_lib.journal.compaction import PARQUET_SUFFIX
from pubsub_lib.journal.parquet_metadata import torn_problem

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
        for name in (_SPOOL, _BATCHES, _STATE):
            make(checkpoint / name)

    def advance(self) -> None:
        """Read all new files in the spool. Blocks for some seconds. Raises Spark's errors."""
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
            torn = torn_problem(path.stem, about.metadata, about.num_rows)
            clocks = read_clocks(path) if whole and about.num_rows else None
            place = run_and_part(path.stem)[1]
            part = JournalPart(stem=path.stem, number=place, whole=whole, torn=torn, clocks=clocks, **values)
            parts.setdefault(domain_of(path.parent.name), []).append(part)
        for of_domain in parts.values():
            of_domain.sort(key=lambda each: each.stem)
        write_whole(self._checkpoint / _BATCHES / f"{number:09d}.json", msgspec.json.encode(parts))

    def parts(self, given_up: Mapping[str, AbstractSet[tuple[str, int]]]) -> WindowRows:
        """The parts of all files in the spool. ``given_up``: per domain each (run, part) that is lost. Blocks while it
        checks the new files.
        """
        reported: dict[str, dict[str, JournalPart]] = {}
        for path in sorted((self._checkpoint / _BATCHES).glob("[!.]*.json")):
            if path not in self._read:
                self._read[path] = msgspec.json.decode(path.read_bytes(), type=dict[str, list[JournalPart]])
            for domain, parts in self._read[path].items():
                reported.setdefault(domain, {}).update((each.stem, each) for each in parts)
        found = WindowRows({}, {}, [])
        self.torn = {}
        for folder in sorted(self.spool.iterdir()):
            domain = domain_of(folder.name)
            good, unusable = found.good.setdefault(domain, []), found.unusable.setdefault(domain, set())
            for path in sorted(folder.glob(f"[!.]*{PARQUET_SUFFIX}")):
                part = reported.get(domain, {}).get(path.stem)
                if part is not None and part.whole:
                    if part.clocks is None:  # of an earlier version
                        part = msgspec.structs.replace(part, clocks=read_clocks(path))
                        reported[domain][path.stem] = part
                    good.append(part)
                    if part.torn:
                        found.problems.append(part.torn)
                        self.torn.setdefault(domain, []).append((part.run, part.last))
                    continue
                unusable.add(run_and_part(path.stem))
                found.problems.extend(self._unusable(path, read=part is not None))
            read = [ReadPart(each.run, each.number, each.last) for each in good]
            if ends := ends_before(unusable | given_up.get(domain, frozenset()), read):
                self.torn[domain] = sorted({*self.torn.get(domain, ()), *ends})
        return found

    def _unusable(self, path: Path, *, read: bool) -> list[str]:
        """The problem of a file that Spark did not read whole (``read``: in part); none when the file has no records.
        Called only for the few files without rows in Spark; their metadata is cached.
        """
        if path not in self._about:
            about = pq.read_metadata(path)
            self._about[path] = (about.num_rows, torn_problem(path.stem, about.metadata, about.num_rows))
        records, torn = self._about[path]
        if read or records:
            return [f"{path.stem} is damaged; its records count as lost"]
        return [torn] if torn else []

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
