"""Readings of differing buckets that a publisher's count or digest caused (rules 10 and 14).

A message of 150 bytes causes such a reading, which costs the database far more. So a publisher whose reading finds no
difference is contradicted, and the counts and digests in its hellos are compared less often.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from pubsub_lib.core.effects import Replace
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import Head, Link, Point
from pubsub_lib.core.quarantine import Publisher, Quarantine
from pubsub_lib.core.tracker_counters import Counters

FIRST_PAUSE: Final = 1.0
MAX_PAUSE: Final = 60.0
"""Pauses in seconds after which the hellos of a publisher are compared again: doubled with each reading, and ended by
one that finds a difference."""
FORGET: Final = 600.0
"""Seconds without a further reading after which a publisher's next pause is the first one again."""
MAX_KEPT: Final = 1000
"""Maximum number of publishers whose pauses are kept; the oldest is forgotten first."""


class Cause(msgspec.Struct):
    """Why a chain will be read."""

    publisher: Publisher
    """The publisher whose count or digest differed."""
    at: float
    """When it differed."""
    topic: str = ""
    claim: Head | None = None
    """Topic, point, count and digest of a link that had waited. Links of other publishers were applied with it, so only
    the store's own count and digest at the same point show that the link was false."""


class ProvokedReads:
    """The readings that one replica's publishers caused. Not thread-safe."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._pauses: dict[str, tuple[float, float]] = {}
        """By UUID: the length and the end of the last pause."""
        self._causes: dict[str, Cause] = {}
        """By chain."""

    def may_compare(self, uuid: str, now: float) -> bool:
        """Whether the counts and digests in a hello of this publisher are to be compared now."""
        pause = self._pauses.get(uuid)
        return pause is None or now >= pause[1]

    def differed(self, chain: str, publisher: Publisher, now: float) -> None:
        """A count or digest in a message of this publisher differs, so the chain will be read."""
        uuid = publisher[1]
        self._remember(chain, Cause(publisher, now))
        length, until = self._pauses.get(uuid, (0.0, float("-inf")))
        if now < until:
            return
        length = FIRST_PAUSE if now >= until + FORGET else min(2 * length, MAX_PAUSE)
        self._pauses.pop(uuid, None)
        self._pauses[uuid] = length, now + length
        while len(self._pauses) > MAX_KEPT:
            del self._pauses[next(iter(self._pauses))]

    def link_differed(
        self, chain: str, link: Link, waited: Mapping[tuple[str, Point], Publisher | None] | None,
        envelope: Envelope | None, now: float,
    ) -> None:  # fmt: skip
        """Count or digest of an applied link differ. ``waited``: the publishers of those that had waited.
        ``envelope``: that of the others; None: the store sent them.
        """
        if waited is not None and (link.topic, link.point) in waited:
            publisher = waited[link.topic, link.point]
            if publisher is not None:
                claim = Head(link.point, link.count, link.digest)
                self._remember(chain, Cause(publisher, now, link.topic, claim))
        elif envelope is not None:
            self.differed(chain, (envelope.service, envelope.uuid), now)

    def _remember(self, chain: str, cause: Cause) -> None:
        before = self._causes.get(chain)
        if before is None or before.claim is not None:  # a link that had waited is overtaken by what follows it
            self._causes[chain] = cause

    def answered(
        self, read: Replace, differs: Callable[[str, Head], bool], quarantine: Quarantine, now: float
    ) -> list[Publisher]:
        """A full sync is about to be used. If nothing differs, the count or digest of the publisher that caused it was
        false: returned if its quarantine begins. ``differs``: whether a topic's own count or digest differs from these.
        """
        cause = self._causes.pop(read.chain, None)
        if cause is None:
            return []
        uuid, topics = cause.publisher[1], read.answer.topics
        if read.answer.contains_known is False or any(
            each.buckets or differs(topic, each.head) for topic, each in topics.items()
        ):
            if cause.claim is None:
                self._pauses.pop(uuid, None)  # it was right
            return []
        if any(each.buckets is None for each in topics.values()):
            return []  # All objects were read, for another reason: this shows nothing about the publisher.
        self._counters.useless += 1
        if cause.claim is not None:
            head = topics[cause.topic].head if cause.topic in topics else None
            if head is None or head.point != cause.claim.point or head == cause.claim:
                return []
        return [cause.publisher] if quarantine.contradicted(cause.publisher, cause.at, now) else []
