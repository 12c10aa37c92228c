"""Being there: the entry in the directory, and the leases for work that one service at a time should do."""

import time
from collections.abc import Collection, Sequence
from typing import Final, Protocol

from pubsub_lib.core.lease import Lease
from pubsub_lib.service.name_conflicts import NameConflicts, ServiceLease, lease_of

ORPHANS: Final = "orphans"
"""Publishing links whose origin has no live service."""
MAINTENANCE: Final = "maintenance"
"""Trimming the changelog and removing ended entries."""


class Entries(Protocol):
    """What is needed of :class:`pubsub_lib.store.directory.Directory`. Everything blocks and raises StoreError."""

    def register(self, service: str, uuid: str, address: str, lease_seconds: float) -> None:
        """Enter or renew."""

    def unregister(self, uuid: str) -> bool:
        """Leave."""

    def live(self) -> Sequence[ServiceLease]:
        """Who is there."""

    def acquire(self, name: str, holder: str, seconds: float) -> bool:
        """Take or renew a lease."""

    def release(self, name: str, holder: str) -> bool:
        """Give a lease back."""

    def holder(self, name: str) -> str | None:
        """Who has a lease that has not ended."""


class Leases:
    """``step`` is called by one thread, the rest by any. The holder acts only while it is certain, by its own clock."""

    def __init__(self, directory: Entries, service: str, uuid: str, address: str, seconds: float, now: float) -> None:
        self._directory = directory
        self._service = service
        self._uuid = uuid
        self._address = address
        self._seconds = seconds
        self._entry = Lease(seconds, now)
        self._named = {name: Lease(seconds, now) for name in (ORPHANS, MAINTENANCE)}
        self._live: frozenset[str] = frozenset()
        self._name = lease_of(service)
        self.name_conflicts = NameConflicts(service, uuid)
        """Other services under our name."""

    def step(self, now: float) -> float:
        """Renew what is due; when to come again. Blocks for the database; raises StoreError."""
        if self._entry.due(now):
            self._entry.asked(now)
            # Entering is renewing: an entry that somebody collected while we were away is back at once.
            self._directory.register(self._service, self._uuid, self._address, self._seconds)
            self._entry.granted(now)
            # After entering, so that whoever gets the name is in the directory for those who do not.
            mine = self._directory.acquire(self._name, self._uuid, self._seconds)
            holder = self._uuid if mine else self._directory.holder(self._name)
            self.name_conflicts.seen(self._directory.live(), holder)
        for name, lease in self._named.items():
            if lease.due(now):
                self._renew(name, lease)
        return min(lease.next_time() for lease in (self._entry, *self._named.values()))

    def registered(self, now: float) -> bool:
        """Whether the own entry is certain to be there."""
        return self._entry.held(now)

    def holds(self, name: str, now: float) -> bool:
        """Whether it is certain that nobody else holds this lease. Ask right before every act under it."""
        return self._named[name].held(now)

    def orphans(self, now: float) -> tuple[Collection[str], bool]:
        """The names of the live services, and whether this one holds the lease for the others' links."""
        return self._live, self.holds(ORPHANS, now)

    def leave(self) -> None:
        """Give everything back, so that others need not wait for an end. Blocks for the database; raises StoreError."""
        self._directory.unregister(self._uuid)
        for name in (*self._named, self._name):
            self._directory.release(name, self._uuid)

    def _renew(self, name: str, lease: Lease) -> None:
        asked = time.monotonic()
        lease.asked(asked)
        granted = self._directory.acquire(name, self._uuid, self._seconds)
        if granted and name == ORPHANS:
            # Read after the grant and before its use: an old list would take a newcomer's links for orphans.
            self._live = frozenset(each.service for each in self._directory.live())
        if granted:
            lease.granted(asked)
        else:
            lease.refused()
