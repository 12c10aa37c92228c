"""Detects other live services with this service's name. Two services with one name would each take the other's links
for its own, and replicas would take one for a restart of the other, again and again.
"""

import hashlib
from collections.abc import Sequence
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


class NameConflicts:
    """Sans-I/O, not thread-safe. An entry alone does not prove a live service: the entry of a killed one stays until it
    expires. A *renewed* entry belongs to a live service. Only ends of leases are compared, each with the same entry's
    earlier end: so the duration of a reading does not matter.

    A lease on the name, which the database grants to one service, decides which service stops: of two that start
    together exactly one continues. An entry with this service's address is no exception: most name conflicts come from
    a configuration that was copied to another host, address included.
    """

    def __init__(self, service: str, uuid: str) -> None:
        self._service = service
        self._uuid = uuid
        self._ends: dict[str, int] = {}
        self._renewals: dict[str, int] = {}
        self.older: ServiceLease | None = None
        """A live service that holds the name: this service must stop."""
        self.younger: ServiceLease | None = None
        """A live service that does not hold the name; it should stop."""

    def failure(self) -> ConfigError | None:
        """Why this service must stop, if it must."""
        if self.older is None:
            return None
        return ConfigError(
            f"another live service has the name {self._service!r}, at {self.older.address}; give each service a name "
            "of its own: set service_name in [pubsub]"
        )

    def problems(self) -> list[str]:
        """A sentence about the service that should stop, if there is one."""
        if self.younger is None:
            return []
        return [f"another service {self._service!r} is registered at {self.younger.address}; give it another name"]

    def seen(self, entries: Sequence[ServiceLease], holder: str | None) -> None:
        """Process the directory's entries, and the UUID that holds the lease on the name: ours, another's or none."""
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
