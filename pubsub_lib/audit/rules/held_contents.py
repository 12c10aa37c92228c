"""Compares what replicas hold at marks with the changelog, and with what they recorded (audit-verdicts.md, "Held
contents").
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules.base_tables import RUN
from pubsub_lib.audit.spark.settled import hashed, lookup, together

HELD, ROT, DIVERGED = "held", "rot", "diverged"
_CHAIN: Final = [*RUN, "topic"]
_POINT: Final = ["domain", "position", "nonce"]


def findings(rows: DataFrame, events: DataFrame, runs: DataFrame) -> DataFrame:
    """One row per replica and topic that diverged, or in whose memory objects were altered. Not computed."""
    held = rows.filter((F.col("kind") == HELD) & (F.col("side") == "replica"))
    held = held.select(*_CHAIN, "name", "number", "position", "nonce", "count", "digest")
    diverged = _by_changelog(held, rows).unionByName(_by_own_word(held, rows, events, runs))
    diverged = diverged.unionByName(_by_publishers(held, rows, runs)).unionByName(_by_listing(held, events, runs))
    rotten = events.filter((F.col("kind") == ROT) & (F.col("side") == "replica") & (F.col("cause") == "memory"))
    found = diverged.withColumn("verdict", F.lit(DIVERGED)).unionByName(
        rotten.select("domain", "name", "topic", F.lit(ROT).alias("verdict"))
    )
    return found.distinct().select(
        "domain", "name", "topic", F.lit("").alias("table"), F.lit("").alias("key"), "verdict",
        F.lit(0).cast("bigint").alias("versions_behind"),
        *(F.lit(None).cast("bigint").alias(name) for name in ("behind", "version", "stored_version")),
    )  # fmt: skip


def _by_changelog(held: DataFrame, rows: DataFrame) -> DataFrame:
    """The topics whose count or digest is not that of the topic's last link at or below the same point."""
    committed = rows.filter((F.col("kind") == "data") & (F.col("outcome") == "committed"))
    points = committed.join(lookup(held.select("domain", "topic").distinct()), ["domain", "topic"], "left_semi")
    known = committed.join(hashed(held.select("domain", "position", "nonce").distinct()), _POINT, "left_semi")
    at_point = held.join(hashed(known.select(*_POINT).distinct()), _POINT, "left_semi")
    nothing = F.lit(None).cast("struct<count:bigint,digest:bigint>")
    links = points.select(
        "domain", "topic", "position", "run", "number", F.lit("").alias("name"),
        F.struct("count", "digest").alias("link"), nothing.alias("holds"),
    )  # fmt: skip
    asked = at_point.select(
        "domain", "topic", "position", F.lit(None).cast("string").alias("run"), F.lit(0).cast("bigint").alias("number"),
        "name", nothing.alias("link"), F.struct("count", "digest").alias("holds"),
    )  # fmt: skip
    # At the same position links come first: the record of a replica is compared with the last of them.
    in_order = F.col("position"), F.col("run").asc_nulls_last(), F.col("number")
    until = Window.partitionBy("domain", "topic").orderBy(*in_order)
    until = until.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    compared = links.unionByName(asked).withColumn("at", F.last("link", ignorenulls=True).over(until))
    differs = (F.col("at.count") != F.col("holds.count")) | (F.col("at.digest") != F.col("holds.digest"))
    return compared.filter(F.col("holds").isNotNull() & differs).select("domain", "name", "topic")


