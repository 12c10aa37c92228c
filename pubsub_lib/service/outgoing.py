"""The single send path of the service: links handed over by workers and links from the changelog, each link once."""

import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.handoffs import SECONDS, Contradicted, Handoffs, LinkName, Worker, contents_of
from pubsub_lib.core.model import Link, Point
from pubsub_lib.core.unpublished_links import UnpublishedLinks
from pubsub_lib.errors import PubSubError
from pubsub_lib.failpoints import hit
from pubsub_lib.journal import Journal
from pubsub_lib.logs import fields, logger
from pubsub_lib.publisher.unsent import unsent

_log = logger(__name__)

COUNTERS: Final = ("handed", "repeated", "followed", "took_over", "unsent")


class Publishes(Protocol):
    """Sends links: :class:`pubsub_lib.publisher.publisher.Publisher`."""

    def publish(self, links: Sequence[Link], sent: list[Envelope]) -> None:
        """Number and send these links. The sent envelopes are added to ``sent``, also when an error is raised. Raises
        TransportError, FrameError, ClosedError.
        """


class Outgoing:
    """Any thread. One lock around deciding and sending: a topic's links are sent in the order of the decisions."""

    def __init__(
        self, service: str, unpublished: UnpublishedLinks, publisher: Publishes, journal: Journal | None = None
    ) -> None:
        self._service = service
        self._unpublished = unpublished
        self._publisher = publisher
        self._journal = journal
        self._handoffs = Handoffs(service)
        self._quarantined = 0
        self._doubted = 0
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))

    def handed_over(self, links: Sequence[Link], worker: Worker | None = None) -> None:
        """Send the links that were not sent yet. Blocks for at most about a second. ``worker``: the process that states
        that it committed them; None: this service did.
        """
        excluded: list[Contradicted] = []
        with self._lock:
            if worker is not None:
                if self._handoffs.excludes(worker[1]):
                    self._quarantined += len(links)
                    return  # what it committed is published from the changelog
                links, excluded = self._believed(links, worker)
            fresh = self._unpublished.handed_over(links, compared=worker is not None)
            self._counts["handed"] += len(fresh)
            self._counts["repeated"] += len(links) - len(fresh)
            self._send(fresh)
        self._report(excluded)

    def _believed(self, links: Sequence[Link], worker: Worker) -> tuple[Sequence[Link], list[Contradicted]]:
        """Those of a worker's links that are sent if they were not sent before; and the worker, if one of them is false
        and it is excluded. The changelog's link is sent in the place of a false one.
        """
        unpublished, handoffs = self._unpublished, self._handoffs
        unknown = unpublished.unknown(links)
        handoffs.add(unknown, worker)
        known = [] if len(unknown) == len(links) else [(link, unpublished.shown(link)) for link in links]
        true = [shown for link, shown in known if shown is not None and contents_of(shown) != contents_of(link)]
        excluded = [each for link in true for each in handoffs.altered(link, worker)]
        if not true and not (unknown and handoffs.doubts(worker[1])):
            return links, []
        unpublished.expect(unknown)
        self._doubted += len(unknown)
        return true or [link for link, shown in known if shown is not None], excluded

    def in_changelog(self, links: Sequence[Link], now: float) -> None:
        """These links were read from the changelog, in commit order. Does not block."""
        with self._lock:
            self._unpublished.in_changelog(links, now)
            excluded = self._handoffs.confirm(links)
        self._report(excluded)

    def passed(self, after: Point) -> Point:
        """The point up to which the changelog holds nothing to send after this one, and nothing to compare with what
        workers handed over. Does not block.
        """
        with self._lock:
            return self._unpublished.passed(after)

    def history_changed(self) -> None:
        """The changelog does not connect any more: workers may have committed what is undone now. Does not block."""
        with self._lock:
            self._handoffs.forget()

    def overdue(self, now: float) -> list[LinkName]:
        """The links that workers handed over and that the changelog should have shown. Does not block."""
        with self._lock:
            return self._handoffs.overdue(now)

    def judge(self, names: Sequence[LinkName], held: Sequence[bool | None], now: float) -> None:
        """The store contains these links or not (None: unknown). Does not block."""
        with self._lock:
            excluded = self._handoffs.judge(names, held, now)
        self._report(excluded)

    def _report(self, excluded: Sequence[Contradicted]) -> None:
        for each in excluded:
            if self._journal is not None:
                self._journal.note(
                    "contradicted",
                    topic=each.topic, service=each.service, uuid=each.uuid, point=each.point, cause="quarantined",
                )  # fmt: skip
            _log.error(
                "a worker of the service %r with the UUID %s handed over a change of the topic %r at position %d that "
                "%s; its messages are not used for %d s, and those of workers of which the database showed no "
                "commit yet wait for the database: if the database lost no commits and no backup was restored, find "
                "the program that uses this UUID",
                each.service,
                each.uuid,
                each.topic,
                each.point.position,
                "differs from the one in the database" if each.altered else "the database does not contain",
                SECONDS,
                extra=fields(service=each.service, uuid=each.uuid, topic=each.topic, position=each.point.position),
            )

    def due(self, now: float, live: Collection[str], holds_orphans: bool) -> None:
        """Send links that this service must publish and that no worker handed over within the grace: of many a portion,
        and the next one at the next call. Blocks for at most about a second.
        """
        with self._lock:
            links = self._unpublished.due(now, live, holds_orphans)
            if any(link.origin != self._service for link in links):
                hit("service.while_taking_over")
            self._send_due(links)

    def next_time(self) -> float:
        """The time of the next call of ``due``, in the past while links are due; infinite when no link waits."""
        with self._lock:
            return self._unpublished.next_time()

    def counters(self) -> Mapping[str, int]:
        """Links: ``handed`` over by workers, ``repeated`` (handed over, but sent before), ``followed`` (own, found in
        the changelog), ``took_over`` (orphans found there). ``unsent``: those of ``handed``, ``followed`` and
        ``took_over`` that could not be sent.
        """
        return dict(self._counts)

    def worker_counters(self) -> Mapping[str, int]:
        """``contradicted``: links that workers handed over and the database does not contain; ``quarantined``: dropped
        links of the workers that did so; ``doubted``: links of others that wait until the changelog shows them.
        """
        contradicted = self._handoffs.contradicted
        return {"contradicted": contradicted, "quarantined": self._quarantined, "doubted": self._doubted}

    @property
    def excluded_workers(self) -> Sequence[Worker]:
        """The workers whose links are not used now. Does not block."""
        return self._handoffs.excluded

    def _send(self, links: Sequence[Link]) -> None:
        left, error = self._attempt(links)
        if error is not None and left:
            self._give_up(left, error)

    def _send_due(self, links: Sequence[Link]) -> None:
        """Send links of the changelog. Those for which the time did not suffice stay due. If none was sent, they are
        given up: the transport takes nothing, or one of them cannot be sent.
        """
        try:
            left, error = self._attempt(links)
        except BaseException:
            self._unpublished.settle(links)  # one of them may raise each time, and keep all others from being sent
            raise
        if error is not None and len(left) == len(links):
            self._give_up(left, error)
            left = []
        names = {(link.topic, link.point) for link in left}
        settled = [link for link in links if (link.topic, link.point) not in names]
        self._unpublished.settle(settled)
        orphans = sum(link.origin != self._service for link in settled)
        self._counts["followed"] += len(settled) - orphans
        self._counts["took_over"] += orphans

    def _attempt(self, links: Sequence[Link]) -> tuple[list[Link], PubSubError | None]:
        """Send links; those that were not sent, and why."""
        if not links:
            return [], None
        hit("service.before_send")
        sent: list[Envelope] = []
        left: list[Link] = []
        failure: PubSubError | None = None
        try:
            self._publisher.publish(links, sent)
        except PubSubError as error:
            left, failure = unsent(links, sent), error
        hit("service.after_send")
        return left, failure

    def _give_up(self, links: Sequence[Link], error: PubSubError) -> None:
        """Not retried: the next hello shows the head, and replicas read the missing links from the store."""
        self._counts["unsent"] += len(links)
        _log.warning(
            "%d links could not be sent; replicas will read them from the store: %s",
            len(links),
            error,
            extra=fields(links=len(links), position=links[-1].point.position),
        )
