"""Messages per second of each topic, from the sequences of a publisher."""

from collections.abc import Mapping
from typing import Final

import msgspec

MIN_WINDOW: Final = 10.0
"""Seconds after which a later reading begins a new window."""


class Sample(msgspec.Struct, frozen=True):
    """The sequences at one time of the monotonic clock."""

    at: float
    sequences: Mapping[str, int]


class Rates:
    """Two samples are kept, and they are taken only when someone asks: so a page that is not open costs nothing.

    A page that is requested again and again gets averages over ``MIN_WINDOW`` to twice that time; the first request
    gets averages since the start, and a request after a pause those since the request before the pause. Not safe for
    threads: the caller makes one request at a time.
    """

    def __init__(self, now: float) -> None:
        self._base = self._next = Sample(now, {})

    def since(self, sequences: Mapping[str, int], now: float) -> Sample:
        """The sample with which these sequences are to be compared. They are kept for a later request."""
        if now - self._next.at >= MIN_WINDOW:
            self._base, self._next = self._next, Sample(now, sequences)
        return self._base


def rate(sequence: int, topic: str, base: Sample, now: float) -> float:
    """Messages per second of a topic since the sample."""
    return (sequence - base.sequences.get(topic, 0)) / max(now - base.at, 0.001)
