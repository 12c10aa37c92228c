"""Counts of expected deliveries and their results, by replica, window and time (docs/audit.md, "Tables").

One pass over the delivery table counts *grains*, which are also split by stream. Sums of grains over all streams are
*cells*. Cells are few, and every other table here is a sum of cells.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.report.summary import CATEGORIES
from pubsub_lib.audit.rules.base_tables import closed, window_of
from pubsub_lib.audit.rules.pipeline import Tables
from pubsub_lib.audit.rules.ways import MESSAGE, POLLING, REPAIR
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.spark.settled import hashed, lookup

SUMS: Final = ("expected", *CATEGORIES)
_RESULT: Final = ("verdict", "detail", "blame", "way")
_CELL: Final = ("domain", "name", "window", "slice", "settled_slice", *_RESULT)
SLICES: Final = 200
"""Number of slices of equal length into which the time of all journals is divided."""


def grains(delivery: DataFrame, domains: DataFrame, settings: AuditSettings) -> DataFrame:
    """The number of rows of the delivery table (``rows``), by all keys that balance, streams, windows and the course of
    time need, with the ``lowest`` and ``highest`` sequence. Only this and the latencies read all deliveries.

    ``slice`` is the begin of the slice in which an item was published, ``settled_slice`` that of the slice in which it
    was settled, by the publisher's clock; null: never or unknown. ``numbered``: whether the rows have sequences.
    """
    length = F.max("latest") - F.min("begin") + SLICES
    whole = domains.agg(F.min("begin").alias("from"), (length / SLICES).cast("bigint").alias("width"))
    p, at = F.col("p"), F.col("settled") - F.coalesce("skew", F.lit(0))
    return (
        delivery.crossJoin(F.broadcast(whole))
        .groupBy(
            "domain", "name", "service", "uuid", "topic", (F.col("sequence") > 0).alias("numbered"),
            window_of(p, settings).alias("window"),
            _slice(p).alias("slice"), _slice(at).alias("settled_slice"), *_RESULT,
        )
        .agg(F.count("*").alias("rows"), F.min("sequence").alias("lowest"), F.max("sequence").alias("highest"))
    )  # fmt: skip


def cells(grains: DataFrame) -> DataFrame:
    """The grains summed over all streams."""
    return grains.groupBy(*_CELL).agg(F.sum("rows").alias("rows"))


def _slice(time: Column) -> Column:
    """The slice of a time. A time outside of the journals (a wrong clock, a wrong ``written``) gets the first slice or
    the one after the last.
    """
    last = F.col("from") + F.col("width") * SLICES
    inside = F.when(time.isNotNull(), F.greatest(F.col("from"), F.least(time, last)))
    return inside - F.pmod(inside - F.col("from"), F.col("width"))


def sums(number: Column) -> list[Column]:
    """The sums of the balance; each row counts ``number`` times."""
    delivered = F.col("way").isin(MESSAGE, POLLING)
    category = F.when(delivered, "delivered").when(F.col("way") == REPAIR, "repaired").otherwise(F.col("verdict"))
    return [F.sum(number).alias("expected"), *(_sum(number, category == name).alias(name) for name in CATEGORIES)]


def _sum(number: Column, condition: Column) -> Column:
    return F.sum(F.when(condition, number).otherwise(F.lit(0)))


def balance(cells: DataFrame) -> DataFrame:
    """One row per replica."""
    return cells.groupBy("domain", "name").agg(*sums(F.col("rows")))


def windows(cells: DataFrame, domains: DataFrame, settings: AuditSettings) -> DataFrame:
    """One row per window and replica."""
    counted = cells.groupBy("domain", "window", "name").agg(*sums(F.col("rows")))
    about = lookup(domains.select("domain", "closed_until"))
    over = closed(F.col("window"), F.col("closed_until"), settings)
    return counted.join(about, "domain", "left").withColumn("closed", over).drop("closed_until")


def over_time(cells: DataFrame) -> DataFrame:
    """One row per slice, of all replicas together, in order: the sums of the items published in it, and ``settled``."""
    published = cells.filter(F.col("slice").isNotNull()).groupBy("slice").agg(*sums(F.col("rows")))
    settled = cells.filter(F.col("settled_slice").isNotNull()).groupBy(F.col("settled_slice").alias("slice"))
    both = published.join(hashed(settled.agg(F.sum("rows").alias("settled"))), "slice", "full")
    return both.na.fill(0).orderBy("slice")


def timed(tables: Tables, settings: AuditSettings) -> dict[str, DataFrame]:
    """The table ``delivery`` with the window (its begin) of each row. When there are strays, also the table ``strays``
    with the window of their first receipt by the replica.
    """
    window = window_of(F.col("p"), settings)
    found = {"delivery": tables.delivery.withColumn("window", window)}
    strays = tables.strays
    if not strays.isEmpty():
        of_replica = ["domain", "uuid", "topic", "sequence", "name"]
        received = tables.without_objects.filter((F.col("kind") == "data") & (F.col("side") == "replica"))
        at = received.join(F.broadcast(strays.select(*of_replica).distinct()), of_replica, "left_semi")
        at = at.groupBy(*of_replica).agg(F.min("wall").alias("p"))
        found["strays"] = strays.join(at, of_replica).withColumn("window", window).drop("p")
    return found
