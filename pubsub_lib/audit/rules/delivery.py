"""The verdict for every message and replica (audit-verdicts.md, "Delivery").

Most items are received and applied in time, and are decided from two joined rows. Only the others are joined with the
intervals of their replica that decide them, and judged by rules in the order of the document.
"""

from collections.abc import Collection
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules import applications, belated, branches, contents, deciding_intervals
from pubsub_lib.audit.rules.base_tables import ID, POINT, closed, hidden_at_publisher, with_skew
from pubsub_lib.audit.rules.commit_tables import only_sent, unpublished, with_undone
from pubsub_lib.audit.rules.contents import different
from pubsub_lib.audit.rules.later_intervals import committed_at
from pubsub_lib.audit.rules.receipts import neighbours, received
from pubsub_lib.audit.rules.ways import MESSAGE, NO_WAY, POLLING, REPAIR
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.spark.settled import checkpointed, hashed, lookup, together

COLUMNS: Final = (
    "domain", "name", "kind", "service", "uuid", "topic", "sequence", "position", "nonce", "p", "verdict", "detail",
    "blame", "way", "settled", "detected", "written", "received", "skew",
)  # fmt: skip
_ITEM: Final = ["domain", "kind", "service", "uuid", "topic", "sequence", "position", "nonce", "p", "publisher_host"]


def items(
    publications: DataFrame,
    commits: DataFrame,
    sent_points: DataFrame,
    shown: DataFrame | None,
    polled: Collection[str],
    settings: AuditSettings,
) -> DataFrame:
    """Publications, unpublished commits, and commits for polling replicas (kind ``polled``), in one table. ``shown``:
    see :class:`pubsub_lib.audit.rules.unexpected_receipts.Unrecorded`; a commit that such a receipt shows is marked
    ``shown``. ``polled``: the domains in which polling replicas must have what was sent without a recorded commit, too.
    """
    unsent = unpublished(commits, sent_points, settings).withColumn("kind", F.lit("unpublished"))
    if shown is None:
        unsent = unsent.withColumn("shown", F.lit(False))
    else:
        in_time = F.coalesce(F.col("shown_at") <= F.col("p") + settings.reach, F.lit(False))
        unsent = unsent.join(lookup(shown), POINT, "left").withColumn("shown", in_time).drop("shown_at")
    of_commits = unsent.unionByName(commits.withColumns({"kind": F.lit("polled"), "shown": F.lit(False)}))
    no_message = {
        "uuid": F.lit(""),
        "sequence": F.lit(0).cast("bigint"),
        "written": F.lit(0).cast("bigint"),
        "publisher_host": F.lit(""),
    }
    nothing = {
        **no_message,
        "whole": F.lit(False),
        "sent_low": F.lit(None).cast("bigint"),
        "sent_high": F.lit(None).cast("bigint"),
    }
    published = {"kind": F.lit("publication"), "taken": F.lit(False), "handed": F.lit(False), "shown": F.lit(False)}
    of_commits = of_commits.withColumns(nothing).drop("committed", "low", "high", "strange")
    if polled:
        of_sent = only_sent(sent_points.filter(F.col("domain").isin(*polled)), commits)
        of_sent = of_sent.withColumns({**published, **no_message, "kind": F.lit("polled")})
        of_commits = of_commits.unionByName(of_sent)
    return publications.withColumns(published).unionByName(of_commits)


def expected(items: DataFrame, histories: DataFrame) -> DataFrame:
    """One row per item and replica that must receive it."""
    listeners = lookup(histories.select("domain", "topic", "polls", "name"))
    wanted = items.withColumn("polls", F.col("kind") == "polled")
    return together(wanted.join(listeners, ["domain", "topic", "polls"]))


