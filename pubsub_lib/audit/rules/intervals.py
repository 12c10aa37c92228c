"""The intervals in which a replica's run follows a topic, with their syncs (audit-verdicts.md, "Words")."""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules.base_tables import FOREVER, RUN, SYNCS
from pubsub_lib.audit.spark.settled import hashed, lookup, settled, together


def intervals(
    events: DataFrame,
    rows: DataFrame,
    runs: DataFrame,
    cut: Callable[[DataFrame], DataFrame] | None = None,
    shown: DataFrame | None = None,
) -> DataFrame:
    """One row per run of a replica, topic and interval, with all columns that verdicts need. ``whole`` and ``until``
    are its first and last number; ``succeeded`` is the successor's first wall of a run that did not end in order (and
    of a replica without parents); ``cut`` makes its parts, which have the same ones (audit-verdicts.md, "Relays").

    ``shown``: the begins of intervals that only messages show, each with the position of its ``base``. Before the syncs
    of these stands one that covers nothing, at the base, as before those of a continued part.
    """
    marks = events.filter((F.col("side") == "replica") & F.col("kind").isin("interest", "drop"))
    of_topic = Window.partitionBy(*RUN, "topic").orderBy("number")
    opens = (F.col("kind") == "interest") & (F.coalesce(F.lag("kind").over(of_topic), F.lit("drop")) == "drop")
    drops = Window.partitionBy(*RUN, "topic").orderBy("number").rowsBetween(1, Window.unboundedFollowing)
    dropped = F.when(F.col("kind") == "drop", F.struct("number", "wall", "mono"))
    begun = (
        marks.withColumn("opens", opens)
        .withColumn("drop", F.first(dropped, ignorenulls=True).over(drops))
        .filter("opens")
        .select(
            *RUN,
            "topic",
            F.col("number").alias("begin"),
            F.col("wall").alias("opened"),
            F.coalesce("drop.number", F.lit(FOREVER)).alias("end"),
            F.col("drop.wall").alias("drop_wall"),
            F.col("drop.mono").alias("drop_mono"),
            F.col("number").alias("whole"),
            F.coalesce("drop.number", F.lit(FOREVER)).alias("until"),
        )
    )
    if shown is not None:
        begun = begun.withColumn("base", F.lit(None).cast("bigint")).unionByName(shown)
    begun = settled(begun)
    begun = begun if cut is None else settled(cut(begun))
    found = begun.join(hashed(_syncs(events, begun)), [*RUN, "topic", "begin"], "left")
    found = found.join(hashed(_signs(rows, begun, runs)), [*RUN, "topic", "begin"], "left")
    succeeded = F.when(~F.col("ended") & ~F.col("moves"), F.col("successor")).alias("succeeded")
    about = runs.select(*RUN, "name", "host", "first_wall", "last_wall", "over", "polls", "gaps", succeeded)
    syncs = F.coalesce("syncs", F.array().cast(SYNCS))
    return found.join(lookup(about), RUN).select(
        *RUN, "topic", "name", "polls", "host", "first_wall", "last_wall", "over", "gaps", "begin", "end",
        "opened", "drop_wall", "drop_mono", "whole", "until", "succeeded",
        (syncs if shown is None else _with_base(syncs)).alias("syncs"),
        F.greatest(F.col("begin"), F.coalesce("sign", F.lit(0))).alias("last_sign"),
    )  # fmt: skip


def _with_base(syncs: Column) -> Column:
    base = F.struct(
        F.col("begin").alias("number"),
        F.col("base").alias("position"),
        F.col("opened").alias("wall"),
        F.lit(None).cast("bigint").alias("began"),
        F.lit(FOREVER).cast("bigint").alias("since"),
        F.lit(False).alias("full"),
    )
    return F.when(F.col("base").isNotNull(), F.concat(F.array(base).cast(SYNCS), syncs)).otherwise(syncs)


def _inside(begun: DataFrame, rows: DataFrame, condition: Column, last: str = "end") -> DataFrame:
    """Rows of a run joined to the intervals that contain them. ``condition`` compares topics: of_interval, topic."""
    base = [F.col("base")] if "base" in begun.columns else []
    there = begun.select(*RUN, F.col("topic").alias("of_interval"), "begin", F.col(last).alias("last"), *base)
    around = (F.col("number") > F.col("begin")) & (F.col("number") <= F.col("last"))
    return together(rows.join(lookup(there), RUN).filter(around & condition))


def _syncs(events: DataFrame, begun: DataFrame) -> DataFrame:
    """Per interval the successful syncs inside it, in order. ``began`` is the wall of a sync's begin; the sync read
    only commits after the position ``since``.
    """
    done = events.filter((F.col("kind") == "sync_end") & F.col("outcome").isin("delta", "full"))
    starts = events.filter(F.col("kind") == "sync_begin").groupBy(*RUN, "topic", "sequence")
    started = starts.agg(F.min("wall").alias("began"), F.min("prev_position").alias("from_position"))
    done = done.join(hashed(started), [*RUN, "topic", "sequence"], "left")
    since = F.when(F.col("outcome") == "delta", F.coalesce("from_position", F.lit(0))).otherwise(F.lit(0))
    chain = F.col("of_interval") == F.col("topic")
    if "base" in begun.columns:  # it is not known whether the replica followed the topic or everything
        chain |= F.col("base").isNotNull() & (F.col("topic") == "")
    inside = _inside(begun, done, chain, "until")
    full = (F.col("outcome") == "full").alias("full")
    each = F.struct("number", "position", "wall", "began", since.cast("bigint").alias("since"), full)
    of_interval = inside.groupBy(*RUN, F.col("of_interval").alias("topic"), "begin")
    return of_interval.agg(F.sort_array(F.collect_list(each)).alias("syncs"))


def _signs(rows: DataFrame, begun: DataFrame, runs: DataFrame) -> DataFrame:
    """Per interval of a run with gaps (others are not needed) the number of the last record that shows it."""
    holed = settled(runs.filter(F.size("gaps") > 0).select(*RUN))
    seen = rows.filter(
        (F.col("side") == "replica") & F.col("kind").isin("data", "drop", "sync_begin", "sync_end")
    ).select(*RUN, "topic", "number", "kind")
    seen = seen.join(lookup(holed), RUN, "left_semi")
    matches = (F.col("of_interval") == F.col("topic")) | ((F.col("kind") == "data") & (F.col("of_interval") == ""))
    inside = _inside(begun, seen, matches)
    return inside.groupBy(*RUN, F.col("of_interval").alias("topic"), "begin").agg(F.max("number").alias("sign"))
