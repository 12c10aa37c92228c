"""Discovery of publishers: a replica also listens to the publishers that are registered in the directory."""

import ipaddress
import random
import socket
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

from pubsub_lib.api import Subscriber
from pubsub_lib.core.backoff import doubled
from pubsub_lib.core.leased_publishers import RELAY
from pubsub_lib.errors import PubSubError
from pubsub_lib.logs import fields, logger
from pubsub_lib.settings import Settings
from pubsub_lib.threads.periodic_thread import PeriodicThread

_log = logger(__name__)

MAX_MISSED: Final = 3
"""The replica disconnects from an address after this number of readings in a row without it in the directory. So a
restart, or an entry that was removed while its service ran, does not end a connection."""


RETRY: Final = 1.0
"""Seconds between a handshake without the expected key and the next reading of the directory."""
FIRST_PAUSE: Final = 0.5
"""Maximum seconds between a reading that failed, after one that did not, and the next one."""


class DirectoryEntry(Protocol):
    """A live service in the directory."""

    @property
    def uuid(self) -> str:
        """The identity of this start of the service, as in its messages."""

    @property
    def address(self) -> str:
        """The publisher's address; "" when replicas must not listen to it."""

    @property
    def public_key(self) -> str:
        """The publisher's public key; "" for a publisher without keys."""

    @property
    def lease_until(self) -> int:
        """The end of the publisher's lease."""

    @property
    def role(self) -> str:
        """``origin``, or ``relay``: replicas listen to a relay only by ``parents``."""


class Listens(Protocol):
    """The methods of a driver's subscriber that set its publishers."""

    def register_listen_address(self, address: str) -> None:
        """Also listen to this address. Idempotent."""

    def unregister_listen_address(self, address: str) -> None:
        """Stop listening to this address. Idempotent."""

    def know_publishers(self, uuids: Collection[str]) -> None:
        """These publishers have live leases, and no others."""


class Pins(Protocol):
    """The methods of a driver's subscriber with keys."""

    def pin_key(self, address: str, public_key: str) -> None:
        """The publisher at this address has this key."""

    def counters(self) -> Mapping[str, int]:
        """Among them ``unproven``: handshakes without the expected key."""


def resolved(address: str) -> str:
    """``tcp://host:port`` with the host's IP address, when the name has exactly one; any other address unchanged.

    A name with several IP addresses may mean several publishers. Blocks for the look-up.
    """
    scheme, _, rest = address.partition("://")
    host, _, port = rest.rpartition(":")
    if scheme != "tcp" or not host or not port.isdecimal():
        return address
    try:
        return f"tcp://[{ipaddress.IPv6Address(host.strip('[]'))}]:{int(port)}"
    except ValueError:
        pass  # a name, or an IPv4 address
    try:
        # Only IPv4, as the drivers do.
        found = {each[4][0] for each in socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)}
    except (OSError, UnicodeError):  # unknown name or name server unavailable: compare the unresolved address
        return address
    return f"tcp://{found.pop()}:{int(port)}" if len(found) == 1 else address


def discovery_of(
    settings: Settings, live: Callable[[], Sequence[DirectoryEntry]], subscriber: Subscriber
) -> "Discovery":
    """The discovery of these settings. ``live()`` reads the directory."""
    pins, fixed = subscriber if settings.keys else None, settings.fixed_addresses
    return Discovery(live, subscriber, fixed, settings.discovery_interval, pins=pins, parents=settings.parents)


