"""What Spark counts for a lake is what the audit counted; and the command, from journals to the report."""

import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pubsub_lib.audit.lake.addition import Addition
from pubsub_lib.audit.lake.append import append
from pubsub_lib.audit.lake.days import report
from pubsub_lib.audit.lake.folder import prepare
from pubsub_lib.audit.lake.tables import SCHEMAS, day_of, percentiles, today
from pubsub_lib.audit.main import main
from pubsub_lib.audit.report.summary import Balance, Summary
from tests.unit.audit.conftest import LITTLE, SETTINGS, Audit
from tests.unit.audit.generator import BEGIN, WINDOW
from tests.unit.audit.rules.test_pipeline import all_cases
from tests.unit.audit.test_main import lossy_journals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pubsub_lib.audit.report.aggregates import Aggregates

ROOT = Path(__file__).parents[4]
DAY = "2001-09-09"
"""The day of the journals of ``lossy_journals``."""


@pytest.mark.long
def test_additions_have_what_the_audit_counted(spark: "SparkSession", audit: Audit, tmp_path: Path) -> None:
    """One test for all checks: each computes the same tables."""
    from pubsub_lib.audit.lake.collect import of_run
    from pubsub_lib.audit.report.aggregates import aggregate
    from pubsub_lib.audit.report.collect import collect

    tables = audit(all_cases(), LITTLE)
    derived = aggregate(tables, SETTINGS)
    summary = collect(tables, derived, SETTINGS)
    found = of_run(tables, derived, summary)
    assert {name: table.schema for name, table in found.tables.items()} == {
        name: SCHEMAS[name] for name in ("balance", "verdict", "latency", "anomaly")
    }
    verdicts_are_those_of_the_summary(found, summary)
    sums_are_those_of_the_windows(found, summary, derived)
    pooled_percentiles_are_those_of_the_summary(found, summary)
    anomalies_are_those_of_the_table(found, derived)
    domains_are_those_with_participants(found, summary)
    prepare(tmp_path / "lake", WINDOW)
    assert append(tmp_path / "lake", found).problems == []
    day = day_of(BEGIN)
    assert day is not None
    shown = report(tmp_path / "lake", day, day, today(), since_begin=True)
    assert {each.domain for each in shown.days if each.audited} == {each.domain for each in found.domains}
    assert shown.exit_code == summary.exit_code
    assert sum(each.number("expected") or 0 for each in shown.days) == sum(
        each.expected for each in summary.balance.values()
    )


def verdicts_are_those_of_the_summary(found: Addition, summary: Summary) -> None:
    sums: Counter[tuple[str, ...]] = Counter()
    timeless = set()
    for row in found.tables["verdict"].to_pylist():
        sums[tuple(row[name] for name in ("domain", "of", "verdict", "detail", "blame"))] += row["count"]
        if row["window"] is None:
            timeless.add(row["of"])
    assert sums == {
        (each.domain, each.of, each.verdict, each.detail, each.blame): each.count for each in summary.counts
    }
    assert timeless == {"store", "state"}


def sums_are_those_of_the_windows(found: Addition, summary: Summary, derived: "Aggregates") -> None:
    names = ["domain", "window", "name", *Balance.__struct_fields__]
    truth = {tuple(row[name] for name in names): row["closed"] for row in derived.window.collect()}
    assert {tuple(row[name] for name in names) for row in found.tables["balance"].to_pylist()} == truth.keys()
    closed = {(row[0], row[1]): is_closed for row, is_closed in truth.items()}
    windows = {(row["domain"], row["window"]): row["closed"] for row in found._windows().to_pylist()}
    assert closed.items() <= windows.items()
    codes = 0
    for row in found._windows().to_pylist():
        codes |= row["exit_code"]
    assert codes & 1
    assert codes | summary.exit_code == summary.exit_code


def pooled_percentiles_are_those_of_the_summary(found: Addition, summary: Summary) -> None:
    pooled: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    numbers: dict[tuple[str, str], dict[str, int]] = {}
    for row in found.tables["latency"].to_pylist():
        key = (row["domain"], row["hop"])
        pairs = dict(zip(row["values"], row["counts"], strict=True))
        assert sum(row["counts"]) == row["count"]
        for value, count in zip(row["values"], row["counts"], strict=True):
            pooled[key][value] += count
        assert {name: row[name] for name in percentiles([])} == percentiles(
            zip(row["values"], row["counts"], strict=True)
        )
        assert pairs
        before = numbers.get(key, {"count": 0, "negative": 0, "max": row["max"]})
        numbers[key] = {
            "count": before["count"] + row["count"],
            "negative": before["negative"] + row["negative"],
            "max": max(before["max"], row["max"]),
        }
    assert len(summary.latencies) > 10
    truth = {(row["domain"], row["hop"]): dict(row) for row in summary.latencies}
    assert pooled.keys() == truth.keys()
    for key, row in truth.items():
        mine = {**percentiles(pooled[key].items()), **numbers[key]}
        assert mine == {name: row[name] for name in mine}, key


