"""The intervals that decide an item, when no receipt does (audit-verdicts.md, "Words" and "Delivery").

A replica that was started hundreds of times has as many intervals, each with its syncs. So an item is compared with a
few numbers of each interval, and joined with the syncs of at most two: that of its first receipt, and that in question.
"""

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules import later_intervals
from pubsub_lib.audit.rules.base_tables import FOREVER, with_skew
from pubsub_lib.audit.rules.later_intervals import committed_at
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.spark.settled import hashed, lookup, together

HISTORY: Final = ["domain", "topic", "polls", "name"]
_BASES: Final = "array<struct<wall:bigint,until:bigint,position:bigint,number:bigint,read:bigint>>"
_LOWS: Final = "array<struct<number:bigint,wall:bigint,position:bigint>>"


def histories(intervals: DataFrame, topics: DataFrame) -> DataFrame:
    """Per (domain, topic, polls, name): the ``entries`` of its matching intervals in order, and the earliest times at
    which one was ``opened`` and ``based``. ``topics``: all topics of each domain.

    An interval has one entry for each base that it may have: the base depends on the horizon when the clock was set
    between syncs. An entry counts for horizons from ``since`` on and before ``until``; without a sync these are null.
    ``reached``: the sync of the base; ``read``: when it began; ``doubt``: whether the record of an earlier sync may be
    lost; ``lows``: see :func:`_lows`.
    """
    narrow = intervals.withColumns({"of": F.col("topic"), "entries": _entries()}).select(*HISTORY, "opened", "entries")
    every = narrow.filter(F.col("topic") == "").drop("topic").join(hashed(topics), "domain")
    based = F.array_min(F.transform("entries", lambda each: each["since"]))
    return (
        narrow.filter(F.col("topic") != "")
        .unionByName(every)
        .groupBy(*HISTORY)
        .agg(
            F.sort_array(F.flatten(F.collect_list("entries"))).alias("entries"),
            F.min("opened").alias("opened"),
            F.min(based).alias("based"),
        )
    )


def _entries() -> Column:
    interval = [
        F.struct("first_wall", "run", "begin", "of").alias("key"),
        F.col("opened"),
        F.coalesce(ended_at(), F.lit(FOREVER)).alias("ended"),
    ]
    null = F.lit(None).cast("bigint")
    bases = F.aggregate("syncs", F.array().cast(_BASES), _with_base)
    lows = _lows()
    with_bases = F.transform(
        bases,
        lambda each: F.struct(
            *interval,
            F.greatest("opened", each["wall"]).alias("since"),
            each["until"].alias("until"),
            each["position"].alias("base"),
            each["read"].alias("read"),
            ((each["read"] > -FOREVER) & _lost_before(each["number"])).alias("doubt"),
            F.struct(*(each[name].alias(name) for name in ("position", "wall", "number"))).alias("reached"),
            lows.alias("lows"),
        ),
    )
    nothing = [null.alias(name) for name in ("since", "until", "base", "read")]
    no_sync = F.lit(None).cast("struct<position:bigint,wall:bigint,number:bigint>").alias("reached")
    nothing.append(F.lit(False).alias("doubt"))
    alone = F.array(F.struct(*interval, *nothing, no_sync, F.array().cast(_LOWS).alias("lows")))
    return F.when(F.size("syncs") > 0, with_bases).otherwise(alone)


def _lost_before(number: Column) -> Column:
    """Whether records of the interval are lost before this number."""
    return F.exists("gaps", lambda gap: (gap["hi"] > F.col("begin")) & (gap["lo"] < number))


def _is_doubtful(entry: Column, settings: AuditSettings) -> Column:
    """Whether the record of an earlier sync than that of the base may be lost, and the item came after it."""
    return entry["doubt"] & (committed_at() >= entry["opened"] - settings.grace)


def _with_base(bases: Column, sync: Column) -> Column:
    """The bases and that of the next sync: the first one with a wall until the horizon gives the base, so only a sync
    with an earlier wall than all syncs before it can do so.
    """
    before = F.coalesce(F.try_element_at(bases, F.lit(-1))["wall"], F.lit(FOREVER))
    # The base of a continued part is always in time.
    read = F.when(sync["since"] == FOREVER, -FOREVER).otherwise(F.coalesce(sync["began"], sync["wall"]))
    # A first delta proves only what the replica knew before.
    whole = sync["full"] | (sync["since"] == FOREVER)
    position = F.when(whole, sync["position"]).otherwise(F.least(sync["since"], sync["position"]))
    base = F.struct(
        sync["wall"].alias("wall"), before.alias("until"), position.alias("position"),
        sync["number"].alias("number"), read.alias("read"),
    )  # fmt: skip
    return F.when(sync["wall"] < before, F.concat(bases, F.array(base))).otherwise(bases)


