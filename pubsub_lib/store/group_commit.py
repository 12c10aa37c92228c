"""Threads of one program that commit at the same time share one database transaction.

The first thread in the queue commits for itself and for those behind it whose objects are others than its own; each
work keeps its own conditions, point, links and error. No thread waits to collect a group: while one group is being
committed, the next one gathers.

Source: DeWitt, Katz, Olken, Shapiro, Stonebraker, Wood: Implementation Techniques for Main Memory Database Systems
(SIGMOD 1984), section 5.2, "group commit".
"""

import threading
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from pubsub_lib.errors import OutcomeUnknown, PubSubError
from pubsub_lib.store.links import Commit
from pubsub_lib.store.verbs import Identity
from pubsub_lib.store.writer import Work

MAX_OBJECTS: Final = 1000
"""Objects of a group with several works: a bound for the time in which the counter is locked."""


class Attempt(msgspec.Struct, frozen=True):
    """The result of one attempt to commit a work: its ``commit`` (None: it changes nothing), or an ``error``."""

    commit: Commit | None = None
    error: PubSubError | None = None
    shared: bool = False
    """Whether the error may be that of another work in the group."""
    doubt: Commit | None = None
    """The commit of which it is unknown whether it took effect."""


class _Waiting:
    """A thread in the queue. ``alone``: its work shares no transaction."""

    def __init__(self, work: Work, alone: bool) -> None:
        self.work = work
        self.alone = alone
        self.objects: set[Identity] = {(each.table, each.key) for each in work.operations} | work.reads.keys()
        self.attempt: Attempt | None = None


class GroupCommit:
    """The queue of a store. Any thread may call it; not across a fork."""

    def __init__(self, attempt: Callable[[Sequence[Work]], Sequence[Attempt]]) -> None:
        """``attempt`` executes works in one database transaction, on one thread at a time."""
        self._attempt = attempt
        self._changed = threading.Condition()
        self._queue: list[_Waiting] = []
        self._busy = False

    def run(self, work: Work, *, alone: bool = False) -> Attempt:
        """Commit ``work``, possibly together with others. Blocks for the groups before and its own."""
        mine = _Waiting(work, alone)
        with self._changed:
            self._queue.append(mine)
            self._changed.wait_for(lambda: mine.attempt is not None or (not self._busy and self._queue[0] is mine))
            if mine.attempt is not None:
                return mine.attempt
            group = self._next_group()
            self._busy = True
        attempts: Sequence[Attempt] = ()
        try:
            attempts = self._attempt([each.work for each in group])
        finally:
            with self._changed:
                for number, each in enumerate(group):
                    each.attempt = attempts[number] if attempts else _interrupted(each.work)
                self._busy = False
                self._changed.notify_all()
        return attempts[0]

    def _next_group(self) -> list[_Waiting]:
        """Take the first of the queue, and those after it that may share its transaction, in their order."""
        first = self._queue[0]
        group, objects = [first], set(first.objects)
        for each in self._queue[1:]:
            joins = not (first.alone or each.alone) and objects.isdisjoint(each.objects)
            if joins and len(objects) + len(each.objects) <= MAX_OBJECTS:
                group.append(each)
                objects |= each.objects
        self._queue = [each for each in self._queue if each not in group]
        return group


def _interrupted(work: Work) -> Attempt:
    return Attempt(
        error=OutcomeUnknown(
            "the thread that committed several transactions was interrupted, and it is unknown whether this one is "
            f"committed; call committed({work.nonce}) later",
            work.nonce,
        )
    )
