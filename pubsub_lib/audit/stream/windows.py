"""Writes the verdicts of each closed window, and later revisions of windows with losses (docs/audit.md, "Following").

A change that was lost when its window was closed may come at last. Only then does a window get a revision: a folder of
its own. Existing folders are never changed.
"""

import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from pubsub_lib import failpoints
from pubsub_lib.audit.durable import make, rename
from pubsub_lib.audit.report.summary import STRICT, Balance, Count, category, exit_code
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.spark.addresses import to_write
from pubsub_lib.audit.spark.arrow_tables import small
from pubsub_lib.audit.stream.spool import folder_of
from pubsub_lib.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pubsub_lib.audit.rules.pipeline import Tables

SUMMARY: Final = "summary.json"
TABLES: Final = ("delivery", "strays")
_SPANS: Final = pa.schema([("place", pa.int32()), ("domain", pa.string()), ("begin", pa.int64()), ("end", pa.int64())])
_AGAIN: Final = pa.schema([("of", pa.string()), ("again", pa.int64())])
_PART: Final = 1_000_000
"""Number of rows that one task writes."""
_BLAMELESS: Final = frozenset({"ok", "excused", "pending"})


class Span(msgspec.Struct, frozen=True):
    """Windows from ``begin`` (of the first window; null: no limit) to ``end`` (of the last), in microseconds.
    ``begun``: side and name of each participant with an unfinished file.
    """

    begin: int | None
    end: int
    begun: Collection[tuple[str, str]] = ()


class Closed(msgspec.Struct, frozen=True):
    """The result of one closed window. ``window``: its begin, in microseconds; ``revision``: 1 is the first result."""

    domain: str
    window: int
    exit_code: int
    balance: Balance
    anomalies: int
    """Number of rows that are anomalies."""
    counts: Sequence[Count]
    revision: int = 1

    @property
    def key(self) -> tuple[str, int]:
        """The window."""
        return self.domain, self.window


def place_of(out: Path, domain: str, window: int, revision: int = 1) -> Path:
    """The folder of the tables of a window, or of one of its revisions."""
    if revision == 1:
        return out / "windows" / folder_of(domain) / f"window={window}"
    return out / "revised" / folder_of(domain) / f"window={window}" / f"revision={revision}"


def written(out: Path) -> list[Closed]:
    """The last revisions of all windows in the folder, by domain and time. Blocks while it reads their summaries.
    Raises ConfigError when one is damaged.
    """
    found = _read(out, f"windows/domain=*/window=*/{SUMMARY}")
    found += _read(out, f"revised/domain=*/window=*/revision=*/{SUMMARY}")
    last: dict[tuple[str, int], Closed] = {}
    for each in sorted(found, key=lambda one: (one.domain, one.window, one.revision)):
        last[each.key] = each
    return list(last.values())


def _read(out: Path, pattern: str) -> list[Closed]:
    return [_summary(path) for path in out.glob(pattern)]


def _summary(path: Path) -> Closed:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Closed)
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"{path} is not the result of a window ({error}); restore it from a backup, or name a new --out"
        ) from error


def _revisable(out: Path, domains: Iterable[str]) -> dict[tuple[str, int], Closed]:
    """The last revisions of the windows with a loss in their first result, which may turn out to be late; or with what
    is late already, but may turn out to have come by a message.
    """
    first = {each.key for name in domains for each in _read(out / "windows" / folder_of(name), f"window=*/{SUMMARY}")
             if each.balance.lost or any(count.verdict == "late" for count in each.counts)}  # fmt: skip
    return {each.key: each for each in written(out) if each.key in first} if first else {}


def write(tables: "Tables", spans: Mapping[str, Span], settings: AuditSettings, out: Path) -> list[Closed]:
    """Write a folder for each closed window, and for each new revision of an earlier one; existing folders are not
    changed. Returns the new windows and revisions.

    Blocks until Spark's jobs are done, and the folders are on the disk. Raises Spark's errors, ConfigError and OSError.
    """
    from pyspark.sql import functions as F  # noqa: N812

    from pubsub_lib.audit.report.windows import timed

    aside = out / ".aside"
    shutil.rmtree(aside, ignore_errors=True)
    places = sorted(spans)
    earlier = _revisable(out, places)
    spark = tables.rows.sparkSession
    known = F.broadcast(small(spark, _rows(spans, places), _SPANS))
    inside = (F.col("window") + settings.window <= F.col("end")) & (
        F.col("begin").isNull() | (F.col("window") >= F.col("begin"))
    )
    if earlier:
        windows = [{"of": domain, "again": window} for domain, window in earlier]
        again = F.broadcast(small(spark, windows, _AGAIN))
    counted: dict[tuple[str, int], list[tuple[Count, str]]] = {}
    for name, table in timed(tables, settings).items():
        # The folders are named by a number, so that `domain` stays a column of the files.
        chosen = table.join(known, "domain")
        if earlier:
            same = (F.col("domain") == F.col("of")) & (F.col("window") == F.col("again"))
            chosen = chosen.join(again, same, "left").filter(inside | F.col("again").isNotNull()).drop("of", "again")
        else:
            chosen = chosen.filter(inside)
        chosen = chosen.drop("begin", "end").persist()
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
        closed = summed(domain, window, counts, settings)
        before = earlier.get(closed.key)
        if before is not None and before.counts != closed.counts:
            closed = msgspec.structs.replace(closed, revision=before.revision + 1)
        if _keep(closed, aside, places.index(domain), out):
            found.append(closed)
    shutil.rmtree(aside)
    return found


def _keep(closed: Closed, aside: Path, place: int, out: Path) -> bool:
    """Move the tables of a window into its folder. Returns whether there was none."""
    target = place_of(out, closed.domain, closed.window, closed.revision)
    if target.exists():
        return False
    folder = aside / "whole"
    folder.mkdir()
    for name in TABLES:
        part = aside / name / f"place={place}" / f"window={closed.window}"
        if part.exists():
            part.rename(folder / name)
    (folder / SUMMARY).write_bytes(msgspec.json.format(msgspec.json.encode(closed)))
    make(target.parent)
    failpoints.hit("follower.before_window")
    rename(folder, target)
    return True


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
