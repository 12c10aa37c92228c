"""Group commit: the threads of one writer share database transactions (rule S1).

A model of ``pubsub_lib/store/group_commit.py``: the first thread in the queue commits for itself and for those behind
it whose objects are others than its own. No thread waits to collect a group.
"""

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

import msgspec

from pubsub_lib.core.model import Point
from pubsub_lib.errors import OutcomeUnknown, PubSubError
from simulator.kernel import Await, LocalClock, Signal, Sleep
from simulator.store import Commit, Ident, Verb

if TYPE_CHECKING:
    from simulator.world import World

THREADS = 4
"""Threads of a writer that commits by groups."""


class Work(msgspec.Struct, frozen=True):
    """One transaction of one thread."""

    verbs: Sequence[Verb]
    origin: str
    nonce: int
    serial: int

    @property
    def idents(self) -> list[Ident]:
        """The objects of its verbs, sorted."""
        return sorted({(verb.table, verb.key) for verb in self.verbs})


class Attempt(msgspec.Struct, frozen=True):
    """The answer to one work: its commit (None: it changes nothing), or an error."""

    commit: Commit | None = None
    error: PubSubError | None = None


class InDoubt(OutcomeUnknown):
    """The COMMIT of a group got no answer. ``since``: the point from which this work continued. A restore may have
    undone the points that its thread knew when it began to wait in the queue."""

    def __init__(self, nonce: int, since: Point) -> None:
        super().__init__("the connection was lost during COMMIT", nonce)
        self.since = since


class _Waiting:
    """A thread in the queue."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.signal = Signal()
        self.attempt: Attempt | None = None


class GroupQueue:
    """The queue of one program's threads. It ends with the program."""

    def __init__(self, world: "World", clock: LocalClock) -> None:
        self._world = world
        self._clock = clock
        self._queue: list[_Waiting] = []
        self._leads = False
        """Whether a thread executes a group."""

    def run(self, work: Work) -> Generator[Sleep | Await, None, Attempt]:
        """Commit a work, possibly together with others."""
        mine = _Waiting(work)
        self._queue.append(mine)
        while mine.attempt is None and (self._leads or self._queue[0] is not mine):
            yield Await("group", mine.signal)
        return mine.attempt or (yield from self._lead())

    def _lead(self) -> Generator[Sleep | Await, None, Attempt]:
        """Execute the next group; the answer to its first work."""
        group = self._next_group()
        works = [each.work for each in group]
        self._queue = [each for each in self._queue if each not in group]
        self._leads = True
        attempts = yield from self._execute(works)
        self._leads = False
        for each, attempt in zip(group, attempts, strict=True):
            each.attempt = attempt
            each.signal.set()
        if self._queue:
            self._queue[0].signal.set()
        return attempts[0]

    def _execute(self, works: Sequence[Work]) -> Generator[Sleep | Await, None, list[Attempt]]:
        world = self._world
        return (
            yield from world.database.transact_together(
                works,
                self._clock.wall,
                lambda attempts: world.monitor.groups.staged(world.database.store, works, attempts),
            )
        )

    def _next_group(self) -> list[_Waiting]:
        """The first of the queue, and those after it that may share its transaction, in their order."""
        group, idents = [self._queue[0]], set(self._queue[0].work.idents)
        for each in self._queue[1:]:
            if idents.isdisjoint(each.work.idents):
                group.append(each)
                idents.update(each.work.idents)
        return group
