"""Readings of differing buckets that a publisher's count or digest caused (rules 10 and 14).

A message of 150 bytes causes such a reading, which costs the database far more. So a publisher whose reading finds no
difference is contradicted, and the counts and digests in its hellos are compared less often.
"""

from collections.abc import Callable, Sequence
from typing import Final

from pubsub_lib.core.effects import Replace
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import Head, Link
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


class ProvokedReads:
    """The readings that one replica's publishers caused. Not thread-safe."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._pauses: dict[str, tuple[float, float]] = {}
        """By UUID: the length and the end of the last pause."""
        self._causes: dict[str, tuple[Publisher, float]] = {}
        """By chain: the publisher whose count or digest differed, and when."""

    def may_compare(self, uuid: str, now: float) -> bool:
        """Whether the counts and digests in a hello of this publisher are to be compared now."""
        pause = self._pauses.get(uuid)
        return pause is None or now >= pause[1]

    def differed(self, chain: str, envelope: Envelope, now: float, links: Sequence[Link] | None = None) -> None:
        """A count or digest in this message differs, so the chain will be read. ``links``: the applied ones; a link of
        another publisher may have waited for this message, and then it accuses none.
        """
        if links is not None:
            own = {id(message.link) for message in envelope.messages}
            if not all(id(link) in own for link in links):
                return
        uuid = envelope.uuid
        self._causes.setdefault(chain, ((envelope.service, uuid), now))
        length, until = self._pauses.get(uuid, (0.0, float("-inf")))
        if now < until:
            return
        length = FIRST_PAUSE if now >= until + FORGET else min(2 * length, MAX_PAUSE)
        self._pauses.pop(uuid, None)
        self._pauses[uuid] = length, now + length
        while len(self._pauses) > MAX_KEPT:
            del self._pauses[next(iter(self._pauses))]

    def answered(
        self, read: Replace, differs: Callable[[str, Head], bool], quarantine: Quarantine, now: float
    ) -> list[Publisher]:
        """A full sync is about to be used. If nothing differs, the count or digest of the publisher that caused it was
        false: returned if its quarantine begins. ``differs``: whether a topic's own count or digest differs from these.
        """
        cause = self._causes.pop(read.chain, None)
        if cause is None:
            return []
        publisher, at = cause
        if read.answer.contains_known is False or any(
            each.buckets is None or each.buckets or differs(topic, each.head)
            for topic, each in read.answer.topics.items()
        ):
            self._pauses.pop(publisher[1], None)  # it was right
            return []
        self._counters.useless += 1
        return [publisher] if quarantine.contradicted(publisher[1], at, now) else []
