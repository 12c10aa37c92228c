"""The service's end of the hop: links from workers are sent at once, on the driver's receiving thread."""

from collections.abc import Mapping
from typing import Final, Protocol

from pubsub_lib.api import Subscriber
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, Link
from pubsub_lib.failpoints import hit
from pubsub_lib.journal import Journal
from pubsub_lib.service.reassembly import Reassembly

_REJECTED: Final = ("truncated", "oversized", "version", "foreign", "overflow", "incomplete")


class TakesLinks(Protocol):
    """Receives complete links: :class:`pubsub_lib.service.outgoing.Outgoing`."""

    def handed_over(self, links: list[Link]) -> None:
        """Send the links that were not sent yet."""


class Receiving:
    """Receives from this host's workers. ``start`` and ``close`` are called by one thread, the rest by the driver's."""

    def __init__(
        self,
        subscriber: Subscriber,
        service: str,
        outgoing: TakesLinks,
        journal: Journal | None = None,
        limits: Limits = Limits(),  # noqa: B008 - frozen
    ) -> None:
        self._subscriber = subscriber
        self._service = service
        self._outgoing = outgoing
        self._journal = journal
        self._assembly = Reassembly(limits)
        self._strangers = 0

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
        (large links with a missing part, or beyond the budget of bytes) and ``strangers`` (messages of workers that
        name another service).
        """
        assembly = self._assembly
        return {
            **self._subscriber.counters(),
            "lost": assembly.lost,
            "incomplete": assembly.given_up,
            "strangers": self._strangers,
        }

    def rejected(self) -> Mapping[str, int]:
        """The counters of messages that were received and rejected."""
        return {why: number for why, number in self.counters().items() if why in _REJECTED}

    def _on_envelope(self, envelope: Envelope) -> None:
        hit("service.before_receive")
        if envelope.service != self._service:
            # Sent nevertheless: it was committed. But this service does not read the changelog for that origin.
            self._strangers += 1
        links = self._assembly.feed(envelope)
        hit("service.after_receive")
        if links:
            if self._journal is not None:
                self._journal.links("taken", links)
            self._outgoing.handed_over(links)
