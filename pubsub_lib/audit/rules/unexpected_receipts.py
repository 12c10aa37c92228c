"""Receipts that no replica should have, and unrecorded publications (audit-verdicts.md, "Delivery")."""

from typing import Final

import msgspec
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules import delivery, ways
from pubsub_lib.audit.rules.base_tables import ID, POINT, RUN, closed, with_skew
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.spark.settled import hashed, lookup, settled

COLUMNS: Final = ("domain", "name", "uuid", "topic", "sequence", "verdict")


def publishers(overview: DataFrame, runs: DataFrame) -> DataFrame:
    """One row per (domain, uuid) that sent: its host, the time of the first gap of its runs, its last record's wall."""
    sent = overview.filter(F.col("sent") > 0)
    of_runs = sent.groupBy(*RUN, "uuid", "host").agg(F.min("sent_wall").alias("wall"))
    by_run = of_runs.select(*RUN, "uuid", F.struct("wall", "run", "host").alias("first"))
    about = runs.select(*RUN, "last_wall", F.get("gaps", F.lit(0))["lo_wall"].alias("holed"))
    return (
        by_run.join(lookup(about), RUN)
        .groupBy("domain", "uuid")
        .agg(
            F.min("first").getField("host").alias("publisher_host"),
            F.min("holed").alias("publisher_holed"),
            F.max("last_wall").alias("publisher_last"),
        )
    )


def unsent(
    receipts: DataFrame, publishers: DataFrame, skews: DataFrame, domains: DataFrame, settings: AuditSettings
) -> DataFrame:
    """One row per received id without a publication: the time of its first receipt (``p``), whether its window is
    ``closed``, whether it is provably a ``phantom``: in an open window the publication may be behind the last record
    that was read; and the ``names`` of the replicas that received it, and of those that did while they did not follow
    its topic (``strangers``).
    """
    strange = receipts.filter(~F.col("published"))
    strange = strange.join(lookup(publishers), ["domain", "uuid"], "left")
    strange = strange.withColumn("p", F.min("wall").over(Window.partitionBy(*ID)))
    strange = with_skew(strange, "host", skews, settings)
    strange = strange.join(lookup(domains.select("domain", "closed_until")), "domain", "left")
    at = F.col("wall") - F.col("skew")
    holed = F.coalesce(F.first("publisher_holed") <= F.min("wall") + settings.reach, F.lit(False))
    is_closed = closed(F.min("wall"), F.first("closed_until"), settings)
    proved = F.first("publisher_host").isNotNull() & ~holed & is_closed
    return strange.groupBy(*ID).agg(
        F.collect_set("name").alias("names"),
        F.collect_set(F.when(F.col("astray"), F.col("name"))).alias("strangers"),
        F.min("wall").alias("p"),
        is_closed.alias("closed"),
        (proved & (F.first("publisher_last") >= F.min(at))).alias("provable"),
    ).withColumn("phantom", F.coalesce("provable", F.lit(False))).drop("provable")  # fmt: skip


def strays(
    receipts: DataFrame, runs: DataFrame, unsent: DataFrame, histories: DataFrame, settings: AuditSettings
) -> DataFrame:
    """Phantoms, misrouted messages, and those of unknown publishers and topics, one row per id and replica."""
    phantoms = unsent.filter("phantom").select(*ID, F.explode("names").alias("name"), F.lit("phantom").alias("verdict"))
    first_gap = runs.select(*RUN, F.get("gaps", F.lit(0))["lo"].alias("first_gap"))
    lost_way = (
        receipts.filter(F.col("astray") & F.col("published"))
        .join(lookup(first_gap), RUN)
        .filter(F.col("first_gap").isNull() | (F.col("first_gap") >= F.col("number")))
        .select(*ID, "name")
        .distinct()
    )
    found = phantoms.select(*COLUMNS).unionByName(lost_way.withColumn("verdict", F.lit("misrouted")).select(*COLUMNS))
    foreign = unsent.filter(F.col("closed") & ~F.col("phantom")).select(*ID, "p", F.explode("strangers").alias("name"))
    listening = _listening(foreign.drop("name"), histories, settings).select(*ID, "name")
    foreign = foreign.join(hashed(listening), [*ID, "name"], "left_anti")
    return found.unionByName(foreign.withColumn("verdict", F.lit("unknown")).select(*COLUMNS))


def none(rows: DataFrame) -> DataFrame:
    """An empty table of strays."""
    return rows.limit(0).withColumn("verdict", F.lit("")).select(*COLUMNS)


class Unrecorded(msgspec.Struct, frozen=True):
    """Messages whose publication is not recorded."""

    items: DataFrame
    """One row per sequence that is an item and replica that listened: domain, name, uuid, …, p."""
    shown: DataFrame | None
    """The points that receipts of such messages show, and the time of the first receipt (``shown_at``); None: none."""


