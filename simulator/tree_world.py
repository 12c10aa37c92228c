"""One run with relays."""

import random
from typing import Final

from pubsub_lib.core.effects import StartSync
from simulator.kernel import Kernel, LocalClock
from simulator.nemesis import Nemesis, Toggle
from simulator.plan import BOUND, TIMING, Plan, ReplicaPlan
from simulator.replica import Replica
from simulator.store import State
from simulator.tree_monitor import LATE, TreeMonitor
from simulator.tree_network import TreeNetwork
from simulator.tree_nodes import Answers, Below, Downside, RelayNode
from simulator.tree_plan import TreePlan
from simulator.world import World

HOP: Final = TIMING.reading_age + 2 * TIMING.round_trip + 0.3
"""Seconds by which a proof may be older one relay further down, in calm."""
MUCH_LATER: Final = LATE + TIMING.max_idle_time + 1.0
"""Seconds after a restore, when replicas have proofs that are younger than all late messages of the undone history."""


class TreeNemesis(Nemesis):
    """Faults of a tree, besides the others."""

    _world: "TreeWorld"

    def longest(self, kind: str) -> float:
        """A relay that lags for longer than the late messages of a restore take shows more."""
        return 12.0 if kind in ("stuck", "cut") else super().longest(kind)

    def _edge(self, rng: random.Random) -> tuple[str, str]:
        """One above and one below that may be connected."""
        return rng.choice(self._world.pairs())

    def _make_cut(self, rng: random.Random) -> Toggle:
        above, below = self._edge(rng)
        ways = rng.choice(([(above, below)], [(below, above)], [(above, below), (below, above)]))
        return lambda: self._cut(ways, "cut"), lambda: self._join(ways)

    def _make_stuck(self, rng: random.Random) -> Toggle:
        name = rng.choice(self._world.tree.relays)
        return lambda: self._stick(name), lambda: self._free(name)

    def _ways_above(self, name: str) -> list[tuple[str, str]]:
        pairs = [pair for pair in self._world.pairs() if pair[1] == name]
        return [way for pair in pairs for way in (pair, pair[::-1])]

    def _stick(self, name: str) -> None:
        self._world.database.blind[name] = None
        self._world.count("stuck")
        self._cut(self._ways_above(name), "stuck")

    def _free(self, name: str) -> None:
        self._world.database.blind.pop(name, None)
        self._join(self._ways_above(name))

    def _make_fork(self, rng: random.Random) -> Toggle:
        """A restore that a stuck relay does not get to know, and the replicas move to that relay much later."""
        world, name, wait = self._world, rng.choice(self._world.tree.levels[-1]), rng.uniform(0.2, 1.5)
        backups: list[State] = []

        def begin() -> None:
            backups.append(world.database.store.backup())
            world.kernel.at(world.kernel.now + wait, fork)

        def fork() -> None:
            if self.active:
                world.count("fork")
                world.writes_left = 0  # until calm: a later link would not connect to what the stuck relay has
                self._stick(name)
                world.database.restore(backups[0])
                world.kernel.at(world.kernel.now + MUCH_LATER, move)
                world.kernel.at(world.kernel.now + MUCH_LATER + 3.0, self._free, name)

        def move() -> None:
            if not self.active:
                return
            for node in list(world.replicas.values()):
                if isinstance(node, Below) and node.parents is not None and name in world.tree.parents[node.name]:
                    node.parents.choose(name, node.clock.now())
                    node.moved()

        return begin, lambda: None  # it ends after the move

    def stop(self) -> None:
        """End all faults now."""
        super().stop()
        for name in list(self._world.database.blind):
            self._free(name)

    def _make_move(self, rng: random.Random) -> Toggle:
        """Replicas and relays change their parents again and again."""
        world, period, running = self._world, rng.uniform(0.2, 1.5), [False]

        def move() -> None:
            nodes = [each for each in world.replicas.values() if isinstance(each, Below) and each.parents is not None]
            if not running[0]:
                return
            if nodes:
                world.count("move")
                node = rng.choice(nodes)
                assert node.parents is not None
                if node.parents.leave(node.clock.now()):
                    node.moved()
            world.kernel.at(world.kernel.now + period, move)

        def begin() -> None:
            running[0] = True
            move()

        return begin, lambda: running.__setitem__(0, False)


class TreeWorld(World):
    """Everything of one run with relays."""

    network: TreeNetwork
    monitor: TreeMonitor

    def __init__(self, plan: Plan, kernel: Kernel) -> None:
        assert plan.tree is not None
        self.tree: TreePlan = plan.tree
        self.bound = BOUND * (1 + len(plan.tree.levels))
        super().__init__(plan, kernel)
        for name in plan.tree.relays:
            self._start_at(0.0, name, "")

    def _make_monitor(self) -> TreeMonitor:
        return TreeMonitor(self, self.history)

    def _make_network(self) -> TreeNetwork:
        return TreeNetwork(self.kernel, self.plan.limits, self.plan.hwm, self.count)

    def _make_nemesis(self) -> Nemesis:
        return TreeNemesis(self)

    def _make_replica(self, name: str, clock: LocalClock, rng: random.Random) -> Replica:
        above = self.tree.parents.get(name, ())
        if not name.startswith("relay"):
            return Below(self, name, self.plan.replicas[int(name[7:])], clock, rng, above)
        # A relay follows the first topic at once, and the others soon.
        node = RelayNode(self, name, ReplicaPlan(self.plan.topics[:1], False, 0.0, False, 100), clock, rng, above)
        self.network.answerers[name] = Downside(node)
        return node

    def extra_age(self, replica: Replica) -> float:
        """Seconds by which a replica's proofs may be older than those of one below a service."""
        levels = [number for number, level in enumerate(self.tree.levels) if replica.name in level]
        return HOP * (levels[0] if levels else len(self.tree.levels))

    def question(self, relay: str, asker: str, start: StartSync, answers: Answers) -> None:
        """A question arrives at a relay; one that does not run gives no answer."""
        node = self.replicas.get(relay)
        if isinstance(node, RelayNode):
            node.questions.put((asker, start, answers))

    def pairs(self) -> list[tuple[str, str]]:
        """Who may be connected: a publisher and a receiver."""
        first = self.tree.levels[0]
        services = [f"service{number}" for number in range(len(self.plan.services))]
        pairs = [(service, name) for service in services for name in first]
        return [*pairs, *((above, name) for name, some in self.tree.parents.items() for above in some)]
