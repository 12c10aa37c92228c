"""The latency of every hop, as percentiles (docs/audit.md, "Latencies").

Latencies are cut to three digits and counted by value; the percentiles are computed from the counts. So one pass
over the delivery table is enough, and the result does not depend on the partitions.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.report.summary import PERCENTILES
from pubsub_lib.audit.rules.ways import MESSAGE, POLLING, REPAIR
from pubsub_lib.audit.spark.settled import settled

HOPS: Final = ("commit_publish", "publish_receive", "receive_apply", "publish_apply", "detect", "repair")
_AT_ONCE: Final = len(HOPS)
"""Stands for three hops of a message that was applied when it was received, as most are: one value for all three."""
_OF_REPLICA: Final = ("domain", "name")
_LONGEST: Final = 19
"""Maximum number of digits of a latency: those of a 64-bit number."""


def latencies(delivery: DataFrame) -> DataFrame:
    """One row per hop and replica with latencies, and one per hop with an empty name for all replicas of a domain."""
    return percentiles(counts_by(delivery, *_OF_REPLICA))


def counts_by(delivery: DataFrame, *by: str) -> DataFrame:
    """Per ``by``, hop and cut value: the number of latencies (``rows``), of negative ones, the maximum.

    Blocks: the counts are computed now.
    """
    # settled: the counts are read twice.
    counts = settled(counted(_values(delivery, by).withColumnRenamed("place", "hop"), *by, "hop"))
    hop = F.element_at(F.array(*[F.lit(name) for name in HOPS]), F.col("hop") + 1)
    return _apart(counts).withColumn("hop", hop)


def _values(delivery: DataFrame, by: Sequence[str]) -> DataFrame:
    """``by``, place (of the hop in ``HOPS``), value: one row for each hop of a delivery whose ends are known. A message
    that was applied when it was received has one row with the place ``_AT_ONCE`` for three hops.
    """
    p, done = F.col("p"), F.col("settled") - F.col("skew")
    same = (F.col("received") == F.col("settled")) & (done - p).isNotNull()
    came = F.col("way") == MESSAGE
    at_once = came & F.coalesce(same, F.lit(False))
    waited = came & ~at_once
    delivered = {
        "commit_publish": F.when((F.col("kind") == "publication") & (F.col("written") > 0), p - F.col("written")),
        "publish_receive": F.when(waited, F.col("received") - F.col("skew") - p),
        "receive_apply": F.when(waited, F.col("settled") - F.col("received")),
        "publish_apply": F.when(waited | (F.col("way") == POLLING), done - p),
        "": F.when(at_once, done - p),
    }
    missed = {"detect": F.col("detected") - F.col("skew") - p, "repair": done - p}
    repaired = delivery.filter(F.col("way") == REPAIR)
    return _each(delivery, delivered, by).unionByName(_each(repaired, missed, by))


def _each(table: DataFrame, hops: dict[str, Column], by: Sequence[str]) -> DataFrame:
    # Numbers instead of names: most of the time is spent on the rows that this makes.
    places = F.array(*[F.lit(HOPS.index(name) if name else _AT_ONCE) for name in hops])
    found = table.select(*by, F.posexplode(F.array(*hops.values())).alias("place", "value"))
    return found.filter(F.col("value").isNotNull()).withColumn("place", F.element_at(places, F.col("place") + 1))


def _apart(counts: DataFrame) -> DataFrame:
    """The counts, with those of ``_AT_ONCE`` moved to each of the three hops."""
    at_once = counts.filter(F.col("hop") == _AT_ONCE)
    ways = F.array(*[F.lit(HOPS.index(name)) for name in ("publish_receive", "publish_apply")])
    nothing = {name: F.lit(0).cast("bigint") for name in ("cut", "negative", "max")}
    return (
        counts.filter(F.col("hop") != _AT_ONCE)
        .unionByName(at_once.withColumn("hop", F.explode(ways)))
        .unionByName(at_once.withColumns({"hop": F.lit(HOPS.index("receive_apply")), **nothing}))
    )


def counted(values: DataFrame, *by: str) -> DataFrame:
    """Per ``by`` and cut value: the number of rows, the number of negative ones, the maximum."""
    return values.groupBy(*by, cut(F.col("value")).alias("cut")).agg(
        F.count("*").alias("rows"),
        F.sum(F.when(F.col("value") < 0, 1).otherwise(0)).alias("negative"),
        F.max("value").alias("max"),
    )


def cut(value: Column) -> Column:
    """The number with all digits after the third replaced by 0. Computed in integers: no rounding."""
    size = F.abs(value)
    found = size - F.pmod(size, F.lit(10 ** (_LONGEST - 3)))
    for digits in range(_LONGEST - 1, 3, -1):
        unit = 10 ** (digits - 3)
        found = F.when(size < 10**digits, size - F.pmod(size, F.lit(unit))).otherwise(found)
    found = F.when(size < 1000, size).otherwise(found)
    return F.signum(value).cast("bigint") * found


def percentiles(counts: DataFrame) -> DataFrame:
    """The percentiles by nearest rank, for every replica and for all together."""
    together = counts.groupBy("domain", F.lit("").alias("name"), "hop", "cut").agg(
        F.sum("rows").alias("rows"), F.sum("negative").alias("negative"), F.max("max").alias("max")
    )
    return ranked(counts.unionByName(together), *_OF_REPLICA, "hop")


def ranked(counts: DataFrame, *by: str, more: Sequence[Column] = ()) -> DataFrame:
    """The percentiles by nearest rank of each group, and ``more`` aggregates."""
    group = Window.partitionBy(*by)
    numbered = counts.withColumn("upto", F.sum("rows").over(group.orderBy("cut"))).withColumn(
        "total", F.sum("rows").over(group)
    )
    reached = {
        name: F.min(F.when(F.col("upto") * 1000 >= F.col("total") * rank, F.col("cut"))).alias(name)
        for name, rank in PERCENTILES.items()
    }
    return numbered.groupBy(*by).agg(
        F.sum("rows").alias("count"), F.sum("negative").alias("negative"), *reached.values(),
        F.max("max").alias("max"), *more,
    )  # fmt: skip
