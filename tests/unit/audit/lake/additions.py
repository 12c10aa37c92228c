"""Additions to a lake that are built by hand, without Spark."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from pubsub_lib.audit.lake.addition import Addition, Audited, Run
from pubsub_lib.audit.lake.tables import SCHEMAS, percentiles
from pubsub_lib.audit.report.summary import category
from pubsub_lib.audit.settings import SECOND, AuditSettings

SETTINGS = AuditSettings()
WINDOW = SETTINGS.window
FOREVER = 2**62
FIRST, SECOND_DAY, THIRD = date(2026, 11, 1), date(2026, 11, 2), date(2026, 11, 3)
OK = ("ok", "", "", "message")
LOST = ("lost", "middle", "wire", "")
UNKNOWN = ("unknown", "gap", "", "")
LATE = ("late", "", "", "message")
Result = tuple[str, str, str, str]


def at(text: str) -> int:
    """The time of November 2026 as microseconds: ``at("01 10:00")``."""
    return int(datetime.fromisoformat(f"2026-11-{text}+00:00").timestamp()) * SECOND


def run(name: str, begin: str = "01 00:00", end: str = "30 00:00", first: int = 1) -> Run:
    return Run(name, first, at(begin), at(end))


def audited(begin: str, end: str, *runs: Run, domain: str = "", **more: Any) -> Audited:
    more = {"closed_until": FOREVER, "findings": True, "store": True, "replicas": 1, "listed": 1, **more}
    return Audited(domain, at(begin), at(end), runs=runs or [run("ab")], **more)


def addition(
    domains: Sequence[Audited],
    windows: Mapping[str, Mapping[Result, int]],
    *,
    audit: str = "one",
    domain: str = "",
    findings: Mapping[tuple[str, str], int] | None = None,
    latencies: Mapping[int, int] | None = None,
    settings: AuditSettings = SETTINGS,
) -> Addition:
    """``windows``: begin -> the number of deliveries of the replica ``r1`` with each result. ``findings``: (table,
    verdict) -> number. ``latencies``: the counts of each latency in each window.
    """
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in ("balance", "verdict", "anomaly", "latency")}
    for begin, results in windows.items():
        key = {"domain": domain, "window": at(begin)}
        sums: dict[str, int] = dict.fromkeys(SCHEMAS["balance"].names[3:], 0)
        for (verdict, detail, blame, way), number in results.items():
            sums["expected"] += number
            sums[category(verdict, way)] += number
            rows["verdict"].append(
                {**key, "of": "delivery", "verdict": verdict, "detail": detail, "blame": blame, "count": number}
            )
            if verdict not in ("ok", "excused", "pending"):
                rows["anomaly"].append({**key, "of": "delivery", "verdict": verdict, "topic": "t1", "p": at(begin)})
        rows["balance"].append({**key, "name": "r1", **sums})
        if latencies:
            values = {"values": list(latencies), "counts": list(latencies.values())}
            numbers = {"count": sum(latencies.values()), "negative": 0, "max": max(latencies)}
            rows["latency"].append(
                {**key, "hop": "publish_apply", **numbers, **percentiles(latencies.items()), **values}
            )
    for (of, verdict), number in (findings or {}).items():
        rows["verdict"].append(
            {"domain": domain, "of": of, "verdict": verdict, "detail": "", "blame": "", "count": number}
        )
        rows["anomaly"].append({"domain": domain, "of": of, "verdict": verdict, "table": "ports", "key": "p1"})
    tables = {name: pa.Table.from_pylist(some, schema=SCHEMAS[name]) for name, some in rows.items()}
    return Addition(audit, "run", at("30 00:00"), settings, domains, tables)
