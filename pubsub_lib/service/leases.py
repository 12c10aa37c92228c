"""Registration and leases: the entry in the directory, and the leases for work that only one service should do."""

import threading
import time
from collections.abc import Collection, Sequence
from typing import Final, Protocol

from pubsub_lib.core.lease import Lease
from pubsub_lib.core.leased_publishers import ORIGIN
from pubsub_lib.errors import PubSubError, TransportError
from pubsub_lib.logs import logger
from pubsub_lib.service.name_conflicts import NameConflicts, ServiceLease, lease_of
from pubsub_lib.threads.start import start_thread

_log = logger(__name__)

ORPHANS: Final = "orphans"
"""Publishing links whose origin has no live service."""
MAINTENANCE: Final = "maintenance"
"""Trimming the changelog and removing expired entries."""


class Entries(Protocol):
    """The used methods of :class:`pubsub_lib.store.directory.Directory`. All of them block and raise StoreError."""

    def register(
        self, service: str, uuid: str, address: str, lease_seconds: float, public_key: str = "", role: str = ORIGIN
    ) -> None:
        """Register a service or renew its entry."""

    def unregister(self, uuid: str) -> bool:
        """Remove the entry."""

    def live(self) -> Sequence[ServiceLease]:
        """The services whose lease has not expired."""

    def acquire(self, name: str, holder: str, seconds: float) -> bool:
        """Take or renew a lease."""

    def release(self, name: str, holder: str) -> bool:
        """Release a lease."""

    def holder(self, name: str) -> str | None:
        """The holder of a lease that has not expired."""


class Leases:
    """``step`` is called by one thread, the rest by any. The holder acts only while it is certain, by its own clock."""

    def __init__(
        self,
        directory: Entries,
        service: str,
        uuid: str,
        address: str,
        seconds: float,
        now: float,
        public_key: str = "",
        role: str = ORIGIN,
    ) -> None:
        """A service of another role than ``origin`` takes no lease for work on the changelog."""
        self._directory = directory
        self._service = service
        self._uuid = uuid
        self.address = address
        """For the entry; it may be changed until the first step."""
        self._seconds = seconds
        self._public_key = public_key
        self._role = role
        self._entry = Lease(seconds, now)
        self._named = {name: Lease(seconds, now) for name in ((ORPHANS, MAINTENANCE) if role == ORIGIN else ())}
        self._live: frozenset[str] = frozenset()
        self._name = lease_of(service)
        self.last_reading: tuple[Sequence[ServiceLease], float] = (), float("-inf")
        """The last reading of the live services, and when it began."""
        self.name_conflicts = NameConflicts(service, uuid)
        """Other services under our name."""

    def step(self, now: float) -> float:
        """Renew the due leases; returns the time of the next step. Blocks for the database; raises StoreError."""
        if self._entry.due(now):
            self._entry.asked(now)
            # ``register`` also renews: an entry that was removed while the database was unreachable is back at once.
            self._directory.register(
                self._service, self._uuid, self.address, self._seconds, self._public_key, self._role
            )
            self._entry.granted(now)
            # After ``register``, so that the holder of the name is in the directory for services that do not get it.
            mine = self._directory.acquire(self._name, self._uuid, self._seconds)
            holder = self._uuid if mine else self._directory.holder(self._name)
            read_at = time.monotonic()
            live = self._directory.live()
            self.last_reading = live, read_at
            self.name_conflicts.seen(live, holder)
        for name, lease in self._named.items():
            if lease.due(now):
                self._renew(name, lease)
        return min(lease.next_time() for lease in (self._entry, *self._named.values()))

    def registered(self, now: float) -> bool:
        """Whether this service's entry certainly exists."""
        return self._entry.held(now)

    def holds(self, name: str, now: float) -> bool:
        """Whether it is certain that no other service holds this lease. Check it right before every guarded action."""
        return self._named[name].held(now)

    def orphans(self, now: float) -> tuple[Collection[str], bool]:
        """The names of the live services, and whether this one holds the lease for the others' links."""
        return self._live, self.holds(ORPHANS, now)

    def leave(self) -> None:
        """Release the entry and all leases, so that other services need not wait until they expire. Blocks for the
        database; raises StoreError.
        """
        self._directory.unregister(self._uuid)
        for name in (*self._named, self._name):
            self._directory.release(name, self._uuid)

    def leave_within(self, seconds: float) -> None:
        """``leave``, but wait at most ``seconds``; a failure is logged. In a daemon thread, which ends with the
        process: with a stopped server a query waits without end.
        """
        leaving = threading.Thread(target=self._leave, name="pubsub-leaving", daemon=True)
        try:
            start_thread(leaving)
        except TransportError as error:
            _log_expires(error)
            return
        leaving.join(seconds)
        if leaving.is_alive():
            _log_expires("the database does not answer")

    def _leave(self) -> None:
        try:
            self.leave()
        except PubSubError as error:
            _log_expires(error)

    def _renew(self, name: str, lease: Lease) -> None:
        asked = time.monotonic()
        lease.asked(asked)
        granted = self._directory.acquire(name, self._uuid, self._seconds)
        if granted and name == ORPHANS:
            # Read after the grant and before its use: with an old list, links of a new service would count as orphans.
            self._live = frozenset(each.service for each in self._directory.live())
        if granted:
            lease.granted(asked)
        else:
            lease.refused()


def _log_expires(why: object) -> None:
    _log.warning("cannot leave the directory; the entry expires by itself: %s", why)
