"""How many deliveries were expected and what became of them: by replica, window and time (docs/audit.md, "Tables").

One pass over the delivery table counts *grains*, by stream, too; sums of these are *cells*, which are few, and
everything else here is a sum of cells.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.report.summary import CATEGORIES
from pubsub_lib.audit.rules.base_tables import closed, window_of
from pubsub_lib.audit.rules.delivery import MESSAGE, POLLING, REPAIR
from pubsub_lib.audit.settings import AuditSettings

SUMS: Final = ("expected", *CATEGORIES)
_SAID: Final = ("verdict", "detail", "blame", "way")
_CELL: Final = ("domain", "name", "window", "slice", "settled_slice", *_SAID)
SLICES: Final = 200
"""In so many slices of equal length the time of all journals is shown."""


def grains(delivery: DataFrame, domains: DataFrame, settings: AuditSettings) -> DataFrame:
    """Rows of the delivery table counted as ``rows``, by all that balance, streams, windows, and the course of time
    need; with their ``lowest`` and ``highest`` sequence. The only look at all deliveries but that for latencies.

    ``slice`` is the begin of the slice in which an item was published, ``settled_slice`` the one in which it was
    settled, by the publisher's clock; null: never, or not known. ``numbered``: whether they have sequences.
    """
    length = F.max("latest") - F.min("begin") + SLICES
    whole = domains.agg(F.min("begin").alias("from"), (length / SLICES).cast("bigint").alias("width"))
    p, at = F.col("p"), F.col("settled") - F.coalesce("skew", F.lit(0))
    return (
        delivery.crossJoin(F.broadcast(whole))
        .groupBy(
            "domain", "name", "service", "uuid", "topic", (F.col("sequence") > 0).alias("numbered"),
            window_of(p, settings).alias("window"),
            _slice(p).alias("slice"), _slice(at).alias("settled_slice"), *_SAID,
        )
        .agg(F.count("*").alias("rows"), F.min("sequence").alias("lowest"), F.max("sequence").alias("highest"))
    )  # fmt: skip


def cells(grains: DataFrame) -> DataFrame:
    """Of all streams together."""
    return grains.groupBy(*_CELL).agg(F.sum("rows").alias("rows"))


def _slice(time: Column) -> Column:
    """A time that no record has (a wrong clock, a ``written`` of garbage) is in the first slice or after the last."""
    last = F.col("from") + F.col("width") * SLICES
    inside = F.when(time.isNotNull(), F.greatest(F.col("from"), F.least(time, last)))
    return inside - F.pmod(inside - F.col("from"), F.col("width"))


def sums(number: Column) -> list[Column]:
    """The sums of the balance, of rows that count ``number`` times."""
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
    about = F.broadcast(domains.select("domain", "closed_until"))
    over = closed(F.col("window"), F.col("closed_until"), settings)
    return counted.join(about, "domain", "left").withColumn("closed", over).drop("closed_until")


def over_time(cells: DataFrame) -> DataFrame:
    """One row per slice, of all replicas together, in order: the sums of what was published in it, and ``settled``."""
    published = cells.filter(F.col("slice").isNotNull()).groupBy("slice").agg(*sums(F.col("rows")))
    settled = cells.filter(F.col("settled_slice").isNotNull()).groupBy(F.col("settled_slice").alias("slice"))
    both = published.join(settled.agg(F.sum("rows").alias("settled")), "slice", "full")
    return both.na.fill(0).orderBy("slice")
