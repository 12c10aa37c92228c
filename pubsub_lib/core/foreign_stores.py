"""Publishers of other stores, whose messages are not used (rule 15).

A store has a random id, which every message carries. Two deployments that share a socket path or an address by mistake
have different ids. The id is no secret and no protection against an attacker.
"""

from typing import Final

import msgspec

from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import NO_STORE

MAX_KEPT: Final = 1000
"""Maximum number of pairs of publisher and store that are named; further ones are only counted."""
NEVER_YET: Final = float("-inf")


class ForeignPublisher(msgspec.Struct, frozen=True):
    """A publisher (or worker) of another store. ``theirs``: the id in its message (``NO_STORE``: none)."""

    service: str
    uuid: str
    theirs: bytes
    own: bytes


class ForeignStores:
    """The id of the own store, and the publishers of other stores that were received. Not thread-safe."""

    def __init__(self, own: bytes = NO_STORE) -> None:
        self.own = own
        """The id in the last reading of the store; ``NO_STORE`` before the first one."""
        self.seen_at = NEVER_YET
        """When a pair of publisher and store was received for the first time."""
        self._seen: set[tuple[str, bytes]] = set()
        self._before: set[bytes] = set()
        """The ids in messages before the first reading. Two are enough: at least one of them is another store's."""

    def excludes(self, envelope: Envelope) -> bool:
        """Whether a message whose store id is not ``own`` must be dropped. False before the first reading: then links
        and heads only wait, and ``identified`` decides about them.
        """
        if self.own:
            return True
        if len(self._before) < 2:
            self._before.add(envelope.store_id)
        return False

    def first_message(self, envelope: Envelope, now: float) -> ForeignPublisher | None:
        """The publisher, if this is its first message with this store id, so that it is to be named."""
        pair = envelope.uuid, envelope.store_id
        if pair in self._seen or len(self._seen) >= MAX_KEPT:
            return None
        self._seen.add(pair)
        self.seen_at = now
        return ForeignPublisher(envelope.service, envelope.uuid, envelope.store_id, self.own)

    def identified(self, store_id: bytes) -> bool:
        """The store was read. True: messages that were received before may be of another store."""
        if store_id == self.own:
            return False
        doubtful = self.own != NO_STORE or not self._before <= {store_id}
        self.own = store_id
        self._seen.clear()
        self._before.clear()
        return doubtful