def _lows() -> Column:
    """The syncs that ended below an earlier one of the same interval. There are none unless the store was restored."""

    def with_low(found: Column, sync: Column) -> Column:
        low = F.struct(*(sync[name].alias(name) for name in ("number", "wall", "position")))
        lows = F.when(sync["position"] < found["top"], F.concat(found["lows"], F.array(low))).otherwise(found["lows"])
        return F.struct(F.greatest(found["top"], sync["position"]).alias("top"), lows.alias("lows"))

    nothing = F.struct(F.lit(-1).cast("bigint").alias("top"), F.array().cast(_LOWS).alias("lows"))
    return F.aggregate("syncs", nothing, with_low, lambda found: found["lows"])


def replaced(sync: Column, lows: Column, settings: AuditSettings) -> Column:
    """Whether a sync is of a history that a restore replaced before the item was committed."""
    position, horizon = F.col("position"), F.col("p") + settings.reach
    back = F.exists(
        lows,
        lambda low: (low["number"] > sync["number"]) & (low["position"] < position) & (low["wall"] <= horizon),
    )
    return (sync["position"] >= position) & (sync["wall"] < committed_at() - settings.grace) & back


def ended_at() -> Column:
    """The time when an interval ended; null: it did not end."""
    return F.coalesce("drop_wall", F.when(F.col("over"), F.col("last_wall")))


def with_intervals(
    items: DataFrame, histories: DataFrame, intervals: DataFrame, skews: DataFrame, settings: AuditSettings
) -> DataFrame:
    """The items with an interval that was open at their horizon, with

    - ``asked``: the interval in question, ``asked_skew``, ``gap``: whether a gap may hide the item there, and
      ``doubtful``: whether only a base that is doubtful for the item is at or beyond it;
    - ``of_receipt``: the interval of the first receipt;
    - ``returned``: the times of the first sync of a later interval that covers the item, at any time;
    - ``covered_later``: whether the first sync of a later interval has the item;
    - ``back``: whether the replica came back in time after the interval in question, and read nothing;
    - ``based``: whether any interval has a base; ``ended``: whether all have ended, if neither is there.

    An interval has the begin of the first sync that reached the item (``began``), and the least wall of those that
    prove that the replica has it (``read``), until the horizon; and the same of those after it (``belated``).
    ``items``: with ``undone``.
    """
    horizon = F.col("p") + settings.reach
    found = together(items.join(lookup(histories), HISTORY)).filter(F.col("opened") <= horizon)
    found = _with_keys(found, horizon, settings)
    ended = F.when(F.col("asked_key").isNull() & ~F.col("based"), ~_still_open(horizon))
    found = found.withColumns({"ended": ended, "returned": later_intervals.returned(settings)}).drop("opened")
    for name in ("asked", "of_receipt"):
        found = found.join(lookup(_of_key(intervals, name)), ["domain", f"{name}_key"], "left")
    found = found.withColumnsRenamed({"skew": "receipt_skew"}).withColumn("asked_host", F.col("asked.host"))
    found = with_skew(found, "asked_host", skews, settings).drop("asked_host")
    found = found.withColumnsRenamed({"skew": "asked_skew", "receipt_skew": "skew"})
    found = found.withColumn("back", later_intervals.is_back_without_a_sync(settings))
    found = found.withColumn("covered_later", later_intervals.is_covered_later(settings)).drop("entries", "asked_key")
    found = found.withColumn("gap", F.coalesce(_gap(settings), F.lit(False)))
    for name in ("asked", "of_receipt"):
        found = found.withColumn("covering", F.filter(F.col(name)["syncs"], _covering(name, settings)))
        found = found.withColumn(name, _with_times(F.col(name), horizon)).drop("covering")
    return found.drop("of_receipt_key")


