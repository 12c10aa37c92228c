"""The base tables of the audit: runs, gaps, closed windows, publications, commits, intervals, skew (audit-verdicts.md).

Every table has the column ``domain``; a row of journals has it beside the columns of the schema. Small tables (one row
for a run, an interval, a pair of hosts) are broadcast. Large tables are never collected.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from pubsub_lib.audit.settings import DRIFT, PARTICIPANTS, AuditSettings
from pubsub_lib.audit.spark.settled import hashed, lookup, partitioned, settled, together

FOREVER: Final = 2**62
"""Stands for an infinite time or number. It is beyond every clock, and sums with it do not overflow."""
RUN: Final = ["domain", "run"]
ID: Final = ["sequence", "topic", "uuid", "domain"]
"""``sequence`` comes first: sorts compare the first column alone where it differs, and numbers are compared fastest."""
POINT: Final = ["domain", "topic", "position", "nonce"]
HOSTS: Final = ["domain", "replica_host", "publisher_host"]
SYNCS: Final = "array<struct<number:bigint,position:bigint,wall:bigint,began:bigint,since:bigint,full:boolean>>"
_EVENTS: Final = (
    "hello", "ask", "interest", "drop", "parent", "sync_begin", "sync_end", "listing", "changelog", "contradicted",
    "rot",
)  # fmt: skip


def events(rows: DataFrame) -> DataFrame:
    """The records that are not messages, objects or marks. They are few, and every part of the audit reads them."""
    return rows.filter(F.col("kind").isin(*_EVENTS)).select(
        *RUN, "number", "side", "name", "host", "kind", "wall", "mono", "service", "uuid", "topic", "sequence",
        "position", "nonce", "prev_position", "outcome", "cause", "peer", "count", "size",
    )  # fmt: skip


def overview(rows: DataFrame) -> DataFrame:
    """The records counted by run and, for messages, by UUID and topic, in a single pass over all records."""
    is_data = F.col("kind") == "data"
    sent = is_data & (F.col("outcome") == "sent")
    # Side, name and host depend on the run alone. They are keys: first() of a string would sort all records.
    return rows.groupBy(
        *RUN, "side", "name", "host",
        F.when(is_data, F.col("uuid")).alias("uuid"),
        F.when(is_data, F.col("topic")).alias("topic"),
    ).agg(
        F.min("wall").alias("first_wall"),
        F.max("wall").alias("last_wall"),
        F.max(F.when(F.col("kind") == "mark", F.col("wall"))).alias("last_mark"),
        F.max(F.col("kind") == "close").alias("ended"),
        F.max((F.col("kind") == "interest") & (F.col("cause") == "poll")).alias("polls"),
        F.max(is_data & (F.col("outcome") == "old")).alias("skips"),
        F.max(F.col("kind") == "interest").alias("follows"),
        F.max(F.col("kind") == "held").alias("holds"),
        F.max(F.col("kind") == "parent").alias("moves"),
        F.min("number").alias("first_number"),
        F.max("number").alias("last_number"),
        F.min("mono").alias("first_mono"),
        F.max("mono").alias("last_mono"),
        F.min(F.col("wall") - F.col("mono")).alias("least_offset"),
        F.max(F.col("wall") - F.col("mono")).alias("greatest_offset"),
        F.count("*").alias("recorded"),
        F.count(F.when(sent, 1)).alias("sent"),
        F.min(F.when(sent, F.col("wall"))).alias("sent_wall"),
        F.min(F.when(sent, F.col("sequence"))).alias("first_sent"),
        F.max(F.when(sent, F.col("sequence"))).alias("last_sent"),
    )  # fmt: skip


def streams(overview: DataFrame) -> DataFrame:
    """Per (domain, uuid, topic) that was sent: its ``first`` sequence, its ``length`` up to the last sequence, and
    ``whole``: whether the number of sent messages equals the length.
    """
    length = F.max("last_sent") - F.min("first_sent") + 1
    by_stream = overview.filter(F.col("sent") > 0).groupBy("domain", "uuid", "topic")
    return by_stream.agg(
        F.min("first_sent").alias("first"), length.alias("length"), (F.sum("sent") == length).alias("whole")
    )


def runs(overview: DataFrame, rows: DataFrame) -> DataFrame:
    """One row per run: its participant, first and last wall, gaps; whether it ended in order, polls, and has ``held``
    records.
    """
    whole = overview.groupBy(*RUN, "side", "name", "host").agg(
        *(F.min(name).alias(name) for name in ("first_wall", "first_number")),
        *(F.max(name).alias(name) for name in ("last_wall", "last_mark", "last_number")),
        *(F.max(name).alias(name) for name in ("ended", "polls", "follows", "holds", "moves")),
        *(F.sum(name).alias(name) for name in ("recorded", "sent")),
    )
    whole = settled(whole)
    # settled: without lost records no record needs to be read.
    holed = settled(whole.filter(F.col("recorded") != F.col("last_number")).select(*RUN))
    found = whole.join(_gaps(rows.join(lookup(holed), RUN, "left_semi")), RUN, "left")
    none = F.array().cast("array<struct<lo:bigint,lo_wall:bigint,hi:bigint,hi_wall:bigint>>")
    return found.withColumn("gaps", F.coalesce("gaps", none))


def _gaps(rows: DataFrame) -> DataFrame:
    """The gaps of each run that has any, as an array."""
    in_order = Window.partitionBy(*RUN).orderBy("number")
    gap = F.struct(
        F.coalesce(F.lag("number").over(in_order), F.lit(0)).cast("bigint").alias("lo"),
        F.coalesce(F.lag("wall").over(in_order), F.lit(-FOREVER)).cast("bigint").alias("lo_wall"),
        F.col("number").alias("hi"),
        F.col("wall").alias("hi_wall"),
    )
    pairs = rows.select(*RUN, gap.alias("gap")).filter(F.col("gap.hi") != F.col("gap.lo") + 1)
    return pairs.groupBy(*RUN).agg(F.sort_array(F.collect_list("gap")).alias("gaps"))


def domains(runs: DataFrame, settings: AuditSettings) -> DataFrame:
    """One row per domain with participants: until when windows are closed, the gaps of its publishers and replicas."""
    frontier = F.when(~F.col("over") & ~F.col("expired"), F.least(F.coalesce("last_mark", "first_wall"), "known_until"))
    publishing = F.col("side").isin("writer", "service")
    sending = (F.col("side") == "service") | ((F.col("side") == "writer") & (F.col("sent") > 0))
    return (
        runs.filter(F.col("side").isin(*PARTICIPANTS))
        .groupBy("domain")
        .agg(
            (F.coalesce(F.min(frontier), F.lit(FOREVER)) - settings.reach).alias("closed_until"),
            F.min("first_wall").alias("begin"),
            F.max("last_wall").alias("latest"),
            F.flatten(F.collect_list(F.when(publishing, F.col("gaps")))).alias("publisher_gaps"),
            F.flatten(F.collect_list(F.when(F.col("side") == "replica", F.col("gaps")))).alias("replica_gaps"),
            F.min(F.when(sending, F.col("first_wall"))).alias("sender_since"),
        )
    )


def closed(time: Column, closed_until: Column, settings: AuditSettings) -> Column:
    """Whether the window of a time is closed; false for a domain without participants."""
    return F.coalesce(window_of(time, settings) + settings.window <= closed_until, F.lit(False))


def hidden_at_publisher(settings: AuditSettings) -> Column:
    """Whether a gap may hide the publication of a commit at ``p``. The row also needs the columns of ``domains``."""
    p = F.col("p")
    around = F.exists("publisher_gaps", lambda gap: (gap["lo_wall"] <= p + settings.grace) & (gap["hi_wall"] >= p))
    there = F.coalesce(F.col("sender_since") <= p + settings.reach, F.lit(False))
    return ~there | F.coalesce(around, F.lit(False))


def publications(rows: DataFrame) -> DataFrame:
    """One row per (domain, uuid, topic, sequence) that was sent."""
    sent = rows.filter((F.col("kind") == "data") & (F.col("outcome") == "sent"))
    first = F.struct("wall", "run", "number", "host", "service", "position", "nonce", "written", "parts")
    sent = sent.select(*ID, "wall", "run", "number", "host", "service", "position", "nonce", "written", "parts", "hash")
    return (
        partitioned(sent, *ID)  # aggregates of structs sort their input: so once only, and not before the exchange, too
        .groupBy(*ID)
        .agg(F.min(first).alias("first"), F.min("hash").alias("sent_low"), F.max("hash").alias("sent_high"))
        .select(
            *ID,
            F.col("first.wall").alias("p"),
            F.col("first.host").alias("publisher_host"),
            "first.service",
            "first.position",
            "first.nonce",
            "first.written",
            (F.col("first.parts") == 1).alias("whole"),
            "sent_low",
            "sent_high",
        )
    )


def skews(events: DataFrame, settings: AuditSettings) -> DataFrame:
    """Per pair of hosts measured by hello requests: replica_host, publisher_host, and its skew for windows that begin
    from ``since`` on and before ``until``.
    """
    requests = events.filter(F.col("kind") == "ask").select(
        *RUN, "peer", F.col("host").alias("replica_host"), F.col("wall").alias("a")
    )
    received = events.filter((F.col("kind") == "hello") & (F.col("side") == "replica") & (F.col("peer") != "")).select(
        *RUN, "peer", "uuid", F.col("wall").alias("b")
    )
    replies = events.filter((F.col("kind") == "hello") & (F.col("side") != "replica") & (F.col("peer") != "")).select(
        "domain", "peer", "uuid", F.col("host").alias("publisher_host"), F.col("wall").alias("s")
    )
    trip, unit = F.col("b") - F.col("a"), F.lit(settings.drift_unit)
    sample = F.struct(
        (trip * DRIFT + F.pmod(F.col("b"), unit) - F.col("b")).alias("inexact"),
        trip.alias("trip"),
        (F.shiftright(F.col("a") + F.col("b"), 1) - F.col("s")).alias("skew"),
    )
    samples = (
        together(requests.join(hashed(received), [*RUN, "peer"]))
        .join(hashed(replies), ["domain", "peer", "uuid"])
        .filter(F.col("replica_host") != F.col("publisher_host"))
        .select(*HOSTS, window_of(F.col("b"), settings).alias("since"), sample.alias("best"))
    )
    return steps(samples).select(*HOSTS, "since", "until", F.col("best.skew").alias("skew"))


def window_of(time: Column, settings: AuditSettings) -> Column:
    """The begin of the window of a time. Computed in integers: no rounding."""
    return time - F.pmod(time, F.lit(settings.window))


def steps(samples: DataFrame) -> DataFrame:
    """The smallest ``best`` of each pair of hosts that is known from window ``since`` on and before ``until``."""
    so_far = Window.partitionBy(*HOSTS).orderBy("since").rangeBetween(Window.unboundedPreceding, 0)
    known = samples.withColumn("best", F.min("best").over(so_far)).distinct()
    after = F.lead("since").over(Window.partitionBy(*HOSTS).orderBy("since"))
    return known.withColumn("until", F.coalesce(after, F.lit(FOREVER)))


def with_skew(table: DataFrame, host: str, skews: DataFrame, settings: AuditSettings) -> DataFrame:
    """Adds the ``skew`` between ``host`` and ``publisher_host`` in the window of ``p``; 0 where it is unknown."""
    window = window_of(F.col("p"), settings)
    there = lookup(skews.select(*[F.col(name).alias(f"skew_{name}") for name in (*HOSTS, "since", "until", "skew")]))
    here = (
        (F.col("domain") == F.col("skew_domain"))
        & (F.col(host) == F.col("skew_replica_host"))
        & (F.col("publisher_host") == F.col("skew_publisher_host"))
        & (window >= F.col("skew_since"))
        & (window < F.col("skew_until"))
    )
    joined = table.join(there, here, "left").withColumn("skew", F.coalesce("skew_skew", F.lit(0).cast("bigint")))
    return joined.drop(*[f"skew_{name}" for name in (*HOSTS, "since", "until", "skew")])
