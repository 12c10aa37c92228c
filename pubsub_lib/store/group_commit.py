"""Threads of one program that commit at the same time share one database transaction.

The first thread in the queue commits for itself and for those behind it whose objects are others than its own; each
work keeps its own conditions, point, links and error. No thread waits to collect a group: while one group is being
committed, the next one gathers.

Source: DeWitt, Katz, Olken, Shapiro, Stonebraker, Wood: Implementation Techniques for Main Memory Database Systems
(SIGMOD 1984), section 5.2, "group commit".
"""

import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final, TypeVar

import msgspec

from pubsub_lib.store.links import Commit
from pubsub_lib.store.verbs import Identity
from pubsub_lib.store.writer import Work

MAX_OBJECTS: Final = 1000
MAX_BYTES: Final = 1 << 20
"""Objects, and bytes of values, of a group with several works: they bound how long the counter is locked."""


class Attempt(msgspec.Struct, frozen=True):
    """The result of one attempt to commit a work: its ``commit`` (None: it changes nothing), or an ``error``."""

    commit: Commit | None = None
    error: Exception | None = None
    shared: bool = False
    """Whether the error may be that of another work in the group."""
    doubt: Commit | None = None
    """The commit of which it is unknown whether it took effect."""


Execute = Callable[[Sequence[Work], list[Attempt]], None]
"""Executes works in one database transaction. The list always holds what is known of each, also when an exception that
is not of this library leaves the function."""


class Candidate:
    """A work that waits for its commit."""

    def __init__(self, work: Work) -> None:
        self.work = work

    @cached_property
    def objects(self) -> set[Identity]:
        """The objects that the work reads and writes."""
        return {(each.table, each.key) for each in self.work.operations} | self.work.reads.keys()

    @cached_property
    def size(self) -> int:
        """Number of bytes of all values."""
        return sum([len(each.value or b"") for each in self.work.operations])


C = TypeVar("C", bound=Candidate)


def first_group(queue: Sequence[C]) -> list[C]:
    """The first of a queue, and those after it that may share its transaction, in their order."""
    first = queue[0]
    if len(queue) == 1:
        return [first]
    group, objects, size = [first], set(first.objects), first.size
    for each in queue[1:]:
        fits = len(objects) + len(each.objects) <= MAX_OBJECTS and size + each.size <= MAX_BYTES
        if fits and objects.isdisjoint(each.objects):
            group.append(each)
            objects |= each.objects
            size += each.size
    return group


class _Waiting(Candidate):
    """A thread in the queue, with its work."""

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self.attempt: Attempt | None = None


class GroupCommit:
    """The queue of a store. Any thread may call it; not across a fork."""

    def __init__(self, execute: Execute) -> None:
        """``execute`` is called on one thread at a time."""
        self._execute = execute
        self._changed = threading.Condition()
        self._queue: list[_Waiting] = []
        self._leader: int | None = None

    @property
    def leading(self) -> bool:
        """Whether this thread is executing a group, and so cannot wait for another one."""
        return self._leader == threading.get_ident()

    def run(self, work: Work) -> Attempt:
        """Commit ``work``, possibly together with others. Blocks for the groups before and its own."""
        mine, group, attempts = _Waiting(work), list[_Waiting](), list[Attempt]()
        try:
            with self._changed:
                self._queue.append(mine)
                if self._leader is not None or len(self._queue) > 1:
                    self._changed.wait_for(
                        lambda: mine.attempt is not None or (self._leader is None and self._queue[0] is mine)
                    )
                if mine.attempt is not None:
                    return mine.attempt
                self._leader = threading.get_ident()
                group = self._next_group()
            self._execute([each.work for each in group], attempts)
            return attempts[0]
        finally:
            if mine.attempt is None:
                with self._changed:
                    self._end(mine, group, attempts)

    def _end(self, mine: _Waiting, group: Sequence[_Waiting], attempts: Sequence[Attempt]) -> None:
        """Give the group its results; or, after an interrupt, leave the queue."""
        if self.leading:
            self._leader = None
        for each, attempt in zip(group, attempts, strict=False):
            each.attempt = attempt
        # Without results when this thread was interrupted before the execution.
        again = [each for each in group if each.attempt is None]
        self._queue = [each for each in (*again, *self._queue) if each is not mine]
        self._changed.notify_all()

    def _next_group(self) -> list[_Waiting]:
        """Take the next group from the queue."""
        group = first_group(self._queue)
        self._queue = [each for each in self._queue if each not in group]
        return group
