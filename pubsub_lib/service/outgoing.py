"""The single send path of the service: links handed over by workers and links from the changelog, each link once."""

import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

from pubsub_lib.core.model import Link, Point
from pubsub_lib.core.unpublished_links import UnpublishedLinks
from pubsub_lib.errors import PubSubError
from pubsub_lib.failpoints import hit
from pubsub_lib.logs import fields, logger

_log = logger(__name__)

COUNTERS: Final = ("handed", "repeated", "followed", "took_over", "unsent")


class Publishes(Protocol):
    """Sends links: :class:`pubsub_lib.publisher.publisher.Publisher`."""

    def publish(self, links: Sequence[Link]) -> None:
        """Number and send these links. Raises TransportError, FrameError, ClosedError."""


class Outgoing:
    """Any thread. One lock around deciding and sending: a topic's links are sent in the order of the decisions."""

    def __init__(self, service: str, unpublished: UnpublishedLinks, publisher: Publishes) -> None:
        self._service = service
        self._unpublished = unpublished
        self._publisher = publisher
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))

    def handed_over(self, links: Sequence[Link]) -> None:
        """Send the links of a worker that were not sent yet. Blocks for at most about a second."""
        with self._lock:
            fresh = self._unpublished.handed_over(links)
            self._counts["handed"] += len(fresh)
            self._counts["repeated"] += len(links) - len(fresh)
            self._send(fresh)

    def in_changelog(self, links: Sequence[Link], now: float) -> None:
        """These links were read from the changelog, in commit order. Does not block."""
        with self._lock:
            self._unpublished.in_changelog(links, now)

    def passed(self, after: Point) -> Point:
        """The point up to which the changelog holds nothing to send after this one. Does not block."""
        with self._lock:
            return self._unpublished.passed(after)

    def due(self, now: float, live: Collection[str], holds_orphans: bool) -> None:
        """Send the links that this service must publish and that no worker handed over within the grace."""
        with self._lock:
            links = self._unpublished.due(now, live, holds_orphans)
            orphans = sum(link.origin != self._service for link in links)
            self._counts["followed"] += len(links) - orphans
            self._counts["took_over"] += orphans
            if orphans:
                hit("service.while_taking_over")
            self._send(links)

    def next_time(self) -> float:
        """The time of the next call of ``due``; infinite when no link waits."""
        with self._lock:
            return self._unpublished.next_time()

    def counters(self) -> Mapping[str, int]:
        """Links: ``handed`` over by workers, ``repeated`` (handed over, but sent before), ``followed`` (own, found in
        the changelog), ``took_over`` (orphans found there), ``unsent`` (the driver refused them).
        """
        return dict(self._counts)

    def _send(self, links: Sequence[Link]) -> None:
        if not links:
            return
        hit("service.before_send")
        try:
            self._publisher.publish(links)
        except PubSubError as error:
            # Not retried: the next hello shows the head, and replicas read the missing links from the store.
            self._counts["unsent"] += len(links)
            _log.warning(
                "%d links could not be sent; replicas will read them from the store: %s",
                len(links),
                error,
                extra=fields(links=len(links), position=links[-1].point.position),
            )
        hit("service.after_send")