class Discovery:
    """Reads the directory every ``interval`` seconds, on its own thread.

    While the directory cannot be read, nothing changes, and it is read again after pauses that double up to
    ``interval``: many replicas must not delay the recovery of their database. ``configured`` addresses are never
    removed; the driver listens to them from its start. A publisher that is configured by host name and registered by IP
    address, or the reverse, is one publisher.

    With keys, only publishers with a key in the directory are used, each with this key. A publisher has a new key after
    each start. So the directory is also read within ``RETRY`` seconds of a handshake without the expected key. Such an
    extra reading ends no connection: several may come within seconds, while a publisher starts again.
    """

    def __init__(
        self,
        live: Callable[[], Sequence[DirectoryEntry]],
        subscriber: Listens,
        configured: Collection[str],
        interval: float,
        resolve: Callable[[str], str] = resolved,
        pins: Pins | None = None,
        parents: Collection[str] = (),
        rng: random.Random | None = None,
    ) -> None:
        """``live()`` reads the directory; it blocks and raises StoreError. ``resolve`` makes addresses comparable; it
        may block. ``pins``: the subscriber, with keys. ``parents``: with them, only the leases and the parents' keys
        are used; the subscriber listens to a parent by itself. ``rng`` makes jitter; None: the system's."""
        self._live = live
        self._subscriber = subscriber
        self._configured = frozenset(configured)
        self._interval = interval
        self._resolve = resolve
        self._pins = pins
        self._parents = frozenset(parents)
        self._unproven = 0
        self._missed: dict[str, int] = {}
        """The found addresses, and the number of readings in a row in which they were missing."""
        self._readings = 0
        self._renewed: dict[str, tuple[int, int]] = {}
        """By UUID: the number of the reading that first had this end of the lease, and the end."""
        self._refused: frozenset[str] = frozenset()
        self._closing = False
        self._woken = threading.Event()
        self._regular_at = float("-inf")
        self._on_read: Callable[[Sequence[str]], None] = lambda uuids: None
        self._rng = random.SystemRandom() if rng is None else rng
        self._failures = 0
        """Readings in a row that failed."""
        self._loop = PeriodicThread("discovery", self.step, self.pause)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The found addresses, to which the subscriber listens. Any thread."""
        return tuple(sorted(self._missed))

    def start(self, on_read: Callable[[Sequence[str]], None] | None = None) -> None:
        """Start the thread. ``on_read``: called on it after each reading, with the UUIDs of the live services."""
        if on_read is not None:
            self._on_read = on_read
        self._loop.start()

    def wake(self) -> None:
        """Read the directory now, besides the regular readings. Any thread, does not block."""
        self._woken.set()
        self._loop.wake()

    def close(self, timeout: float) -> None:
        """Stop; waits at most ``timeout`` seconds for a running step."""
        self._closing = True
        self._loop.close(timeout)

    def step(self, now: float) -> float:
        """Read the directory once; returns the next step's time. Blocks for database and names; raises StoreError."""
        woken = self._woken.is_set()
        unproven = 0 if self._pins is None else self._pins.counters().get("unproven", 0)
        extra = now < self._regular_at and (woken or unproven != self._unproven)
        if self._pins is not None and not extra and now < self._regular_at:
            return min(now + RETRY, self._regular_at)
        self._woken.clear()  # before the reading: a later wake is about what is not read yet
        try:
            self._read(extra)
        except BaseException:
            self._failures += 1
            if woken:
                self._woken.set()  # the reading is still wanted
            raise
        self._failures = 0
        self._unproven = unproven
        if not extra:
            self._regular_at = now + self._interval
        return self._regular_at if self._pins is None else min(now + RETRY, self._regular_at)

    def pause(self) -> float:
        """Seconds until the next step after one that raised."""
        return doubled(FIRST_PAUSE, self._failures - 1, self._interval) * (1.0 + self._rng.random()) / 2

    def _read(self, extra: bool) -> None:
        """Read the directory, and listen to the publishers in it. An ``extra`` reading ends no connection."""
        live = self._live()
        uuids = [entry.uuid for entry in live]
        self._subscriber.know_publishers(uuids)
        self._on_read(uuids)
        if self._parents:
            if self._pins is not None:
                self._with_keys([entry for entry in live if entry.address in self._parents], self._pins)
            return
        entered = [entry for entry in live if entry.address and entry.role != RELAY]
        if self._pins is not None:
            entered = self._with_keys(entered, self._pins)
        found = self._others({entry.address for entry in entered})
        for address in sorted(found):
            if address in self._missed or self._listen(address):
                self._missed[address] = 0
        for address in () if extra else sorted(self._missed.keys() - found):
            self._missed[address] += 1
            if self._missed[address] >= MAX_MISSED:
                del self._missed[address]
                self._subscriber.unregister_listen_address(address)
                _log.info(
                    "no longer listening to the publisher at %s: it is not in the directory any more",
                    address,
                    extra=fields(address=address),
                )

    def _with_keys(self, entered: Sequence[DirectoryEntry], pins: Pins) -> list[DirectoryEntry]:
        """The entries with a key, which is pinned. Of several at one address the one that was renewed last counts: that
        of a killed publisher stays until its lease ends, which may be later than the end of a living one's lease.
        """
        self._readings += 1
        before, self._renewed = self._renewed, {}
        for entry in entered:
            last = before.get(entry.uuid, (0, -1))
            renewed = last[1] != entry.lease_until
            self._renewed[entry.uuid] = (self._readings, entry.lease_until) if renewed else last
        newest = {entry.address: entry for entry in sorted(entered, key=lambda entry: self._renewed[entry.uuid])}
        return [entry for entry in newest.values() if self._pin(entry, pins)]

    def _pin(self, entry: DirectoryEntry, pins: Pins) -> bool:
        """Whether the entry has a valid key. Another one is logged once, and does not affect the others."""
        reason = "it has no key; set keys = true there"
        if entry.public_key:
            try:
                pins.pin_key(entry.address, entry.public_key)
                return True
            except PubSubError as error:
                if self._closing:
                    return False  # the subscriber is closed too
                reason = f"{error}; restart that publisher, which then registers a new key"
        refused = f"{entry.address} {entry.public_key}"
        if refused not in self._refused:
            self._refused |= {refused}
            address = entry.address
            _log.warning("not listening to the publisher at %s: %s", address, reason, extra=fields(address=address))
        return False

    def _others(self, entered: set[str]) -> set[str]:
        """The registered addresses without the configured ones, compared by resolved address."""
        found = entered - self._configured
        if found and self._configured:
            # Resolved at each step: a name's address may change, or the last look-up may have failed.
            configured = {self._resolve(each) for each in self._configured}
            found = {each for each in found if self._resolve(each) not in configured}
        return found

    def _listen(self, address: str) -> bool:
        try:
            self._subscriber.register_listen_address(address)
        except PubSubError as error:
            if self._closing:
                return False  # the subscriber is closed too
            # The directory has an address that this driver cannot use. Log it once, and go on with the others.
            if address not in self._refused:
                self._refused |= {address}
                _log.warning("cannot listen to the publisher at %s: %s", address, error, extra=fields(address=address))
            return False
        _log.info("listening to the publisher at %s, found in the directory", address, extra=fields(address=address))
        return True
