"""The tables that are counted from the audit's verdicts (docs/audit.md, "Tables")."""

import msgspec
from pyspark.sql import DataFrame

from pubsub_lib.audit.report import anomalies, latency, streams, tree, windows
from pubsub_lib.audit.rules.pipeline import Tables
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.spark.settled import settled


class Aggregates(msgspec.Struct, frozen=True):
    """The computed results. Each except ``cells`` is saved under its name."""

    cells: DataFrame
    """The delivery table counted (:mod:`~pubsub_lib.audit.report.windows`)."""
    balance: DataFrame
    window: DataFrame
    stream: DataFrame
    anomaly: DataFrame
    latency: DataFrame
    tree: DataFrame


def aggregate(tables: Tables, settings: AuditSettings) -> Aggregates:
    """Compute the tables. Blocks until the verdicts are computed, which this triggers."""
    grains = settled(windows.grains(tables.delivery, tables.domains, settings))
    cells = settled(windows.cells(grains))
    wrong = anomalies.anomalies(tables.delivery, tables.strays, tables.store, tables.state, settings)
    return Aggregates(
        cells=cells,
        balance=windows.balance(cells),
        window=windows.windows(cells, tables.domains, settings),
        stream=settled(streams.streams(grains)),
        anomaly=settled(wrong),
        latency=settled(latency.latencies(tables.delivery)),
        tree=tree.tree(tables, grains),
    )
