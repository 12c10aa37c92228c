"""The result of an audit in numbers: counts of verdicts, the balance, the exit code (docs/audit.md)."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from pubsub_lib.audit.settings import AuditSettings

LOSS: Final = 1
CORRUPT: Final = 2
DIVERGENCE: Final = 4
LATE: Final = 8
POLICY: Final = 16
INCOMPLETE: Final = 32

BITS: Final[Mapping[int, frozenset[str]]] = {
    LOSS: frozenset({"lost"}),
    CORRUPT: frozenset({"corrupt", "phantom", "misrouted", "phantom_publish"}),
    DIVERGENCE: frozenset({"missing", "stale", "wrong_value", "zombie", "chain_broken"}),
    LATE: frozenset({"late"}),
    POLICY: frozenset({"duplicate_applied", "stale_applied"}),
    INCOMPLETE: frozenset({"unknown"}),
}
STRICT: Final = frozenset({"reordered", "duplicate_dropped"})
TABLES: Final = (
    "delivery", "strays", "store", "state", "syncs", "skews", "balance", "window", "stream", "anomaly", "latency",
)  # fmt: skip
"""The tables that are kept as Parquet."""
TIMELINE: Final = 1000
"""Syncs of a summary's time line: the longest ones."""
WORST: Final = 12
"""Streams with the most losses, and replicas with the slowest deliveries, that a summary names."""


class Balance(msgspec.Struct, frozen=True):
    """expected = delivered + repaired + lost + pending + excused + unknown."""

    expected: int = 0
    delivered: int = 0
    repaired: int = 0
    lost: int = 0
    pending: int = 0
    excused: int = 0
    unknown: int = 0

    @property
    def holds(self) -> bool:
        """Whether nothing was forgotten."""
        return bool(self.expected == sum(getattr(self, name) for name in CATEGORIES))


CATEGORIES: Final = Balance.__struct_fields__[1:]
"""The parts of the balance."""


class Count(msgspec.Struct, frozen=True):
    """How often a verdict was given. ``of``: delivery, strays, store or state."""

    domain: str
    of: str
    verdict: str
    detail: str
    blame: str
    count: int


class Detector(msgspec.Struct, frozen=True):
    """How well losses were noticed: how many messages did not arrive, how many of these were lost for good, and what
    the repair of the others cost.
    """

    domain: str
    holes: int
    missed: int
    syncs: int
    needless: int
    bytes: int


class Losses(msgspec.Struct, frozen=True):
    """Where in a stream messages did not arrive: how many in each part of it, from its lowest to its highest sequence.

    ``stream``: domain, replica, UUID and topic; empty for all streams together. ``lost``: for good; ``repaired``: the
    replica got the change in another way.
    """

    stream: Sequence[str]
    lowest: int
    highest: int
    lost: Sequence[int]
    repaired: Sequence[int]


class Summary(msgspec.Struct, frozen=True):
    """All that a report or the page needs without reading the tables again; its size is bounded, but for the number
    of domains. Latencies, walls and durations in microseconds; rows of tables are mappings by column names.
    """

    exit_code: int
    balance: Mapping[str, Balance]
    counts: Sequence[Count]
    skews: Sequence[Mapping[str, Any]]
    """Of each pair of hosts as it was known in the end."""
    silent: Sequence[str]
    open_domains: Sequence[str]
    syncs: Sequence[Mapping[str, Any]]
    """Per replica, cause and outcome."""
    first: Sequence[Mapping[str, Any]]
    """The first anomalies of each kind; the first of these with their ``trail``."""
    problems: Sequence[str] = ()
    audited: int = 0
    """When the audit was made."""
    settings: AuditSettings = AuditSettings()
    latencies: Sequence[Mapping[str, Any]] = ()
    """Of all replicas of a domain."""
    slowest: Sequence[Mapping[str, Any]] = ()
    """``publish_apply`` of the replicas with the greatest 99th percentile."""
    detector: Sequence[Detector] = ()
    over_time: Sequence[Mapping[str, Any]] = ()
    losses: Sequence[Losses] = ()
    """Of all streams together, then of the worst ones."""
    timeline: Sequence[Mapping[str, Any]] = ()
    """The longest syncs."""
    keys: Sequence[Mapping[str, Any]] = ()
    """The objects with the most anomalies."""


def exit_code(verdicts: set[str], settings: AuditSettings, *, incomplete: bool, problems: Sequence[str]) -> int:
    """The sum of the bits."""
    code = sum(bit for bit, kinds in BITS.items() if kinds & verdicts)
    if settings.strict and verdicts & STRICT:
        code |= POLICY
    return code | INCOMPLETE if incomplete or problems else code


def counting(settings: AuditSettings) -> frozenset[str]:
    """The verdicts that set a bit of the exit code: these need a person."""
    kinds = frozenset[str]().union(*BITS.values())
    return kinds | STRICT if settings.strict else kinds


def nothing(problems: Sequence[str]) -> Summary:
    """Of no input at all."""
    return Summary(INCOMPLETE, {}, [], [], [], [], [], [], problems, audited=time.time_ns() // 1000)


def category(verdict: str, way: str) -> str:
    """Which part of the balance a row of the delivery table belongs to."""
    return {"message": "delivered", "polling": "delivered", "repair": "repaired"}.get(way, verdict)
