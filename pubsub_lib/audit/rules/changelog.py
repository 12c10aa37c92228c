"""Compares the changelog of the store with the publications (audit-verdicts.md, "Store to publisher")."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules.base_tables import POINT, closed, hidden_at_publisher
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.spark.settled import hashed, lookup, settled

COLUMNS: Final = (*POINT, "verdict")


def limits(events: DataFrame) -> DataFrame:
    """The ``floor`` and ``head`` of each domain with a changelog."""
    return (
        events.filter(F.col("kind") == "changelog")
        .groupBy("domain")
        .agg(F.min("prev_position").alias("floor"), F.max("position").alias("head"))
    )


def findings(
    rows: DataFrame,
    events: DataFrame,
    commits: DataFrame,
    sent_points: DataFrame,
    domains: DataFrame,
    settings: AuditSettings,
) -> DataFrame:
    """Unpublished commits, phantom publications and broken chains, in the domains with a changelog."""
    known = lookup(limits(events))
    about = lookup(domains.select("domain", "closed_until", "publisher_gaps", "service_since"))
    committed = commits.filter("committed")
    unpublished = (
        committed.join(hashed(sent_points.select(*POINT)), POINT, "left_anti")
        .join(known.select("domain"), "domain", "left_semi")
        .join(about, "domain", "left")
        .filter(closed(F.col("p"), F.col("closed_until"), settings) & ~hidden_at_publisher(settings))
        .select(*POINT, F.lit("unpublished").alias("verdict"))
    )
    phantom = (
        sent_points.join(known, "domain")
        .filter((F.col("position") > F.col("floor")) & (F.col("position") <= F.col("head")))
        .join(hashed(committed.select(*POINT)), POINT, "left_anti")
    )
    resyncs = events.filter((F.col("kind") == "sync_begin") & (F.col("cause") == "history changed"))
    verdict = F.lit("phantom_publish")
    if not resyncs.isEmpty():
        phantom = _restorable(phantom, resyncs, committed, settings)
        verdict = F.when(F.col("restorable"), "unknown").otherwise(verdict)
    phantom = phantom.select(*POINT, verdict.alias("verdict"))
    return unpublished.unionByName(phantom).unionByName(_broken(rows, known))


def _restorable(phantom: DataFrame, resyncs: DataFrame, committed: DataFrame, settings: AuditSettings) -> DataFrame:
    """Adds ``restorable``: whether a restored backup may explain the point. The first sync after the publication whose
    cause is a changed history decides: for a later sync, more of the changelog would be older than the sync, so that
    the backup explains less.
    """
    walls = lookup(resyncs.groupBy("domain").agg(F.collect_set("wall").alias("resyncs")))
    after = F.filter("resyncs", lambda wall: wall >= F.col("sent_at") - settings.grace)
    phantom = settled(phantom.join(walls, "domain", "left").withColumn("resync", F.array_min(after)).drop("resyncs"))
    firsts = lookup(phantom.select("domain", "resync").distinct())
    old = committed.join(firsts, "domain").filter(F.col("p") <= F.col("resync") - settings.reach)
    tops = lookup(old.groupBy("domain", "resync").agg(F.max("position").alias("top")))
    passed = F.coalesce(F.col("top") >= F.col("position"), F.lit(False))
    return phantom.join(tops, ["domain", "resync"], "left").withColumn(
        "restorable", F.col("resync").isNotNull() & ~passed
    )


def _broken(rows: DataFrame, known: DataFrame) -> DataFrame:
    links = (
        rows.filter((F.col("kind") == "data") & (F.col("outcome") == "committed"))
        .join(known.select("domain"), "domain", "left_semi")
        .groupBy(*POINT)
        .agg(F.max(F.struct("run", "number", "prev_position", "prev_nonce")).alias("last"))
        .select(*POINT, "last.prev_position", "last.prev_nonce")
    )
    before = Window.partitionBy("domain", "topic").orderBy("position", "nonce")
    earlier = F.lag(F.struct("position", "nonce")).over(before)
    return (
        links.withColumn("earlier", earlier)
        .filter((F.col("earlier.position") != F.col("prev_position")) | (F.col("earlier.nonce") != F.col("prev_nonce")))
        .select(*POINT, F.lit("chain_broken").alias("verdict"))
    )
