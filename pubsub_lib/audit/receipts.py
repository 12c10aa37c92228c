"""What replicas received, per item: the largest tables of the audit, in one pass each (docs/audit.md, "Words")."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.words import ID, RUN

STREAM: Final = ["domain", "run", "uuid", "topic"]


def receipts(
    rows: DataFrame, runs: DataFrame, intervals: DataFrame, publications: DataFrame, settings: AuditSettings
) -> DataFrame:
    """One row per receipt: with the name and first wall of its run, ``astray``, and ``overtaken``."""
    about = runs.filter(~F.col("polls")).select(*RUN, "first_wall", (F.size("gaps") > 0).alias("holed"))
    heard = rows.filter(
        (F.col("kind") == "data") & (F.col("side") == "replica") & (F.col("uuid") != "") & (F.col("sequence") > 0)
    ).select(*ID, "run", "name", "host", "number", "wall", "mono", "outcome", "hash", "position", "nonce")
    heard = heard.join(F.broadcast(about), RUN)
    around = intervals.groupBy(*RUN, "topic").agg(F.collect_list(F.struct("begin", "end", "drop_mono")).alias("around"))
    everything = around.filter(F.col("topic") == "").select(*RUN, F.col("around").alias("around_all"))
    heard = heard.join(F.broadcast(around), [*RUN, "topic"], "left").join(F.broadcast(everything), RUN, "left")
    inside = F.coalesce(_inside("around", settings), F.lit(False)) | F.coalesce(
        _inside("around_all", settings), F.lit(False)
    )
    earlier = Window.partitionBy(*STREAM).orderBy("number").rowsBetween(Window.unboundedPreceding, -1)
    counts = ~F.col("astray") & (F.col("sequence") <= F.col("last_sent"))
    highest = F.max(F.when(counts, F.col("sequence"))).over(earlier)
    sent = publications.groupBy("domain", "uuid", "topic").agg(F.max("sequence").alias("last_sent"))
    heard = heard.join(F.broadcast(sent), ["domain", "uuid", "topic"], "left")
    return (
        heard.withColumn("astray", ~inside)
        .drop("around", "around_all")
        .withColumn("overtaken", F.coalesce(highest > F.col("sequence"), F.lit(False)))
        .drop("last_sent")
    )


def _inside(around: str, settings: AuditSettings) -> Column:
    number, mono = F.col("number"), F.col("mono")
    return F.exists(
        F.col(around),
        lambda each: (
            (each["begin"] < number)
            & ((number < each["end"]) | F.coalesce(mono <= each["drop_mono"] + settings.grace, F.lit(False)))
        ),
    )


def received(receipts: DataFrame) -> DataFrame:
    """One row per (domain, name, uuid, topic, sequence) that was received, with ``first``: what its run ρ shows.

    ``first`` is null when every receipt is astray.
    """
    together = receipts.repartition(*ID)  # so that both groupings and the join with publications share one exchange
    straight = ~F.col("astray")
    settled = straight & F.col("outcome").isin("applied", "old")
    in_run = together.groupBy(*ID, "name", "run").agg(
        F.first("first_wall").alias("first_wall"),
        F.first("host").alias("host"),
        F.min(F.when(straight, F.struct("number", "overtaken", "wall"))).alias("earliest"),
        F.count(F.when(straight, 1)).alias("times"),
        F.count(F.when(straight & (F.col("outcome") == "applied"), 1)).alias("applied"),
        F.min(F.when(settled, F.col("wall"))).alias("settled"),
        F.min("hash").alias("low"),
        F.max("hash").alias("high"),
    )
    first = F.struct(
        "first_wall", "run", F.col("earliest.number").alias("number"), "host", "times", "applied", "settled",
        F.col("earliest.overtaken").alias("overtaken"), F.col("earliest.wall").alias("received"),
    )  # fmt: skip
    return in_run.groupBy(*ID, "name").agg(
        F.min(F.when(F.col("times") > 0, first)).alias("first"),
        F.min("low").alias("heard_low"),
        F.max("high").alias("heard_high"),
    )


def streams(receipts: DataFrame) -> DataFrame:
    """Per run and stream the lowest and the highest sequence that came, not astray."""
    return (
        receipts.filter(~F.col("astray"))
        .groupBy(*STREAM)
        .agg(F.min("sequence").alias("lowest"), F.max("sequence").alias("highest"))
    )


def stale(rows: DataFrame, events: DataFrame) -> DataFrame:
    """The points whose application took an object back to an older version: domain, run, topic, position, nonce.

    Only runs and topics in which links were not applied in the order of their chain are looked at object by object:
    where each applied link begins at or after all that were applied before, and holds its versions, none is stale.
    """
    applied = rows.filter(
        (F.col("kind") == "data") & (F.col("side") == "replica") & (F.col("outcome") == "applied")
    ).select(*RUN, "topic", "number", "position", "nonce", "prev_position", "changes")
    earlier = Window.partitionBy(*RUN, "topic").orderBy("number").rowsBetween(Window.unboundedPreceding, -1)
    strange = F.exists(
        "changes",
        lambda each: (each["version"] > F.col("position")) | (each["version"] <= F.col("prev_position")),
    )
    out_of_order = F.coalesce(F.max("position").over(earlier) > F.col("prev_position"), F.lit(False))
    suspects = applied.withColumn("suspect", strange | out_of_order).filter("suspect").select(*RUN, "topic").distinct()
    return _stale_objects(events, applied.join(F.broadcast(suspects), [*RUN, "topic"], "left_semi"))


def _stale_objects(events: DataFrame, applied: DataFrame) -> DataFrame:
    fulls = events.filter((F.col("kind") == "sync_end") & (F.col("outcome") == "full"))
    ends = fulls.groupBy(*RUN, "topic").agg(F.collect_list("number").alias("ends"))
    everything = ends.filter(F.col("topic") == "").select(*RUN, F.col("ends").alias("ends_all"))
    none = F.array().cast("array<bigint>")
    epoch = F.size(
        F.filter(F.concat(F.coalesce("ends", none), F.coalesce("ends_all", none)), lambda end: end < F.col("number"))
    )
    changes = (
        applied.join(F.broadcast(ends), [*RUN, "topic"], "left")
        .join(F.broadcast(everything), RUN, "left")
        .withColumn("epoch", epoch)
        .select(*RUN, "topic", "epoch", "number", "position", "nonce", F.explode("changes").alias("change"))
        .select(*RUN, "topic", "epoch", "number", "position", "nonce", "change.*")
    )
    # By number and not by row: changes of one message do not stand before each other.
    before = (
        Window.partitionBy(*RUN, "topic", "epoch", "table", "key")
        .orderBy("number")
        .rangeBetween(Window.unboundedPreceding, -1)
    )
    return (
        changes.withColumn("newest", F.max("version").over(before))
        .filter(F.col("newest") > F.col("version"))
        .select(*RUN, "topic", "position", "nonce")
        .distinct()
    )