def delivery(
    expected: DataFrame,
    receipts: DataFrame,
    histories: DataFrame,
    intervals: DataFrame,
    applied: DataFrame,
    commits: DataFrame,
    absent: DataFrame | None,
    stale: DataFrame,
    skews: DataFrame,
    domains: DataFrame,
    settings: AuditSettings,
) -> DataFrame:
    """The delivery table without unrecorded items. ``applied``: the replicas' records with outcome applied or old.
    ``absent``: the points that the changelog lacks, and when it had another commit in the place (``survived``).
    """
    joined = checkpointed(_with_receipts(expected, received(receipts), skews, stale, settings))
    joined = joined.withColumn("came", belated.came())
    too_late = F.coalesce(F.col("received_last") > F.col("p") + settings.reach, F.lit(False))
    some = joined.filter(too_late)
    if not some.isEmpty():  # few, if any: join them again, without the receipts after the horizon
        horizons = some.select(*ID, "name", (F.col("p") + settings.reach).alias("horizon"))
        in_time = together(receipts.join(lookup(horizons), [*ID, "name"])).filter("wall <= horizon").drop("horizon")
        again = _with_receipts(some.select(*expected.columns, "came"), received(in_time), skews, stale, settings)
        joined = joined.filter(~too_late).unionByName(checkpointed(again))
    at_once = _judged(joined.filter("plain"), _delivered(settings, F.col("first.settled")))
    undecided = with_undone(joined.filter(~F.col("plain")), commits)
    slow = checkpointed(deciding_intervals.with_intervals(undecided, histories, intervals, skews, settings))
    if slow.isEmpty():
        return at_once
    slow = applications.with_applications(slow, applied, commits)
    if absent is None:
        slow = slow.withColumn("survived", F.lit(None).cast("bigint"))
    else:
        slow = slow.join(hashed(absent.select(*POINT, "survived")), POINT, "left")
    slow = slow.join(
        lookup(domains.select("domain", "closed_until", "publisher_gaps", "sender_since")), "domain", "left"
    )
    return at_once.unionByName(_judge(slow, receipts, settings))


def _with_receipts(
    expected: DataFrame, received: DataFrame, skews: DataFrame, stale: DataFrame, settings: AuditSettings
) -> DataFrame:
    joined = expected.join(hashed(received), [*ID, "name"], "left").withColumn("first_run", F.col("first.run"))
    joined = with_skew(joined.withColumn("first_host", F.col("first.host")), "first_host", skews, settings)
    low, high = F.least("sent_low", "received_low"), F.greatest("sent_high", "received_high")
    differs = different(low, high) | (F.col("changed_at") != "")
    where = (
        F.when(F.col("changed_at") != "", F.col("changed_at"))
        .when(different(F.col("sent_low"), F.col("sent_high")), contents.PUBLISHER)
        .otherwise(contents.WIRE)
    )
    joined = joined.withColumns({"differs": differs, "differs_at": where})
    in_time = F.col("first.settled") - F.col("skew") <= F.col("p") + settings.bound
    return joined.join(
        lookup(stale.withColumnRenamed("run", "first_run")),
        ["domain", "first_run", "topic", "position", "nonce"],
        "left",
    ).withColumns(
        {
            "plain": F.coalesce(in_time, F.lit(False)),
            "stale": F.coalesce(F.col("stale_at") <= F.col("p") + settings.reach, F.lit(False)),
        }
    )


def _delivered(settings: AuditSettings, at: Column) -> Column:
    """The verdict for an item that was received and settled: the first table of the document, from its top."""
    return (
        F.when(F.col("differs"), "corrupt")
        .when(F.col("first.applied") > 1, "duplicate_applied")
        .when(F.col("stale"), "stale_applied")
        .when(at - F.col("skew") > F.col("p") + settings.bound, "late")
        .when(F.col("first.overtaken"), "reordered")
        .when(F.col("first.times") > 1, "duplicate_dropped")
        .otherwise("ok")
    )


def _judged(rows: DataFrame, verdict: Column) -> DataFrame:
    return rows.select(
        "domain", "name", *_ITEM[1:-1],
        verdict.alias("verdict"),
        F.when(verdict == "corrupt", F.col("differs_at")).otherwise("").alias("detail"),
        F.lit("").alias("blame"),
        F.lit(MESSAGE).alias("way"),
        F.col("first.settled").alias("settled"),
        F.lit(None).cast("bigint").alias("detected"),
        "written", F.col("first.received").alias("received"), "skew",
    )  # fmt: skip


