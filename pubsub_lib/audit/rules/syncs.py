"""Every sync of every replica: cause, duration, size, and whether it was needless (audit-verdicts.md, "Syncs")."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules.base_tables import RUN
from pubsub_lib.audit.spark.settled import hashed

COLUMNS: Final = (
    "domain", "name", "run", "topic", "sequence", "cause", "outcome", "began", "took", "count", "size",
    "from_position", "to_position", "needless",
)  # fmt: skip


def syncs(events: DataFrame) -> DataFrame:
    """One row per ``sync_begin``; ``took`` (microseconds) and the columns of the end are null when it has no end."""
    key = [*RUN, "topic", "sequence"]
    ends = (
        events.filter(F.col("kind") == "sync_end")
        .groupBy(*key)
        .agg(F.min(F.struct("number", "mono", "outcome", "count", "size", "position")).alias("end"))
    )
    brought_nothing = (F.col("end.outcome") == "delta") & (F.col("end.count") == 0)
    first = Window.partitionBy(*RUN, "topic").orderBy("number")
    return (
        events.filter(F.col("kind") == "sync_begin")
        .withColumn("earlier", F.lag("number").over(first))
        .join(hashed(ends), key, "left")
        .select(
            "domain", "name", "run", "topic", "sequence", "cause", "end.outcome", F.col("wall").alias("began"),
            (F.col("end.mono") - F.col("mono")).alias("took"),
            "end.count", "end.size",
            F.col("prev_position").alias("from_position"),
            F.col("end.position").alias("to_position"),
            F.coalesce(brought_nothing & F.col("earlier").isNotNull(), F.lit(False)).alias("needless"),
        )
    )  # fmt: skip
