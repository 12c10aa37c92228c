"""Objects whose value does not fit the declared type of their table: found when they are read, listed, logged once."""

import threading
import time
from collections.abc import Callable
from math import inf
from typing import Final

import msgspec

from pubsub_lib.core.cache import Cache
from pubsub_lib.core.objects import Object
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.errors import InvalidValueError
from pubsub_lib.logs import fields, logger

_log = logger(__name__)

MAX_KEPT: Final = 1_000
"""Maximum number of listed objects; further ones are only counted when they are read."""
MAX_TEXT: Final = 300
"""Maximum number of characters of a stored error."""
LOOK_INTERVAL: Final = 1.0
"""Minimum seconds until failed reads compare the listed objects with the replica again."""

Read = Callable[[Callable[[ReplicaState], object]], object]
"""Calls a function with the replica's state, with the replica's lock held."""


class UnreadableObject(msgspec.Struct, frozen=True):
    """An object that could not be decoded when it was last read. Its handlers and other objects are not affected."""

    topic: str
    table: str
    key: str
    version: int
    error: str


class Unreadable:
    """The objects of one replica that could not be decoded. Any thread; has its own lock, and blocks only for that.

    Values are decoded when they are read, so objects that are never read are not listed. An object stays in the list
    until it is written again or deleted, which is checked when the list is read, and by a failed read if it would leave
    out an object or a line. ``now``: the monotonic clock.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._next_look = -inf
        self._lock = threading.Lock()
        self._objects: dict[tuple[str, str], UnreadableObject] = {}
        self._reads = 0
        self._reported: frozenset[str] = frozenset()
        """Tables that were logged because they have such objects."""

    @property
    def reads(self) -> int:
        """Number of failed reads of one object since the start."""
        return self._reads

    def note(self, found: Object[object], error: InvalidValueError, read: Read) -> None:
        """A read of this object failed. Logs one line for the table, until all of its objects can be read again. The
        replica's lock is taken shortly, for ``read``, and never while the lock of this object is held.
        """
        ident = (found.table, found.key)
        if self._may_be_over(ident):
            read(lambda state: self.current(state.cache))
        with self._lock:
            self._reads += 1
            if ident in self._objects or len(self._objects) < MAX_KEPT:
                self._objects[ident] = UnreadableObject(
                    found.topic, found.table, found.key, found.version, f"{error}"[:MAX_TEXT]
                )
            fresh = found.table not in self._reported
            self._reported |= {found.table}
        if fresh:
            _log.error(
                "%s; status().unreadable lists all objects of this table that could not be read",
                error,
                extra=fields(table=found.table, key=found.key, topic=found.topic, version=found.version),
            )

    def current(self, cache: Cache) -> tuple[UnreadableObject, ...]:
        """The objects that are visible in the version that could not be decoded; the others are removed. With the
        replica's lock held.
        """
        with self._lock:
            over = [ident for ident, each in self._objects.items() if _version(cache, *ident) != each.version]
            for ident in over:
                del self._objects[ident]
            if over:
                self._reported -= {table for table, _ in over} - {table for table, _ in self._objects}
            return tuple(self._objects.values())

    def _may_be_over(self, ident: tuple[str, str]) -> bool:
        """Whether listed objects that were written since would hide this one. Many failed reads look rarely."""
        with self._lock:
            hidden = ident[0] in self._reported or len(self._objects) >= MAX_KEPT
            now = self._now()
            if ident in self._objects or not hidden or now < self._next_look:
                return False
            self._next_look = now + LOOK_INTERVAL
            return True


def _version(cache: Cache, table: str, key: str) -> int | None:
    """The version of the visible object; None when it does not exist."""
    found = cache.record(table, key)
    return None if found is None else found.version
