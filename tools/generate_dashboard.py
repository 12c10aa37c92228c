#!/usr/bin/env python3
"""Write etc/grafana-dashboard.json, a dashboard of replicas and services: ``tools/generate_dashboard.py [--check]``.

Grafana's format needs some forty lines for each panel, of which all but the title, the expressions and the unit are the
same. With ``--check`` nothing is written; the exit status is 1 when the file is stale.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from _generated import ROOT, write_or_check

FILE = ROOT / "etc" / "grafana-dashboard.json"
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS: Final = 24
_WIDTH: Final = 8
_HEIGHT: Final = 7
_REPLICA: Final = '{job=~"$job",instance=~"$instance"}'
_RATE: Final = "[$__rate_interval]"


class Panel(msgspec.Struct, frozen=True):
    """One panel: expressions by their legend, in a unit that Grafana knows."""

    title: str
    about: str
    shown: Mapping[str, str]
    unit: str = "short"


def _of(metric: str, more: str = "") -> str:
    """The metric of the chosen jobs and instances. ``more``: further selectors."""
    return metric + _REPLICA.replace("}", f",{more}}}" if more else "}")


def _rate(metric: str, more: str = "") -> str:
    return f"rate({_of(metric, more)}{_RATE})"


def _quantiles(metric: str) -> dict[str, str]:
    """Median and 99th percentile of a histogram, for each instance."""
    buckets = f"sum by (instance, le) ({_rate(metric + '_bucket')})"
    return {
        f"{{{{instance}}}} {name}": f"histogram_quantile({quantile}, {buckets})"
        for name, quantile in (("median", "0.5"), ("99 %", "0.99"))
    }


REPLICAS: Final = (
    Panel(
        "Staleness",
        "Everything that was committed longer ago is applied. Without a sync: no value, because it is infinite.",
        {"{{instance}}": _of("pubsub_replica_staleness_seconds")},
        "s",
    ),
    Panel(
        "Ready, polling",
        "1 is yes. A replica polls the database while no publisher sends fresh hello replies.",
        {"{{instance}} ready": _of("pubsub_replica_ready"), "{{instance}} polls": _of("pubsub_replica_polling")},
        "bool_yes_no",
    ),
    Panel("Links applied", "Per second.", {"{{instance}}": _rate("pubsub_replica_links_applied_total")}, "ops"),
    Panel(
        "Topics read from the database",
        "Per second, by kind and cause.",
        {"{{instance}} {{kind}} {{cause}}": _rate("pubsub_replica_syncs_total")},
        "ops",
    ),
    Panel(
        "Missing and late messages",
        "By publishers' sequences, per second.",
        {"{{instance}} {{what}}": _rate("pubsub_replica_sequences_total", 'what!="duplicates"')},
        "ops",
    ),
    Panel(
        "Dropped messages",
        "Per second. Those that are known already are left out.",
        {"{{instance}} {{why}}": _rate("pubsub_replica_dropped_total", 'why!="old"')},
        "ops",
    ),
    Panel(
        "Wait for handlers",
        "Age of the oldest change that waits.",
        {"{{instance}}": _of("pubsub_replica_handlers_lag_seconds")},
        "s",
    ),
    Panel(
        "Changes for handlers",
        "Per second, by outcome.",
        {"{{instance}} {{what}}": _rate("pubsub_replica_handlers_total")},
        "ops",
    ),
    Panel(
        "From the commit to the replica",
        "Time until links are applied. Clocks of different hosts differ. Full syncs are not in it.",
        _quantiles("pubsub_replica_commit_to_applied_seconds"),
        "s",
    ),
    Panel(
        "From the commit to the end of handlers",
        "Time until handlers have returned. Clocks of different hosts differ. Full syncs are not in it.",
        _quantiles("pubsub_replica_commit_to_handled_seconds"),
        "s",
    ),
    Panel(
        "Latencies below 0",
        "Per second. They are counted as 0. Many: the clocks of hosts differ.",
        {"{{instance}} {{what}}": _rate("pubsub_replica_negative_latencies_total")},
        "ops",
    ),
    Panel(
        "Faults",
        "Since the start of each replica, and publishers that are not used now: all must be 0.",
        {
            "{{instance}} {{what}}": _of("pubsub_replica_faults_total"),
            "{{instance}} contradicted": _of("pubsub_replica_contradicted_total"),
            "{{instance}} quarantined publishers": _of("pubsub_replica_quarantined_publishers"),
        },
    ),
)
SERVICES: Final = (
    Panel(
        "Links sent",
        "Per second: handed over by workers, found in the changelog, or taken over from a dead service.",
        {"{{instance}} {{what}}": _rate("pubsub_service_links_total")},
        "ops",
    ),
    Panel(
        "Messages of workers that were not received",
        "Per second. The service reads them from the changelog.",
        {"{{instance}} {{what}}": _rate("pubsub_service_receiving_total", 'what!="received"')},
        "ops",
    ),
    Panel(
        "Leases",
        "Exactly one service holds each of the leases for orphans and for maintenance.",
        {"{{instance}} {{what}}": _of("pubsub_service_leases")},
        "bool_yes_no",
    ),
    Panel(
        "Group commit",
        "Transactions of workers, and of the database for them, per second (group_commit = host).",
        {"{{instance}} {{what}}": _rate("pubsub_service_commits_total")},
        "ops",
    ),
    Panel(
        "Recount of the database",
        "Objects per second, and what was found.",
        {"{{instance}} {{what}}": _rate("pubsub_service_recount_total")},
        "ops",
    ),
    Panel(
        "Failed steps",
        "Per second; they are repeated.",
        {"{{instance}} {{what}}": _rate("pubsub_service_failures_total")},
        "ops",
    ),
    Panel(
        "From the commit to the message",
        "Time until the driver has accepted links. Clocks of different hosts differ.",
        _quantiles("pubsub_service_commit_to_sent_seconds"),
        "s",
    ),
    Panel(
        "Versions",
        "Number of replicas and services of each version.",
        {"{{version}}": f"count by (version) ({_of('pubsub_build_info')})"},
    ),
)


def dashboard() -> dict[str, Any]:
    """The dashboard: one row of panels for replicas, one for services."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in (("Replicas", REPLICAS), ("Publisher services", SERVICES)):
        panels.append(
            {
                "type": "row",
                "id": len(panels) + 1,
                "title": title,
                "collapsed": False,
                "panels": [],
                "gridPos": {"x": 0, "y": top, "w": _COLUMNS, "h": 1},
            }
        )
        top += 1
        for number, panel in enumerate(row):
            at = {"x": number % 3 * _WIDTH, "y": top + number // 3 * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
            panels.append(_panel(len(panels) + 1, panel, at))
        top += -(-len(row) // 3) * _HEIGHT
    return {
        "title": "pubsub_lib",
        "uid": "pubsub-lib",
        "description": "Replicas and publisher services (docs/operating.md describes the metrics).",
        "tags": ["pubsub_lib"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source(), _choice("job", "job"), _choice("instance", "instance")]},
        "panels": panels,
    }


def _panel(number: int, panel: Panel, at: Mapping[str, int]) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "id": number,
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": at,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
            for place, (legend, expression) in enumerate(panel.shown.items())
        ],
    }


def _source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _choice(name: str, label: str) -> dict[str, Any]:
    ready = '{__name__=~"pubsub_replica_ready|pubsub_service_ready"}'
    return {
        "name": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": f"label_values({ready}, {label})", "refId": name},
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
    }


def main(arguments: Sequence[str]) -> int:
    """The exit status."""
    return write_or_check(FILE, json.dumps(dashboard(), indent=2) + "\n", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
