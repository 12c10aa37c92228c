"""A replica finds publishers in the directory: it listens to those that are there, besides the configured ones."""

from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from pubsub_lib.errors import PubSubError
from pubsub_lib.logs import fields, logger
from pubsub_lib.runtime.loop import Loop

_log = logger(__name__)

MISSED: Final = 3
"""An address that was not in the directory so many times in a row is left: a restart, or an entry that was collected
while its service lived, costs no connection."""


class Entry(Protocol):
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


class Discovery:
    """Looks into the directory every ``interval`` seconds, on a thread of its own.

    While the directory cannot be read, everything stays as it is. ``configured`` addresses are never left; the driver
    listens to them from its start.
    """

    def __init__(
        self,
        live: Callable[[], Sequence[Entry]],
        subscriber: Listens,
        configured: Collection[str],
        interval: float,
    ) -> None:
        """``live()`` reads the directory; it blocks and raises StoreError."""
        self._live = live
        self._subscriber = subscriber
        self._configured = frozenset(configured)
        self._interval = interval
        self._missed: dict[str, int] = {}
        """Addresses that are listened to, and how often in a row they were not in the directory."""
        self._refused: frozenset[str] = frozenset()
        self._closing = False
        self._loop = Loop("discovery", self.step)

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
        """Look once; when to look again. Blocks for the database; raises StoreError."""
        found = {entry.address for entry in self._live() if entry.address} - self._configured
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
