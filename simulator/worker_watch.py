"""Checks that services exclude workers that hand over what was never committed, and no others (rule 14).

Times are true times. Methods raise Violation.
"""

from typing import TYPE_CHECKING, Final

from simulator.invariants import CLOCK_SLACK, Violation
from simulator.kernel import Process
from simulator.plan import HANDOFF_AFTER, QUARANTINE
from simulator.service import FOLLOW_INTERVAL
from simulator.worker_lies import is_changing

if TYPE_CHECKING:
    from simulator.world import World

BELIEVED: Final = 2 * HANDOFF_AFTER + FOLLOW_INTERVAL + 0.5
"""Maximum seconds from the first lie that the service did not forget to the exclusion: the interval of the judgement, a
reading of the changelog, and queries."""
DISTURBING: Final = frozenset({"blind", "pause", "lease", "trim", "db_slow"})
"""Kinds of fault that delay the judgement, or that make it impossible."""


class WorkerWatch:
    """The workers of all services."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._first: dict[tuple[Process, str], float] = {}
        self._excluded: dict[tuple[Process, str], float] = {}
        self._doubted: dict[Process, float] = {}
        """When a service last found a lie."""
        self._changing: dict[Process, int] = {}
        """How often a service found a lie of a worker with changing UUIDs, of those while it found no other one."""

    def handed_over(self, process: Process, worker: str, now: float) -> None:
        """A service takes links of a worker."""
        if now < self._excluded.get((process, worker), float("-inf")) + QUARANTINE - CLOCK_SLACK:
            raise Violation("worker used", f"{process.name} takes links of {worker}, which is excluded")
        self._first.setdefault((process, worker), now)

    def forgotten(self, process: Process) -> None:
        """A service found another history (rule 14): the transactions that it took before may belong to the old one."""
        if not self._world.history.restores and "trim" not in self._world.plan.faults:
            raise Violation("handoffs forgotten", f"{process.name} judges no earlier transaction, without a restore")
        for name in [name for name in self._first if name[0] is process]:
            del self._first[name]

    def excluded(self, process: Process, worker: str, now: float) -> None:
        """A service excludes a worker."""
        lies = worker in self._world.lies.rolled_back.values()
        history = self._world.history
        # Commits that a restore undoes before the service reads the changelog again accuse their worker.
        late = history.restores and {*DISTURBING, "db_down"}.intersection(self._world.plan.faults)
        if not lies and not late and now - history.restored_at > 2 * BELIEVED:
            raise Violation("worker excluded", f"{process.name} excludes {worker}, which sent no lie")
        if is_changing(worker) and not self._doubts(process, now):
            self._changing[process] = self._changing.get(process, 0) + 1
        self._excluded[process, worker] = self._doubted[process] = now
        self._first.pop((process, worker), None)

    def liars(self) -> int:
        """The number of workers that lied; one with changing UUIDs counts whenever a service believes it again."""
        fixed = {worker for worker in self._world.lies.rolled_back.values() if not is_changing(worker)}
        return len(fixed) + max(self._changing.values(), default=0)

    def _doubts(self, process: Process, now: float) -> bool:
        return now < self._doubted.get(process, float("-inf")) + QUARANTINE - CLOCK_SLACK

    def published(self, process: Process, worker: str, well_since: float, now: float) -> None:
        """A service publishes the lie of a worker, of which the changelog never shows anything. ``well_since``: since
        when the database works.
        """
        if self._doubts(process, now):
            raise Violation("unconfirmed used", f"{process.name} publishes a lie of {worker} after another lie")
        if DISTURBING.intersection(self._world.plan.faults):
            return
        since = max(self._first.get((process, worker), now), well_since)
        if now - since > BELIEVED:
            raise Violation("worker believed", f"{process.name} publishes lies of {worker} for {now - since:.3f} s")
