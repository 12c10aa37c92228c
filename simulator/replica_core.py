"""What gets the input of a simulated replica."""

from collections.abc import Collection
from typing import Protocol

from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import SyncAnswer
from pubsub_lib.core.step_result import StepResult


class Core(Protocol):
    """A replica's state, or a relay around it."""

    def feed(self, envelope: Envelope, now: float) -> StepResult:
        """An envelope was received."""

    def tick(self, now: float) -> StepResult:
        """Time passed."""

    def subscribe(self, topics: Collection[str], now: float) -> StepResult:
        """Follow topics."""

    def sync_done(self, number: int, answer: SyncAnswer, now: float) -> StepResult:
        """The store, or a relay, answered."""

    def next_time(self) -> float:
        """When ``tick`` is next due."""