def _by_publishers(held: DataFrame, rows: DataFrame, runs: DataFrame) -> DataFrame:
    """The topics of domains without a store whose count or digest is not what publishers recorded of the same point."""
    stored = runs.filter(F.col("side") == "store").select("domain").distinct()
    held = held.join(lookup(stored), "domain", "left_anti")
    recorded = (F.col("kind") == "data") & F.col("side").isin("writer", "service") & (F.col("parts") == 1)
    sent = rows.filter(recorded & F.col("outcome").isin("handed", "taken", "sent"))
    content, point = F.struct("count", "digest"), F.struct("position", "nonce")
    links = sent.join(lookup(held.select("domain", "topic").distinct()), ["domain", "topic"], "left_semi")
    known = sent.join(hashed(held.select(*_POINT).distinct()), _POINT, "left_semi").select(*_POINT).distinct()
    links = links.select(
        "domain", "topic", "position", "run", "number", F.lit("").alias("name"), F.lit(None).alias("holds"),
        F.struct(
            point.alias("point"), content.alias("content"),
            F.struct(F.col("prev_position").alias("position"), F.col("prev_nonce").alias("nonce")).alias("after"),
        ).alias("link"),
    )  # fmt: skip
    asked = hashed(held).join(known, _POINT, "left_semi").select(
        "domain", "topic", "position", F.lit(None).cast("string").alias("run"), F.lit(0).cast("bigint").alias("number"),
        "name", F.struct(point.alias("point"), content.alias("content")).alias("holds"),
    )  # fmt: skip
    links = links.withColumn("holds", F.col("holds").cast(asked.schema["holds"].dataType))
    asked = asked.withColumn("link", F.lit(None).cast(links.schema["link"].dataType))
    # At the same position links come first.
    in_order = F.col("position"), F.col("run").asc_nulls_last(), F.col("number")
    of_topic = Window.partitionBy("domain", "topic").orderBy(*in_order)
    until = of_topic.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    later = of_topic.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    at = Window.partitionBy("domain", "topic", "position")
    compared = links.unionByName(asked).withColumns(
        {
            "last": F.last("link", ignorenulls=True).over(until),
            "next": F.first("link", ignorenulls=True).over(later),
            "here": F.collect_set("link").over(at),
        }
    )
    holds, last = F.col("holds"), F.col("last")
    here = F.filter("here", lambda link: link["point"] == holds["point"])
    refuted = ~F.exists(here, lambda link: link["content"] == holds["content"])
    between = (F.col("next.after") == last["point"]) & (last["content"] != holds["content"])
    differs = F.when(F.size(here) > 0, refuted).otherwise(F.coalesce(between, F.lit(False)))
    return compared.filter(holds.isNotNull() & differs).select("domain", "name", "topic")


def _by_listing(held: DataFrame, events: DataFrame, runs: DataFrame) -> DataFrame:
    """The topics of which a run lists another number of objects than it had recorded at the same point."""
    at = [*_CHAIN, "position", "nonce"]
    ends = events.filter((F.col("kind") == "listing") & (F.col("side") == "replica"))
    ends = ends.select(*at, F.col("number").alias("end"), F.col("count").alias("listed"))
    before = together(held.join(hashed(ends), at)).filter(F.col("number") < F.col("end"))
    last = before.groupBy(*at, "name", "end", "listed").agg(F.max(F.struct("number", "count")).alias("last"))
    differs = together(last.filter(F.col("last.count") != F.col("listed")).join(lookup(runs.select(*RUN, "gaps")), RUN))
    between = F.exists("gaps", lambda gap: (gap["lo"] >= F.col("last.number")) & (gap["hi"] <= F.col("end")))
    return differs.filter(~between).select("domain", "name", "topic")


def _by_own_word(held: DataFrame, rows: DataFrame, events: DataFrame, runs: DataFrame) -> DataFrame:
    """The topics whose last record of this kind is below a change that the same run had recorded as its own."""
    last = held.groupBy(*_CHAIN, "name").agg(F.max(F.struct("number", "position")).alias("last"))
    last = last.select(*_CHAIN, "name", F.col("last.number").alias("at"), F.col("last.position").alias("reached"))
    ended = (F.col("kind") == "sync_end") & F.col("outcome").isin("delta", "full")
    ends = events.filter(ended).select(*RUN, F.col("topic").alias("chain"), "number", "position", "outcome")
    of_gaps = runs.select(*RUN, "gaps")
    last = together(last.join(lookup(of_gaps), RUN)).withColumn("since", _behind_gaps()).drop("gaps")
    led_back = (
        hashed(last)
        .join(ends.filter("outcome = 'full'"), RUN)
        .filter(F.col("chain").isin("") | (F.col("chain") == F.col("topic")))
    )
    led_back = led_back.filter(F.col("number") < F.col("at")).groupBy(*_CHAIN).agg(F.max("number").alias("full"))
    last = last.join(hashed(led_back), _CHAIN, "left")
    last = last.withColumn("since", F.greatest("since", F.coalesce("full", F.lit(0)))).drop("full")
    taken = rows.filter(
        (F.col("kind") == "data") & (F.col("side") == "replica") & F.col("outcome").isin("applied", "old")
    ).select(*_CHAIN, "number", "position")
    deltas = ends.filter("outcome = 'delta'").withColumnRenamed("chain", "topic").drop("outcome")
    recorded = taken.unionByName(deltas.select(*_CHAIN, "number", "position")).join(hashed(last), _CHAIN)
    inside = (F.col("since") <= F.col("number")) & (F.col("number") < F.col("at"))
    return recorded.filter(inside & (F.col("position") > F.col("reached"))).select("domain", "name", "topic")


def _behind_gaps() -> Column:
    """The first number behind the last gap before a record."""
    before = F.filter("gaps", lambda gap: gap["hi"] <= F.col("at"))
    return F.coalesce(F.array_max(F.transform(before, lambda gap: gap["hi"])), F.lit(0))
