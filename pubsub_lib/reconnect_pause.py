"""For drivers that connect again by themselves: the wait before a lost connection is retried."""

import random


class ReconnectPause:
    """It doubles with each retry up to ``longest``. Up to half of it is left out at random, so that not all processes
    connect at once. Times in seconds."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = min(first, longest)
        self._longest = longest
        self._next = self._first

    def next(self) -> float:
        """The wait before the retry that comes now."""
        wait = self._next * random.uniform(0.5, 1.0)
        self._next = min(2 * self._next, self._longest)
        return wait

    def reset(self) -> None:
        """Begin with the first wait again: there was a connection."""
        self._next = self._first
