"""A relay's bookkeeping of what it sends: that of a publisher, whose heads are those of the relay's own topics."""

from collections.abc import Collection, Iterator, Mapping
from typing import Final, Protocol

import msgspec

from pubsub_lib.core.envelope import MAX_PATH, Envelope, Hello, HelloRequest
from pubsub_lib.core.freshness import NEVER_YET
from pubsub_lib.core.hello_portions import portions
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, ZERO, Head, Heads
from pubsub_lib.core.relay_contents import RelayContents
from pubsub_lib.core.sequencer import HELLO_TOPICS, Progress, Sequencer
from pubsub_lib.core.timing import Timing

PATH_BYTES: Final = 2 + 9 + 3 + 18 * MAX_PATH
"""Maximum bytes of the fields that only a relay's hello has."""


class RelayedHellos(Protocol):
    """The used part of :class:`pubsub_lib.core.relaying.Relay`."""

    contents: RelayContents

    def hello(self, sequences: Mapping[str, int], now: float, *, nonce: str, goodbye: bool) -> Hello:
        """A hello about these topics."""


class RelaySequencer(Sequencer):
    """Numbers the relay's messages and makes its hellos: from its own known points instead of readings of the store."""

    def __init__(
        self, relay: RelayedHellos, service: str, uuid: str, timing: Timing, limits: Limits, now: float
    ) -> None:
        room = msgspec.structs.replace(limits, max_frame_bytes=max(limits.max_frame_bytes - PATH_BYTES, 1))
        super().__init__(service, uuid, timing, limits, now)
        self._relay = relay
        self._room = room
        self.refreshed = NEVER_YET
        """When the last refresh of the proofs began that ended, also without a proof."""

    def refresh_ended(self, began: float, now: float, *, served: bool, proved: bool) -> None:
        """A refresh of the proofs ended, which ``began`` then. What waits is answered with the age of each topic's
        proof. ``served``: the relay has a topic; else nothing can be answered. Without a proof (not ``proved``) the
        hello that is due is made all the same, with its true age: else a relay with a silent parent would send none.
        """
        self.refreshed = began
        if not served:
            self.heads_failed(now)
            return
        # Each hello reads the heads of its own topics, so none are collected here: there may be many topics.
        self.heads_read(Heads(ZERO, {}, self.store_id, everything=False), now, now)
        self._failed = not proved and now >= self._due()

    def progress(self) -> Progress:
        """What was sent, and the heads of all topics now."""
        read = self._heads
        return Progress(self.sequences, None if read is None else self._relay.contents.heads(), self._began)

    def objects_arrived(self, now: float) -> None:
        """The relay got all objects of a topic: a refresh need not wait any more as after those that failed for lack
        of objects.
        """
        self._failures = 0
        self._read_from = min(self._read_from, now)

    def _fresh(self, now: float) -> bool:
        return now - self.refreshed <= self._timing.reading_age

    def _hello(
        self, topics: Collection[str], heads: Mapping[str, Head], now: float, *, nonce: str = "", goodbye: bool = False
    ) -> Envelope:
        sequences = {topic: self._sequences.get(topic, 0) for topic in topics}
        hello = self._relay.hello(sequences, now, nonce=nonce, goodbye=goodbye)
        return Envelope(self.service, self.uuid, ALL, 0, (), hello, self.store_id)

    def _cut(self, ask: HelloRequest) -> Iterator[HelloRequest]:
        """In parts for one hello each: topics whose proof is much older make hellos of their own, because a hello has
        one age.
        """
        contents = self._relay.contents
        proofs = {topic: contents.proof(topic) for topic in ask.topics if contents.serves(topic)}
        young = max(proofs.values(), default=0.0) - self._timing.reading_age
        for group in ([t for t, at in proofs.items() if at >= young], [t for t, at in proofs.items() if at < young]):
            for topics in portions(group, HELLO_TOPICS, self._room) if group else ():
                yield HelloRequest(ask.nonce, topics)
