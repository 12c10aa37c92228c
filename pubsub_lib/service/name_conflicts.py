"""Detects other live services with this service's name. Two services with one name would each take the other's links
for its own, and replicas would take one for a restart of the other, again and again.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from pubsub_lib.errors import ConfigError

RENEWALS: Final = 2
"""Number of renewals that prove a live service: one may have been under way when its sender was killed."""


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
        """The end of its lease, by the database's clock."""

    @property
    def seconds_left(self) -> float:
        """Seconds from the reading to the end of its lease."""

    @property
    def role(self) -> str:
        """``origin``, or ``relay``."""


def lease_of(service: str) -> str:
    """The name of the lease that one service of this name holds; hashed, because a lease's name must be short."""
    return f"name-{hashlib.blake2b(service.encode(), digest_size=16).hexdigest()}"


def conflict(other: ServiceLease) -> ConfigError:
    """The error about another live service with the same name."""
    return ConfigError(
        f"another live service has the name {other.service!r}, at {other.address or 'no address'}; give each service a "
        "name of its own: set service_name in [pubsub]"
    )


class Renewals:
    """Counts how often each entry was renewed. Only ends of leases are compared, each with the same entry's earlier
    end: so the duration of a reading does not matter. Sans-I/O, not thread-safe.
    """

    def __init__(self) -> None:
        self._ends: dict[str, int] = {}
        self._counts: dict[str, int] = {}

    def seen(self, entries: Iterable[ServiceLease]) -> Mapping[str, int]:
        """Process a reading of these entries. Returns the renewals of each, by UUID; others are forgotten."""
        ends = {each.uuid: each.lease_until for each in entries}
        self._counts = {
            uuid: self._counts.get(uuid, 0) + (end > self._ends.get(uuid, end)) for uuid, end in ends.items()
        }
        self._ends = ends
        return self._counts


class NameConflicts:
    """Sans-I/O, not thread-safe. An entry alone does not prove a live service: the entry of a killed one stays until it
    expires. A *renewed* entry belongs to a live service.

    A lease on the name, which the database grants to one service, decides which service stops: of two that start
    together exactly one continues. An entry with this service's address is no exception: most name conflicts come from
    a configuration that was copied to another host, address included.
    """

    def __init__(self, service: str, uuid: str) -> None:
        self._service = service
        self._uuid = uuid
        self._renewals = Renewals()
        self.older: ServiceLease | None = None
        """A live service that holds the name: this service must stop."""
        self.younger: ServiceLease | None = None
        """A live service that does not hold the name; it should stop."""

    def failure(self) -> ConfigError | None:
        """Why this service must stop, if it must."""
        return None if self.older is None else conflict(self.older)

    def problems(self) -> list[str]:
        """A sentence about the service that should stop, if there is one."""
        if self.younger is None:
            return []
        return [f"another service {self._service!r} is registered at {self.younger.address}; give it another name"]

    def seen(self, entries: Sequence[ServiceLease], holder: str | None) -> None:
        """Process the directory's entries, and the UUID that holds the lease on the name: ours, another's or none."""
        others = {each.uuid: each for each in entries if each.service == self._service and each.uuid != self._uuid}
        renewals = self._renewals.seen(others.values())
        older = others.get(holder or "")
        self.older = older if older is not None and renewals[older.uuid] >= RENEWALS else None
        self.younger = next(
            (each for uuid, each in others.items() if holder == self._uuid and renewals[uuid] > 0), None
        )
