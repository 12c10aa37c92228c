"""Items that were settled after their horizon: not lost (audit-verdicts.md, "Delivery", *belated*)."""

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules import applications
from pubsub_lib.audit.rules.ways import MESSAGE, POLLING, REPAIR
from pubsub_lib.audit.settings import AuditSettings

_SYNC: Final = "belated"
"""The field of an interval with the first sync after the horizon that covers the item."""


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


def covers(position: Column) -> Callable[[Column], Column]:
    """Whether a sync read the commit at a position."""
    return lambda sync: (sync["position"] >= position) & (sync["since"] < position)


def until_horizon(settings: AuditSettings) -> Column:
    """The intervals that were open at the item's horizon, with their syncs until then, and the first later one that
    covers the item.
    """
    horizon = F.col("p") + settings.reach
    covering = covers(F.col("position"))
    open_then = F.filter("intervals", lambda each: each["opened"] <= horizon)
    return F.transform(
        open_then,
        lambda each: each.withField(
            _SYNC, _first(F.filter(each["syncs"], lambda sync: (sync["wall"] > horizon) & covering(sync)))
        ).withField("syncs", F.filter(each["syncs"], lambda sync: sync["wall"] <= horizon)),
    )


def _first(syncs: Column) -> Column:
    """The times of the end and the begin of the first of some syncs; null without any."""
    return F.array_min(
        F.transform(syncs, lambda each: F.struct(each["wall"].alias("wall"), each["began"].alias("began")))
    )


def settled_at() -> Column:
    """The time at which the item was settled, of an item that was not settled until its horizon; null: never."""
    return F.least(applications.ever_applied_at(F.col("asked")), F.col("asked")[_SYNC]["wall"])  # it ignores nulls


def began() -> Column:
    """The begin of the sync that brought it."""
    return F.col("asked")[_SYNC]["began"]


def rule(changed_at: Column) -> Column:
    """Such an item's "verdict:detail:way". ``changed_at``: the detail of another content that came by no message."""
    by_message = F.col("came.run") == F.col("asked.run")
    applied, synced = applications.ever_applied_at(F.col("asked")), F.col("asked")[_SYNC]["wall"]
    by_polling = (F.col("kind") == "polled") & F.coalesce(applied <= F.coalesce(synced, applied), F.lit(False))
    way = F.when(by_polling, POLLING).otherwise(REPAIR)
    return (
        F.when(by_message & F.col("came.differs"), F.concat(F.lit("corrupt:"), "came.differs_at", F.lit(f":{MESSAGE}")))
        .when(by_message & (F.col("came.applied") > 1), f"duplicate_applied::{MESSAGE}")
        .when(by_message & F.col("came.stale"), f"stale_applied::{MESSAGE}")
        .when(by_message, f"late::{MESSAGE}")
        .when(applications.ever_applied_other(F.col("asked")), F.concat(F.lit("corrupt:"), changed_at, F.lit(":"), way))
        .otherwise(F.concat(F.lit("late::"), way))
    )
