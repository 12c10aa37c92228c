"""A lossy connection with configured faults: the fault model of the memory driver and the fault wrappers.

Without I/O, like the core, which does not import this module: ``now`` is an argument, and the only randomness is the
generator that is passed in. So the same seed and the same calls give the same faults.
"""

import random
from collections.abc import Callable
from typing import Annotated, Generic, TypeVar

import msgspec

Chance = Annotated[float, msgspec.Meta(ge=0, le=1)]

T = TypeVar("T")


class Loss(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Probability of each fault for one item (0 to 1). All zero: a connection without faults."""

    drop: Chance = 0.0
    """Lost."""
    duplicate: Chance = 0.0
    """Delivered twice."""
    reorder: Chance = 0.0
    """Overtaken by the next item; delivered after ``max_delay`` when none comes."""
    delay: Chance = 0.0
    """Held back for a random time up to ``max_delay``; later items are not delayed by it."""
    corrupt: Chance = 0.0
    """Damaged by the ``corrupt`` function given to :class:`Lossy`; without that function no item is damaged."""
    max_delay: Annotated[float, msgspec.Meta(ge=0)] = 0.1
    """In seconds."""


PERFECT = Loss()


class Lossy(Generic[T]):
    """One direction of one connection. Not locked: the caller uses one thread or its own lock.

    ``counts``: number of injected faults, by the names of :class:`Loss`'s fields.
    """

    def __init__(
        self,
        rng: random.Random,
        loss: Loss = PERFECT,
        corrupt: Callable[[T, random.Random], T] | None = None,
    ) -> None:
        self._rng = rng
        self._corrupt = corrupt
        self.loss = loss
        """May be replaced at any time; items that are already held back keep their times."""
        self.counts = dict.fromkeys(("drop", "duplicate", "reorder", "delay", "corrupt"), 0)
        self._late: list[tuple[float, int, T]] = []
        self._overtaken: list[tuple[float, T]] = []
        self._pushed = 0

    def reseed(self, rng: random.Random) -> None:
        """Take the random choices from this generator from now on."""
        self._rng = rng

    def push(self, item: T, now: float) -> list[T]:
        """The items to deliver now, in order. ``now`` in seconds on any monotonic clock."""
        loss = self.loss
        if loss is PERFECT and not self._overtaken:
            return [item]
        overtaken, self._overtaken = self._overtaken, []
        passed = [held for _, held in overtaken]
        if self._hit("drop", loss.drop):
            return passed
        if self._hit("delay", loss.delay):
            self._pushed += 1
            self._late.append((now + self._rng.uniform(0.0, loss.max_delay), self._pushed, item))
            return passed
        if self._hit("reorder", loss.reorder):
            self._overtaken.append((now + loss.max_delay, item))
            return passed
        if self._corrupt is not None and self._hit("corrupt", loss.corrupt):
            item = self._corrupt(item, self._rng)
        copies = 2 if self._hit("duplicate", loss.duplicate) else 1
        return [item] * copies + passed

    def due(self, now: float) -> list[T]:
        """The held-back items that are due, in the order of their times."""
        late = sorted(entry for entry in self._late if entry[0] <= now) if self._late else []
        if late:
            self._late = [entry for entry in self._late if entry[0] > now]
        alone = [entry for entry in self._overtaken if entry[0] <= now]
        if alone:
            self._overtaken = [entry for entry in self._overtaken if entry[0] > now]
        return [item for _, _, item in late] + [item for _, item in alone]

    def next_time(self) -> float | None:
        """The time at which :meth:`due` returns the next item; None when no item is held back."""
        times = [entry[0] for entry in self._late] + [entry[0] for entry in self._overtaken]
        return min(times, default=None)

    def _hit(self, fault: str, chance: float) -> bool:
        # No random draw for a fault that is off, so that turning one on does not change the others' choices.
        if chance <= 0.0 or self._rng.random() >= chance:
            return False
        self.counts[fault] += 1
        return True