def unrecorded(
    publications: DataFrame,
    publishers: DataFrame,
    receipts: DataFrame,
    unsent: DataFrame,
    histories: DataFrame,
    commits: DataFrame,
    sent_points: DataFrame,
    settings: AuditSettings,
) -> Unrecorded:
    """The sequences that follow from receipts or gaps. A delivery counts once, so a sequence that an unpublished commit
    represents is left out.
    """
    received = unsent.filter(~F.col("phantom")).select(*ID, "p")
    holes = settled(_holes(publications, publishers, settings))
    if received.isEmpty() and holes.isEmpty():
        return Unrecorded(_listening(received, histories, settings), None)
    strange = receipts.filter(~F.col("published")).select(*ID, "position", "nonce", "wall")
    points = settled(strange.join(hashed(received), ID))
    shown = settled(points.groupBy(*POINT).agg(F.min("wall").alias("shown_at")))
    here = lookup(holes.select("domain", "topic").unionByName(received.select("domain", "topic")).distinct())
    of_topics = commits.select(*POINT, "service").join(here, ["domain", "topic"], "left_semi")
    known = of_topics.join(hashed(sent_points), POINT, "left").join(hashed(shown), POINT, "left")
    known = hashed(settled(known))
    horizon = F.col("p") + settings.reach
    unpublished = F.col("sent_at").isNull() | (F.col("sent_at") > horizon)
    stood_for = points.join(known, POINT).filter(unpublished).select(*ID).distinct()
    # For each hole: the commits between its ends that no other message shows.
    unseen = unpublished & (F.col("shown_at").isNull() | (F.col("shown_at") > horizon))
    between = F.col("position").between(F.col("after") + 1, F.col("before") - 1)
    of_service = (F.col("service") == "") | (F.col("service") == F.col("publisher"))
    stand = (
        holes.join(known, ["domain", "topic"])
        .filter(unseen & between & of_service)
        .groupBy("domain", "uuid", "topic", "first")
        .agg(F.count("*").alias("commits"))
    )
    unreceived = (
        holes.select("domain", "uuid", "topic", "p", "first", F.explode(F.sequence("first", "last")).alias("sequence"))
        .join(hashed(unsent.select(*ID)), ID, "left_anti")
        .withColumn(
            "place", F.row_number().over(Window.partitionBy("domain", "uuid", "topic", "first").orderBy("sequence"))
        )
        .join(hashed(stand), ["domain", "uuid", "topic", "first"], "left")
        .filter(F.col("place") > F.coalesce("commits", F.lit(0)))
    )
    items = received.join(hashed(stood_for), ID, "left_anti").unionByName(unreceived.select(*ID, "p"))
    return Unrecorded(_listening(items, histories, settings), shown)


def _holes(publications: DataFrame, publishers: DataFrame, settings: AuditSettings) -> DataFrame:
    """One row per hole between two neighbouring publications whose run has a gap: its ``first`` and ``last`` sequence,
    and the positions between which its links lie (``after`` and ``before``).
    """
    holed = publishers.filter(F.col("publisher_holed").isNotNull()).select("domain", "uuid", "publisher_holed")
    in_order = Window.partitionBy("domain", "uuid", "topic").orderBy("sequence")
    previous = F.lag(F.struct("sequence", "position")).over(in_order)
    return (
        publications.join(lookup(holed), ["domain", "uuid"])
        .select(*ID, "p", "position", "service", "publisher_holed", previous.alias("previous"))
        .filter(F.col("sequence") > F.col("previous.sequence") + 1)
        .filter(F.col("publisher_holed") <= F.col("p") + settings.reach)
        .select(
            "domain",
            "uuid",
            "topic",
            "p",
            F.col("service").alias("publisher"),
            (F.col("previous.sequence") + 1).alias("first"),
            (F.col("sequence") - 1).alias("last"),
            F.col("previous.position").alias("after"),
            F.col("position").alias("before"),
        )
    )


def _listening(missing: DataFrame, histories: DataFrame, settings: AuditSettings) -> DataFrame:
    """One row for each of these ids and each replica that listened at its horizon."""
    listeners = lookup(histories.filter(~F.col("polls")).select("domain", "topic", "name", "opened"))
    there = missing.join(listeners, ["domain", "topic"])
    return there.filter(F.col("opened") <= F.col("p") + settings.reach).drop("opened")


_UNRECORDED: Final = {
    "kind": "unrecorded", "service": "", "position": 0, "nonce": 0, "blame": "", "way": ways.NO_WAY,
}  # fmt: skip


def as_delivery(unrecorded: DataFrame, domains: DataFrame, settings: AuditSettings) -> DataFrame:
    """The rows of the delivery table for unrecorded items."""
    there = unrecorded.join(lookup(domains.select("domain", "closed_until")), "domain", "left")
    is_closed = closed(F.col("p"), F.col("closed_until"), settings)
    constants = {name: F.lit(value) for name, value in _UNRECORDED.items()}
    constants["verdict"] = F.when(is_closed, "unknown").otherwise("pending")
    constants["detail"] = F.when(is_closed, "unrecorded").otherwise("")
    nulls = {name: F.lit(None).cast("bigint") for name in ("settled", "detected", "written", "received", "skew")}
    return there.withColumns({**constants, **nulls}).select(*delivery.COLUMNS)
