"""The intervals of a replica after the one in question: whether it came back, and what it then read
(audit-verdicts.md, "Delivery").
"""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules.base_tables import FOREVER
from pubsub_lib.audit.settings import AuditSettings


def committed_at() -> Column:
    """The time of the commit of an item."""
    return F.when(F.col("written") > 0, F.least("p", "written")).otherwise(F.col("p"))


def is_back_without_a_sync(settings: AuditSettings) -> Column:
    """Whether a later interval than that in question began in time and lasted, and none of them has a base."""
    horizon, p = F.col("p") + settings.reach, F.col("p") + F.col("asked_skew")

    def lasted(each: Column) -> Column:
        in_time = each["opened"] <= p + min(settings.bound, 2 * settings.grace)
        until = F.greatest(p, each["opened"]) + settings.bound
        return in_time & ((each["ended"] > horizon) | (each["ended"] >= until))

    later = F.filter("entries", lambda each: (each["key"] > F.col("asked_key")) & (each["opened"] <= horizon))
    based = F.exists(later, lambda each: F.coalesce(each["since"] <= horizon, F.lit(False)))
    return F.coalesce(~based & F.exists(later, lasted), F.lit(False))


def is_covered_later(settings: AuditSettings) -> Column:
    """Whether the first sync, until the horizon, of a later interval than that in question has the item."""
    horizon = F.col("p") + settings.reach
    return F.coalesce(
        F.exists(
            "entries",
            lambda each: (
                (each["key"] > F.col("asked_key"))
                & (each["since"] <= horizon)
                & (each["until"] > horizon)
                & (each["read"] > -FOREVER)
                & (each["base"] >= F.col("position"))
                & (each["reached"]["wall"] >= committed_at() - settings.grace)
            ),
        ),
        F.lit(False),
    )


def returned(settings: AuditSettings) -> Column:
    """The first sync with which the replica came back after the interval in question, and had the item."""
    later = F.filter(
        "entries",
        lambda each: (
            (each["key"] > F.col("asked_key"))
            & (each["until"] == FOREVER)  # the base at any time: of the first sync of its interval
            & (each["read"] > -FOREVER)
            & (each["base"] >= F.col("position"))
            # An earlier one read another history, which a restore replaced.
            & (each["reached"]["wall"] >= committed_at() - settings.grace)
        ),
    )

    def times(each: Column) -> Column:
        return F.struct(each["reached"]["wall"].alias("wall"), each["read"].alias("began"))

    return F.array_min(F.transform(later, times))
