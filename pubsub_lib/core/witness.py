"""What a journal gets from a replica's state."""

from collections.abc import Sequence
from typing import Protocol

from pubsub_lib.core.effects import Effect
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import Link, SyncAnswer
from pubsub_lib.core.tracker import Tracker


class Witness(Protocol):
    """A journal. It is called with each input and the resulting effects, before they are applied."""

    def received(self, envelope: Envelope, effects: Sequence[Effect], tracker: Tracker) -> None:
        """An envelope was received; the effects follow from it."""

    def synced(self, answer: SyncAnswer, number: int, effects: Sequence[Effect], tracker: Tracker) -> None:
        """The store answered sync ``number``; the effects follow from it."""

    def drained(self, links: Sequence[Link], tracker: Tracker) -> None:
        """These links had waited, and are applied now, before the differing buckets are requested."""
