"""Compares the changelog of the store with the publications (audit-verdicts.md, "Store to publisher")."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules import restores
from pubsub_lib.audit.rules.base_tables import POINT, closed, hidden_at_publisher
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.spark.settled import hashed, lookup, settled, together

COLUMNS: Final = (*POINT, "verdict")


def limits(events: DataFrame) -> DataFrame:
    """The ``floor`` and ``head`` of each domain with a changelog."""
    return (
        events.filter(F.col("kind") == "changelog")
        .groupBy("domain")
        .agg(F.min("prev_position").alias("floor"), F.max("position").alias("head"))
    )


def absent(events: DataFrame, commits: DataFrame, sent_points: DataFrame) -> DataFrame:
    """The points that the changelog would contain if they had been committed and not undone: POINT; ``sent_at`` and
    ``sent_written``, null if it was not sent; ``p`` of the commit, null without a record of one; and ``survived``, the
    least time of the commits at or above the position that the changelog has.
    """
    known, committed = lookup(limits(events)), commits.filter("committed")
    recorded = commits.filter(~F.col("committed")).select(*POINT, "p")
    sent = sent_points.select(*POINT, "sent_at", "sent_written")
    found = (
        together(sent.join(hashed(recorded), POINT, "full").join(known, "domain"))
        .filter((F.col("position") > F.col("floor")) & (F.col("position") <= F.col("head")))
        .join(hashed(committed.select(*POINT)), POINT, "left_anti")
    )
    return settled(restores.with_survivor(found.drop("floor", "head"), committed))


def findings(
    rows: DataFrame,
    events: DataFrame,
    commits: DataFrame,
    sent_points: DataFrame,
    missing: DataFrame | None,
    domains: DataFrame,
    intervals: DataFrame,
    settings: AuditSettings,
) -> DataFrame:
    """Unpublished commits, phantom publications and commits, and broken chains, in the domains with a changelog.
    ``missing``: see :func:`absent`; None: there are none.
    """
    known = lookup(limits(events))
    about = lookup(domains.select("domain", "closed_until", "publisher_gaps", "sender_since"))
    committed = commits.filter("committed")
    unpublished = (
        committed.join(hashed(sent_points.select(*POINT)), POINT, "left_anti")
        .join(known.select("domain"), "domain", "left_semi")
        .join(about, "domain", "left")
        .filter(closed(F.col("p"), F.col("closed_until"), settings) & ~hidden_at_publisher(settings))
        .select(*POINT, F.lit("unpublished").alias("verdict"))
    )
    found = unpublished.unionByName(_broken(rows, known))
    if missing is None:
        return found
    sent = missing.filter(F.col("sent_at").isNotNull())
    sent = restores.with_restorable(sent, events, known, intervals, settings)
    verdict = F.when(F.col("restorable"), "unknown").otherwise("phantom_publish")
    # No replica had to notice a restore that undid what was not sent.
    of_commit = F.when(F.col("survived") > F.col("p"), "unknown").otherwise("phantom_commit")
    unsent = missing.filter(F.col("sent_at").isNull()).select(*POINT, of_commit.alias("verdict"))
    return found.unionByName(sent.select(*POINT, verdict.alias("verdict"))).unionByName(unsent)


def rotten(events: DataFrame) -> DataFrame:
    """The topics of which a service found altered objects in the database, as findings without a point."""
    found = events.filter((F.col("kind") == "rot") & (F.col("side") == "service") & (F.col("cause") == "store"))
    nowhere = {name: F.lit(0).cast("bigint") for name in ("position", "nonce")}
    return found.select("domain", "topic").distinct().withColumns({**nowhere, "verdict": F.lit("rot")}).select(*COLUMNS)


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
