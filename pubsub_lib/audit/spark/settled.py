"""Tables that are computed at once and kept. Their plans become short: planning long plans takes longer than the data.

An audit of little data uses a single partition (:func:`~pubsub_lib.audit.spark.session.settings_for`). There Spark
learns whether a small table is empty: an empty table removes all steps that depend on it. No step then exchanges rows
or runs a job of its own: rows are grouped where they are, and joins look up the other table in the same task.
"""

from typing import TYPE_CHECKING

from pubsub_lib.audit.spark.session import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession


def single(spark: "SparkSession") -> bool:
    """Whether the audit uses a single partition."""
    return spark.conf.get(PARTITIONS) == "1"


def settled(table: "DataFrame") -> "DataFrame":
    """A table that is small when the journals are small, computed now."""
    if not single(table.sparkSession):
        return checkpointed(table)
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    counted = Observation()  # counts while the table is computed: a query of its own would be another job
    found = checkpointed(table.observe(counted, F.count(F.lit(1)).alias("rows")))
    return found if counted.get["rows"] else found.limit(0)


def observed(table: "DataFrame", condition: "Column") -> tuple["DataFrame", bool]:
    """:func:`settled`, and whether any row fulfils the condition, without a job of its own."""
    found, fulfilled = fulfilling(table, {"it": condition})
    return found, bool(fulfilled)


def fulfilling(table: "DataFrame", conditions: "Mapping[str, Column]") -> tuple["DataFrame", frozenset[str]]:
    """:func:`settled`, and the names of the conditions that any row fulfils, without a job of its own."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    counted = Observation()
    counts = [F.count(F.when(condition, 1)).alias(name) for name, condition in conditions.items()]
    found = settled(table.observe(counted, *counts))
    return found, frozenset(name for name in conditions if counted.get[name])


def checkpointed(table: "DataFrame") -> "DataFrame":
    """A table with about one row for a message or an object, computed now. It stays with the executors."""
    return together(table).localCheckpoint(eager=True)


def kept(table: "DataFrame", *, small: bool = False) -> "DataFrame":
    """A table that is read several times. With several partitions its first reader computes it, else it is computed
    now. ``small``: see :func:`settled`.
    """
    if not single(table.sparkSession):
        return table.persist()
    return settled(table) if small else checkpointed(table)


def narrowed(rows: "DataFrame") -> "DataFrame":
    """Records that most steps read. With a single partition they are computed now: opening every file in each step
    takes longer than the step.
    """
    return checkpointed(rows) if single(rows.sparkSession) else rows


def together(table: "DataFrame") -> "DataFrame":
    """The table in one partition, if the audit uses only one: later steps exchange no rows between partitions. Also for
    the result of an inner join that is joined again: Spark does not take that for a single partition.
    """
    return table.coalesce(1) if single(table.sparkSession) else table


def partitioned(table: "DataFrame", *by: str) -> "DataFrame":
    """The table partitioned by these columns. A single partition is partitioned by any columns."""
    return table if single(table.sparkSession) else table.repartition(*by)


def lookup(table: "DataFrame") -> "DataFrame":
    """A small table, for a join by equal columns: every task holds it. With several partitions a job of its own sends
    it to all tasks.
    """
    from pyspark.sql import functions as F  # noqa: N812

    return hashed(table) if single(table.sparkSession) else F.broadcast(table)


def hashed(table: "DataFrame") -> "DataFrame":
    """The table for a join by equal columns. A single partition fits in memory, so neither table is sorted."""
    return table.hint("shuffle_hash") if single(table.sparkSession) else table
