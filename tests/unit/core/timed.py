"""A replica's state with a clock that the test moves."""

import random
from abc import ABC, abstractmethod

from pubsub_lib.core.cache import Cache
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.core.step_result import StepResult
from pubsub_lib.core.timing import Timing


class TimedReplica(ABC):
    """Steps the state at each of its deadlines."""

    def __init__(self, timing: Timing) -> None:
        self.state = ReplicaState(timing, Limits(), random.Random(1), Cache(), 0.0)
        self.now = 0.0

    def pass_time(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now = min(until, max(self.now + 0.001, self.state.next_time()))
            self.take(self.state.tick(self.now))

    @abstractmethod
    def take(self, result: StepResult) -> None:
        """Do what a step asks for."""
