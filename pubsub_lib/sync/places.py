"""The places of a server's sync channel: bounds on the questions that it receives and answers at the same time."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pubsub_lib.core.model import Want
from pubsub_lib.http_limits import KEPT_FOR_READY, MAX_CONNECTIONS

RECEIVED: Final = 8
"""Questions that may be received in addition to those that are answered."""
MAX_REQUESTS: Final = MAX_CONNECTIONS - KEPT_FOR_READY - 2
"""Maximum number of requests, so that metrics and announcements always find a connection."""


class Places:
    """Any thread. ``places``: answers with objects at the same time, and again as many of links alone. Links are what
    replicas need that were cut off, or that changed their parent: they must not wait for slow first syncs, which may
    each take ``sync_timeout``.
    """

    def __init__(self, places: int) -> None:
        self._requests = threading.BoundedSemaphore(min(2 * places + RECEIVED, MAX_REQUESTS))
        self._objects = threading.BoundedSemaphore(places)
        self._links = threading.BoundedSemaphore(places)
        self._lock = threading.Lock()
        self.running = 0
        """Answers that are made or sent now."""

    @contextmanager
    def request(self) -> Iterator[bool]:
        """Around a request: whether it may be received. Does not block."""
        if not self._requests.acquire(blocking=False):
            yield False
            return
        try:
            yield True
        finally:
            self._requests.release()

    @contextmanager
    def answer(self, wants: Mapping[str, Want]) -> Iterator[bool]:
        """Around the answer to a question: whether there is a place for it. Does not block."""
        place = self._links if all(want.after is not None for want in wants.values()) else self._objects
        if not place.acquire(blocking=False):
            yield False
            return
        self._count(1)
        try:
            yield True
        finally:
            self._count(-1)
            place.release()

    def _count(self, more: int) -> None:
        with self._lock:
            self.running += more
