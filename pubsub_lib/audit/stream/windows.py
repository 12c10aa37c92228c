"""Writes the verdicts of each closed window, once (docs/audit.md, "Following")."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from pubsub_lib import failpoints
from pubsub_lib.audit.report.summary import STRICT, Balance, Count, category, exit_code
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.spark.addresses import to_write
from pubsub_lib.audit.spark.arrow_tables import small
from pubsub_lib.audit.stream.intake import folder_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pubsub_lib.audit.rules.pipeline import Tables

SUMMARY: Final = "summary.json"
TABLES: Final = ("delivery", "strays")
_SPANS: Final = pa.schema([("place", pa.int32()), ("domain", pa.string()), ("begin", pa.int64()), ("end", pa.int64())])
_PART: Final = 1_000_000
"""Number of rows that one task writes."""
_BLAMELESS: Final = frozenset({"ok", "excused", "pending"})


class Span(msgspec.Struct, frozen=True):
    """Windows from ``begin`` (of the first window; null: no limit) to ``end`` (of the last), in microseconds."""

    begin: int | None
    end: int


class Closed(msgspec.Struct, frozen=True):
    """The result of one closed window. ``window``: its begin, in microseconds."""

    domain: str
    window: int
    exit_code: int
    balance: Balance
    anomalies: int
    """Number of rows that are anomalies."""
    counts: Sequence[Count]


def place_of(out: Path, domain: str, window: int) -> Path:
    """The folder of the tables of a window."""
    return out / "windows" / folder_of(domain) / f"window={window}"


def written(out: Path) -> list[Closed]:
    """All windows in the folder, by domain and time. Blocks while it reads their summaries."""
    files = (out / "windows").glob(f"domain=*/window=*/{SUMMARY}")
    found = [msgspec.json.decode(path.read_bytes(), type=Closed) for path in files]
    return sorted(found, key=lambda each: (each.domain, each.window))


def write(tables: "Tables", spans: Mapping[str, Span], settings: AuditSettings, out: Path) -> list[Closed]:
    """Write a folder for each closed window; existing folders are not changed. Returns the new windows.

    Blocks until Spark's jobs are done. Raises Spark's errors, and OSError.
    """
    from pyspark.sql import functions as F  # noqa: N812

    from pubsub_lib.audit.report.windows import timed

    aside = out / ".aside"
    shutil.rmtree(aside, ignore_errors=True)
    places = sorted(spans)
    known = F.broadcast(small(tables.rows.sparkSession, _rows(spans, places), _SPANS))
    inside = (F.col("window") + settings.window <= F.col("end")) & (
        F.col("begin").isNull() | (F.col("window") >= F.col("begin"))
    )
    counted: dict[tuple[str, int], list[tuple[Count, str]]] = {}
    for name, table in timed(tables, settings).items():
        # The folders are named by a number, so that `domain` stays a column of the files.
        chosen = table.join(known, "domain").filter(inside).drop("begin", "end").persist()
        rows = 0
        for row in _counts(chosen, name):
            rows += row["count"]
            count = Count(row["domain"], name, row["verdict"], row["detail"], row["blame"], row["count"])
            counted.setdefault((row["domain"], row["window"]), []).append((count, row["way"]))
        # Each partition writes one file for each window of which it has rows.
        chosen.coalesce(1 + rows // _PART).write.partitionBy("place", "window").parquet(to_write(aside / name))
        chosen.unpersist()
    found = []
    for (domain, window), counts in sorted(counted.items(), key=lambda each: each[0]):
        target = place_of(out, domain, window)
        if target.exists():
            continue
        closed = summed(domain, window, counts, settings)
        folder = aside / "whole"
        folder.mkdir()
        for name in TABLES:
            part = aside / name / f"place={places.index(domain)}" / f"window={window}"
            if part.exists():
                part.rename(folder / name)
        (folder / SUMMARY).write_bytes(msgspec.json.format(msgspec.json.encode(closed)))
        target.parent.mkdir(parents=True, exist_ok=True)
        failpoints.hit("follower.before_window")
        folder.rename(target)
        found.append(closed)
    shutil.rmtree(aside)
    return found


def _rows(spans: Mapping[str, Span], places: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {"place": place, "domain": domain, "begin": spans[domain].begin, "end": spans[domain].end}
        for place, domain in enumerate(places)
    ]


def _counts(chosen: "DataFrame", name: str) -> list[Any]:
    from pyspark.sql import functions as F  # noqa: N812

    if name == "strays":
        nothing = {"detail": F.lit(""), "blame": F.lit(""), "way": F.lit("")}
        chosen = chosen.withColumns(nothing)
    return chosen.groupBy("domain", "window", "verdict", "detail", "blame", "way").count().collect()


def summed(domain: str, window: int, counts: Sequence[tuple[Count, str]], settings: AuditSettings) -> Closed:
    """The summary of one window, from its counts and the way of each count."""
    sums = dict.fromkeys(Balance.__struct_fields__, 0)
    for count, way in counts:
        if count.of == "delivery":
            sums["expected"] += count.count
            sums[category(count.verdict, way)] += count.count
    together: dict[tuple[str, str, str, str], int] = {}
    for count, _ in counts:
        key = (count.of, count.verdict, count.detail, count.blame)
        together[key] = together.get(key, 0) + count.count
    verdicts = {count.verdict for count, _ in counts}
    code = exit_code(verdicts, settings, incomplete=False, problems=())
    listed = [Count(domain, *key, number) for key, number in sorted(together.items())]
    blameless = _BLAMELESS if settings.strict else _BLAMELESS | STRICT
    anomalies = sum(each.count for each in listed if each.verdict not in blameless)
    return Closed(domain, window, code, Balance(**sums), anomalies, listed)
