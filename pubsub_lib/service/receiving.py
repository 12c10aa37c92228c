"""The service's end of the hop: links from workers are sent at once, on the driver's receiving thread."""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from pubsub_lib.api import Subscriber
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.foreign_stores import ForeignStores
from pubsub_lib.core.handoffs import Worker
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, Link
from pubsub_lib.failpoints import hit
from pubsub_lib.journal import Journal
from pubsub_lib.logs import fields, logger
from pubsub_lib.service.reassembly import Reassembly

_log = logger(__name__)

_REJECTED: Final = ("truncated", "oversized", "version", "foreign", "overflow", "incomplete")


class TakesLinks(Protocol):
    """Receives complete links: :class:`pubsub_lib.service.outgoing.Outgoing`."""

    def handed_over(self, links: list[Link], worker: Worker | None = None) -> None:
        """Send the links that were not sent yet. ``worker``: the process that handed them over."""


class Receiving:
    """Receives from this host's workers. ``start`` and ``close`` are called by one thread, the rest by the driver's."""

    def __init__(
        self,
        subscriber: Subscriber,
        service: str,
        outgoing: TakesLinks,
        store_id: Callable[[], bytes],
        journal: Journal | None = None,
        limits: Limits = Limits(),  # noqa: B008 - frozen
    ) -> None:
        """``store_id`` returns the id of the service's store, as it was last read; it must not block."""
        self._subscriber = subscriber
        self._service = service
        self._outgoing = outgoing
        self._journal = journal
        self._assembly = Reassembly(limits)
        self._store_id = store_id
        self._stores = ForeignStores()
        self._strangers = 0
        self._foreign_store = 0

    def start(self) -> None:
        """Bind the socket. Raises TransportError, which names the holder when another service has it."""
        self._subscriber.initialize(self._on_envelope, lambda: None)
        self._subscriber.register_topic(ALL)
        self._subscriber.daemonize()

    def close(self) -> None:
        """Send the links that workers have already pushed, then release the socket; within 2 s."""
        self._subscriber.close()

    def counters(self) -> Mapping[str, int]:
        """The driver's counters, ``lost`` (messages that a worker sent and that were not received), ``incomplete``
        (large links with a missing part, or beyond the budget of bytes), ``strangers`` (messages of workers that name
        another service) and ``foreign_store`` (dropped messages of workers of another store).
        """
        assembly = self._assembly
        return {
            **self._subscriber.counters(),
            "lost": assembly.lost,
            "incomplete": assembly.given_up,
            "strangers": self._strangers,
            "foreign_store": self._foreign_store,
        }

    def rejected(self) -> Mapping[str, int]:
        """The counters of messages that were received and rejected."""
        return {why: number for why, number in self.counters().items() if why in _REJECTED}

    def _on_envelope(self, envelope: Envelope) -> None:
        hit("service.before_receive")
        own = self._store_id()
        if envelope.store_id != own:
            self._drop_foreign(envelope, own)
            return
        if envelope.service != self._service:
            # Sent nevertheless: it was committed. But this service does not read the changelog for that origin.
            self._strangers += 1
        links = self._assembly.feed(envelope)
        hit("service.after_receive")
        if links:
            if self._journal is not None:
                self._journal.links("taken", links)
            self._outgoing.handed_over(links, (envelope.service, envelope.uuid))

    def _drop_foreign(self, envelope: Envelope, own: bytes) -> None:
        """Drop a message of another store (rule 15). A link of the own store is published from the changelog."""
        self._foreign_store += max(1, len(envelope.messages))
        self._stores.identified(own)
        found = self._stores.first_message(envelope, 0.0)
        if found is not None:
            _log.warning(
                "a worker of the service %r with the UUID %s hands over links of another store (id %s, the store of "
                "this service has %s); they are dropped: give one of the two deployments another "
                "publisher_multiproc_socket, or run pubsub-db new-id if its database is a copy of the other",
                found.service,
                found.uuid,
                found.theirs.hex() or "none",
                own.hex(),
                extra=fields(service=found.service, uuid=found.uuid),
            )