def _judge(slow: DataFrame, receipts: DataFrame, settings: AuditSettings) -> DataFrame:
    for name, skew in (("of_receipt", "skew"), ("asked", "asked_skew")):
        slow = slow.withColumn(f"{name}_settled", _settled(F.col(name), F.col(skew), settings))
    slow = slow.withColumn("asked_polled", _polled(settings)).withColumn("asked_run", F.col("asked.run"))
    published = slow.filter((F.col("kind") == "publication") & F.col("asked").isNotNull())
    asked_for = published.select(
        "domain", F.col("asked_run").alias("run"), "uuid", "topic", "sequence",
        (F.col("p") + settings.reach).alias("horizon"),
    )  # fmt: skip
    there = neighbours(receipts, asked_for).withColumnRenamed("run", "asked_run")
    slow = slow.join(hashed(there), ["domain", "asked_run", "uuid", "topic", "sequence"], "left")
    by_message = F.col("first").isNotNull() & (F.col("of_receipt_settled").isNotNull() | F.col("differs"))
    first_table = F.when(F.col("of_receipt_settled").isNull(), "corrupt").otherwise(
        _delivered(settings, F.col("of_receipt_settled"))
    )
    # "verdict:detail", with ":way" of a belated item; split below, so that each rule is written once.
    detail = F.when(F.col("differs"), F.col("differs_at")).otherwise("")
    rule = F.when(by_message, F.concat(first_table, F.lit(":"), detail)).otherwise(_second_table(settings))
    slow = slow.withColumn("by_message", by_message).withColumn("rule", F.split(rule, ":"))
    return _table(slow.withColumn("verdict", F.get("rule", F.lit(0))))


def _table(slow: DataFrame) -> DataFrame:
    """The rows of the delivery table for items with a ``verdict`` and its ``rule``."""
    of_belated = F.get("rule", F.lit(2))
    way = (
        F.when(F.col("by_message"), MESSAGE)
        .when(of_belated.isNotNull(), of_belated)
        .when(F.col("verdict").isin("ok", "late") & F.col("asked_polled").isNotNull(), POLLING)
        .when((F.col("verdict") == "corrupt") & (F.col("kind") == "polled"), POLLING)
        .when(F.col("verdict").isin("repaired", "late", "corrupt"), REPAIR)
        .otherwise(NO_WAY)
    )
    slow = slow.withColumn("way", way)
    missed = (F.col("way") == REPAIR) | (F.col("verdict") == "lost")
    when = (
        F.when(F.col("by_message"), F.col("of_receipt_settled"))
        .when(of_belated.isNotNull(), belated.settled_at())
        .otherwise(F.col("asked_settled"))
    )
    began = F.when(of_belated.isNotNull(), belated.began()).otherwise(F.col("asked.began"))
    detected = F.when(missed, began)
    received_at = F.when(F.col("by_message"), F.col("first.received")).when(
        of_belated == MESSAGE, F.col("came.received")
    )
    return slow.select(
        "domain", "name", *_ITEM[1:-1], "verdict",
        F.get("rule", F.lit(1)).alias("detail"),
        F.when(missed, _last_seen()).otherwise("").alias("blame"),
        "way",
        F.when(missed | (F.col("way") != NO_WAY), when).alias("settled"),
        detected.alias("detected"),
        "written", received_at.alias("received"),
        F.when(F.col("by_message"), F.col("skew")).otherwise(F.col("asked_skew")).alias("skew"),
    )  # fmt: skip


def _last_seen() -> Column:
    """The hop after which the item was last seen."""
    return (
        F.when(F.col("first").isNotNull(), "subscriber")
        .when(F.col("kind") == "publication", "wire")
        .when(F.col("kind") == "polled", "polling")
        .when(F.col("taken"), "service")
        .when(F.col("handed"), "hop")
        .otherwise("writer")
    )


