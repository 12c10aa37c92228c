"""From the store to the publishers (docs/audit.md, "Store to publisher")."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit import words
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.words import POINT, closed, hidden_at_publisher

COLUMNS: Final = (*POINT, "verdict")


def limits(events: DataFrame) -> DataFrame:
    """Per domain with a changelog: ``floor`` and ``head``."""
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
    """Unpublished commits, phantom publications and broken chains, of the domains that have a changelog."""
    known = F.broadcast(limits(events))
    about = F.broadcast(domains.select("domain", "closed_until", "publisher_gaps", "service_since"))
    committed = commits.filter("committed")
    unpublished = (
        words.unpublished(committed, sent_points, settings)
        .join(known.select("domain"), "domain", "left_semi")
        .join(about, "domain", "left")
        .filter(closed(F.col("p"), F.col("closed_until"), settings) & ~hidden_at_publisher(settings))
        .select(*POINT, F.lit("unpublished").alias("verdict"))
    )
    phantom = (
        sent_points.join(known, "domain")
        .filter((F.col("position") > F.col("floor")) & (F.col("position") <= F.col("head")))
        .join(committed.select(*POINT), POINT, "left_anti")
        .join(_restored(events), "domain", "left")
        .select(*POINT, F.when(F.col("restored"), "unknown").otherwise("phantom_publish").alias("verdict"))
    )
    return unpublished.unionByName(phantom).unionByName(_broken(rows, known))


def _restored(events: DataFrame) -> DataFrame:
    """The domains in which a replica saw that the store's history began again."""
    doubted = (F.col("kind") == "sync_begin") & (F.col("cause") == "doubted")
    return F.broadcast(events.filter(doubted).select("domain", F.lit(True).alias("restored")).distinct())


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
