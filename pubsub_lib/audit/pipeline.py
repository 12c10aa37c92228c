"""All tables of an audit, from one table of journal records (docs/audit.md)."""

from typing import Final

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit import changelog, delivery, receipts, state, strays, syncs, words
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.words import HOSTS, RUN, settled


class Tables(msgspec.Struct, frozen=True):
    """The results; each has a column ``domain``."""

    delivery: DataFrame
    strays: DataFrame
    store: DataFrame
    state: DataFrame
    syncs: DataFrame
    runs: DataFrame
    domains: DataFrame
    skews: DataFrame
    rows: DataFrame
    """The records themselves, for the trails of anomalies."""


def audit(rows: DataFrame, settings: AuditSettings) -> Tables:
    """Plan the tables; reading them runs the jobs. ``rows``: journals' records, each once, with ``domain``.

    What several tables are made of is computed at once: plans that hold plans take longer to think about than small
    journals to read.
    """
    events = settled(words.events(rows))
    runs = settled(words.runs(rows))
    domains = settled(words.domains(runs, settings))
    intervals = settled(words.intervals(events, rows, runs))
    publications = settled(words.publications(rows))
    commits = settled(words.commits(rows, settings))
    # Only commits and a changelog are compared with them.
    asked_for = not (commits.isEmpty() and events.filter("kind = 'changelog'").isEmpty())
    sent_points = settled(words.sent_points(rows if asked_for else rows.limit(0)))
    streams = settled(receipts.sent_streams(publications))
    heard = settled(receipts.receipts(rows, runs, intervals, streams, settings))
    heard = receipts.looked_up(heard, publications, streams)
    skews = settled(_all_skews(words.skews(events, settings), heard, publications, settings))
    topics = publications.select("domain", "topic").union(commits.select("domain", "topic"))
    topics = topics.union(heard.select("domain", "topic")).distinct()
    histories = settled(delivery.histories(intervals, topics, skews))
    expected = delivery.expected(delivery.items(publications, commits, sent_points, settings), histories)
    applied = rows.filter(
        (F.col("kind") == "data") & (F.col("side") == "replica") & F.col("outcome").isin("applied", "old")
    ).select(*RUN, "name", "topic", "position", "nonce", "number", "wall", "outcome")
    stale = settled(receipts.stale(rows, events))
    judged = delivery.delivery(expected, heard, histories, applied, stale, skews, domains, settings)
    publishers = settled(strays.publishers(rows, runs))
    unsent = settled(strays.unsent(heard, publishers, skews, settings))
    unrecorded = strays.unrecorded(publications, publishers, unsent, histories, settings)
    findings = changelog.findings(rows, events, commits, sent_points, domains, settings)
    return Tables(
        delivery=judged.select(*delivery.COLUMNS).unionByName(_as_delivery(unrecorded)).persist(),
        strays=strays.strays(heard, runs, unsent).persist(),
        store=findings.select(*changelog.COLUMNS).persist(),
        state=state.differences(rows, events, runs, settings).select(*state.COLUMNS).persist(),
        syncs=syncs.syncs(events).persist(),
        runs=runs,
        domains=domains,
        skews=skews.filter(F.col("until") == words.FOREVER).drop("since", "until"),
        rows=rows,
    )


_UNRECORDED: Final = {
    "kind": "unrecorded", "service": "", "position": 0, "nonce": 0, "verdict": "unknown", "detail": "unrecorded",
    "blame": "", "by_message": False,
}  # fmt: skip


def _as_delivery(unrecorded: DataFrame) -> DataFrame:
    constants = {name: F.lit(value) for name, value in _UNRECORDED.items()}
    nulls = {name: F.lit(None).cast("bigint") for name in ("settled", "detected", "written", "received", "skew")}
    return unrecorded.withColumns({**constants, **nulls}).select(*delivery.COLUMNS)


def _all_skews(measured: DataFrame, heard: DataFrame, publications: DataFrame, settings: AuditSettings) -> DataFrame:
    """Also of pairs of hosts before the first question compared them: their most negative latency, if there is one."""
    measured = settled(measured)
    asked = measured.groupBy(*HOSTS).agg(F.min("since").alias("asked"))
    there = heard.select("domain", F.col("host").alias("replica_host")).distinct()
    here = publications.groupBy("domain", "publisher_host").agg(F.min("p").alias("begin"))
    unasked = (
        there.join(here, "domain")
        .filter(F.col("replica_host") != F.col("publisher_host"))
        .join(asked, HOSTS, "left")
        .withColumn("asked", F.coalesce("asked", F.lit(words.FOREVER)))
        .filter(F.col("begin") < F.col("asked"))
        .drop("begin")
    )
    unasked = settled(unasked)
    if unasked.isEmpty():
        return measured
    sent = publications.select(*words.ID, "p", "publisher_host")
    raw = heard.withColumnRenamed("host", "replica_host").join(sent, words.ID).join(F.broadcast(unasked), HOSTS)
    since = words.window_of(F.col("p"), settings)
    least = (
        raw.filter(F.col("wall") <= F.col("p") + settings.reach)
        .groupBy(*HOSTS, "asked", since.alias("since"))
        .agg(F.least(F.lit(0), F.min(F.col("wall") - F.col("p"))).alias("best"))
        .filter(F.col("since") < F.col("asked"))
    )
    guessed = words.steps(least).withColumn("until", F.least("until", "asked"))
    guessed = guessed.filter(F.col("best") < 0)
    return measured.unionByName(guessed.select(*HOSTS, "since", "until", F.col("best").alias("skew")))
