"""Readings of differing buckets that a publisher's count or digest caused (rules 10 and 14).

A message of 150 bytes causes such a reading, which costs the database far more. So the counts and digests in the hellos
of a publisher whose reading finds no difference are compared less often.

That the reading finds none accuses no publisher: another one may have altered an object, which a later link sets again.
So the store is asked what it recorded at the message's point. Another count or digest, or no such point, contradicts
its publisher.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from pubsub_lib.core.effects import Replace
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import Full, Head, Link, Point
from pubsub_lib.core.quarantine import Publisher, Quarantine
from pubsub_lib.core.tracker_counters import Counters

FIRST_PAUSE: Final = 1.0
MAX_PAUSE: Final = 60.0
"""Pauses in seconds after which the hellos of a publisher are compared again: doubled with each reading, and ended by
one that shows that the replica had altered objects, or another history, and does not contradict the publisher."""
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
    topic: str
    claim: Head
    """The message's point of this topic, with its count and digest."""
    by_link: bool = False
    waited: bool = False
    """It is of a link that had waited."""
    asked: bool = False
    """The question of a reading named the point."""

    def is_false(self, answer: Full) -> bool:
        """Whether the store's answer shows that the message is false."""
        recorded, claim = answer.recorded, self.claim
        if recorded is None or recorded.point != claim.point:
            return False
        if not recorded.held:
            return answer.contains_known is True  # else the whole history is another one
        topic = answer.topics.get(self.topic)
        if not self.by_link and (topic is None or topic.head.point != claim.point):
            return False  # a hello has the topic's row, which may have been altered and repaired since
        return (recorded.count, recorded.digest) != (claim.count, claim.digest)


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

    def differed(
        self, chain: str, publisher: Publisher, topic: str, claim: Head, now: float, *, by_link: bool = False
    ) -> None:
        """A count or digest in a message of this publisher differs, so the chain will be read."""
        uuid = publisher[1]
        self._remember(chain, Cause(publisher, now, topic, claim, by_link))
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
        claim = Head(link.point, link.count, link.digest)
        if waited is not None and (link.topic, link.point) in waited:
            publisher = waited[link.topic, link.point]
            if publisher is not None:
                self._remember(chain, Cause(publisher, now, link.topic, claim, True, waited=True))
        elif envelope is not None:
            self.differed(chain, (envelope.service, envelope.uuid), link.topic, claim, now, by_link=True)

    def _remember(self, chain: str, cause: Cause) -> None:
        before = self._causes.get(chain)
        # A link that had waited began no pause, which this reading may end; one that was asked is not asked again.
        if before is None or before.waited or before.asked:
            self._causes[chain] = cause

    def judged(self, chain: str) -> tuple[str, Point] | None:
        """The topic and point that the question of a reading of this chain names, which is about to be sent."""
        cause = self._causes.get(chain)
        if cause is None or cause.asked:  # the answer did not come: what is optional must not be the reason
            return None
        cause.asked = True
        return cause.topic, cause.claim.point

    def forget(self, chain: str) -> None:
        """The chain is not followed any more."""
        self._causes.pop(chain, None)

    def answered(
        self, read: Replace, differs: Callable[[str, Head], bool], quarantine: Quarantine, now: float
    ) -> list[Publisher]:
        """A full sync is about to be used. If it shows that the message which caused it is false, the publisher is
        contradicted: returned if its quarantine begins. ``differs``: whether a topic's own count or digest differs from
        these.
        """
        cause = self._causes.pop(read.chain, None)
        if cause is None:
            return []
        false, topics = cause.is_false(read.answer), read.answer.topics
        self._counters.contradicted += false
        # Elsewhere than at the store's head, the chain differs without a fault: a liar's pauses would end while others
        # commit.
        altered = read.before == read.answer.head and any(differs(topic, each.head) for topic, each in topics.items())
        if altered or read.answer.contains_known is False:
            if not (false or cause.waited):
                self._pauses.pop(cause.publisher[1], None)  # it was right
        elif all(each.buckets is not None and not each.buckets for each in topics.values()):
            self._counters.useless += 1
        return [cause.publisher] if false and quarantine.contradicted(cause.publisher, cause.at, now) else []
