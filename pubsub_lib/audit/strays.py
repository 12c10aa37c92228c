"""What nobody expects, and what nobody recorded (docs/audit.md, "Unrecorded" and "Strays")."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.words import ID, RUN, with_skew

COLUMNS: Final = ("domain", "name", "uuid", "topic", "sequence", "verdict")


def publishers(overview: DataFrame, runs: DataFrame) -> DataFrame:
    """One row per (domain, uuid) that sent: its host, since when its runs have gaps, its last record's wall."""
    sent = overview.filter(F.col("sent") > 0)
    of_runs = sent.groupBy(*RUN, "uuid", "host").agg(F.min("sent_wall").alias("wall"))
    by_run = of_runs.select(*RUN, "uuid", F.struct("wall", "run", "host").alias("first"))
    about = runs.select(*RUN, "last_wall", F.get("gaps", F.lit(0))["lo_wall"].alias("holed"))
    return (
        by_run.join(F.broadcast(about), RUN)
        .groupBy("domain", "uuid")
        .agg(
            F.min("first").getField("host").alias("publisher_host"),
            F.min("holed").alias("publisher_holed"),
            F.max("last_wall").alias("publisher_last"),
        )
    )


def unsent(receipts: DataFrame, publishers: DataFrame, skews: DataFrame, settings: AuditSettings) -> DataFrame:
    """One row per received id without a publication: its first receipt (``p``), and whether it is provably a
    ``phantom``.
    """
    strange = receipts.filter(~F.col("published"))
    strange = strange.join(F.broadcast(publishers), ["domain", "uuid"], "left")
    strange = strange.withColumn("p", F.min("wall").over(Window.partitionBy(*ID)))
    strange = with_skew(strange, "host", skews, settings)
    at = F.col("wall") - F.col("skew")
    holed = F.coalesce(F.first("publisher_holed") <= F.min("wall") + settings.reach, F.lit(False))
    proved = F.first("publisher_host").isNotNull() & ~holed
    return strange.groupBy(*ID).agg(
        F.collect_set("name").alias("names"),
        F.min("wall").alias("p"),
        (proved & (F.first("publisher_last") >= F.min(at))).alias("provable"),
    ).withColumn("phantom", F.coalesce("provable", F.lit(False))).drop("provable")  # fmt: skip


def strays(receipts: DataFrame, runs: DataFrame, unsent: DataFrame) -> DataFrame:
    """Phantoms and misrouted messages, one row per id and replica."""
    phantoms = unsent.filter("phantom").select(*ID, F.explode("names").alias("name"), F.lit("phantom").alias("verdict"))
    first_gap = runs.select(*RUN, F.get("gaps", F.lit(0))["lo"].alias("first_gap"))
    lost_way = (
        receipts.filter(F.col("astray") & F.col("published"))
        .join(F.broadcast(first_gap), RUN)
        .filter(F.col("first_gap").isNull() | (F.col("first_gap") >= F.col("number")))
        .select(*ID, "name")
        .distinct()
    )
    return phantoms.select(*COLUMNS).unionByName(lost_way.withColumn("verdict", F.lit("misrouted")).select(*COLUMNS))


def none(rows: DataFrame) -> DataFrame:
    """The table of strays where there cannot be any."""
    return rows.limit(0).withColumn("verdict", F.lit("")).select(*COLUMNS)


def unrecorded(
    publications: DataFrame, publishers: DataFrame, unsent: DataFrame, histories: DataFrame, settings: AuditSettings
) -> DataFrame:
    """One row per sequence whose publication nobody recorded, and replica that listened: domain, name, uuid, …, p"""
    holed = publishers.filter(F.col("publisher_holed").isNotNull()).select("domain", "uuid", "publisher_holed")
    before = Window.partitionBy("domain", "uuid", "topic").orderBy("sequence")
    between = (
        publications.join(F.broadcast(holed), ["domain", "uuid"])
        .select(*ID, "p", "publisher_holed", F.lag("sequence").over(before).alias("previous"))
        .filter(F.col("sequence") > F.col("previous") + 1)
        .filter(F.col("publisher_holed") <= F.col("p") + settings.reach)
        .select(
            "domain",
            "uuid",
            "topic",
            "p",
            F.explode(F.sequence(F.col("previous") + 1, F.col("sequence") - 1)).alias("sequence"),
        )
        .join(unsent.select(*ID), ID, "left_anti")
    )
    missing = unsent.filter(~F.col("phantom")).select(*ID, "p").unionByName(between)
    opened = F.array_min(F.transform("intervals", lambda each: each["opened"])).alias("opened")
    listeners = F.broadcast(histories.filter(~F.col("polls")).select("domain", "topic", "name", opened))
    there = missing.join(listeners, ["domain", "topic"])
    return there.filter(F.col("opened") <= F.col("p") + settings.reach).drop("opened")
