"""The result of an audit as a Prometheus text file, for the node exporter's textfile collector (docs/audit.md)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from pubsub_lib.audit.report.labels import faults
from pubsub_lib.audit.report.summary import Balance, Summary

_PREFIX: Final = "pubsub_audit_"
_QUANTILES: Final = {"p50": "0.5", "p95": "0.95", "p99": "0.99", "p999": "0.999", "max": "1"}


def registry(summary: Summary) -> CollectorRegistry:
    """All numbers of the summary, as gauges."""
    found = CollectorRegistry()

    def gauge(name: str, text: str, *labels: str) -> Gauge:
        return Gauge(_PREFIX + name, text, labels, registry=found)

    gauge("exit_code", "Exit code of the audit: the sum of the bits of its faults; 0: none.").set(summary.exit_code)
    gauge("time_seconds", "Time of the audit, in seconds since 1970.").set(summary.audited / 1e6)
    gauge("problems", "Problems of the evidence: unreadable files, silent runs.").set(
        len(summary.problems) + len(summary.silent)
    )
    fault = gauge("fault", "1 when the audit found a fault of this kind, else 0.", "fault")
    for name, found_one in faults(summary.exit_code).items():
        fault.labels(name).set(found_one)
    deliveries = gauge("deliveries", "The balance: expected is the sum of the other results.", "domain", "result")
    for domain, balance in summary.balance.items():
        for result in Balance.__struct_fields__:
            deliveries.labels(domain, result).set(getattr(balance, result))
    verdicts = gauge("verdicts", "Number of rows with this verdict.", "domain", "of", "verdict", "detail", "blame")
    for each in summary.counts:
        verdicts.labels(each.domain, each.of, each.verdict, each.detail, each.blame).inc(each.count)
    latency = gauge("latency_seconds", "Latency of a hop; quantile 1 is the maximum.", "domain", "hop", "quantile")
    measured = gauge("latencies", "Number of known latencies of a hop.", "domain", "hop")
    negative = gauge("negative_latencies", "Number of latencies of a hop that are below 0.", "domain", "hop")
    for row in summary.latencies:
        of: Mapping[str, str] = {"domain": row["domain"], "hop": row["hop"]}
        measured.labels(**of).set(row["count"])
        negative.labels(**of).set(row["negative"])
        for name, quantile in _QUANTILES.items():
            latency.labels(**of, quantile=quantile).set(row[name] / 1e6)
    numbers = {
        name: gauge(f"detector_{name}", text, "domain")
        for name, text in (
            ("holes", "Deliveries that failed; a sync repaired them, or they were lost."),
            ("missed", "Deliveries that were lost."), ("syncs", "Syncs."),
            ("needless", "Needless syncs."), ("bytes", "Bytes read by syncs."),
        )
    }  # fmt: skip
    for one in summary.detector:
        for name, number in numbers.items():
            number.labels(one.domain).set(getattr(one, name))
    return found


def write_metrics(summary: Summary, file: Path) -> None:
    """Write the file in one step: a reader sees either the whole old file or the whole new one. Raises OSError."""
    write_to_textfile(str(file), registry(summary))
