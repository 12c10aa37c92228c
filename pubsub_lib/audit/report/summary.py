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
    CORRUPT: frozenset({"corrupt", "phantom", "misrouted", "phantom_publish", "phantom_commit"}),
    DIVERGENCE: frozenset(
        {"missing", "stale", "wrong_value", "zombie", "chain_broken", "foreign_history", "diverged", "rot"}
    ),
    LATE: frozenset({"late"}),
    POLICY: frozenset({"duplicate_applied", "stale_applied"}),
    INCOMPLETE: frozenset({"unknown"}),
}
STRICT: Final = frozenset({"reordered", "duplicate_dropped"})
TABLES: Final = (
    "delivery", "strays", "store", "state", "publisher", "syncs", "skews", "balance", "window", "stream", "anomaly",
    "latency", "tree",
)  # fmt: skip
"""The tables that are saved as Parquet."""
PERCENTILES: Final = {"p50": 500, "p95": 950, "p99": 990, "p999": 999}
"""Name -> thousandths."""
TIMELINE: Final = 1000
"""Maximum number of syncs in a summary's time line: the longest ones."""
HOPS: Final = 400
"""Maximum number of hops in a summary's tree."""
HOP_FAULTS: Final = ("late", "corrupt", "duplicate_applied", "stale_applied")
"""The verdicts that are faults of a hop, and no part of its balance."""
LAST_SEEN: Final[Mapping[str, Sequence[str]]] = {
    "at_publisher": ("writer", "hop", "service", "relay"),
    "on_wire": ("wire",),
    "at_replica": ("subscriber", "polling"),
}
"""Where a change was last seen that no message brought: the name of its count in a hop, and the blames."""
WORST: Final = 12
"""Maximum number of streams with the most losses, and of the slowest replicas, in a summary."""


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
        """Whether the sums add up to ``expected``."""
        return bool(self.expected == sum(getattr(self, name) for name in CATEGORIES))


CATEGORIES: Final = Balance.__struct_fields__[1:]
"""The parts of the balance."""


class Count(msgspec.Struct, frozen=True):
    """The number of rows with a verdict. ``of``: delivery, strays, store, state or publisher."""

    domain: str
    of: str
    verdict: str
    detail: str
    blame: str
    count: int


class Coverage(msgspec.Struct, frozen=True):
    """What a domain's journals allowed to audit. ``store``: whether there are records of the store; ``listed``: the
    number of the ``replicas`` (names) that listed their objects; ``held``: of those that only recorded count and
    digest of their objects.
    """

    domain: str
    store: bool
    replicas: int
    listed: int
    held: int = 0


class Problem(msgspec.Struct, frozen=True):
    """Missing evidence (audit-verdicts.md, "Participants"). A domain has one problem of a ``kind`` at most."""

    domain: str
    kind: str
    sentence: str


class Detector(msgspec.Struct, frozen=True):
    """The detection of losses: the number of failed deliveries (``holes``), the number of those that were lost
    (``missed``), and the cost of repairing the others.
    """

    domain: str
    holes: int
    missed: int
    syncs: int
    needless: int
    bytes: int


class Losses(msgspec.Struct, frozen=True):
    """The messages of a stream that did not arrive: their number in each part, from its lowest to its highest sequence.

    ``stream``: domain, replica, UUID and topic; empty for all streams together. ``lost``: not repaired; ``repaired``:
    the replica got the change in another way.
    """

    stream: Sequence[str]
    lowest: int
    highest: int
    lost: Sequence[int]
    repaired: Sequence[int]


class Summary(msgspec.Struct, frozen=True):
    """The data of the report and the page, so that the tables are not read again. Its size is bounded, except for the
    number of domains. Latencies, walls and durations are in microseconds; rows of tables are mappings by column.
    """

    exit_code: int
    balance: Mapping[str, Balance]
    counts: Sequence[Count]
    skews: Sequence[Mapping[str, Any]]
    """The last known skew of each pair of hosts."""
    silent: Sequence[str]
    open_domains: Sequence[str]
    syncs: Sequence[Mapping[str, Any]]
    """Per replica, cause and outcome."""
    first: Sequence[Mapping[str, Any]]
    """The first anomalies of each kind; the first of these with their ``trail``."""
    problems: Sequence[str] = ()
    audited: int = 0
    """Time of the audit."""
    settings: AuditSettings = AuditSettings()
    latencies: Sequence[Mapping[str, Any]] = ()
    """Of all replicas of a domain together."""
    slowest: Sequence[Mapping[str, Any]] = ()
    """``publish_apply`` of the replicas with the greatest 99th percentile."""
    detector: Sequence[Detector] = ()
    over_time: Sequence[Mapping[str, Any]] = ()
    losses: Sequence[Losses] = ()
    """Of all streams together, then of the streams with the most losses."""
    timeline: Sequence[Mapping[str, Any]] = ()
    """The longest syncs."""
    keys: Sequence[Mapping[str, Any]] = ()
    """The objects with the most anomalies."""
    coverage: Sequence[Coverage] = ()
    runs: Sequence[Mapping[str, Any]] = ()
    """Begins and ends of services and replicas: killed ones first, then the latest."""
    run_count: int = 0
    """Their number in all."""
    tree: Sequence[Mapping[str, Any]] = ()
    """Of domains with relays the hops: those to relays, then those with faults, then the others."""
    hop_count: int = 0
    """Their number in all."""
    appended: Sequence[str] = ()
    """What was added to the folder of ``--append``, in sentences."""


def exit_code(verdicts: set[str], settings: AuditSettings, *, incomplete: bool, problems: Sequence[str]) -> int:
    """The sum of the bits."""
    code = sum(bit for bit, kinds in BITS.items() if kinds & verdicts)
    if settings.strict and verdicts & STRICT:
        code |= POLICY
    return code | INCOMPLETE if incomplete or problems else code


def counting(settings: AuditSettings) -> frozenset[str]:
    """The verdicts that set a bit of the exit code."""
    kinds = frozenset[str]().union(*BITS.values())
    return kinds | STRICT if settings.strict else kinds


def nothing(problems: Sequence[str]) -> Summary:
    """The summary of an audit without input."""
    return Summary(INCOMPLETE, {}, [], [], [], [], [], [], problems, audited=time.time_ns() // 1000)


def category(verdict: str, way: str) -> str:
    """The part of the balance to which a row of the delivery table belongs."""
    return {"message": "delivered", "polling": "delivered", "repair": "repaired"}.get(way, verdict)
