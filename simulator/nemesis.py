"""Injects faults: in windows of time, at single steps of processes, until it is stopped."""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from simulator.database import NO_TRIM
from simulator.kernel import Process
from simulator.plan import LEASE_SECONDS
from simulator.store import State
from simulator.stranger import Stranger

if TYPE_CHECKING:
    from simulator.world import World

Toggle = tuple[Callable[[], None], Callable[[], None]]
"""Begin and end of a fault."""


RARE_STEPS = 15.0
"""Factor on the probability of a fault at a step that a kind of process reaches for the first time."""

RAREST = ("ask again", "outcome asked", "outcome lost", "outcome answered", "head lost", "heads lost")
"""Steps that are reached only after another fault."""


class Nemesis:
    """The faults of one run. Each kind has its own random numbers, so that leaving one kind out changes no other."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._faults = world.plan.faults
        self.slow: dict[str, float] = {}
        self.handler_failure = 0.0
        self.active = True
        self._strokes = world.kernel.rng("strokes")
        self._victims: random.Random = world.kernel.rng("handler faults")
        self._kill = 0.0006 if "kill" in self._faults else 0.0
        self._pause = 0.0012 if "pause" in self._faults else 0.0
        self._lease_pause = 0.01 if "lease" in self._faults else 0.0
        self._off: list[Callable[[], None]] = []
        self.struck: dict[str, int] = {}
        """Kills and pauses by kind of process and step."""
        self.reached: dict[tuple[str, str], int] = {}
        """How often a kind of process came to a step where a fault could have been injected."""
        for kind in self._faults:
            self._plan_windows(kind, world.kernel.rng("fault " + kind))

    # -- windows -----------------------------------------------------------------------------------------------------

    def _plan_windows(self, kind: str, rng: random.Random) -> None:
        make = getattr(self, "_make_" + kind, None)
        if make is None:
            return
        calm = self._world.plan.calm
        for _ in range(rng.choice((1, 2, 3))):
            start = rng.uniform(0.0, calm * 0.95)
            begin, end = make(rng)
            self._world.kernel.at(
                start, self._begin, kind, begin, end, min(rng.uniform(0.3, self.longest(kind)), calm - start)
            )

    def longest(self, kind: str) -> float:
        """Maximum seconds of a window of this kind."""
        return 5.0

    def _begin(self, kind: str, begin: Callable[[], None], end: Callable[[], None], seconds: float) -> None:
        if not self.active:
            return
        self._world.kernel.trace("nemesis", kind, seconds)
        begin()
        self._off.append(end)
        self._world.kernel.at(self._world.kernel.now + seconds, self._end, end)

    def _end(self, end: Callable[[], None]) -> None:
        if end in self._off:
            self._off.remove(end)
            end()

    def stop(self) -> None:
        """End all faults now, and undo their effects."""
        self.active = False
        for end in self._off:
            end()
        self._off.clear()

    def _chance(self, name: str, rng: random.Random) -> Toggle:
        weather = self._world.network.weather
        chance = rng.choice((0.02, 0.1, 0.3, 0.7))
        return lambda: setattr(weather, name, chance), lambda: setattr(weather, name, 0.0)

    def _make_drop(self, rng: random.Random) -> Toggle:
        return self._chance("drop", rng)

    def _make_duplicate(self, rng: random.Random) -> Toggle:
        return self._chance("duplicate", rng)

    def _make_reorder(self, rng: random.Random) -> Toggle:
        return self._chance("reorder", rng)

    def _make_delay(self, rng: random.Random) -> Toggle:
        return self._chance("delay", rng)

    def _make_burst(self, rng: random.Random) -> Toggle:
        world = self._world

        def begin() -> None:
            world.bursting = True
            world.count("burst")

        def end() -> None:
            world.bursting = False

        return begin, end

    def _make_slow(self, rng: random.Random) -> Toggle:
        name, slowness = f"replica{rng.randrange(3)}", rng.choice((0.02, 0.1, 0.4))
        return lambda: self.slow.update({name: slowness}), lambda: self.slow.update({name: 0.0})

    def _make_handler(self, rng: random.Random) -> Toggle:
        chance = rng.choice((0.05, 0.3))
        return lambda: setattr(self, "handler_failure", chance), lambda: setattr(self, "handler_failure", 0.0)

    def _make_db_down(self, rng: random.Random) -> Toggle:
        return lambda: self._world.database.go_down(), lambda: self._world.database.come_up()

    def _make_db_slow(self, rng: random.Random) -> Toggle:
        if rng.random() < 0.3:
            database = self._world.database
            return lambda: setattr(database, "stalled", True), lambda: setattr(database, "stalled", False)
        if rng.random() < 0.5:
            return self._at_database("hang_chance", rng.choice((0.02, 0.1, 0.3)))
        return self._at_database("slowness", rng.choice((0.05, 0.3, 1.5)))

    def _make_deadlock(self, rng: random.Random) -> Toggle:
        return self._at_database("deadlock_chance", 0.4)

    def _make_commit_lost(self, rng: random.Random) -> Toggle:
        return self._at_database("commit_loss_chance", 0.4)

    def _at_database(self, name: str, value: float) -> Toggle:
        database = self._world.database
        return lambda: setattr(database, name, value), lambda: setattr(database, name, 0.0)

    def _make_trim(self, rng: random.Random) -> Toggle:
        database, keep, period = self._world.database, rng.choice((0, 0, 1, 2, 3, 5, 8, 13)), rng.uniform(0.05, 0.5)
        if rng.random() < 0.5:  # exactly during a reading, which is rare by chance
            name = "trimmed_on_read"
            return lambda: setattr(database, name, keep), lambda: setattr(database, name, NO_TRIM)

        def trim() -> None:
            if self.active and running[0]:
                database.trim(keep)
                self._world.kernel.at(self._world.kernel.now + period, trim)

        running = [False]

        def begin() -> None:
            running[0] = True
            trim()

        def end() -> None:
            running[0] = False

        return begin, end

    def _make_blind(self, rng: random.Random) -> Toggle:
        """The database receives no requests of services any more, until the end: replicas must poll."""
        names = [f"service{number}" for number in range(3)]
        return lambda: self._world.database.blind.update(dict.fromkeys(names)), lambda: None

    def _make_restore(self, rng: random.Random) -> Toggle:
        database = self._world.database
        backups: list[State] = []
        return lambda: backups.append(database.store.backup()), lambda: database.restore(backups.pop())

    def _make_same_position(self, rng: random.Random) -> Toggle:
        """A backup is restored, as many changes are written as were undone, and then all writers stop."""
        world, database = self._world, self._world.database
        backups: list[State] = []

        def end() -> None:
            database.restore_and_rewrite(backups.pop(), world.next_serial)
            world.stop_writers()

        return lambda: backups.append(database.store.backup()), end

    def _make_refuse(self, rng: random.Random) -> Toggle:
        """A transport that refuses every message, after a delay."""
        name, refusing = f"service{rng.randrange(3)}", self._world.network.weather.refusing
        return lambda: refusing.add(name), lambda: refusing.discard(name)

    def _make_foreign(self, rng: random.Random) -> Toggle:
        """Programs of another store, a copy of this one, publish here."""
        stranger = Stranger(self._world, rng)
        return stranger.begin, stranger.end

    def _make_clock(self, rng: random.Random) -> Toggle:
        jump, number = rng.uniform(-5000.0, 5000.0), rng.randrange(100)

        def begin() -> None:
            clocks = list(self._world.clocks.values())
            clocks[number % len(clocks)].jumped += jump
            self._world.count("clock")

        return begin, lambda: None

    def _make_partition(self, rng: random.Random) -> Toggle:
        ways = self._ways(rng)
        back = [(target, source) for source, target in ways]
        kind = "partition" if back[0] in ways else "one-way partition"
        return lambda: self._cut(ways, kind), lambda: self._join(ways)

    def _make_flapping(self, rng: random.Random) -> Toggle:
        ways, period = self._ways(rng), rng.uniform(0.05, 0.8)
        running = [False]

        def flap() -> None:
            if running[0]:
                if ways[0] in self._world.network.weather.cut:
                    self._join(ways)
                else:
                    self._cut(ways, "flapping")
                self._world.kernel.at(self._world.kernel.now + period, flap)

        def begin() -> None:
            running[0] = True
            flap()

        def end() -> None:
            running[0] = False
            self._join(ways)

        return begin, end

    def _ways(self, rng: random.Random) -> list[tuple[str, str]]:
        """One way between a service and a replica, both, or all ways of one of them."""
        service, replica = f"service{rng.randrange(3)}", f"replica{rng.randrange(3)}"
        some = [[(service, replica)], [(replica, service)], [(service, replica), (replica, service)]]
        some.append([(service, f"replica{number}") for number in range(3)])
        some.append([(f"service{number}", replica) for number in range(3)])
        return rng.choice(some)

    def _cut(self, ways: list[tuple[str, str]], kind: str) -> None:
        self._world.network.cut(ways, kind)

    def _join(self, ways: list[tuple[str, str]]) -> None:
        self._world.network.join(ways)

    # -- strokes -----------------------------------------------------------------------------------------------------

    def before_step(self, process: Process, label: str) -> None:
        """Kill or pause a process right before a step."""
        if not self.active:
            return
        step = process.kind, label
        times = self.reached[step] = self.reached.get(step, 0) + 1
        # Some steps occur a thousand times a run and others once: rare steps get faults as well.
        likelier = (1.0 + RARE_STEPS / times) * (10.0 if label in RAREST else 1.0)
        dice = self._strokes.random() / likelier
        if dice < self._kill:
            self._world.count("kill")
            self._mark("kill", process, label)
            self._world.kill(process, self._strokes.uniform(0.1, 3.0))
        elif dice < self._kill + self._pause:
            self._world.count("pause")
            self._mark("pause", process, label)
            process.pause(self._strokes.uniform(0.05, 2.5))
        elif self._strokes.random() < self._lease_pause and label.startswith(("lease", "follow", "links")):
            self._world.count("lease")
            self._mark("pause", process, label)
            process.pause(self._strokes.uniform(1.0, 2.0) * LEASE_SECONDS)

    def _mark(self, what: str, process: Process, label: str) -> None:
        name = f"{what} {process.kind} before {label}"
        self.struck[name] = self.struck.get(name, 0) + 1

    def handler_fails(self) -> bool:
        """True when a handler is to raise now."""
        if self._victims.random() < self.handler_failure:
            self._world.count("handler")
            return True
        return False