def _settled(interval: Column, skew: Column, settings: AuditSettings) -> Column:
    """The time when the item was settled in an interval; null: never, or the interval is null."""
    by_receipt = F.when(F.col("first.run") == interval["run"], F.col("first.settled"))
    any_way = F.least(by_receipt, applications.applied_at(interval, settings), interval["read"])  # it ignores nulls
    in_time = F.coalesce(by_receipt - skew <= F.col("p") + settings.bound, F.lit(False))
    return F.when(in_time, by_receipt).otherwise(any_way)


def _polled(settings: AuditSettings) -> Column:
    """The time when polling brought the item; null: polling did not, or something else settled the item before."""
    at = applications.applied_at(F.col("asked"), settings)
    return F.when((F.col("kind") == "polled") & (at == F.col("asked_settled")), at)


def _second_table(settings: AuditSettings) -> Column:
    """The verdict for an item that was not received and settled: the second table of the document, from its top."""
    p, skew, asked = F.col("p"), F.col("asked_skew"), F.col("asked")
    none = asked.isNull()
    is_closed = closed(p, F.col("closed_until"), settings)
    publisher_gap = (F.col("kind") == "unpublished") & hidden_at_publisher(settings)
    at = F.col("asked_settled")
    unapplied = applications.applied_at(asked, settings).isNull()
    unproved = F.col("doubtful") & unapplied
    not_stored = F.coalesce(F.col("survived") <= p + settings.bound, F.lit(False)) & unapplied
    in_tail = F.coalesce(committed_at() <= asked["succeeded"] + settings.grace, F.lit(False))
    stopped = F.coalesce(asked["ended"] - skew < p + settings.bound, F.lit(False))
    where = (
        F.when(F.col("kind") != "publication", "")
        .when(F.col("highest").isNull() | (F.col("sequence") > F.col("highest")), "suffix")
        .when(F.col("sequence") < F.col("lowest"), "prefix")
        .otherwise("middle")
    )
    by_itself = F.when(F.col("kind") == "polled", contents.POLLING).otherwise(contents.SYNC)
    changed_at = F.when(F.col("changed_at") != "", F.col("changed_at")).otherwise(by_itself)
    return (
        F.when(none & F.col("based"), "excused:covered")
        .when(none & F.col("ended"), "excused:not following")
        .when(none & is_closed, "unknown:no sync")
        .when(none | ((F.col("kind") == "unpublished") & ~is_closed), "pending:")
        .when(applications.applied_other(F.col("asked"), settings), F.concat(F.lit("corrupt:"), changed_at))
        .when(F.col("asked_polled") <= p + settings.bound, "ok:")
        .when(F.col("asked_polled").isNotNull(), "late:")
        .when(branches.read_on_arrival(asked, at, skew, settings), "excused:covered")
        .when(branches.left_before(asked, skew), "excused:stopped")
        .when(not_stored, "excused:not stored")
        .when(F.col("gap"), "unknown:gap")
        .when(unproved & is_closed, "unknown:gap")
        .when(unproved, "pending:")
        .when(publisher_gap, "unknown:gap of a publisher")
        .when(F.col("shown") & at.isNotNull(), "unknown:unrecorded")
        .when(at - skew <= p + settings.bound, "repaired:")
        .when(at.isNotNull(), "late:")
        .when(stopped & asked["succeeded"].isNotNull() & F.col("covered_later"), "excused:covered")
        .when(stopped & in_tail & is_closed, "unknown:gap")
        .when(stopped & in_tail, "pending:")
        .when(stopped & F.col("back") & is_closed, "unknown:no sync")
        .when(stopped & F.col("back"), "pending:")
        .when(stopped, "excused:stopped")
        .when(~is_closed, "pending:")
        .when(belated.settled_at().isNotNull(), belated.rule(changed_at))
        .otherwise(F.concat(F.lit("lost:"), where))
    )
