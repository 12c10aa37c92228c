"""All tables of an audit, from one table of journal records (docs/audit.md)."""

from collections.abc import Mapping, Set
from typing import Final

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.rules import (
    base_tables,
    branches,
    changelog,
    commit_tables,
    contents,
    contradictions,
    corrections,
    deciding_intervals,
    delivery,
    fast_path,
    held_contents,
    receipts,
    run_ends,
    state,
    stream_ids,
    syncs,
    unexpected_receipts,
)
from pubsub_lib.audit.rules.base_tables import HOSTS, RUN
from pubsub_lib.audit.settings import AuditSettings, Listing
from pubsub_lib.audit.spark.session import compiled, compiling
from pubsub_lib.audit.spark.settled import checkpointed, fulfilling, hashed, kept, lookup, narrowed, settled


class Tables(msgspec.Struct, frozen=True):
    """The results; each has a column ``domain``."""

    delivery: DataFrame
    strays: DataFrame
    store: DataFrame
    state: DataFrame
    publisher: DataFrame
    """Publishers and workers that the store contradicted."""
    syncs: DataFrame
    runs: DataFrame
    domains: DataFrame
    skews: DataFrame
    rows: DataFrame
    """The records themselves, for the trails of objects."""
    without_objects: DataFrame
    """The records that are not objects."""
    events: DataFrame
    """The records that are not messages, objects or marks."""
    kept: DataFrame
    """The persisted table from which ``delivery`` is computed."""
    relayed: frozenset[str]
    """The domains with relays."""

    def unpersist(self) -> None:
        """Let the executors drop what they hold of the tables."""
        for table in msgspec.structs.astuple(self):
            if isinstance(table, DataFrame):
                table.unpersist()


FAST_PATH_FROM: Final = 200_000
"""From this number of messages on, the fast path pays: it takes some more jobs, but each message of a clean stream then
costs a fraction."""

INTERPRETED_BELOW: Final = 100_000
"""Below this number of records of messages, and with one partition, Spark generates no code for most steps."""

_RARE: Final = ("changelog", contradictions.VERDICT, held_contents.ROT)


def audit(
    rows: DataFrame,
    settings: AuditSettings,
    fast_path_from: int = FAST_PATH_FROM,
    torn: DataFrame | None = None,
    listed: Mapping[str, Listing] | None = None,
    until: Mapping[str, int] | None = None,
) -> Tables:
    """Plan the tables; reading them runs the jobs. ``rows``: journals' records, each once, with ``domain``. ``torn``:
    ``domain``, ``run`` and number (``last``) of each last record behind which bytes or files were not read. ``listed``:
    when the folders of each domain were listed. ``until``: later windows of a domain are not closed.

    Tables that several others need are computed at once: planning nested plans takes longer than reading little data.
    """
    events, kinds = fulfilling(base_tables.events(rows), {kind: F.col("kind") == kind for kind in _RARE})
    with compiling(rows.sparkSession):
        overview = settled(base_tables.overview(rows))
    of_runs = corrections.by_run(overview)
    if of_runs.messages >= INTERPRETED_BELOW:
        compiled(rows.sparkSession)
    right = corrections.corrected(rows, events, overview, of_runs, settings)
    rows, events, overview = right.rows, right.events, right.overview
    runs = run_ends.with_torn_ends(base_tables.runs(overview, rows), torn)
    runs = settled(run_ends.with_ends(runs, listed or {}, settings))
    domains = settled(run_ends.closed_at_most(base_tables.domains(runs, settings), until or {}))
    without_objects = narrowed(rows.filter(F.col("kind") != "object"))
    split = branches.split(without_objects, events, overview, runs, of_runs, settings)
    known = _known(split, kinds, domains, settings, of_runs)
    delivered, strayed, source = _judged(split.rows, known, settings, fast=of_runs.sent >= fast_path_from)
    skews = known.skews.filter(F.col("until") == base_tables.FOREVER).drop("since", "until")
    if of_runs.relayed:
        delivered, strayed, skews = branches.of_domains(delivered, strayed, skews)
    strays = kept(strayed, small=True)
    differing = state.findings(rows, without_objects, events, runs, settings, held=of_runs.holds or known.rotten)
    return Tables(
        delivery=delivered,
        strays=strays,
        store=kept(_findings(split.rows, split.events, known, settings).select(*changelog.COLUMNS), small=True),
        state=kept(differing, small=True),
        publisher=known.contradictions,
        syncs=kept(syncs.syncs(events), small=True),
        runs=runs,
        domains=domains,
        skews=corrections.total_skews(skews, right.between),
        rows=rows,
        without_objects=without_objects,
        events=events,
        kept=source,
        relayed=of_runs.relayed,
    )


