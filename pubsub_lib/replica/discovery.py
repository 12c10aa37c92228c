"""A replica finds publishers in the directory: it listens to those that are there, besides the configured ones."""

import ipaddress
import socket
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from pubsub_lib.errors import PubSubError
from pubsub_lib.logs import fields, logger
from pubsub_lib.threads.periodic_thread import PeriodicThread

_log = logger(__name__)

MISSED: Final = 3
"""An address that was not in the directory so many times in a row is left: a restart, or an entry that was collected
while its service lived, costs no connection."""


class DirectoryEntry(Protocol):
    """A live service in the directory."""

    @property
    def address(self) -> str:
        """Where it sends from; "" when it is not to be listened to."""


class Listens(Protocol):
    """The half of a driver that can be told where to listen."""

    def register_listen_address(self, address: str) -> None:
        """Also listen there. Idempotent."""

    def unregister_listen_address(self, address: str) -> None:
        """Stop listening there. Idempotent."""


def resolved(address: str) -> str:
    """``tcp://host:port`` with the host's number, when its name has exactly one; else, and of others, the address.

    A name with several numbers may stand for several publishers. Blocks for the look-up.
    """
    scheme, _, rest = address.partition("://")
    host, _, port = rest.rpartition(":")
    if scheme != "tcp" or not host or not port.isdecimal():
        return address
    try:
        return f"tcp://[{ipaddress.IPv6Address(host.strip('[]'))}]:{int(port)}"
    except ValueError:
        pass  # a name, or a number of version 4
    try:
        # Version 4 alone, as drivers look names up.
        found = {each[4][0] for each in socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)}
    except (OSError, UnicodeError):  # unknown, or its server is away: it is compared as it was written
        return address
    return f"tcp://{found.pop()}:{int(port)}" if len(found) == 1 else address


class Discovery:
    """Looks into the directory every ``interval`` seconds, on a thread of its own.

    While the directory cannot be read, everything stays as it is. ``configured`` addresses are never left; the driver
    listens to them from its start. A publisher that is configured by its host's name and entered by its number, or the
    other way round, is one publisher.
    """

    def __init__(
        self,
        live: Callable[[], Sequence[DirectoryEntry]],
        subscriber: Listens,
        configured: Collection[str],
        interval: float,
        resolve: Callable[[str], str] = resolved,
    ) -> None:
        """``live()`` reads the directory; it blocks and raises StoreError. ``resolve`` makes addresses comparable; it
        may block."""
        self._live = live
        self._subscriber = subscriber
        self._configured = frozenset(configured)
        self._interval = interval
        self._resolve = resolve
        self._missed: dict[str, int] = {}
        """Addresses that are listened to, and how often in a row they were not in the directory."""
        self._refused: frozenset[str] = frozenset()
        self._closing = False
        self._loop = PeriodicThread("discovery", self.step)

    @property
    def addresses(self) -> tuple[str, ...]:
        """What was found and is listened to. Any thread."""
        return tuple(sorted(self._missed))

    def start(self) -> None:
        """Begin to look."""
        self._loop.start()

    def close(self, timeout: float) -> None:
        """Stop; waits so many seconds for a reading that runs."""
        self._closing = True
        self._loop.close(timeout)

    def step(self, now: float) -> float:
        """Look once; when to look again. Blocks for the database and for names; raises StoreError."""
        found = self._others({entry.address for entry in self._live() if entry.address})
        for address in sorted(found):
            if address in self._missed or self._listen(address):
                self._missed[address] = 0
        for address in sorted(self._missed.keys() - found):
            self._missed[address] += 1
            if self._missed[address] >= MISSED:
                del self._missed[address]
                self._subscriber.unregister_listen_address(address)
                _log.info(
                    "no longer listening to the publisher at %s: it left the directory",
                    address,
                    extra=fields(address=address),
                )
        return now + self._interval

    def _others(self, entered: set[str]) -> set[str]:
        """Without those that are configured, however they are written."""
        found = entered - self._configured
        if found and self._configured:
            # Each time anew: names lead elsewhere, or could not be looked up.
            configured = {self._resolve(each) for each in self._configured}
            found = {each for each in found if self._resolve(each) not in configured}
        return found

    def _listen(self, address: str) -> bool:
        try:
            self._subscriber.register_listen_address(address)
        except PubSubError as error:
            if self._closing:
                return False  # so is the subscriber
            # Somebody entered what this driver cannot use: said once, and the others are still found.
            if address not in self._refused:
                self._refused |= {address}
                _log.warning("cannot listen to the publisher at %s: %s", address, error, extra=fields(address=address))
            return False
        _log.info("listening to the publisher at %s, found in the directory", address, extra=fields(address=address))
        return True
