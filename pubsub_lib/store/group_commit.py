"""Threads of one program that commit at the same time share one database transaction.

The first thread in the queue commits for itself and for those behind it whose objects are others than its own; each
work keeps its own conditions, point, links and error. No thread waits to collect a group: while one group is being
committed, the next one gathers. The database transaction itself, of one work or of a group, is executed here, too.

Source: DeWitt, Katz, Olken, Shapiro, Stonebraker, Wood: Implementation Techniques for Main Memory Database Systems
(SIGMOD 1984), section 5.2, "group commit".
"""

import threading
from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from operator import attrgetter
from typing import Final, TypeVar

import msgspec
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import PubSubError, StoreUnavailable
from pubsub_lib.store import error_mapping, writer
from pubsub_lib.store.executor import OwnTransaction
from pubsub_lib.store.links import Commit
from pubsub_lib.store.verbs import Encode, Identity
from pubsub_lib.store.writer import Outcome, Review, Work

_COMMIT: Final = attrgetter("commit")
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
Announce = Callable[[Sequence[Commit | None]], None]
"""Gets the commits of a group's works right before the COMMIT is sent; raises an error of this library to roll back."""


def _failed(error: PubSubError, outcomes: Sequence[Outcome], doubt: bool) -> list[Attempt]:
    """The attempts of works whose transaction failed. Each thread gets an error object of its own."""
    if len(outcomes) == 1:
        return [Attempt(error=error, doubt=outcomes[0].commit if doubt else None)]
    attempts = []
    for each in outcomes:
        own = copy(error)
        own.__cause__ = error
        attempts.append(Attempt(error=own, shared=True, doubt=each.commit if doubt else None))
    return attempts


class Execution:
    """Executes works in one database transaction."""

    def __init__(self, engine: Callable[[], Engine], limits: Limits, encode: Encode) -> None:
        self._engine = engine
        self._limits = limits
        self._encode = encode

    def alone(self, work: Work, review: Review) -> Attempt:
        """Execute one work, whose effects are given to ``review``."""
        attempts: list[Attempt] = []
        self._execute([work], attempts, review)
        return attempts[0]

    def together(self, works: Sequence[Work], attempts: list[Attempt], announce: Announce | None = None) -> None:
        """Execute works as :data:`Execute`, without a review."""
        self._execute(works, attempts, list, announce)

    def _execute(
        self, works: Sequence[Work], attempts: list[Attempt], review: Review, announce: Announce | None = None
    ) -> None:
        outcomes = [Outcome()] * len(works)
        doubt = False
        try:
            with OwnTransaction(self._engine()) as transaction:
                outcomes = writer.write_together(transaction, works, self._encode, self._limits, review)
                if any(map(_COMMIT, outcomes)):
                    if announce is not None:
                        announce([each.commit for each in outcomes])
                    doubt = True
                    try:
                        transaction.commit()
                    except SQLAlchemyError as error:
                        if error_mapping.is_refused(error):
                            doubt = False
                            raise
                        # For any other error: look up the transaction before it is tried again.
                        raise StoreUnavailable(f"COMMIT ended without an answer ({error})") from error
                else:
                    transaction.rollback()
            attempts[:] = [Attempt(each.commit, each.error) for each in outcomes]
        except PubSubError as error:
            attempts[:] = _failed(error, outcomes, doubt)
        except error_mapping.FOREIGN as error:
            mapped = error_mapping.translate(error, "writing a transaction")
            mapped.__cause__ = error
            attempts[:] = _failed(mapped, outcomes, doubt)
        except BaseException:
            interrupted = StoreUnavailable("the thread that executed the transaction was interrupted")
            attempts[:] = _failed(interrupted, outcomes, doubt)
            raise


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
        self._inside: set[int] = set()
        """The threads that are in :meth:`run`."""

    @property
    def inside(self) -> bool:
        """Whether this thread is in :meth:`run` already, and a signal handler calls. The handler cannot wait for its
        turn, which comes after that of the call that it interrupted.
        """
        return threading.get_ident() in self._inside

    def run(self, work: Work) -> Attempt:
        """Commit ``work``, possibly together with others. Blocks for the groups before and its own. Not for a thread
        that is :attr:`inside`.
        """
        thread = threading.get_ident()
        try:
            self._inside.add(thread)
            return self._run(work)
        finally:
            self._inside.discard(thread)

    def _run(self, work: Work) -> Attempt:
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
        if self._leader == threading.get_ident():
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
