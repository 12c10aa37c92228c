"""The plan of one seed: participants, possible faults, duration. Drawn before the run begins."""

import random
from typing import Final

import msgspec

from pubsub_lib.core.limits import Limits
from pubsub_lib.core.timing import Timing, anchor_bound, lost_message_bound, no_publisher_bound, reconnection_bound
from simulator.liar_plan import LiarPlan, lying
from simulator.tree_plan import TreePlan, rooted

TIMING: Final = Timing(
    max_idle_time=2.0,
    message_delay_window=0.4,
    hello_wait=0.4,
    reading_age=0.4,
    round_trip=0.3,
    poll_interval=0.8,
    connect_jitter=0.2,
    sync_jitter=0.2,
    sync_interval=0.3,
    sync_backoff=0.2,
    max_sync_backoff=1.0,
    sync_timeout=2.0,
    verify_interval=0.0,
)
"""The defaults, scaled down in proportion: a run then needs fewer events for the same state space."""
VERIFYING: Final = msgspec.structs.replace(TIMING, verify_interval=3.0)
"""The same with verifications (rule 14), which would hide mistakes of other rules: only the kind ``verify`` has them.
"""

MAX_SYNC_SECONDS: Final = 0.5
"""Maximum seconds of a sync while the database works: a delta that proves incomplete, then a full sync."""
BOUND: Final = max(
    bound(TIMING, MAX_SYNC_SECONDS, TIMING.sync_wait + TIMING.max_sync_backoff)
    for bound in (lost_message_bound, no_publisher_bound)
)
"""Rule 13, in seconds; a backoff from before the faults stopped may still run."""
ANCHOR: Final = anchor_bound(VERIFYING, MAX_SYNC_SECONDS, TIMING.sync_wait + TIMING.max_sync_backoff)
"""Rule 14, in seconds: a wrong read ends. A backoff from before the database worked may still run."""
QUICK: Final = 0.1
"""Maximum seconds of a hello request and its reply without faults."""
BACK: Final = reconnection_bound(
    msgspec.structs.replace(TIMING, round_trip=QUICK), MAX_SYNC_SECONDS, TIMING.sync_jitter
)
"""Rule 13 for changes lost before a connection, in seconds, without faults and without another recent sync."""
LEASE_SECONDS: Final = 3.0
SPACING: Final = 2.0
QUARANTINE: Final = 24.0
FIRST_QUARANTINE: Final = 6.0
HANDOFF_AFTER: Final = 1.0
"""The times of the quarantine and of the check of workers (rule 14), scaled down less than the others: contradictions
must come together."""
DRIFT: Final = 1e-4
"""Maximum deviation of a monotonic clock's rate from true time."""

FAULTS: Final = (
    "drop", "duplicate", "reorder", "delay", "burst", "partition", "flapping", "overflow", "slow", "kill", "pause",
    "lease", "blind", "late_service", "late_replica", "clock", "db_down", "db_slow", "deadlock", "commit_lost",
    "restore", "trim", "handler", "same_position", "refuse", "group", "verify", "foreign",
)  # fmt: skip
"""Every kind of fault, by the name that ``--without`` takes."""
SHARES: Final = {"same_position": 0.4, "refuse": 1.0, "group": 0.5, "verify": 0.5, "foreign": 0.5}
"""Factors on the probabilities of kinds that have their own random numbers. A kind that ends all writing shows less of
the other kinds, so fewer runs have it."""


class Cuts(msgspec.Struct, frozen=True):
    """The parts to leave out of a run, to shrink a failing seed."""

    without: tuple[str, ...] = ()
    ops: int | None = None
    writers: int | None = None
    services: int | None = None
    replicas: int | None = None
    calm: float | None = None
    """True time at which faults stop."""
    liars: bool = False
    """With publishers and workers that lie."""
    trees: bool = False
    """With relays: replicas listen to them and read from them."""


class ReplicaPlan(msgspec.Struct, frozen=True):
    """One replica: its topics and its behaviour."""

    topics: tuple[str, ...]
    polling: bool
    starts_at: float
    changes_topics: bool
    queue_limit: int
    resyncs: bool = False
    """A resync of a topic is requested from time to time."""


