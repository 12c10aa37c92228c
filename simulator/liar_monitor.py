"""The checks of a run with liars: a replica may believe a lie, for a bounded time.

The invariants that a lie may break while it is believed are not checked: those about the truth of a replica's state,
and those about the causes of syncs, because the evidence contains lies.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from pubsub_lib.core.chain import Chain
from pubsub_lib.core.effects import StartSync
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import Full, Point, SyncAnswer
from pubsub_lib.core.quarantine import CONTRADICTIONS
from pubsub_lib.core.sequencer import Sequencer
from pubsub_lib.core.step_result import StepResult
from pubsub_lib.core.transitions import Trigger
from simulator.exclusion_watch import ExclusionWatch, knows_leases
from simulator.history import History
from simulator.invariants import Violation
from simulator.kernel import Process
from simulator.monitor import Monitor
from simulator.sync_budget import SyncBudget
from simulator.worker_watch import DISTURBING, WorkerWatch
from simulator.wrong_reads import WrongReads

if TYPE_CHECKING:
    from simulator.replica import Replica
    from simulator.world import World

MAY_BREAK: Final = frozenset({
    "clock", "asked", "delta without cause", "full without cause", "incomplete", "repair", "guard", "handler twice",
    "handler back", "read back",
})  # fmt: skip


SLOW: Final = DISTURBING | {"db_down", "db_slow"}


class LiarMonitor(Monitor):
    """The invariants of a run with liars."""

    may_break = MAY_BREAK

    def __init__(self, world: "World", history: History) -> None:
        super().__init__(world, history)
        self._reads = WrongReads(history)
        self._exclusions = ExclusionWatch(world.lies, history)
        self._budget = SyncBudget()
        self._workers = WorkerWatch(world)
        self.groups.rolled_back = world.lies.rolled_back
        self._reached: dict[tuple[Replica, str], tuple[Point, float]] = {}
        """The forged point at which a chain is, and since when."""
        self._requested: dict[tuple[Replica, str], None] = {}
        """Chains of which all objects are to be read, because the program requested it."""
        self._received: dict[Replica, dict[str, None]] = {}
        """The UUIDs of honest publishers of which a replica has received messages."""
        self._believed: dict[Replica, int] = {}
        """Until a replica is shown a lease: the number of UUIDs of liars that never had one."""
        self._well_since = 0.0
        """Since when the database works."""

    # -- replicas ----------------------------------------------------------------------------------------------------

    def received(self, replica: "Replica", envelope: Envelope, now: float) -> None:
        """A replica is about to process an envelope."""
        super().received(replica, envelope, now)
        lies = self._world.lies
        if envelope.uuid not in lies.liars and envelope.uuid not in lies.unleased:
            self._received.setdefault(replica, {})[envelope.uuid] = None
        for message in envelope.messages:
            if message.link.point in self._world.lies.forged:
                self._exclusions.received(replica, message.link.point, now)

    def acted(self, replica: "Replica", outcome: StepResult) -> None:
        """A replica made a step."""
        begun = [*outcome.quarantined, *(() if outcome.history is None else outcome.history.quarantined)]
        for _, uuid in begun:
            self._world.kernel.trace(replica.name, "excludes", uuid[:4])
            self._may_exclude(replica, uuid)
            self._exclusions.excluded(replica, uuid, replica.clock.now())
        super().acted(replica, outcome)
        self._exclusions.look(replica, replica.clock.now())

    def _may_exclude(self, replica: "Replica", uuid: str) -> None:
        """An honest publisher is excluded only if its UUID is stolen, or restores and workers contradict it as often.
        A restore contradicts no publisher when a reading shows that the store went back. A worker is excluded after its
        first contradiction, unless faults delay or prevent that.
        """
        lies = self._world.lies
        if lies.rolled_back and SLOW.intersection(self._world.plan.faults):
            return
        workers = max(self._workers.liars(), bool(lies.rolled_back))
        now = replica.clock.now()
        contradictions = self._history.restores - self._exclusions.steps_back(replica, now) + workers
        needed = 1 if knows_leases(replica, now) else CONTRADICTIONS
        if uuid not in {*lies.liars, *lies.stolen, *lies.unleased} and contradictions < needed:
            raise Violation("honest excluded", f"{replica.name}: {uuid[:4]} was excluded, and sent no lie")

    def check_chain(
        self, replica: "Replica", chain: Chain, before: Point | None, noticed: tuple[Point, Point] | None, *,
        changed: bool,
    ) -> None:  # fmt: skip
        """A replica made a step; its chain was at the point ``before``."""
        if not changed and chain.name not in replica.replaced:
            return
        self._reads.changed(replica, chain, self._world.kernel.now)
        known = chain.known
        if known is None or known == before or self._history.was_committed(chain.name, known):
            return
        if known not in self._world.lies.forged:
            wrong = f"{chain.name!r} is at {known}, which no publisher of this store sent"
            raise Violation("committed", f"{replica.name}: {wrong}")
        if self._exclusions.received_at(replica, known) > self._leases_shown_at(replica) and self._is_unleased(known):
            raise Violation("unleased used", f"{replica.name}: {chain.name!r} is at {known}, of a UUID without a lease")
        self._reached[replica, chain.name] = known, replica.clock.now()
        self._exclusions.reached(replica, known, replica.clock.now())

    def _is_unleased(self, point: Point) -> bool:
        """Whether a forged point is of a liar that never had a lease."""
        return self._world.lies.forged[point] in self._world.lies.unleased

    def _leases_shown_at(self, replica: "Replica") -> float:
        """Since when the replica knows which publishers have a lease."""
        return float("inf") if replica.directory is None else replica.directory.shown_at

    def replaced(self, replica: "Replica", chain: str, head: Point, *, same_history: bool) -> None:
        """A full sync replaced a chain's contents; links that had waited are not applied yet."""
        self._reads.replaced(replica, chain, head)
        self._requested.pop((replica, chain), None)
        point, reached_at = self._reached.pop((replica, chain), (None, 0.0))
        if point is not None and not same_history:
            self._exclusions.contradicted(replica, point, reached_at, replica.clock.now())

    def mismatched(self, replica: "Replica", topic: str) -> None:
        """A lie may differ in its count or digest: the replica reads the differing buckets."""

    def dropped(self, replica: "Replica", topic: str) -> None:
        """A replica stops following a topic."""
        super().dropped(replica, topic)
        self._reads.dropped(replica, topic)
        self._reached.pop((replica, topic), None)

    def excluded(self, replica: "Replica", envelope: Envelope) -> None:
        """A replica does not use a message, because its publisher is excluded."""
        self._exclusions.is_excluded(replica, envelope, replica.clock.now())

    # -- syncs -------------------------------------------------------------------------------------------------------

    def sync_begun(self, replica: "Replica", start: StartSync, now: float) -> None:
        """Full syncs that forged links cause stay within a budget."""
        super().sync_begun(replica, start, now)
        forged = self._world.lies.forged
        for name, want in start.wants.items():
            known = replica.replica_state.tracker.chain(name).known
            if want.after is None and known in forged and (replica, name) not in self._requested:
                follows = start.causes[name] == Trigger.INCOMPLETE
                excused = self._exclusions.all_steps_back(replica)
                self._budget.provoked(replica, start.number, forged[known], name, want, now, excused, follows=follows)

    def sync_answered(self, replica: "Replica", start: StartSync, answer: SyncAnswer) -> bool:
        """Readings that false digests cause stay within a budget."""
        begun = replica.replica_state.tracker.syncs.begun
        in_time = super().sync_answered(replica, start, answer)
        if in_time and answer.ages is None:
            self._exclusions.covered(replica, answer, begun, replica.clock.now())
            self._exclusions.answered(replica, answer, begun, replica.clock.now())
        lies = self._world.lies
        compared, wrong = False, False
        for name, part in answer.chains.items() if in_time else ():
            known = replica.replica_state.tracker.chain(name).known if name in replica.topics else None
            if isinstance(part, Full) and known is not None and known not in lies.forged:
                compared |= any(each.buckets is not None for each in part.topics.values())
                wrong |= part.contains_known is False or (part.head == known and self._is_wrong(replica, part))
        if compared:
            publishers = len(lies.liars) + len(lies.stolen) + self._changing(replica) + self._misled(replica)
            self._budget.compared(replica, publishers, replica.clock.now(), wrong=wrong)
        return in_time

    def _misled(self, replica: "Replica") -> int:
        """The number of publishers whose true digests differ, because a liar altered links: those that the replica has
        received, and the links that had waited, which have pauses of their own.
        """
        if not self._world.lies.altered:
            return 0
        return 1 + len(self._received.get(replica, {}))

    def _is_wrong(self, replica: "Replica", read: Full) -> bool:
        """Whether a replica differs from the store, at the store's head."""
        cache = replica.replica_state.cache
        return any(cache.head(topic) != (each.head.count, each.head.digest) for topic, each in read.topics.items())

    def sync_failed(self, replica: "Replica", number: int) -> None:
        """The store did not answer."""
        super().sync_failed(replica, number)
        self._budget.failed(replica, number)

    def _changing(self, replica: "Replica") -> int:
        """The number of UUIDs of liars with changing ones that the replica believed, until it was shown a lease."""
        if self._leases_shown_at(replica) == float("inf"):
            self._believed[replica] = len(self._world.lies.unleased)
        return self._believed.get(replica, 0)

    def resync_asked(self, replica: "Replica", topic: str) -> None:
        """A resync of a topic was requested."""
        super().resync_asked(replica, topic)
        self._requested[replica, topic] = None

    # -- services ----------------------------------------------------------------------------------------------------

    def handed_over(self, process: Process, worker: str) -> None:
        """A service takes links of a worker."""
        self._workers.handed_over(process, worker, self._world.kernel.now)

    def handoffs_forgotten(self, process: Process) -> None:
        """A service found another history, and judges no transaction that was handed over before."""
        self._workers.forgotten(process)

    def worker_excluded(self, process: Process, worker: str) -> None:
        """A service does not use the links of a worker from now on."""
        self._world.kernel.trace(process.name, "excludes", worker)
        self._world.count("worker excluded")
        self._workers.excluded(process, worker, self._world.kernel.now)

    def sent(self, process: Process, publishing: Sequencer, envelope: Envelope) -> None:
        """A service sends a message: no lie of a worker after the time in which it must be detected."""
        super().sent(process, publishing, envelope)
        for message in envelope.messages:
            worker = self._world.lies.rolled_back.get(message.link.point)
            if worker is not None:
                self._workers.published(process, worker, self._well_since, self._world.kernel.now)

    # -- at regular times --------------------------------------------------------------------------------------------

    def sweep(self, replicas: Collection["Replica"]) -> None:
        """Also see whether the database works, which services need when no replica runs."""
        database = self._world.database
        if not database.up or database.stalled or database.slowness or database.hang_chance:
            self._well_since = self._world.kernel.now
        super().sweep(replicas)

    def look(self, replica: "Replica") -> None:
        """What is wrong, or missing, is not for longer than the anchor's bound."""
        self._reads.look(replica, self._well_since, self._world.kernel.now)
