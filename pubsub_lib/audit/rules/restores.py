"""Whether a restored backup may explain a publication that the changelog lacks (audit-verdicts.md, "Store to
publisher").
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules.base_tables import FOREVER, RUN
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.spark.settled import hashed, lookup

HISTORY_CHANGED = "history changed"
"""The cause of a sync after a hello that proved a replaced history."""


def with_restorable(
    points: DataFrame,
    events: DataFrame,
    floors: DataFrame,
    intervals: DataFrame,
    settings: AuditSettings,
) -> DataFrame:
    """Adds ``restorable`` to points that were sent and are not in the changelog, with ``survived`` (see
    :func:`with_survivor`). ``floors``: the ``floor`` of each domain. Not computed.
    """
    signs = lookup(_signs(events, floors).groupBy("domain").agg(F.collect_set("wall").alias("signs")))
    points = points.join(signs, "domain", "left")
    until = F.coalesce("drop_wall", "last_wall").alias("until")
    followed = intervals.groupBy("domain", "topic").agg(F.collect_set(F.struct("opened", until)).alias("followed"))
    every = followed.filter(F.col("topic") == "").select("domain", F.col("followed").alias("followed_all"))
    points = points.join(lookup(followed), ["domain", "topic"], "left").join(lookup(every), "domain", "left")
    noticed = F.col("survived") + settings.reach
    sign = F.exists("signs", lambda wall: (wall >= F.col("sent_at") - settings.grace) & (wall < noticed))
    watched = _watched("followed", noticed) | _watched("followed_all", noticed)
    later = F.col("survived") > F.least("sent_at", "sent_written")  # it ignores nulls
    return points.withColumn("restorable", later & (F.coalesce(sign, F.lit(False)) | ~watched))


def with_survivor(points: DataFrame, committed: DataFrame) -> DataFrame:
    """Adds ``survived``: the least time of the commits at or above the position that the changelog has."""
    links = committed.select("domain", "position", "p")
    asked = points.select("domain", "position", F.lit(None).cast("bigint").alias("p")).distinct()
    above = Window.partitionBy("domain").orderBy(F.desc("position"))
    above = above.rangeBetween(Window.unboundedPreceding, Window.currentRow)
    least = links.join(lookup(asked.select("domain").distinct()), "domain", "left_semi").unionByName(asked)
    least = least.withColumn("survived", F.coalesce(F.min("p").over(above), F.lit(FOREVER)))
    of_points = least.groupBy("domain", "position").agg(F.min("survived").alias("survived"))
    return points.join(hashed(of_points), ["domain", "position"])


def _signs(events: DataFrame, floors: DataFrame) -> DataFrame:
    """The walls of records that show a replaced history."""
    begins = events.filter(F.col("kind") == "sync_begin")
    key = [*RUN, "topic", "sequence"]
    known = begins.groupBy(*key).agg(F.min("prev_position").alias("known"))
    ends = events.filter((F.col("kind") == "sync_end") & (F.col("outcome") == "incomplete"))
    unknown = ends.select(*key, "wall").join(hashed(known), key).join(floors, "domain")
    unknown = unknown.filter(F.col("known") > F.col("floor"))
    changed = begins.filter(F.col("cause") == HISTORY_CHANGED)
    return changed.select("domain", "wall").unionByName(unknown.select("domain", "wall"))


def _watched(followed: str, noticed: Column) -> Column:
    """Whether a replica would have noticed a restore between the publication and the first later commit."""
    over = F.exists(followed, lambda each: (each["opened"] <= F.col("sent_at")) & (each["until"] >= noticed))
    return F.coalesce(over, F.lit(False))
