"""What gets a replica's input: its state, or a relay around that state."""

from collections.abc import Collection, Sequence
from typing import Protocol

from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import SyncAnswer
from pubsub_lib.core.step_result import StepResult


class Core(Protocol):
    """The input of :class:`~pubsub_lib.core.replica_state.ReplicaState`. Called with the engine's lock held."""

    def feed(self, envelope: Envelope, now: float) -> StepResult:
        """An envelope was received."""

    def tick(self, now: float) -> StepResult:
        """Time passed."""

    def subscribe(self, topics: Collection[str], now: float) -> StepResult:
        """Follow topics."""

    def directory_read(self, uuids: Collection[str], now: float) -> Sequence[StepResult]:
        """The directory was read: the publishers with a live lease."""

    def sync_done(self, number: int, answer: SyncAnswer, now: float) -> StepResult:
        """The store answered."""

    def sync_failed(self, number: int, now: float, pause: float | None = None) -> None:
        """The store did not answer, or asked for a pause."""

    def next_time(self) -> float:
        """When ``tick`` is next due."""
