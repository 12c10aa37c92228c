"""The result of an audit in numbers: counts of verdicts, the balance, the exit code (docs/audit.md)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pubsub_lib.audit.settings import AuditSettings

if TYPE_CHECKING:
    from pubsub_lib.audit.pipeline import Tables

LOSS: Final = 1
CORRUPT: Final = 2
DIVERGENCE: Final = 4
LATE: Final = 8
POLICY: Final = 16
INCOMPLETE: Final = 32
USAGE: Final = 64

BITS: Final[Mapping[int, frozenset[str]]] = {
    LOSS: frozenset({"lost"}),
    CORRUPT: frozenset({"corrupt", "phantom", "misrouted", "phantom_publish"}),
    DIVERGENCE: frozenset({"missing", "stale", "wrong_value", "zombie", "chain_broken"}),
    LATE: frozenset({"late"}),
    POLICY: frozenset({"duplicate_applied", "stale_applied"}),
    INCOMPLETE: frozenset({"unknown"}),
}
STRICT: Final = frozenset({"reordered", "duplicate_dropped"})
FIRST: Final = 20
"""Anomalies of each kind that a summary names; the tables hold all."""
BLAMELESS: Final = ("ok", "excused", "pending", "reordered", "duplicate_dropped")


class Balance(msgspec.Struct, frozen=True):
    """expected = delivered + lost + pending + excused + unknown."""

    expected: int = 0
    delivered: int = 0
    lost: int = 0
    pending: int = 0
    excused: int = 0
    unknown: int = 0

    @property
    def holds(self) -> bool:
        """Whether nothing was forgotten."""
        return self.expected == self.delivered + self.lost + self.pending + self.excused + self.unknown


class Count(msgspec.Struct, frozen=True):
    """How often a verdict was given. ``of``: delivery, strays, store or state."""

    domain: str
    of: str
    verdict: str
    detail: str
    blame: str
    count: int


class Summary(msgspec.Struct, frozen=True):
    """All that a report needs without reading the tables again. Latencies and ``longest`` in microseconds."""

    exit_code: int
    balance: Mapping[str, Balance]
    counts: Sequence[Count]
    skews: Sequence[Mapping[str, Any]]
    silent: Sequence[str]
    open_domains: Sequence[str]
    syncs: Sequence[Mapping[str, Any]]
    first: Sequence[Mapping[str, Any]]
    """The first anomalies of each kind."""
    problems: Sequence[str] = ()


def exit_code(verdicts: set[str], settings: AuditSettings, *, incomplete: bool, problems: Sequence[str]) -> int:
    """The sum of the bits."""
    code = sum(bit for bit, kinds in BITS.items() if kinds & verdicts)
    if settings.strict and verdicts & STRICT:
        code |= POLICY
    return code | INCOMPLETE if incomplete or problems else code


def nothing(problems: Sequence[str]) -> Summary:
    """Of no input at all."""
    return Summary(INCOMPLETE, {}, [], [], [], [], [], [], problems)


def summarize(tables: "Tables", settings: AuditSettings, problems: Sequence[str] = ()) -> Summary:
    """Run the jobs and count. Blocks as long as they take."""
    from pyspark.sql import functions as F  # noqa: N812

    per_row = tables.delivery.groupBy("domain", "verdict", "detail", "blame", "by_message").count().collect()
    counts = [
        Count(row["domain"], "delivery", row["verdict"], row["detail"], row["blame"], row["count"]) for row in per_row
    ]
    for of, table in (("strays", tables.strays), ("store", tables.store), ("state", tables.state)):
        found = table.groupBy("domain", "verdict").count().collect()
        counts.extend(Count(row["domain"], of, row["verdict"], "", "", row["count"]) for row in found)
    balances: dict[str, dict[str, int]] = {}
    for row in per_row:
        balance = balances.setdefault(row["domain"], dict.fromkeys(Balance.__struct_fields__, 0))
        balance["expected"] += row["count"]
        balance[category(row["verdict"], row["by_message"])] += row["count"]
    silent, still_open, empty = _evidence(tables, settings)
    code = exit_code(
        {each.verdict for each in counts}, settings, incomplete=bool(silent or still_open or empty), problems=problems
    )
    return Summary(
        exit_code=code,
        balance={domain: Balance(**each) for domain, each in sorted(balances.items())},
        counts=sorted(counts, key=lambda each: (each.domain, each.of, each.verdict, each.detail, each.blame)),
        skews=[row.asDict() for row in tables.skews.orderBy("domain", "replica_host", "publisher_host").collect()],
        silent=silent,
        open_domains=still_open,
        syncs=[
            row.asDict()
            for row in tables.syncs.groupBy("domain", "name", "cause", "outcome")
            .agg(
                F.count("*").alias("syncs"),
                F.sum(F.col("needless").cast("bigint")).alias("needless"),
                F.sum("size").alias("bytes"),
                F.max("took").alias("longest"),
            )
            .orderBy("domain", "name", "cause", "outcome")
            .collect()
        ],
        first=_first(tables),
        problems=problems,
    )


def category(verdict: str, by_message: bool) -> str:
    """Which sum of the balance a row of the delivery table belongs to."""
    if by_message:
        return "delivered"
    return "lost" if verdict in ("lost", "repaired", "late") else verdict


def _evidence(tables: "Tables", settings: AuditSettings) -> tuple[list[str], list[str], bool]:
    """Silent runs; domains of which not even the first window is closed; whether there are no domains at all."""
    from pyspark.sql import functions as F  # noqa: N812

    from pubsub_lib.audit.words import PARTICIPANTS, closed

    about = tables.domains.select("domain", "latest")
    quiet = (
        tables.runs.filter(F.col("side").isin(*PARTICIPANTS) & ~F.col("over"))
        .join(F.broadcast(about), "domain")
        .filter(F.col("last_wall") < F.col("latest") - settings.silence)
        .select("run")
    )
    begun = closed(F.col("begin"), F.col("closed_until"), settings)
    of_domains = tables.domains.select("domain", begun.alias("closed")).collect()
    every = {row["domain"] for row in tables.runs.select("domain").distinct().collect()}
    known = {row["domain"] for row in of_domains if row["closed"]}
    return sorted(row["run"] for row in quiet.collect()), sorted(every - known), not every


def _first(tables: "Tables") -> list[dict[str, Any]]:
    from pyspark.sql import DataFrame, Window
    from pyspark.sql import functions as F  # noqa: N812

    def of(table: DataFrame, name: str, *order: str) -> list[dict[str, Any]]:
        place = F.row_number().over(Window.partitionBy("domain", "verdict").orderBy(*order))
        few = table.withColumn("place", place).filter(F.col("place") <= FIRST).orderBy("domain", "verdict", "place")
        return [{"of": name, **row.asDict()} for row in few.drop("place").collect()]

    anomalies = tables.delivery.filter(~F.col("verdict").isin(*BLAMELESS))
    return [
        *of(anomalies, "delivery", "p", "name", "uuid", "topic", "sequence"),
        *of(tables.strays, "strays", "name", "uuid", "topic", "sequence"),
        *of(tables.store, "store", "position", "topic"),
        *of(tables.state, "state", "name", "topic", "table", "key"),
    ]
