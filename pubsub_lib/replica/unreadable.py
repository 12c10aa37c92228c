"""Objects whose value does not fit the declared type of their table: found when they are read, listed, logged once."""

import threading
from collections.abc import Callable
from typing import Final

import msgspec

from pubsub_lib.core.objects import Object
from pubsub_lib.errors import InvalidValueError
from pubsub_lib.logs import fields, logger

_log = logger(__name__)

MAX_KEPT: Final = 1_000
"""Maximum number of listed objects; further ones are only counted when they are read."""
MAX_TEXT: Final = 300
"""Maximum number of characters of a stored error."""


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
    until it is written again or deleted, which is checked when the list is read.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[tuple[str, str], UnreadableObject] = {}
        self._reads = 0
        self._reported: frozenset[str] = frozenset()
        """Tables that were logged because they have such objects."""

    @property
    def reads(self) -> int:
        """Number of failed reads of one object since the start."""
        return self._reads

    def note(self, found: Object[object], error: InvalidValueError) -> None:
        """A read of this object failed. Logs one line for the table, until all of its objects can be read again."""
        with self._lock:
            self._reads += 1
            ident = (found.table, found.key)
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

    def current(self, version_of: Callable[[str, str], int | None]) -> tuple[UnreadableObject, ...]:
        """The objects that still exist in the version that could not be decoded; the others are removed."""
        with self._lock:
            over = [ident for ident, each in self._objects.items() if version_of(*ident) != each.version]
            for ident in over:
                del self._objects[ident]
            if over:
                self._reported -= {table for table, _ in over} - {table for table, _ in self._objects}
            return tuple(self._objects.values())
