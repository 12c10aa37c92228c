"""Service registry and exclusive named leases, all by the database's clock.

Hosts' clocks are never compared with each other: the end of a lease is computed and compared in SQL only. A lease does
not stop a paused holder from working on after the lease expired; guarded work must tolerate two holders for a moment.
"""

from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, delete, insert, select, update

from pubsub_lib.core.leased_publishers import ORIGIN
from pubsub_lib.core.limits import check_name
from pubsub_lib.curve_keys import check_key
from pubsub_lib.errors import InvalidValueError
from pubsub_lib.store import schema, writer
from pubsub_lib.store.clients import Clients
from pubsub_lib.store.connection_executor import ConnectionExecutor
from pubsub_lib.store.retry import Run
from pubsub_lib.store.types import NowMicroseconds

_MAX_ADDRESS_BYTES = 1024
_OWN = select(schema.store.c.store_id).where(schema.store.c.id == 1).scalar_subquery()


class Service(msgspec.Struct, frozen=True):
    """A service: stable name, identity since its last start, address, seconds until its lease expires."""

    service: str
    uuid: str
    address: str
    seconds_left: float
    lease_until: int = 0
    """The lease's end in microseconds of the database's clock; compare it only with other readings of that clock."""
    store_id: str = ""
    """The id of the store, in hex digits, when the service registered. Another one: the entry was copied with the
    database, and the service works on the original."""
    public_key: str = ""
    """The key that replicas accept at the address; "" for a publisher without keys."""
    role: str = ORIGIN
    """``origin``, or ``relay``."""


class Directory:
    """The store's ``directory``. Any thread; each method is one short transaction, and may be tried again."""

    def __init__(self, read: Run, write: Run) -> None:
        self._read = read
        self._write = write
        self.clients = Clients(read, write)
        """The clients of publishers with keys."""

    def register(
        self, service: str, uuid: str, address: str, lease_seconds: float, public_key: str = "", role: str = ORIGIN
    ) -> None:
        """Register a service, or renew and change its entry. Raises InvalidValueError."""
        check_name("service", service)
        check_name("uuid", uuid)
        if "\0" in address or len(address.encode(errors="replace")) > _MAX_ADDRESS_BYTES:
            raise InvalidValueError(
                f"the address {address[:40]!r} holds a NUL or is over {_MAX_ADDRESS_BYTES} bytes; shorten it"
            )
        if public_key:
            check_key(public_key)
        length = _microseconds(lease_seconds)

        def do(connection: Connection) -> None:
            now, own = connection.execute(select(NowMicroseconds(), _OWN)).one()
            row = {"uuid": uuid, "service": service, "address": address, "lease_until": now + length}
            row |= {"store_id": own or "", "public_key": public_key, "role": role}
            writer.upsert(ConnectionExecutor(connection), schema.services, row)

        self._write("registering a service", do)

    def unregister(self, uuid: str) -> bool:
        """Remove a service; False when it was not registered."""
        statement = delete(schema.services).where(schema.services.c.uuid == uuid)
        return self._write("removing a service", lambda connection: connection.execute(statement).rowcount > 0)

    def live(self) -> list[Service]:
        """The services of this store whose lease has not expired, by name and identity."""
        own, entries = self._entries()
        return [service for service in entries if service.seconds_left > 0 and service.store_id == own]

    def entries(self) -> list[Service]:
        """All entries that are not yet removed; also those with an expired lease (``seconds_left`` below 0), and
        those of another store from which this database was copied.
        """
        return self._entries()[1]

    def _entries(self) -> tuple[str, list[Service]]:
        """The store's id, and all entries."""
        services = schema.services.c
        query = select(schema.services, NowMicroseconds().label("now"), _OWN.label("own"))
        query = query.order_by(services.service, services.uuid)

        def do(connection: Connection) -> tuple[str, list[Service]]:
            found = connection.execute(query).all()
            return found[0].own if found else "", [
                Service(r.service, r.uuid, r.address, _left(r), r.lease_until, r.store_id, r.public_key, r.role)
                for r in found
            ]

        return self._read("reading the directory", do)

    def collect_garbage(self) -> int:
        """Remove expired services and named leases; returns how many."""

        def do(connection: Connection) -> int:
            return sum(
                connection.execute(delete(table).where(table.c.lease_until <= NowMicroseconds())).rowcount
                for table in (schema.services, schema.leases)
            )

        return self._write("collecting ended leases", do)

    def acquire(self, name: str, holder: str, seconds: float) -> bool:
        """Take or renew an exclusive lease. False: another holder has it. Raises InvalidValueError."""
        check_name("lease", name)
        check_name("holder", holder)
        leases = schema.leases.c
        take = (
            update(schema.leases)
            .where(leases.name == name, (leases.holder == holder) | (leases.lease_until <= NowMicroseconds()))
            .values(holder=holder, lease_until=_now_plus(seconds))
        )
        create = insert(schema.leases).values(name=name, holder=holder, lease_until=_now_plus(seconds))

        def do(connection: Connection) -> bool:
            if connection.execute(take).rowcount > 0:
                return True
            if connection.execute(select(leases.holder).where(leases.name == name)).one_or_none() is not None:
                return False
            # Of two callers at once, one fails on the primary key, and its retry finds the other's row.
            connection.execute(create)
            return True

        return self._write("taking a lease", do)

    def release(self, name: str, holder: str) -> bool:
        """Release a lease; False when this holder does not have it (any more)."""
        leases = schema.leases.c
        statement = delete(schema.leases).where(leases.name == name, leases.holder == holder)
        return self._write("releasing a lease", lambda connection: connection.execute(statement).rowcount > 0)

    def holder(self, name: str) -> str | None:
        """The holder of a lease that has not expired; None when no holder has it."""
        leases = schema.leases.c
        query = select(leases.holder).where(leases.name == name, leases.lease_until > NowMicroseconds())
        return self._read("reading a lease", lambda connection: connection.execute(query).scalar_one_or_none())


def _left(row: Row[Any]) -> float:
    return float((row.lease_until - row.now) / 1e6)


def _microseconds(seconds: float) -> int:
    if not 0 < seconds < 1e9:
        raise InvalidValueError(f"a lease of {seconds!r} seconds is not possible; give a positive number")
    return round(seconds * 1e6)


def _now_plus(seconds: float) -> ColumnElement[int]:
    return NowMicroseconds() + _microseconds(seconds)
