"""Whether all records of a change show the same content (audit-verdicts.md, "Content").

Nearly always they do. That is found out in the jobs that compute commits and sent points; only otherwise are the
records of the points in question read again.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules.base_tables import POINT
from pubsub_lib.audit.rules.stream_ids import STREAM
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.spark.settled import fulfilling, hashed, lookup

WRITER, HOP, PUBLISHER, WIRE, POLLING, SYNC = "writer", "hop", "publisher", "wire", "polling", "sync"
"""Where a content changed: the detail of ``corrupt``."""
_BEFORE: Final = ("committed", "handed", "taken")
_RECORD: Final = "array<struct<outcome:string,wall:bigint,hash:bigint>>"


def different(low: Column, high: Column) -> Column:
    """Whether the lowest and the highest of some hashes differ; false without hashes."""
    return F.coalesce(low != high, F.lit(False))


def compared(sent_points: DataFrame, commits: DataFrame) -> tuple[DataFrame, frozenset[str]]:
    """The sent points, computed, with ``strange``: the content is not that of the commit; and ``stored``: the changelog
    has the commit. And what is true of any of them: ``strange``, ``absent`` (not stored).
    """
    low, high = F.least("sent_low", "low"), F.greatest("sent_high", "high")
    of_commits = hashed(commits.select(*POINT, "low", "high", "committed"))
    joined = sent_points.join(of_commits, POINT, "left").withColumn("strange", different(low, high))
    joined = joined.withColumn("stored", F.coalesce("committed", F.lit(False))).drop("low", "high", "committed")
    return fulfilling(joined, {"strange": F.col("strange"), "absent": ~F.col("stored")})


def evidence(rows: DataFrame, commits: DataFrame, sent_points: DataFrame) -> DataFrame:
    """One row per point in question, with ``before``: what its records show until it is sent. Not computed: it becomes
    part of the plan of the items, which are computed once.
    """
    points = commits.filter("strange").select(*POINT).unionByName(sent_points.filter("strange").select(*POINT))
    whole = rows.filter((F.col("kind") == "data") & (F.col("parts") == 1) & F.col("outcome").isin(*_BEFORE))
    there = whole.join(lookup(points.distinct()), POINT, "left_semi")
    return there.groupBy(*POINT).agg(F.collect_list(F.struct("outcome", "wall", "hash")).alias("before"))


def streams_of(evidence: DataFrame, rows: DataFrame) -> DataFrame:
    """The streams that sent a point in question."""
    sent = rows.filter((F.col("kind") == "data") & (F.col("outcome") == "sent"))
    return sent.join(lookup(evidence.select(*POINT)), POINT, "left_semi").select(*STREAM).distinct()


def with_changed_at(items: DataFrame, evidence: DataFrame | None, settings: AuditSettings) -> DataFrame:
    """The items with ``changed_at``, the place where the content changed until it was sent, or "", and ``before``: the
    hashes until it was sent (null: see the table of commits).
    """
    if evidence is None:
        several = F.col("whole") & different(F.col("sent_low"), F.col("sent_high"))
        changed_at = F.when(several, PUBLISHER).otherwise("")
        return items.withColumns({"changed_at": changed_at, "before": F.lit(None).cast("array<bigint>")})
    known = F.coalesce("before", F.array().cast(_RECORD))
    in_time = F.filter(
        known, lambda each: (each["outcome"] == "committed") | (each["wall"] <= F.col("p") + settings.reach)
    )
    so_far = F.array().cast("array<bigint>")
    place = F.lit(None).cast("string")
    for outcome, hop in zip(_BEFORE, (WRITER, WRITER, HOP), strict=True):
        so_far = F.concat(so_far, _hashes(in_time, outcome))
        place = F.coalesce(place, F.when(_several(so_far), hop))
    sent = F.when(F.col("whole"), F.array("sent_low", "sent_high")).otherwise(F.array().cast("array<bigint>"))
    place = F.coalesce(place, F.when(_several(F.concat(so_far, F.array_compact(sent))), PUBLISHER), F.lit(""))
    joined = items.join(lookup(evidence), POINT, "left")
    return joined.withColumns({"changed_at": place, "before": F.when(F.col("before").isNotNull(), so_far)})


def _hashes(records: Column, outcome: str) -> Column:
    return F.transform(F.filter(records, lambda each: each["outcome"] == outcome), lambda each: each["hash"])


def _several(hashes: Column) -> Column:
    return F.size(F.array_distinct(hashes)) > 1
