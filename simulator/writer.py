"""A writer: transactions in many steps, retried as the store does, their links handed over after commit."""

import random
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import msgspec

from pubsub_lib.core.model import Point
from pubsub_lib.errors import ConditionFailed, OutcomeUnknown, StoreBusy, StoreUnavailable
from simulator.group import THREADS, GroupQueue, InDoubt, Work
from simulator.kernel import Await, LocalClock, Process, Sleep, Steps
from simulator.store import Commit, Verb

if TYPE_CHECKING:
    from simulator.world import World

KEYS = 6
TABLES = ("lport", "lswitch")


class Writer:
    """One program that writes. Started again after a kill, it goes on with further transactions."""

    def __init__(self, world: "World", name: str, rng: random.Random, clock: LocalClock) -> None:
        self.world = world
        self.name = name
        self.process = Process(world.kernel, "writer", name, clock)
        self._rng = rng
        self._groups = GroupQueue(world, clock) if "group" in world.plan.faults else None
        for _ in range(1 if self._groups is None else THREADS):
            self.process.spawn(self._work())

    def _work(self) -> Steps:
        world = self.world
        while world.writes_left > 0:
            gap = 0.02 if world.bursting else world.plan.gap
            yield Sleep("idle", self._rng.expovariate(1.0 / gap))
            if world.writes_left <= 0:
                return
            world.writes_left -= 1
            origin = world.origin_of(self.name, self._rng)
            yield from self._transaction(world.next_serial(), origin)

    def _transaction(self, serial: int, origin: str) -> Steps:
        world, database = self.world, self.world.database
        dice = self._rng.getrandbits(64)
        alone = False
        for attempt in range(6):
            # The user's function runs again at each attempt, so that a transaction that is committed twice is found.
            verbs = tuple(self._verbs(random.Random(dice), serial, attempt))
            nonce, since = database.store.new_nonce(), database.store.state.point
            try:
                commit = yield from self._commit(Work(verbs, origin, nonce, serial), alone)
            except ConditionFailed:
                return
            except (StoreUnavailable, StoreBusy):
                if world.writers_stopped:
                    return
                alone = True  # the error may be that of another work in the group
                yield Sleep("retry", self._rng.uniform(0.02, 0.2))
            except OutcomeUnknown as error:
                since = error.since if isinstance(error, InDoubt) else since
                committed = yield from self._settle(error.nonce, since)
                if committed is not False:
                    return  # committed or unknown: never applied twice
            else:
                if commit is not None:
                    world.monitor.wrote(verbs, commit)
                    world.commits.append(commit)
                    yield from self._hand_over(commit, origin)
                return

    def _commit(self, work: Work, alone: bool) -> Generator[Sleep | Await, None, Commit | None]:
        """Commit, in a group if the program has several threads. Raises what ``Database.transact`` raises."""
        if self._groups is None or alone:
            wall = self.process.clock.wall
            return (yield from self.world.database.transact(work.verbs, work.origin, wall, work.nonce, work.serial))
        attempt = yield from self._groups.run(work)
        self.world.monitor.groups.answered(work, attempt)
        if attempt.error is not None:
            raise attempt.error
        return attempt.commit

    def _settle(self, nonce: int, since: Point) -> Generator[Sleep | Await, None, bool | None]:
        """Ask whether the transaction was committed; None: unknown."""
        database = self.world.database
        for _ in range(5):
            try:
                return (yield from database.query("outcome", lambda: database.store.committed(nonce, since)))
            except StoreUnavailable:
                yield Sleep("ask again", 0.2)
        return None

    def _hand_over(self, commit: Commit, origin: str) -> Steps:
        yield Sleep("handing over", self._rng.uniform(0.0005, 0.002))
        self.world.hand_over(self.name, origin, commit.links)

    def _verbs(self, rng: random.Random, serial: int, attempt: int) -> Iterator[Verb]:
        plan = self.world.plan
        large = rng.random() < 0.1
        many = rng.choice((4, 8, 12)) if large else rng.choice((1, 1, 2, 3))
        for part in range(many):
            table, key = rng.choice(TABLES), f"k{rng.randrange(KEYS)}"
            fill = "x" * rng.randrange(10, 400 if large else 60)
            value = {"serial": serial, "part": part, "try": attempt, "fill": fill}
            kind = rng.choices(("set", "create", "update", "delete"), (6, 1, 1, 2))[0]
            if kind == "delete":
                yield Verb("delete", table, key, missing_ok=rng.random() < 0.9)
                continue
            moves = rng.random() < 0.25
            topic = rng.choice(plan.topics) if moves or kind != "update" else None
            if topic is not None and not moves:
                topic = plan.topics[(len(table) + int(key[1:])) % len(plan.topics)]
            yield Verb(kind, table, key, msgspec.json.encode(value, order="sorted"), topic)
