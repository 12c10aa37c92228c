"""The directory's entry of a program's own publisher. With keys also the clients, who alone may connect."""

import threading
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from pubsub_lib import loader
from pubsub_lib.api import Client
from pubsub_lib.api import Publisher as DriverPublisher
from pubsub_lib.config.pubsub import binds_every_interface
from pubsub_lib.errors import ConfigError, PubSubError, TransportError, UsageError
from pubsub_lib.free_port import has_free_port
from pubsub_lib.logs import logger
from pubsub_lib.settings import Settings
from pubsub_lib.threads.periodic_thread import PeriodicThread
from pubsub_lib.threads.start import start_thread

_log = logger(__name__)

LEASE: Final = 10.0
"""Seconds for which the entry of a program's own publisher is valid after its last renewal."""
_NEVER_YET: Final = float("-inf")
_LEAVE: Final = 0.5
"""Maximum seconds that closing waits for the database."""


class Clients(Protocol):
    """The used method of :class:`pubsub_lib.store.clients.Clients`."""

    def all(self) -> Sequence[Client]:
        """All clients. Blocks; raises StoreError."""


class Entries(Protocol):
    """The used part of :class:`pubsub_lib.store.directory.Directory`. The methods block and raise StoreError."""

    @property
    def clients(self) -> Clients:
        """The clients."""

    def register(self, service: str, uuid: str, address: str, lease_seconds: float, public_key: str = "") -> None:
        """Register a service or renew its entry."""

    def unregister(self, uuid: str) -> bool:
        """Remove the entry."""


class Entry(msgspec.Struct, frozen=True):
    """The directory's entry of a program's own publisher: replicas use only messages of publishers with an entry."""

    service: str
    uuid: str
    address: str = ""
    """"" without keys: replicas then do not find the publisher in the directory."""
    public_key: str = ""


class Admission:
    """A thread that renews the entry. With keys it also reads the clients, every ``interval`` seconds; the last ones
    stay while they cannot be read.
    """

    def __init__(
        self, directory: Entries, driver: DriverPublisher | None, interval: float, entry: Entry | None
    ) -> None:
        """``driver``: receives the clients; None without keys. ``entry``: None when the caller makes it."""
        self._directory = directory
        self._driver = driver
        self._interval = interval
        self._entry = entry
        self._renew_at = _NEVER_YET
        self._clients: frozenset[Client] | None = None
        self._loop = PeriodicThread("entry" if driver is None else "clients", self.step)

    def start(self) -> None:
        """Start the thread; it makes the entry at once."""
        self._loop.start()

    def close(self) -> None:
        """Stop, and remove the entry; without an answer of the database it expires by itself. Takes at most 1 s."""
        self._loop.close(_LEAVE)
        if self._entry is not None and self._renew_at != _NEVER_YET:
            # A daemon thread, because with a stopped server a query waits without end.
            leaving = threading.Thread(target=self._leave, args=(self._entry,), name="pubsub-leaving", daemon=True)
            try:
                start_thread(leaving)
            except TransportError as error:
                _log_expires(error)
            else:
                leaving.join(_LEAVE)

    @property
    def clients(self) -> frozenset[Client]:
        """The clients of the last reading; empty before the first one. Any thread, does not block."""
        return self._clients or frozenset()

    def is_stale(self, now: float) -> bool:
        """Whether the clients have not been read for a while. Any thread, does not block."""
        return now - self._loop.last_success > max(LEASE, 3 * self._interval)

    def step(self, now: float) -> float:
        """Renew the entry when it is due, and read the clients; returns the time of the next step. Blocks for the
        database; raises StoreError.
        """
        if self._driver is not None:
            clients = frozenset(self._directory.clients.all())
            if clients != self._clients:
                self._driver.admit(clients)
                self._clients = clients
        if self._entry is not None and now >= self._renew_at:
            own = self._entry
            self._renew_at = now  # ``close`` must remove it
            self._directory.register(own.service, own.uuid, own.address, LEASE, own.public_key)
            self._renew_at = now + LEASE / 3
        return now + self._interval if self._entry is None else min(now + self._interval, self._renew_at)

    def _leave(self, own: Entry) -> None:
        try:
            self._directory.unregister(own.uuid)
        except PubSubError as error:
            _log_expires(error)


def _log_expires(error: PubSubError) -> None:
    _log.warning("cannot leave the directory; the entry expires by itself: %s", error)


def admission_of(settings: Settings, store: object, driver: DriverPublisher, own_uuid: str) -> Admission | None:
    """The admission of a publisher with keys, or one that only makes its entry; None without both. ``own_uuid``: enter
    the publisher in the directory. Replicas read the directory only for drivers whose publishers bind an address.

    Raises ConfigError for an own publisher with the port 0. With keys also for one whose address names no host, and
    UsageError for a store without a directory.
    """
    directory: Entries | None = getattr(store, "directory", None)
    if not settings.keys:
        if not own_uuid or directory is None or not loader.load(settings.driver).capabilities.bind_based:
            return None
        _check_port(settings)
        return Admission(directory, None, LEASE, Entry(settings.service_name, own_uuid))
    if directory is None:
        raise UsageError("keys = true needs the clients in the database; pass a Store to the publisher")
    entry = None
    if own_uuid:
        _check_port(settings)
        address = settings.bind_address
        if binds_every_interface(address.partition("://")[2].rpartition(":")[0]):
            raise ConfigError(
                f"replicas find a publisher with keys by its address in the directory, and {address} names no host; "
                "set publisher_bind_address in [pubsub] to this host's address"
            )
        entry = Entry(settings.service_name, own_uuid, address, driver.public_key())
    return Admission(directory, driver, settings.clients_interval, entry)


def _check_port(settings: Settings) -> None:
    if has_free_port(settings.bind_address):
        raise ConfigError(
            f"{settings.bind_address} has another port at each start, by which no replica finds a program's own "
            "publisher; set publisher_port in [pubsub], or run a publisher service"
        )
