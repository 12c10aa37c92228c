"""Items that were settled after their horizon: not lost (audit-verdicts.md, "Delivery", *belated*)."""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules import applications
from pubsub_lib.audit.rules.ways import MESSAGE, POLLING, REPAIR


def came() -> Column:
    """What all receipts of an item show, also those after its horizon. Of a row of joined receipts."""
    return F.struct(
        F.col("first.run").alias("run"),
        F.col("first.received").alias("received"),
        F.col("first.applied").alias("applied"),
        "differs",
        "differs_at",
        F.col("stale_at").isNotNull().alias("stale"),
    )


def settled_at() -> Column:
    """The time at which the item was settled, of an item that was not settled until its horizon; null: never."""
    return F.coalesce(_in_question(), F.col("returned.wall"))


def began() -> Column:
    """The time at which the sync began that settled such an item; null: no sync did."""
    return F.when(_in_question().isNull(), F.col("returned.began")).otherwise(F.col("asked.belated.began"))


def _in_question() -> Column:
    """The time at which the item was settled in the interval in question."""
    return F.least(applications.ever_applied_at(F.col("asked")), F.col("asked.belated.wall"))  # it ignores nulls


def rule(changed_at: Column) -> Column:
    """Such an item's "verdict:detail:way". ``changed_at``: the detail of another content that came by no message."""
    by_message = F.col("came.run") == F.col("asked.run")
    applied, synced = applications.ever_applied_at(F.col("asked")), F.col("asked.belated.wall")
    by_polling = (F.col("kind") == "polled") & F.coalesce(applied <= F.coalesce(synced, applied), F.lit(False))
    way = F.when(by_polling, POLLING).otherwise(REPAIR)
    return (
        F.when(_in_question().isNull(), f"late::{REPAIR}")  # in a later interval
        .when(by_message & F.col("came.differs"), F.concat(F.lit("corrupt:"), "came.differs_at", F.lit(f":{MESSAGE}")))
        .when(by_message & (F.col("came.applied") > 1), f"duplicate_applied::{MESSAGE}")
        .when(by_message & F.col("came.stale"), f"stale_applied::{MESSAGE}")
        .when(by_message, f"late::{MESSAGE}")
        .when(applications.ever_applied_other(F.col("asked")), F.concat(F.lit("corrupt:"), changed_at, F.lit(":"), way))
        .otherwise(F.concat(F.lit("late::"), way))
    )
