"""One table of all anomalies, the first of each kind, the worst keys (docs/audit.md, "Tables")."""

from typing import Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.report.summary import counting
from pubsub_lib.audit.rules.base_tables import POINT
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.spark.settled import hashed, settled

BLAMELESS: Final = ("ok", "excused", "pending")
DROPPED_INORDER: Final = ("reordered", "duplicate_dropped")
"""A fault only when the audit is strict."""
FIRST: Final = 20
"""Maximum number of anomalies of each kind in a summary; the table holds all."""
KEYS: Final = 20
"""Maximum number of worst keys in a summary."""
COLUMNS: Final = {
    "domain": "string", "of": "string", "verdict": "string", "detail": "string", "blame": "string", "name": "string",
    "kind": "string", "service": "string", "uuid": "string", "topic": "string", "sequence": "bigint",
    "position": "bigint", "nonce": "bigint", "table": "string", "key": "string", "version": "bigint",
    "stored_version": "bigint", "versions_behind": "bigint", "behind": "bigint", "p": "bigint", "detected": "bigint",
    "settled": "bigint", "skew": "bigint",
}  # fmt: skip
"""Column -> type. Columns that a kind of anomaly does not have are null."""
ORDER: Final = ("p", "position", "name", "uuid", "topic", "sequence", "table", "key")
_CARRIES: Final = ("committed", "handed", "taken", "sent", "applied")


def anomalies(
    delivery: DataFrame, strays: DataFrame, store: DataFrame, state: DataFrame, settings: AuditSettings
) -> DataFrame:
    """One row per anomaly, with the columns of ``COLUMNS``."""
    parts = {"delivery": wrong(delivery, settings), "strays": strays, "store": store, "state": differing(state)}
    each = [as_anomaly(table, of) for of, table in parts.items()]
    return each[0].unionByName(each[1]).unionByName(each[2]).unionByName(each[3])


def wrong(delivery: DataFrame, settings: AuditSettings) -> DataFrame:
    """The rows of the delivery table that are anomalies."""
    blameless = BLAMELESS if settings.strict else BLAMELESS + DROPPED_INORDER
    return delivery.filter(~F.col("verdict").isin(*blameless))


def differing(state: DataFrame) -> DataFrame:
    """The rows of the state table that are anomalies."""
    return state.filter(F.col("verdict") != "behind")


def as_anomaly(table: DataFrame, of: str, *more: str) -> DataFrame:
    """These rows with the columns of ``COLUMNS``, and with ``more`` of their own columns before these."""
    values = {name: F.col(name) if name in table.columns else F.lit(None) for name in COLUMNS}
    values["of"] = F.lit(of)
    return table.select(*more, *[value.cast(COLUMNS[name]).alias(name) for name, value in values.items()])


def first(anomalies: DataFrame) -> list[dict[str, Any]]:
    """The first ``FIRST`` of each domain and kind, in order, without the columns that are null."""
    place = F.row_number().over(Window.partitionBy("domain", "of", "verdict").orderBy(*ORDER))
    few = anomalies.withColumn("place", place).filter(F.col("place") <= FIRST)
    found = few.orderBy("domain", "of", "verdict", "place").drop("place").collect()
    return [{name: value for name, value in row.asDict().items() if value is not None} for row in found]


def worst_keys(anomalies: DataFrame, rows: DataFrame, settings: AuditSettings) -> list[dict[str, Any]]:
    """The objects with the most anomalies that set a bit of the exit code. Anomalies of the messages that change an
    object and of its state count.
    """
    grave = anomalies.filter(F.col("verdict").isin(*counting(settings)))
    # settled: without faulty messages no record of the journals needs to be read.
    of_point = settled(grave.filter((F.col("of") == "delivery") & (F.col("position") > 0)).groupBy(*POINT).count())
    carried = rows.filter((F.col("kind") == "data") & F.col("outcome").isin(*_CARRIES)).select(*POINT, "changes")
    changed = (
        carried.join(hashed(of_point.select(*POINT)), POINT, "left_semi")
        .select(*POINT, F.explode("changes").alias("change"))
        .select(*POINT, "change.table", "change.key")
        .distinct()
        .join(hashed(of_point), POINT)
    )
    here = ["domain", "topic", "table", "key"]
    differing = grave.filter((F.col("of") == "state") & F.col("key").isNotNull())
    found = changed.select(*here, "count").unionByName(differing.select(*here, F.lit(1).cast("bigint").alias("count")))
    worst = found.groupBy(*here).agg(F.sum("count").alias("anomalies")).orderBy(F.desc("anomalies"), *here)
    return [row.asDict() for row in worst.limit(KEYS).collect()]
