"""A relay's full syncs from the database: relays that start together read it one after the other, two at a time.

A full sync reads all objects of a topic. With one lease for each reading the copies that leave the database at the same
time are bounded, however many relays start. Deltas, and repairs of some buckets, need no lease.
"""

import logging
import random
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol

from pubsub_lib.core.lease import Lease
from pubsub_lib.core.model import SyncAnswer, Want
from pubsub_lib.core.timing import Timing
from pubsub_lib.errors import PubSubError, StoreBusy
from pubsub_lib.logs import logger
from pubsub_lib.replica.sync_reader import ChannelReader, SyncReader, interrupt
from pubsub_lib.sync.client import Busy
from pubsub_lib.sync.question import SyncQuestion
from pubsub_lib.threads.periodic_thread import PeriodicThread

_log = logger(__name__)

LEASES: Final = ("full-sync-1", "full-sync-2")
"""Full syncs of relays that the database answers at the same time."""
MAX_WAIT: Final = 5.0
"""Maximum seconds that one sync waits for a lease. Then it fails, and the relay tries again after its backoff: the wait
is a part of the sync's time, and the reading needs the rest of it.
"""
LOOK: Final = 1.0
"""Mean seconds between two attempts. They are random, so that the waiting relays do not ask together."""


class NamedLeases(Protocol):
    """The used methods of :class:`pubsub_lib.store.directory.Directory`. They block and raise StoreError."""

    def acquire(self, name: str, holder: str, seconds: float) -> bool:
        """Take or renew a lease."""

    def release(self, name: str, holder: str) -> bool:
        """Release a lease."""


class Sibling(ChannelReader, Protocol):
    """Another relay's sync channel."""

    def forget(self) -> None:
        """Forget what is kept of an answer that broke off. The thread that calls ``ask``."""


class FullSyncReader:
    """Reads from the database, full syncs under one of :data:`LEASES`. One thread reads at a time; the rest is for any
    thread.

    ``seconds``: of a lease, which is renewed while the reading runs, so that the lease of a killed relay ends soon.
    ``wait``: see :data:`MAX_WAIT`. ``siblings``: relays that may have the objects already, which are asked first. Then
    only the first lease is used: one of them reads the database, and the others read from that one.
    """

    def __init__(
        self,
        database: SyncReader,
        leases: NamedLeases,
        seconds: float,
        wait: float = MAX_WAIT,
        siblings: Sibling | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._database = database
        self._leases = leases
        self._seconds = seconds
        self._wait = wait
        self._siblings = siblings
        self._used = LEASES if siblings is None else LEASES[:1]
        self._rng = rng if rng is not None else random.SystemRandom()
        self._holder = uuid.uuid4().hex
        self._closing = threading.Event()
        self._sibling_answered = False
        """Whether the last full sync was answered by a sibling."""
        self.holds = False
        """Whether a full sync from the database runs."""
        self.waits = False
        """Whether the relay needs all objects of a topic, and waits for a lease."""

    def problems(self) -> list[str]:
        """Why a full sync does not run; empty when none waits."""
        waits = (
            f"the relay waits for the lease {LEASES[0]} for reading all objects from the database; another relay has it"
            if len(self._used) == 1
            else f"the relay waits for one of the {len(LEASES)} leases for reading all objects from the database; "
            "other relays have them"
        )
        return [waits] if self.waits else []

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        """Read from the database without a lease: the option ``paranoid`` of tests compares the relay with it."""
        return self._database.read_sync(wants)

    def ask(self, question: SyncQuestion) -> SyncAnswer:
        """Read what is wanted. Blocks, for ``wait`` longer than the reading; raises StoreError; Busy when no
        lease is free.
        """
        if not any(is_full(want) for want in question.wants.values()):
            self.waits = False
            return self._database.read_sync(question.wants)
        until = time.monotonic() + self._wait
        level, held = logging.INFO, False
        while True:
            found, comes = self._asked_siblings(question, level)
            level = logging.DEBUG
            if found is not None:
                self.waits, self._sibling_answered = False, True
                return found
            # The relay that had the lease has read the database. A sibling will have the objects in a moment.
            asked, name = time.monotonic(), None if held and comes else self._taken()
            if name is not None:
                self.waits = self._sibling_answered = False
                with self._held(name, asked):
                    found = self._database.read_sync(question.wants)
                if self._siblings is not None:
                    self._siblings.forget()
                return found
            self.waits = held = True
            if self._closing.wait(self._rng.uniform(0.5, 1.5) * LOOK) or time.monotonic() >= until:
                raise self._all_held()

    def _all_held(self) -> Busy:
        held = (
            f"the lease {LEASES[0]} for reading all objects from the database is held by another relay"
            if len(self._used) == 1
            else f"the {len(LEASES)} leases for reading all objects from the database are held by other relays"
        )
        return Busy(held, LOOK)

    def close(self) -> None:
        """End a wait and a question to a sibling, and refuse all later ones. A query that runs ends by its timeout."""
        self._closing.set()
        interrupt(self._database)
        if self._siblings is not None:
            self._siblings.close()

    def _asked_siblings(self, question: SyncQuestion, level: int) -> tuple[SyncAnswer | None, bool]:
        """A sibling's answer, or whether one runs and will have the objects.

        No answer twice in succession: one that is older than what the relay has (rule R3), or that lacks a topic, is
        requested again at once, and would be so for ever.
        """
        if self._siblings is None or self._sibling_answered:
            return None, False
        try:
            return self._siblings.ask(question), False
        except PubSubError as error:
            _log.log(level, "no sibling answers a full sync: %s", error)
            return None, isinstance(error, Busy)

    def _taken(self) -> str | None:
        """The lease that was taken; None: others have all."""
        names = self._rng.sample(self._used, len(self._used))
        return next((name for name in names if self._take(name)), None)

    def _take(self, name: str) -> bool:
        try:
            return self._leases.acquire(name, self._holder, self._seconds)
        except StoreBusy as error:
            _log.debug("another relay takes the lease %s now: %s", name, error)
            return False

    @contextmanager
    def _held(self, name: str, asked: float) -> Iterator[None]:
        """Renew a lease, which was taken when ``asked``, until the block ends, and release it."""
        lease = Lease(self._seconds, asked)
        lease.asked(asked)

        def renew(now: float) -> float:
            if lease.due(now):
                lease.asked(now)
                if not self._leases.acquire(name, self._holder, self._seconds):
                    _log.warning("another relay has the lease %s, which ended during a full sync of this one", name)
            return lease.next_time()

        renewals = PeriodicThread("full-sync-lease", renew)
        renewals.start()
        self.holds = True
        try:
            yield
        finally:
            self.holds = False
            renewals.close(self._seconds)
            self._release(name)

    def _release(self, name: str) -> None:
        try:
            self._leases.release(name, self._holder)
        except PubSubError as error:
            if not self._closing.is_set():
                _log.warning("cannot release the lease %s, which expires by itself: %s", name, error)


def longest_wait(timing: Timing) -> float:
    """Seconds that one sync waits for a lease: at most a tenth of the time that it has."""
    return min(MAX_WAIT, timing.sync_timeout / 10)


def is_full(want: Want) -> bool:
    """Whether all objects are wanted, and not only links, or the buckets that differ."""
    return want.after is None and want.buckets is None
