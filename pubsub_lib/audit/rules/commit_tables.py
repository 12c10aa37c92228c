"""What was committed, what of it was sent, and what was not (audit-verdicts.md, "Commit")."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules.base_tables import POINT
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.spark.settled import hashed


def commits(rows: DataFrame, settings: AuditSettings) -> DataFrame:
    """One row per (domain, topic, position, nonce) that was committed, with the hops that are recorded in time, and the
    lowest and highest hash. ``strange``: the hashes differ, or a hop is recorded after the horizon.
    """
    way = F.col("outcome").isin("committed", "handed", "taken")
    first = [F.min(F.when(F.col("outcome") == name, F.col("wall"))).alias(name) for name in ("handed", "taken")]
    whole = F.when(F.col("parts") == 1, F.col("hash"))
    horizon = F.col("p") + settings.reach
    return (
        rows.filter((F.col("kind") == "data") & way)
        .groupBy(*POINT)
        .agg(
            F.coalesce(F.min(F.when(F.col("written") > 0, F.col("written"))), F.min("wall")).alias("p"),
            F.coalesce(F.min(F.when(F.col("cause") != "", F.col("cause"))), F.lit("")).alias("service"),
            F.max(F.col("outcome") == "committed").alias("committed"),
            *first,
            F.min(whole).alias("low"),
            F.max(whole).alias("high"),
            F.max(F.when(F.col("outcome") != "committed", F.col("wall"))).alias("last"),
        )
        .withColumn("strange", F.coalesce((F.col("low") != F.col("high")) | (F.col("last") > horizon), F.lit(False)))
        .withColumns({name: F.coalesce(F.col(name) <= horizon, F.lit(False)) for name in ("handed", "taken")})
        .drop("last")
    )


def sent_points(rows: DataFrame, *, named: bool) -> DataFrame:
    """The distinct points per topic that were sent, the time of the first sending (``sent_at``), that of the commit if
    a message shows it (``sent_written``), and the lowest and highest hash of messages that were not split. ``named``:
    and the first service by name that sent it (``sent_service``); an aggregate of texts sorts all records.
    """
    sent = rows.filter((F.col("kind") == "data") & (F.col("outcome") == "sent"))
    whole = F.when(F.col("parts") == 1, F.col("hash"))
    service = [F.min("service").alias("sent_service")] if named else []
    return sent.groupBy(*POINT).agg(
        F.min("wall").alias("sent_at"),
        F.min(F.when(F.col("written") > 0, F.col("written"))).alias("sent_written"),
        F.min(whole).alias("sent_low"),
        F.max(whole).alias("sent_high"),
        *service,
    )


def with_undone(items: DataFrame, commits: DataFrame) -> DataFrame:
    """Adds ``undone``: whether a commit of any topic has the item's position and another nonce."""
    low, high = F.min("nonce").alias("low_nonce"), F.max("nonce").alias("high_nonce")
    nonces = commits.groupBy("domain", "position").agg(low, high)
    other = (F.col("low_nonce") != F.col("nonce")) | (F.col("high_nonce") != F.col("nonce"))
    joined = items.join(hashed(nonces), ["domain", "position"], "left")
    return joined.withColumn("undone", F.coalesce(other, F.lit(False))).drop("low_nonce", "high_nonce")


def only_sent(sent_points: DataFrame, commits: DataFrame) -> DataFrame:
    """The sent points without a recorded commit, as items for polling replicas. ``sent_points``: with names."""
    alone = sent_points.join(hashed(commits.select(*POINT)), POINT, "left_anti")
    return alone.select(
        *POINT,
        F.coalesce("sent_written", "sent_at").alias("p"),
        F.col("sent_service").alias("service"),
        F.col("sent_low").isNotNull().alias("whole"),
        "sent_low",
        "sent_high",
    )


def unpublished(commits: DataFrame, sent_points: DataFrame, settings: AuditSettings) -> DataFrame:
    """The commits without a publication before their horizon."""
    unsent = F.col("sent_at").isNull() | (F.col("sent_at") > F.col("p") + settings.reach)
    times = sent_points.select(*POINT, "sent_at")
    return commits.join(hashed(times), POINT, "left").filter(unsent).drop("sent_at")
