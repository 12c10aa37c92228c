"""One run: builds the participants of a plan, lets time pass, and checks the final state."""

import random
from collections.abc import Sequence
from typing import Final

from pubsub_lib.core.model import Link
from simulator.database import Database
from simulator.history import History
from simulator.invariants import Violation
from simulator.kernel import Kernel, LocalClock, Process
from simulator.liar import Liar
from simulator.liar_monitor import LiarMonitor
from simulator.lies import Lies
from simulator.monitor import Monitor
from simulator.nemesis import Nemesis
from simulator.network import DELAY, Network
from simulator.plan import BACK, BOUND, DRIFT, TIMING, Plan
from simulator.quiescence import at_rest, covered
from simulator.replica import Replica
from simulator.service import HandedOver, Service
from simulator.store import Commit, ModelStore
from simulator.writer import KEYS, TABLES, Writer

SWEEP: Final = 0.25
FINISH: Final = 0.5
"""Seconds for handlers to end after the last change arrived."""

LAST_PARTITION: Final = "last partition"
"""The counter of messages lost at the end of every run, also of a run without faults."""
LAST_CUT: Final = 1.0
"""Seconds for which all ways are cut at the end."""
LAST_OPS: Final = 12
"""Transactions in that time and shortly after it."""


class World:
    """Everything of one run."""

    objects: Final = KEYS * len(TABLES)
    bound: float = BOUND
    """Seconds after which a replica has everything, in calm."""

    def __init__(self, plan: Plan, kernel: Kernel) -> None:
        self.plan = plan
        self.kernel = kernel
        self.counts: dict[str, int] = {}
        self.calm_since = float("inf")
        self.rest_since = float("inf")
        """When all replicas were equal to the store, so that a later violation is not a late effect of a fault."""
        self.bursting = False
        self.writers_stopped = False
        """No writer writes any more, also if the plan has transactions left."""
        self.commits: list[Commit] = []
        """The successful commits of the writers, oldest first."""
        self.writes_left = plan.ops
        self.history = History()
        self.lies = Lies()
        self.monitor = self._make_monitor()
        store = ModelStore(kernel.rng("nonces"))
        self.database = Database(kernel, store, self.history, self.count)
        self.network = self._make_network()
        self.clocks: dict[str, LocalClock] = {}
        self.writers: dict[str, Writer] = {}
        self.services: dict[str, Service] = {}
        self.replicas: dict[str, Replica] = {}
        self._starts: dict[str, int] = {}
        self._serial = 0
        self._killed: dict[str, None] = {}
        self.nemesis = self._make_nemesis()
        kernel.before_step = self.nemesis.before_step
        if "group" in plan.faults:
            kernel.after_step = lambda _: self.monitor.groups.check()
        for number in range(plan.writers):
            # A service follows from the current head: without faults it starts before the first transaction.
            self._start_at(0.5 if plan.faultless else 0.0, f"writer{number}", "")
        for number, starts_at in enumerate(plan.services):
            self._start_at(starts_at, f"service{number}", "late_service")
        for number, replica in enumerate(plan.replicas):
            self._start_at(replica.starts_at, f"replica{number}", "late_replica")
        self.liars = [Liar(self, liar, kernel.rng(f"liar {number}")) for number, liar in enumerate(plan.liars)]

    def _make_monitor(self) -> Monitor:
        return LiarMonitor(self, self.history) if self.plan.liars else Monitor(self, self.history)

    def _make_network(self) -> Network:
        return Network(self.kernel, self.plan.limits, self.plan.hwm, self.count)

    def _make_nemesis(self) -> Nemesis:
        return Nemesis(self)

    # -- calls of the participants -----------------------------------------------------------------------------------

    def count(self, kind: str) -> None:
        """Count one fault."""
        self.kernel.trace("nemesis", "strikes", kind)
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def stop_writers(self) -> None:
        """Stop all writers for the rest of the run."""
        self.writers_stopped = True
        self.writes_left = 0

    def next_serial(self) -> int:
        """A number that no other transaction has."""
        self._serial += 1
        return self._serial

    def slowness(self, replica: str) -> float:
        """Maximum seconds that this replica takes for a message."""
        slowness = self.nemesis.slow.get(replica, 0.0)
        if slowness:
            self.count("slow")
        return slowness

    def handler_fails(self) -> bool:
        """True when a handler is to raise now."""
        return self.nemesis.handler_fails()

    @property
    def settled_since(self) -> float:
        """When the last message that a fault delayed has arrived, with all messages queued behind it."""
        return self.calm_since + (DELAY[1] if "delay" in self.plan.faults else 0.0)

    def publishers_are_well(self, replica: Replica) -> bool:
        """True when the replica has a publisher whose database answers, and its own syncs are not slowed down."""
        slow = {"db_down", "db_slow", "blind"}.intersection(self.plan.faults)
        return not slow and (bool(self.services) or replica.plan.polling)

    def origin_of(self, writer: str, rng: random.Random) -> str:
        """The service that a transaction names: that of the writer's host, or none."""
        if rng.random() < self.plan.orphan_share or not self.plan.services:
            return ""
        return f"service{int(writer[6:]) % len(self.plan.services)}"

    def hand_over(self, writer: str, origin: str, links: Sequence[Link]) -> None:
        """Step 2 and 3 of the data path; a service that does not run receives nothing."""
        service = self.services.get(origin)
        if service is not None:
            worker = f"{writer} {self._starts.get(writer, 0)}"
            service.inbox.put(HandedOver(links, self.database.store.store_id, worker))

    # -- starts and kills --------------------------------------------------------------------------------------------

    def _start_at(self, when: float, name: str, fault: str) -> None:
        if when > 0.0 and fault:
            self.count(fault)
        self.kernel.at(when, self._start, name)

    def _start(self, name: str) -> None:
        self._killed.pop(name, None)
        starts = self._starts[name] = self._starts.get(name, 0) + 1
        rng = self.kernel.rng(f"{name} {starts}")
        clock = self.clocks.get(name)
        if clock is None:
            clock = self.clocks[name] = LocalClock(self.kernel, rng.uniform(0, 1e4), 1.0 + rng.uniform(-DRIFT, DRIFT))
        self.kernel.trace(name, "starts", starts)
        if name.startswith("writer"):
            self.writers[name] = Writer(self, name, rng, clock)
        elif name.startswith("service"):
            self.services[name] = Service(self, name, f"{rng.getrandbits(128):032x}", clock)
            self.network.answerers[name] = self.services[name]
            self.network.attach(name)
        else:
            self.replicas[name] = self._make_replica(name, clock, rng)
            self.network.receivers[name] = self.replicas[name]
            self.network.attach(name)

    def _make_replica(self, name: str, clock: LocalClock, rng: random.Random) -> Replica:
        return Replica(self, name, self.plan.replicas[int(name[7:])], clock, rng)

    def extra_age(self, replica: Replica) -> float:
        """Seconds by which a replica's proofs may be older than those of one below a service."""
        return 0.0

    def kill(self, process: Process, seconds: float) -> None:
        """End a process at once and start it again later."""
        name = process.name
        process.kill()
        for living in (self.writers, self.services, self.replicas, self.network.answerers, self.network.receivers):
            living.pop(name, None)
        self._killed[name] = None
        self.kernel.at(self.kernel.now + seconds, self._restart, name)

    def _restart(self, name: str) -> None:
        if name in self._killed:
            self._start(name)

    # -- the run -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run with faults, then without faults while writers go on, then without writers. Raises Violation."""
        calm = self.plan.calm
        self._pass(calm)
        self._calm_down()
        self._pass(calm + self.bound)
        for replica in self.replicas.values():
            covered(self, replica, calm)
        self.writes_left = 0
        self._pass(self.kernel.now + 1.0)
        end = self.kernel.now + self.bound + FINISH
        self._pass(self.kernel.now + TIMING.max_idle_time + FINISH)
        # Most runs are at rest long before the bound; the others get the whole time.
        while self.kernel.now < end and not self._rests():
            self._pass(min(self.kernel.now + 1.0, end))
        for replica in self.replicas.values():
            at_rest(self, replica)
        self._lose_the_last_changes()
        for replica in self.replicas.values():
            at_rest(self, replica)

    def _lose_the_last_changes(self) -> None:
        """Cut all ways while writers write, and join them again. Replicas detect it only by the connections, and have
        the lost changes soon after them (the invariant ``reconnected``).
        """
        self.rest_since = self.kernel.now
        ways = [way for pair in self.pairs() for way in (pair, pair[::-1])]
        self.network.cut(ways, LAST_PARTITION)
        self._write_on(LAST_OPS)
        self._pass(self.kernel.now + LAST_CUT)
        self.network.join(ways)
        self._pass(self.kernel.now + LAST_CUT / 2)
        self.writes_left = 0
        self._pass(self.kernel.now + BACK + FINISH)
        end = self.kernel.now + self.bound
        while self.kernel.now < end and not self._rests():
            self._pass(min(self.kernel.now + 1.0, end))

    def pairs(self) -> list[tuple[str, str]]:
        """Who may be connected: a publisher and a receiver."""
        return [(service, name) for service in self.services for name in self.replicas]

    def _rests(self) -> bool:
        try:
            for replica in self.replicas.values():
                at_rest(self, replica)
        except Violation:
            return False
        return True

    def _pass(self, until: float) -> None:
        while self.kernel.now < until:
            self.kernel.run(min(self.kernel.now + SWEEP, until))
            self.monitor.sweep(self.replicas.values())

    def _calm_down(self) -> None:
        self.kernel.trace("nemesis", "stops")
        self.nemesis.stop()
        self.calm_since = self.kernel.now
        for name in list(self._killed):
            self._start(name)
        parts: tuple[Writer | Service | Replica, ...] = (
            *self.writers.values(), *self.services.values(), *self.replicas.values()
        )  # fmt: skip
        for part in parts:
            part.process.unpause()
        self._write_on(0 if self.plan.quiet or self.writers_stopped else self.plan.ops)

    def _write_on(self, transactions: int) -> None:
        self.writes_left = transactions
        for name, writer in list(self.writers.items()):
            if not writer.process.running:
                self._start(name)
