"""How long every hop took, as percentiles (docs/audit.md, "Latencies").

Latencies are counted by value, with three digits each, and percentiles are found in the counts: one pass over the
delivery table, and the same result whatever the partitions.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.words import settled

HOPS: Final = ("commit_publish", "publish_receive", "receive_apply", "publish_apply", "detect", "repair")
PERCENTILES: Final = {"p50": 500, "p95": 950, "p99": 990, "p999": 999}
"""Name -> thousandths."""
_GROUP: Final = ["domain", "name", "hop"]
_LONGEST: Final = 19
"""Digits of the longest latency: as many as a 64-bit number has."""


def latencies(delivery: DataFrame) -> DataFrame:
    """One row per hop and replica that has any, and one per hop with an empty name, of all replicas of a domain."""
    hop = F.element_at(F.array(*[F.lit(name) for name in HOPS]), F.col("hop") + 1)
    # settled: they are asked for twice.
    counts = settled(counted(_values(delivery).withColumnRenamed("place", "hop")))
    return percentiles(counts.withColumn("hop", hop))


def _values(delivery: DataFrame) -> DataFrame:
    """domain, name, place (of the hop in ``HOPS``), value: a row for each hop of a delivery whose ends are known."""
    p, done = F.col("p"), F.col("settled") - F.col("skew")
    delivered = {
        "commit_publish": F.when((F.col("kind") == "publication") & (F.col("written") > 0), p - F.col("written")),
        "publish_receive": F.when(F.col("by_message"), F.col("received") - F.col("skew") - p),
        "receive_apply": F.when(F.col("by_message"), F.col("settled") - F.col("received")),
        "publish_apply": F.when(F.col("by_message"), done - p),
    }
    missed = {"detect": F.col("detected") - F.col("skew") - p, "repair": done - p}
    repaired = delivery.filter(~F.col("by_message") & F.col("verdict").isin("repaired", "late"))
    return _each(delivery, delivered).unionByName(_each(repaired, missed))


def _each(table: DataFrame, hops: dict[str, Column]) -> DataFrame:
    # Numbers and not names: most of the time goes into the rows that this makes.
    found = table.select("domain", "name", F.posexplode(F.array(*hops.values())).alias("place", "value"))
    place = F.col("place") + HOPS.index(next(iter(hops)))
    return found.filter(F.col("value").isNotNull()).withColumn("place", place)


def counted(values: DataFrame) -> DataFrame:
    """Per group and cut value: how many rows, how many of them negative, the greatest."""
    return values.groupBy(*_GROUP, cut(F.col("value")).alias("cut")).agg(
        F.count("*").alias("rows"),
        F.sum(F.when(F.col("value") < 0, 1).otherwise(0)).alias("negative"),
        F.max("value").alias("max"),
    )


def cut(value: Column) -> Column:
    """A number of which all digits after the third are 0. In integers: no rounding."""
    size = F.abs(value)
    found = size - F.pmod(size, F.lit(10 ** (_LONGEST - 3)))
    for digits in range(_LONGEST - 1, 3, -1):
        unit = 10 ** (digits - 3)
        found = F.when(size < 10**digits, size - F.pmod(size, F.lit(unit))).otherwise(found)
    found = F.when(size < 1000, size).otherwise(found)
    return F.signum(value).cast("bigint") * found


def percentiles(counts: DataFrame) -> DataFrame:
    """The nearest ranks, for every replica and for all together."""
    together = counts.groupBy("domain", F.lit("").alias("name"), "hop", "cut").agg(
        F.sum("rows").alias("rows"), F.sum("negative").alias("negative"), F.max("max").alias("max")
    )
    group = Window.partitionBy(*_GROUP)
    ranked = (
        counts.unionByName(together)
        .withColumn("upto", F.sum("rows").over(group.orderBy("cut")))
        .withColumn("total", F.sum("rows").over(group))
    )
    reached = {
        name: F.min(F.when(F.col("upto") * 1000 >= F.col("total") * rank, F.col("cut"))).alias(name)
        for name, rank in PERCENTILES.items()
    }
    return ranked.groupBy(*_GROUP).agg(
        F.sum("rows").alias("count"), F.sum("negative").alias("negative"), *reached.values(), F.max("max").alias("max")
    )
