"""The production replica state, with a monitor that watches it."""

from typing import TYPE_CHECKING

from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.events import Event
from pubsub_lib.core.model import Full
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.core.step_result import StepResult

if TYPE_CHECKING:
    from simulator.monitor import Monitor
    from simulator.replica import Replica


class WatchedReplicaState(ReplicaState):
    """Without liars a mismatch is a violation and is not repaired."""

    monitor: "Monitor"
    owner: "Replica"

    def feed(self, envelope: Envelope, now: float) -> StepResult:
        """Called again when a message is used that had waited for the lease of its publisher."""
        directory = self.owner.directory
        self.monitor.received(self.owner, envelope if directory is None else directory.seen(envelope, now), now)
        return super().feed(envelope, now)

    def mismatched(self, topic: str, now: float, *, by_link: bool = False, waited: bool = False) -> None:
        """Rule 10 is an invariant here, in runs without liars."""
        self.monitor.mismatched(self.owner, topic)
        super().mismatched(topic, now, by_link=by_link, waited=waited)

    def _replace(self, chain: str, answer: Full, reached: int, events: list[Event], now: float) -> bool:
        self.owner.replaced.append(chain)
        same_history = super()._replace(chain, answer, reached, events, now)
        self.monitor.replaced(self.owner, chain, answer.head, same_history=answer.contains_known is not False)
        return same_history

    def _exclude(self, envelope: Envelope, now: float) -> None:
        super()._exclude(envelope, now)
        if self.owner.directory is not None:
            self.owner.directory.forget(envelope)
        self.monitor.excluded(self.owner, envelope)