def _with_keys(found: DataFrame, horizon: Column, settings: AuditSettings) -> DataFrame:
    """The items and entries, with the keys of the intervals that decide, ``doubtful`` and ``based``."""
    position, number = F.col("position"), F.col("first.number")
    below = F.filter(
        "entries",
        lambda each: (
            (each["since"] <= horizon)
            & (each["until"] > horizon)
            & (
                (each["base"] < position)
                | replaced(each["reached"], each["lows"], settings)
                | _is_doubtful(each, settings)
            )
        ),
    )
    in_time = F.filter(
        below, lambda each: (each["read"] <= committed_at() + settings.grace) | _is_doubtful(each, settings)
    )
    decides = F.coalesce(_last(in_time), _last(below))
    of_receipt = F.filter(
        "entries",
        lambda each: (
            (each["key"]["run"] == F.col("first.run")) & (each["key"]["begin"] < number) & (each["opened"] <= horizon)
        ),
    )
    return found.withColumns(
        {
            "asked_key": decides["key"],
            "doubtful": F.coalesce(_is_doubtful(decides, settings) & (decides["base"] >= position), F.lit(False)),
            "of_receipt_key": F.when(F.col("first").isNotNull(), _last(of_receipt)["key"]),
            "based": F.coalesce(F.col("based") <= horizon, F.lit(False)),
        }
    )


def _still_open(horizon: Column) -> Column:
    return F.exists("entries", lambda each: (each["opened"] <= horizon) & (each["ended"] > horizon))


def _last(entries: Column) -> Column:
    return F.try_element_at(entries, F.lit(-1))


def _of_key(intervals: DataFrame, name: str) -> DataFrame:
    """One row per interval, without the syncs that can cover no item."""
    about = F.struct(
        "run", "host", "begin", "end", "until", "opened", "drop_wall", "last_sign", "gaps",
        ended_at().alias("ended"),
        F.when(F.col("drop_wall").isNull(), F.col("succeeded")).alias("succeeded"),
        F.coalesce(F.get("syncs", F.lit(0))["since"] == FOREVER, F.lit(False)).alias("continued"),
        F.filter("syncs", lambda each: each["since"] < each["position"]).alias("syncs"), _lows().alias("lows"),
    )  # fmt: skip
    key = F.struct("first_wall", "run", "begin", F.col("topic").alias("of"))
    return intervals.select("domain", key.alias(f"{name}_key"), about.alias(name))


def covers(position: Column) -> Callable[[Column], Column]:
    """Whether a sync reached a position, and did not begin there."""
    return lambda sync: (sync["position"] >= position) & (sync["since"] < position)


def _covering(name: str, settings: AuditSettings) -> Callable[[Column], Column]:
    """Whether a sync of an interval reached the item."""
    lows = F.col(name)["lows"]
    return lambda sync: covers(F.col("position"))(sync) & ~replaced(sync, lows, settings)


def _with_times(interval: Column, horizon: Column) -> Column:
    """The interval with the times of the syncs in ``covering`` in place of its syncs. What a delta brought is shown by
    the links that were applied, and not by its end; but it need not bring what a restore had undone.
    """
    in_time = F.filter("covering", lambda sync: sync["wall"] <= horizon)
    later = F.filter("covering", lambda sync: sync["wall"] > horizon)
    times = F.transform(later, lambda sync: F.struct(sync["wall"].alias("wall"), sync["began"].alias("began")))
    belated = F.struct(_read(later).alias("wall"), F.array_min(times)["began"].alias("began"))
    kept = ("run", "begin", "end", "until", "opened", "drop_wall", "ended", "succeeded", "continued")
    return F.when(
        interval.isNotNull(),
        F.struct(
            *(interval[name].alias(name) for name in kept),
            _read(in_time).alias("read"),
            F.get(in_time, F.lit(0))["began"].alias("began"),
            belated.alias("belated"),
        ),
    )


def _read(syncs: Column) -> Column:
    """The least wall of the syncs that prove that the replica has the item."""
    return F.array_min(
        F.transform(F.filter(syncs, lambda sync: sync["full"] | F.col("undone")), lambda sync: sync["wall"])
    )


def _gap(settings: AuditSettings) -> Column:
    """Whether a gap of the run may hide the item in the interval in question."""
    p, skew, asked, committed = F.col("p"), F.col("asked_skew"), F.col("asked"), committed_at()
    return F.exists(
        asked["gaps"],
        lambda each: (
            (each["hi"] > asked["begin"])
            & (each["lo_wall"] <= p + settings.reach)
            & (each["lo"] < asked["end"])
            & (
                (each["lo_wall"] - skew <= p + settings.grace)
                | ((each["hi"] == FOREVER) & (each["lo_wall"] - skew < p + settings.bound))
            )
            & ((each["hi_wall"] - skew >= committed) | (each["lo"] >= asked["last_sign"]))
        ),
    )
