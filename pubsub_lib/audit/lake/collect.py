"""Counts the tables of an audit by window, for a lake. Runs Spark's jobs; the rows of a lake are few."""

import time
import uuid
from collections.abc import Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.lake.addition import Addition, Audited, Run
from pubsub_lib.audit.lake.tables import DAY, KIND, LIMIT, ORDER, SCHEMAS
from pubsub_lib.audit.report import anomalies, latency, windows
from pubsub_lib.audit.report.aggregates import Aggregates
from pubsub_lib.audit.report.summary import Summary
from pubsub_lib.audit.rules.pipeline import Tables
from pubsub_lib.audit.settings import PARTICIPANTS, AuditSettings
from pubsub_lib.audit.spark.addresses import to_read
from pubsub_lib.audit.spark.settled import settled

_RESULT: Final = ("verdict", "detail", "blame", "way")
_FINDINGS: Final = ("store", "state", "publisher")
_KEY: Final = ("domain", "window")


def of_run(tables: Tables, derived: Aggregates, found: Summary) -> Addition:
    """The addition of an audit by ``run``, whose summary is ``found``. Blocks until Spark's jobs are done."""
    settings = found.settings
    timed = windows.timed(tables, settings)
    without_window = {"store": tables.store, "state": anomalies.differing(tables.state)}
    wrong = [anomalies.as_anomaly(table, of) for of, table in without_window.items()]
    counted = derived.cells.groupBy(*_KEY, "name", *_RESULT).agg(F.sum("rows").alias("rows"))
    parts = _tables(timed["delivery"], settled(counted), timed.get("strays"), wrong, settings)
    counts = [each for each in found.counts if each.of in _FINDINGS]
    rows = [
        {"domain": each.domain, "of": each.of, "verdict": each.verdict, "detail": "", "blame": "", "count": each.count}
        for each in counts
    ]
    verdicts = pa.concat_tables([parts["verdict"], pa.Table.from_pylist(rows, schema=SCHEMAS["verdict"])])
    domains = _audited(tables, found)
    return Addition(uuid.uuid4().hex, "run", found.audited, settings, domains, {**parts, "verdict": verdicts})


def of_windows(
    spark: SparkSession, folders: Iterable[Path], audit: str, domains: Sequence[Audited], settings: AuditSettings
) -> Addition:
    """The addition of windows that ``follow`` wrote into these folders. Blocks until Spark's jobs are done."""
    some = list(folders)
    delivery = _read(spark, [each / "delivery" for each in some])
    strays = _read(spark, [each / "strays" for each in some])
    if delivery is None:
        counted = None
    else:
        counted = settled(delivery.groupBy(*_KEY, "name", *_RESULT).agg(F.count("*").alias("rows")))
    parts = _tables(delivery, counted, strays, [], settings)
    return Addition(audit, "follow", time.time_ns() // 1000, settings, domains, parts)


def _read(spark: SparkSession, folders: Iterable[Path]) -> DataFrame | None:
    there = [to_read(each) for each in folders if each.exists()]
    if not there:
        return None
    window = F.regexp_extract(F.col("_metadata.file_path"), "/window=(-?[0-9]+)/", 1).cast("bigint")
    return spark.read.parquet(*there).withColumn("window", window)


def _tables(
    delivery: DataFrame | None, counted: DataFrame | None, strays: DataFrame | None, findings: Sequence[DataFrame],
    settings: AuditSettings,
) -> dict[str, pa.Table]:  # fmt: skip
    """``counted``: the rows of ``delivery`` by window, replica and result. ``findings``: anomalies without a window."""
    balance, verdicts, times = [], [], []
    wrong = [each.withColumn("window", F.lit(None).cast("bigint")) for each in findings]
    if delivery is not None and counted is not None:
        balance.append(counted.groupBy(*_KEY, "name").agg(*windows.sums(F.col("rows"))))
        verdicts.append(_verdicts(counted, "delivery", F.sum("rows")))
        pairs = F.sort_array(F.collect_list(F.struct("cut", "rows")))
        ranked = latency.ranked(latency.counts_by(delivery, *_KEY), *_KEY, "hop", more=[pairs.alias("pairs")])
        lists = {"values": F.col("pairs.cut"), "counts": F.col("pairs.rows")}
        times.append(ranked.withColumns(lists))
        wrong.append(anomalies.as_anomaly(anomalies.wrong(delivery, settings), "delivery", "window"))
    if strays is not None:
        empty = {name: F.lit("") for name in ("detail", "blame")}
        verdicts.append(_verdicts(strays.withColumns(empty), "strays", F.count("*")))
        wrong.append(anomalies.as_anomaly(strays, "strays", "window"))
    found = {"balance": balance, "verdict": verdicts, "latency": times, "anomaly": [_first(wrong)] if wrong else []}
    return {name: _collected(name, parts) for name, parts in found.items()}


def _verdicts(rows: DataFrame, of: str, count: Column) -> DataFrame:
    by = (*_KEY, F.lit(of).alias("of"), "verdict", "detail", "blame")
    return rows.groupBy(*by).agg(count.alias("count"))


def _first(wrong: Sequence[DataFrame]) -> DataFrame:
    """The first anomalies of each kind and day."""
    every = reduce(DataFrame.unionByName, wrong)
    day = F.col("window") - F.pmod(F.col("window"), F.lit(DAY))
    group = Window.partitionBy(*KIND, day).orderBy(*(F.asc_nulls_last(name) for name in ORDER))
    return every.withColumn("place", F.row_number().over(group)).filter(F.col("place") <= LIMIT)


def _collected(name: str, parts: Sequence[DataFrame]) -> pa.Table:
    schema = SCHEMAS[name]
    tables = [each.select(*(F.col(f"`{column}`") for column in schema.names)).toArrow().cast(schema) for each in parts]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def _audited(tables: Tables, found: Summary) -> list[Audited]:
    """The domains with participants. Problems have no domain: they count for each."""
    runs: dict[str, list[Run]] = {}
    silent: set[str] = set()
    columns = ("domain", "run", "first_number", "first_wall", "last_wall")
    for row in tables.runs.filter(F.col("side").isin(*PARTICIPANTS)).select(*columns).collect():
        run = Run(row["run"], row["first_number"], row["first_wall"], row["last_wall"])
        runs.setdefault(row["domain"], []).append(run)
        if row["run"] in found.silent:
            silent.add(row["domain"])
    coverage = {each.domain: each for each in found.coverage}
    domains = []
    for row in tables.domains.select("domain", "begin", "latest", "closed_until").collect():
        domain, known = row["domain"], coverage[row["domain"]]
        domains.append(
            Audited(
                domain, row["begin"], row["latest"], row["closed_until"],
                sorted(runs[domain], key=lambda each: each.run),
                incomplete=bool(found.problems or domain in silent or domain in found.open_domains),
                problems=[*found.problems, *_unfinished(domain in silent, domain in found.open_domains)],
                store=known.store, replicas=known.replicas, listed=known.listed, findings=True,
            )
        )  # fmt: skip
    return sorted(domains, key=lambda each: each.domain)


def _unfinished(silent: bool, opened: bool) -> list[str]:
    found = {"a run is silent: it has not ended, but wrote no more records": silent, "no window is closed yet": opened}
    return [sentence for sentence, there in found.items() if there]