class Plan(msgspec.Struct, frozen=True):
    """One run."""

    seed: int
    faults: tuple[str, ...]
    topics: tuple[str, ...]
    writers: int
    services: tuple[float, ...]
    """When each service starts."""
    replicas: tuple[ReplicaPlan, ...]
    ops: int
    """Maximum number of transactions of all writers together."""
    gap: float
    """Mean seconds between two transactions of one writer."""
    calm: float
    quiet: bool
    """No writer writes after the faults have stopped."""
    limits: Limits
    hwm: int
    orphan_share: float
    """Share of transactions that no worker hands over."""
    connections_seen: bool
    """Services are notified of replicas that connect. Publishers that send to a broker are not."""
    liars: tuple[LiarPlan, ...] = ()
    tree: TreePlan | None = None

    @property
    def timing(self) -> Timing:
        """The times of the replicas."""
        return VERIFYING if self.liars or "verify" in self.faults else TIMING

    @property
    def faultless(self) -> bool:
        """True when the run has no faults."""
        return not self.faults and not self.liars


def draw(seed: int, cuts: Cuts = Cuts()) -> Plan:  # noqa: B008 - frozen
    """The plan of a seed. A quarter of the seeds has no faults."""
    rng = random.Random(f"{seed} plan")
    # Of its own generator, so that the other choices of a seed do not depend on it.
    chances = [
        (kind, random.Random(f"{seed} {kind}").random() / SHARES[kind] if kind in SHARES else rng.random())
        for kind in FAULTS
    ]
    share = rng.choice((0.15, 0.3, 0.6))
    faults = () if seed % 4 == 0 else tuple(kind for kind, chance in chances if chance < share)
    faults = tuple(kind for kind in faults if kind not in cuts.without)
    topics = tuple(f"t{number}" for number in range(rng.choice((1, 2, 3, 4))))
    writers = rng.choice((1, 1, 2, 3))
    calm = rng.uniform(6.0, 14.0) if cuts.calm is None else cuts.calm
    starts = random.Random(f"{seed} births")
    services = [0.0 if starts.random() < 0.5 else starts.uniform(0.5, calm * 0.9) for _ in range(3)]
    services = services[: rng.choice((0, 1, 1, 2, 2, 3))]
    if "late_service" not in faults:
        services = [0.0 for _ in services]
    replicas = [
        _replica(random.Random(f"{seed} replica {number}"), random.Random(f"{seed} resyncs {number}"), topics, faults)
        for number in range(3)
    ]
    small = rng.random() < 0.3 and bool(faults)
    limits = Limits(
        max_frame_bytes=1400,
        max_waiting_links=rng.choice((2, 3, 5, 8)) if small else 500,
        max_waiting_bytes=random.Random(f"{seed} bytes").choice((1500, 100_000)) if small else 100_000,
    )
    ops, gap = rng.choice(((20, 0.05), (20, 0.4), (60, 0.05), (60, 0.25), (120, 0.12), (120, 0.25)))
    quiet = rng.random() < 0.25
    replica_count = rng.choice((1, 2, 2, 3))
    orphan_share = rng.choice((0.0, 0.1, 1.0)) if rng.random() < 0.4 else 0.0
    plan = Plan(
        seed=seed,
        faults=faults,
        topics=topics,
        writers=writers if cuts.writers is None else cuts.writers,
        services=tuple(services[: cuts.services]),
        replicas=tuple(replicas[: replica_count if cuts.replicas is None else cuts.replicas]),
        ops=ops if cuts.ops is None else cuts.ops,
        gap=gap,
        calm=calm,
        quiet=quiet,
        limits=limits,
        hwm=rng.choice((4, 8, 20)) if "overflow" in faults else 10_000,
        orphan_share=orphan_share,
        connections_seen=random.Random(f"{seed} connections").random() < 0.5,
    )
    return rooted(plan, cuts) if cuts.trees else lying(plan, cuts) if cuts.liars else plan


def _replica(
    rng: random.Random, resyncs: random.Random, topics: tuple[str, ...], faults: tuple[str, ...]
) -> ReplicaPlan:
    everything = rng.random() < 0.35
    chosen = tuple(topic for topic in topics if rng.random() < 0.7) or topics[:1]
    starts_at = rng.uniform(0.5, 8.0) if rng.random() < 0.6 else 0.0
    return ReplicaPlan(
        topics=("",) if everything else chosen,
        polling=rng.random() < 0.2,
        starts_at=starts_at if "late_replica" in faults else 0.0,
        changes_topics=not everything and rng.random() < 0.4,
        queue_limit=rng.choice((2, 5, 100)),
        resyncs=resyncs.random() < 0.3,
    )
