"""Computes the summary from the tables of an audit: it runs the jobs and collects a bounded number of rows."""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.report import anomalies, streams, trails, windows
from pubsub_lib.audit.report.aggregates import Aggregates
from pubsub_lib.audit.report.evidence import evidence
from pubsub_lib.audit.report.summary import (
    HOPS,
    TIMELINE,
    WORST,
    Balance,
    Count,
    Detector,
    Losses,
    Summary,
    category,
    exit_code,
)  # fmt: skip
from pubsub_lib.audit.rules.pipeline import Tables
from pubsub_lib.audit.settings import AuditSettings, Listing
from pubsub_lib.audit.spark.settled import lookup


def collect(
    tables: Tables,
    derived: Aggregates,
    settings: AuditSettings,
    problems: Sequence[str] = (),
    expected: Sequence[tuple[str, str]] = (),
    listed: Mapping[str, Listing] | None = None,
) -> Summary:
    """Run the jobs and build the summary. ``expected``: side and name of each participant that must have a journal.
    ``listed``: when the folders of each domain were listed. Blocks until the jobs are done.
    """
    by = ("domain", "verdict", "detail", "blame", "way")
    of_delivery = derived.cells.groupBy(*by).agg(F.sum("rows").alias("rows")).collect()
    counts = [*_counts(of_delivery), *_findings(tables)]
    known = evidence(tables, settings, expected, listed or {})
    problems = [*problems, *known.problems]
    incomplete = bool(known.silent or known.open_domains or not known.domains)
    code = exit_code({each.verdict for each in counts}, settings, incomplete=incomplete, problems=problems)
    syncs = _syncs(tables.syncs)
    latencies = [row.asDict() for row in derived.latency.filter("name = ''").orderBy("domain", "hop").collect()]
    slowest = derived.latency.filter("name <> '' and hop = 'publish_apply'")
    missed = any(each.blame for each in counts if each.of == "delivery")
    first = anomalies.first(derived.anomaly)
    tree = _dicts(derived.tree) if tables.relayed else []
    return Summary(
        exit_code=code,
        balance=_balances(of_delivery),
        counts=sorted(counts, key=lambda each: (each.domain, each.of, each.verdict, each.detail, each.blame)),
        skews=_dicts(tables.skews.orderBy("domain", "replica_host", "publisher_host")),
        silent=known.silent,
        open_domains=known.open_domains,
        syncs=syncs,
        first=trails.with_trails(first, tables.rows, tables.without_objects),
        problems=problems,
        audited=time.time_ns() // 1000,
        settings=settings,
        latencies=latencies,
        slowest=_dicts(slowest.orderBy(F.desc("p99"), "domain", "name").limit(WORST)),
        detector=_detector(counts, syncs),
        over_time=_dicts(windows.over_time(derived.cells)),
        losses=_losses(tables, derived) if missed else [],
        timeline=_dicts(tables.syncs.orderBy(F.desc_nulls_first("took"), "began", "run").limit(TIMELINE)),
        coverage=known.coverage,
        runs=known.runs,
        run_count=known.run_count,
        tree=tree[:HOPS],
        hop_count=len(tree),
        keys=anomalies.worst_keys(derived.anomaly, tables.without_objects, settings) if first else [],
    )


def _dicts(table: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in table.collect()]


def _counts(of_delivery: Iterable[Row]) -> list[Count]:
    found: dict[tuple[str, str, str, str], int] = defaultdict(int)
    for row in of_delivery:
        found[row["domain"], row["verdict"], row["detail"], row["blame"]] += row["rows"]
    return [
        Count(domain, "delivery", verdict, detail, blame, count)
        for (domain, verdict, detail, blame), count in found.items()
    ]


def _findings(tables: Tables) -> list[Count]:
    kinds = [
        getattr(tables, of).select("domain", F.lit(of).alias("of"), "verdict")
        for of in ("strays", "store", "state", "publisher")
    ]
    every = reduce(DataFrame.unionByName, kinds)
    found = every.groupBy("domain", "of", "verdict").agg(F.count("*").alias("rows")).collect()
    return [Count(row["domain"], row["of"], row["verdict"], "", "", row["rows"]) for row in found]


def _balances(of_delivery: Iterable[Row]) -> dict[str, Balance]:
    sums: dict[str, dict[str, int]] = {}
    for row in of_delivery:
        balance = sums.setdefault(row["domain"], dict.fromkeys(Balance.__struct_fields__, 0))
        balance["expected"] += row["rows"]
        balance[category(row["verdict"], row["way"])] += row["rows"]
    return {domain: Balance(**each) for domain, each in sorted(sums.items())}


def _syncs(table: DataFrame) -> list[dict[str, Any]]:
    by = ("domain", "name", "cause", "outcome")
    sums = table.groupBy(*by).agg(
        F.count("*").alias("syncs"),
        F.sum(F.col("needless").cast("bigint")).alias("needless"),
        F.sum("size").alias("bytes"),
        F.max("took").alias("longest"),
    )
    return _dicts(sums.orderBy(*by))


def _detector(counts: Iterable[Count], syncs: Iterable[Mapping[str, Any]]) -> list[Detector]:
    """Every failed delivery has a blame: items of the second table that were lost, repaired, or late."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(Detector.__struct_fields__[1:], 0))
    for each in counts:
        one = found[each.domain]
        if each.of == "delivery" and each.blame:
            one["holes"] += each.count
            one["missed"] += each.count if each.verdict == "lost" else 0
    for sync in syncs:
        one = found[sync["domain"]]
        for name in ("syncs", "needless", "bytes"):
            one[name] += sync[name] or 0
    return [Detector(domain, **one) for domain, one in sorted(found.items())]


def _losses(tables: Tables, derived: Aggregates) -> list[Losses]:
    places = streams.places(tables.delivery, derived.stream).persist()
    kinds = ("lost", "repaired")
    together = places.groupBy("bin").agg(*(F.sum(each).alias(each) for each in kinds))
    overall = {row["bin"]: row for row in together.collect()}
    missed = derived.stream.filter(F.col("lost") + F.col("repaired") > 0)
    worst = missed.orderBy(F.desc("lost"), F.desc("repaired"), *streams.STREAM).limit(WORST)
    bins: dict[tuple[str, ...], dict[int, Row]] = defaultdict(dict)
    for row in places.join(lookup(worst.select(*streams.STREAM)), streams.STREAM).collect():
        bins[_stream(row)][row["bin"]] = row
    places.unpersist()
    of_streams = [
        Losses(_stream(row), row["lowest"], row["highest"], *(_filled(bins[_stream(row)], each) for each in kinds))
        for row in worst.collect()
    ]
    return [Losses((), 0, 0, *(_filled(overall, each) for each in kinds)), *of_streams] if of_streams else []


def _stream(row: Row) -> tuple[str, ...]:
    return tuple(row[name] for name in streams.STREAM)


def _filled(bins: Mapping[int, Row], kind: str) -> list[int]:
    return [bins[place][kind] if place in bins else 0 for place in range(streams.BINS)]