def anomalies_are_those_of_the_table(found: Addition, derived: "Aggregates") -> None:
    names = SCHEMAS["anomaly"].names[2:]
    mine = Counter(tuple(row[name] for name in names) for row in found.tables["anomaly"].to_pylist())
    truth = Counter(tuple(row[name] for name in names) for row in derived.anomaly.collect())
    assert mine == truth
    without = {row["of"] for row in found.tables["anomaly"].to_pylist() if row["window"] is None}
    assert without == {"store", "state"}


def domains_are_those_with_participants(found: Addition, summary: Summary) -> None:
    coverage = {each.domain: each for each in summary.coverage}
    assert {each.domain for each in found.domains} <= coverage.keys()
    for each in found.domains:
        assert (each.store, each.replicas) == (coverage[each.domain].store, coverage[each.domain].replicas)
        assert all(run.first >= 1 and run.begin <= run.end for run in each.runs)
        assert each.begin == min(run.begin for run in each.runs)


def appended(folder: Path, lake: Path, *more: str) -> int:
    return main(["run", str(folder), "--append", str(lake), "-f", "json", "--bound", "10", *more])


def test_a_run_from_journals_to_the_report_of_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], spark: "SparkSession"
) -> None:
    folder, lake = tmp_path / "journals", tmp_path / "lake"
    lossy_journals(folder, monkeypatch)
    assert appended(folder, lake, "--out", str(tmp_path / "out")) == 1
    first = msgspec.json.decode(capsys.readouterr().out)
    assert first["appended"] == [f"1 window of {DAY} added to {lake}"]
    assert main(["report", str(tmp_path / "out")]) == 1
    assert f"1 window of {DAY} added to {lake}\n" in capsys.readouterr().out
    assert main(["report", str(lake), "--from", DAY, "--to", DAY, "-f", "json"]) == 1
    (day,) = msgspec.json.decode(capsys.readouterr().out)["days"]
    assert day["balance"] == first["balance"][""]
    assert day["anomalies"] == {"lost": 1}
    (latency,) = [each for each in first["latencies"] if each["hop"] == "publish_apply"]
    assert [day[name] for name in ("p50", "p95", "p99", "max")] == [
        latency[name] for name in ("p50", "p95", "p99", "max")
    ]
    the_queries_of_the_page_work(spark, lake, capsys)


@pytest.mark.long
def test_later_audits_of_a_lake_replace_its_windows_or_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], spark: "SparkSession"
) -> None:
    folder, lake = tmp_path / "journals", tmp_path / "lake"
    lossy_journals(folder, monkeypatch)
    assert appended(folder, lake) == 1
    capsys.readouterr()
    assert appended(folder, lake) == 1
    assert msgspec.json.decode(capsys.readouterr().out)["appended"][1:] == [
        "1 window replaced: their results of an earlier audit do not count"
    ]
    with pytest.raises(SystemExit):
        appended(folder, lake, "--keep-days", "none")
    assert appended(folder, lake, "--window", "30") == 64
    assert "has windows of 60 s, and this audit 30 s" in capsys.readouterr().err


def the_queries_of_the_page_work(spark: "SparkSession", lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The SQL of docs/audit.md, with the path and the month of this lake."""
    page = (ROOT / "docs" / "audit.md").read_text()
    (block,) = re.findall(r"^```sql\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    sql = block.replace("/var/lib/pubsub_lib/lake", str(lake)).replace("2026-11-", "2001-09-")
    assert str(lake) in sql
    results: list[list[Any]] = []
    try:
        for statement in filter(None, (each.strip() for each in sql.split(";"))):
            found = spark.sql(statement)
            if "SELECT" in statement and "VIEW" not in statement:
                results.append([tuple(row) for row in found.collect()])
    finally:
        for view in ("balance", "latency", "pair"):
            spark.catalog.dropTempView(view)
    losses, slow = results
    assert losses == [("r1", 1, 3)]
    ((day, share),) = slow
    assert str(day) == DAY
    files = pq.read_table(lake / "latency", filters=[("hop", "=", "publish_apply")])
    values = pa.chunked_array(files["values"].chunks).combine_chunks().flatten().to_pylist()
    counts = files["counts"].combine_chunks().flatten().to_pylist()
    assert share == sum(n for value, n in zip(values, counts, strict=True) if value > 100_000) / sum(counts)


@pytest.mark.long
def test_result_is_printed_when_nothing_can_be_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], spark: "SparkSession"
) -> None:
    folder, lake = tmp_path / "journals", tmp_path / "lake"
    lossy_journals(folder, monkeypatch)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    prepare(lake, 60_000_000)
    monkeypatch.setattr("pubsub_lib.audit.lake.folder.pq.write_table", full)
    assert appended(folder, lake) == 33
    found = msgspec.json.decode(capsys.readouterr().out)
    (problem,) = found["problems"]
    assert problem.startswith(f"{lake} cannot be written (No space left on device), so nothing was added to it; check")
    assert found["balance"][""]["lost"] == 1
