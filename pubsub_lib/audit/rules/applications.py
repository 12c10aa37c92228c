"""What replicas recorded as applied, for the items that no receipt decides."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules.base_tables import POINT
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.spark.settled import hashed

COLUMNS: Final = ("run", "number", "wall", "outcome", "parts", "hash")
_HASHES: Final = "array<bigint>"


def with_applications(items: DataFrame, applied: DataFrame, commits: DataFrame) -> DataFrame:
    """Adds the replica's ``applications`` of the item's point: by a delta, late, or from another publisher; and fills
    ``before`` of items without evidence: the one hash that all records of such a commit have.
    """
    points = hashed(items.select(*POINT, "name").distinct())
    found = (
        applied.join(points, [*POINT, "name"], "left_semi")
        .groupBy(*POINT, "name")
        .agg(F.collect_list(F.struct(*COLUMNS)).alias("applications"))
    )
    fields = ("string", "bigint", "bigint", "string", "bigint", "bigint")
    kind = ",".join(f"{name}:{of}" for name, of in zip(COLUMNS, fields, strict=True))
    some = F.coalesce("applications", F.array().cast(f"array<struct<{kind}>>"))
    joined = items.join(hashed(found), [*POINT, "name"], "left").withColumn("applications", some)
    committed = joined.join(hashed(commits.select(*POINT, "low")), POINT, "left")
    return committed.withColumn("before", F.coalesce("before", F.array_compact(F.array("low")))).drop("low")


def applied_at(interval: Column, settings: AuditSettings) -> Column:
    """The time when the replica applied the item's link in an interval (polling: or found it old), until the item's
    horizon; null: never.
    """
    return _first(_until_horizon(_in(interval), settings))


def ever_applied_at(interval: Column) -> Column:
    """The same, at any time."""
    return _first(_in(interval))


def applied_other(interval: Column, settings: AuditSettings) -> Column:
    """Whether what the replica applied in an interval until the item's horizon is not what was committed and sent."""
    return _other(_until_horizon(_in(interval), settings))


def ever_applied_other(interval: Column) -> Column:
    """The same, at any time."""
    return _other(_in(interval))


def _first(some: Column) -> Column:
    return F.array_min(F.transform(some, lambda each: each["wall"]))


def _other(some: Column) -> Column:
    whole = F.filter(some, lambda each: each["parts"] == 1)
    applied = F.transform(whole, lambda each: each["hash"])
    sent = F.when(F.col("whole"), F.array("sent_low", "sent_high")).otherwise(F.array().cast(_HASHES))
    every = F.concat(applied, F.array_compact(F.concat("before", sent)))
    return (F.size(applied) > 0) & (F.size(F.array_distinct(every)) > 1)


def _until_horizon(some: Column, settings: AuditSettings) -> Column:
    return F.filter(some, lambda each: each["wall"] <= F.col("p") + settings.reach)


def _in(interval: Column) -> Column:
    """The applications in an interval."""
    polled = F.col("kind") == "polled"
    return F.filter(
        "applications",
        lambda each: (
            (each["run"] == interval["run"])
            & (each["number"] > interval["begin"])
            & (each["number"] < interval["until"])
            & ((each["outcome"] == "applied") | (polled & (each["outcome"] == "old")))
        ),
    )