def _findings(rows: DataFrame, events: DataFrame, known: "_Known", settings: AuditSettings) -> DataFrame:
    rotten = changelog.rotten(events if known.rotten else events.limit(0))
    if not known.has_changelog:
        return rotten
    return changelog.findings(
        rows, events, known.commits, known.sent_points, known.absent, known.domains, known.intervals, settings
    ).unionByName(rotten)


class _Known(msgspec.Struct, frozen=True):
    """The computed tables that verdicts need, apart from the messages."""

    has_changelog: bool
    polled: frozenset[str]
    """The domains in which polling replicas must have what was sent, too."""
    skips: bool
    """Whether any replica recorded a message as old."""
    events: DataFrame
    rotten: bool
    """Whether objects were altered in memory or in the store."""
    contradictions: DataFrame
    raw_receipts: DataFrame
    """Not computed: a plan of all receipts."""
    overview: DataFrame
    runs: DataFrame
    domains: DataFrame
    intervals: DataFrame
    commits: DataFrame
    sent_points: DataFrame
    absent: DataFrame | None
    """See ``changelog.absent``; None: all that was recorded is in the changelog, or there is none."""
    skews: DataFrame
    histories: DataFrame
    stale: DataFrame
    evidence: DataFrame | None
    """See ``contents.evidence``; None: all contents are as they were committed."""


def _known(
    split: branches.Split, kinds: Set[str], domains: DataFrame, settings: AuditSettings, of_runs: corrections.Overview
) -> _Known:
    """``kinds``: those of ``_RARE`` that the events have."""
    rows, events, overview, runs = split.rows, split.events, split.overview, split.runs
    polled = of_runs.polled
    intervals = split.intervals(of_runs.headless)
    commits, of_commits = fulfilling(
        commit_tables.commits(rows, settings), {"strange": F.col("strange"), "absent": ~F.col("committed")}
    )
    # The sent points are compared with commits and the changelog, and expected of polling replicas, only.
    has_changelog = "changelog" in kinds
    needs_points = has_changelog or bool(polled) or not commits.isEmpty()
    sent_points = commit_tables.sent_points(rows if needs_points else rows.limit(0), named=bool(polled))
    sent_points, of_sent = contents.compared(sent_points, commits)
    lacks = has_changelog and "absent" in of_commits | of_sent
    raw_receipts = receipts.raw_receipts(rows, runs, intervals, settings)
    skews = settled(_all_skews(base_tables.skews(events, settings), overview, raw_receipts, rows, settings))
    topics = overview.filter(F.col("topic").isNotNull()).select("domain", "topic").distinct()
    return _Known(
        has_changelog=has_changelog,
        polled=polled,
        skips=of_runs.skips,
        events=events,
        rotten=held_contents.ROT in kinds,
        contradictions=contradictions.contradictions(events if contradictions.VERDICT in kinds else events.limit(0)),
        raw_receipts=raw_receipts,
        overview=overview,
        runs=runs,
        domains=split.domains(domains, settings),
        intervals=intervals,
        commits=commits,
        sent_points=sent_points,
        absent=changelog.absent(events, commits, sent_points) if lacks else None,
        skews=skews,
        histories=settled(deciding_intervals.histories(intervals, topics)),
        stale=settled(receipts.stale(rows, events)),
        evidence=contents.evidence(rows, commits, sent_points) if "strange" in of_commits | of_sent else None,
    )


def _judged(
    rows: DataFrame, known: _Known, settings: AuditSettings, *, fast: bool
) -> tuple[DataFrame, DataFrame, DataFrame]:
    """The tables of deliveries and of strays, and the persisted table behind the deliveries."""
    if not fast:
        delivered, strayed = _by_rules(rows, rows, known, settings)
        delivered = kept(delivered)
        return delivered, strayed, delivered
    listeners = known.histories.filter(~F.col("polls")).select("domain", "topic", "name")
    streams = settled(base_tables.streams(known.overview))
    received = stream_ids.received_streams(known.overview, known.runs)
    clean = fast_path.fast_path(
        rows, known.raw_receipts, listeners, streams, received, known.skews, known.stale, known.evidence, settings
    )
    at_once = clean.delivery.select(*delivery.COLUMNS)
    if clean.every and not known.polled and known.commits.isEmpty():
        return at_once, unexpected_receipts.none(rows), clean.joined
    delivered, strayed = _by_rules(clean.rest(rows), rows, known, settings)
    return checkpointed(delivered).unionByName(at_once), strayed, clean.joined


