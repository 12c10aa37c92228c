"""Streams: the sums of each numbered sequence of messages, and the places of its losses (docs/audit.md, "Tables")."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.report.windows import SUMS, sums
from pubsub_lib.audit.rules.ways import REPAIR
from pubsub_lib.audit.spark.settled import hashed

STREAM: Final = ["domain", "name", "uuid", "topic"]
BINS: Final = 50
"""Number of parts of equal length in which a stream is shown."""


def streams(grains: DataFrame) -> DataFrame:
    """One row per replica and stream. ``grains``: see :func:`pubsub_lib.audit.report.windows.grains`."""
    numbered = grains.filter("numbered")
    # In two steps, because max() of a string over all rows would sort them. Unrecorded items have no service.
    by_service = numbered.groupBy(*STREAM, "service").agg(
        F.min("lowest").alias("lowest"), F.max("highest").alias("highest"), *sums(F.col("rows"))
    )
    return by_service.groupBy(*STREAM).agg(
        F.max("service").alias("service"),
        F.min("lowest").alias("lowest"),
        F.max("highest").alias("highest"),
        *(F.sum(name).alias(name) for name in SUMS),
    )


def places(delivery: DataFrame, streams: DataFrame) -> DataFrame:
    """The number of ``lost`` and of ``repaired`` messages per stream and ``bin`` (0: the first part of the stream)."""
    lost, repaired = F.col("verdict") == "lost", F.col("way") == REPAIR
    missed = delivery.filter((lost | repaired) & (F.col("sequence") > 0))
    ends = streams.filter(F.col("lost") + F.col("repaired") > 0).select(*STREAM, "lowest", "highest")
    length = F.col("highest") - F.col("lowest") + 1
    share = ((F.col("sequence") - F.col("lowest")) * BINS / length).cast("bigint")
    counts = [F.count(F.when(lost, 1)).alias("lost"), F.count(F.when(repaired, 1)).alias("repaired")]
    return missed.join(hashed(ends), STREAM).groupBy(*STREAM, share.alias("bin")).agg(*counts)
