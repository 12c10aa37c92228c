"""Other services that live under our name. Two that share one would each take the other's links for its own, and
replicas would take one for a restart of the other, again and again.
"""

import hashlib
from collections.abc import Sequence
from typing import Final, Protocol

RENEWALS: Final = 2
"""Renewals that prove a life: one may have been under way to the database when its sender was killed."""


class ServiceLease(Protocol):
    """A service in the directory."""

    @property
    def service(self) -> str:
        """Its stable name."""

    @property
    def uuid(self) -> str:
        """Its identity since its start."""

    @property
    def address(self) -> str:
        """Where replicas reach it."""

    @property
    def lease_until(self) -> int:
        """When its lease ends, by the database's clock."""


def lease_of(service: str) -> str:
    """The lease that the one rightful service of this name holds; as short as a lease's name must be."""
    return f"name-{hashlib.blake2b(service.encode(), digest_size=16).hexdigest()}"


class NameConflicts:
    """Sans-I/O, not thread-safe. An entry alone proves nothing: that of a service that was killed ends by itself. One
    that is *renewed* has somebody behind it. Only ends of leases are compared, each with the same entry's earlier one:
    how long a reading took does not matter.

    Who must go is decided by a lease on the name, which the database gives to one of them: so not both stay of two
    that start together, and not both go. An entry with our own address is no exception: a configuration that was
    copied to another host, address and all, is how most namesakes come to be.
    """

    def __init__(self, service: str, uuid: str) -> None:
        self._service = service
        self._uuid = uuid
        self._ends: dict[str, int] = {}
        self._renewals: dict[str, int] = {}
        self.older: ServiceLease | None = None
        """One that lives and holds the name: we must go."""
        self.younger: ServiceLease | None = None
        """One that lives and does not hold the name; it should go."""

    def seen(self, entries: Sequence[ServiceLease], holder: str | None) -> None:
        """What the directory holds, and the UUID that holds the lease on our name: ours, another's or none."""
        others = {each.uuid: each for each in entries if each.service == self._service and each.uuid != self._uuid}
        self._renewals = {
            uuid: self._renewals.get(uuid, 0) + (each.lease_until > self._ends.get(uuid, each.lease_until))
            for uuid, each in others.items()
        }
        self._ends = {uuid: each.lease_until for uuid, each in others.items()}
        older = others.get(holder or "")
        self.older = older if older is not None and self._renewals[older.uuid] >= RENEWALS else None
        self.younger = next(
            (each for uuid, each in others.items() if holder == self._uuid and self._renewals[uuid] > 0), None
        )