def _by_rules(rest: DataFrame, rows: DataFrame, known: _Known, settings: AuditSettings) -> tuple[DataFrame, DataFrame]:
    """Deliveries and strays of the messages in ``rest``: records of whole streams."""
    publications = checkpointed(base_tables.publications(rest))
    streams = settled(receipts.sent_streams(publications))
    raw = receipts.raw_receipts(rest, known.runs, known.intervals, settings)
    raw = receipts.grounded(raw, rows, known.events, known.runs, known.commits) if known.skips else raw
    received = receipts.looked_up(checkpointed(receipts.receipts(raw, streams)), publications, streams)
    publishers = settled(unexpected_receipts.publishers(known.overview, known.runs))
    unsent = settled(unexpected_receipts.unsent(received, publishers, known.skews, known.domains, settings))
    unrecorded = unexpected_receipts.unrecorded(
        publications, publishers, received, unsent, known.histories, known.commits, known.sent_points, settings
    )
    items = delivery.items(
        publications, known.commits, known.sent_points, unrecorded.shown, known.polled, settings
    )
    items = contents.with_changed_at(items, known.evidence, settings)
    expected = delivery.expected(items, known.histories)
    applied = rows.filter(
        (F.col("kind") == "data") & (F.col("side") == "replica") & F.col("outcome").isin("applied", "old")
    ).select(*RUN, "name", "topic", "position", "nonce", "number", "wall", "outcome", "parts", "hash")
    judged = delivery.delivery(
        expected,
        received,
        known.histories,
        known.intervals,
        applied,
        known.commits,
        known.absent,
        known.stale,
        known.skews,
        known.domains,
        settings,
    )
    unknown = unexpected_receipts.as_delivery(unrecorded.items, known.domains, settings)
    delivered = judged.select(*delivery.COLUMNS).unionByName(unknown)
    return delivered, unexpected_receipts.strays(received, known.runs, unsent, known.histories, settings)


def _all_skews(
    measured: DataFrame, overview: DataFrame, raw_receipts: DataFrame, rows: DataFrame, settings: AuditSettings
) -> DataFrame:
    """The skews, also of pairs of hosts before the first hello request measured them: their most negative latency, if
    any latency is negative.
    """
    measured = settled(measured)
    asked = measured.groupBy(*HOSTS).agg(F.min("since").alias("asked"))
    there = overview.filter("side = 'replica'").select("domain", F.col("host").alias("replica_host")).distinct()
    sent = overview.filter(F.col("sent") > 0).groupBy("domain", F.col("host").alias("publisher_host"))
    unasked = (
        there.join(hashed(sent.agg(F.min("sent_wall").alias("begin"))), "domain")
        .filter(F.col("replica_host") != F.col("publisher_host"))
        .join(hashed(asked), HOSTS, "left")
        .withColumn("asked", F.coalesce("asked", F.lit(base_tables.FOREVER)))
        .filter(F.col("begin") < F.col("asked"))
        .drop("begin")
    )
    unasked = settled(unasked)
    if unasked.isEmpty():
        return measured
    publications = base_tables.publications(rows).select(*base_tables.ID, "p", "publisher_host")
    raw = raw_receipts.withColumnRenamed("host", "replica_host").join(hashed(publications), base_tables.ID)
    since = base_tables.window_of(F.col("p"), settings)
    least = (
        raw.join(lookup(unasked), HOSTS)
        .filter(F.col("wall") <= F.col("p") + settings.reach)
        .groupBy(*HOSTS, "asked", since.alias("since"))
        .agg(F.least(F.lit(0), F.min(F.col("wall") - F.col("p"))).alias("best"))
        .filter(F.col("since") < F.col("asked"))
    )
    guessed = base_tables.steps(least).withColumn("until", F.least("until", "asked"))
    guessed = guessed.filter(F.col("best") < 0)
    return measured.unionByName(guessed.select(*HOSTS, "since", "until", F.col("best").alias("skew")))
