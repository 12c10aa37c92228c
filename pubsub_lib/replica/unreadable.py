"""Objects whose value does not fit the declared type of their table: found when they are read, named, logged once."""

import threading
from collections.abc import Callable
from typing import Final

import msgspec

from pubsub_lib.core.objects import Object
from pubsub_lib.errors import InvalidValueError
from pubsub_lib.logs import fields, logger

_log = logger(__name__)

MAX_KEPT: Final = 1_000
"""Objects that are kept; more of them are only counted when they are read."""
MAX_TEXT: Final = 300
"""Characters of an error that are kept."""


class UnreadableObject(msgspec.Struct, frozen=True):
    """An object that could not be decoded when it was last read. Its handlers and other objects are not affected."""

    topic: str
    table: str
    key: str
    version: int
    error: str


class Unreadable:
    """The objects of one replica that could not be decoded. Any thread; has a lock of its own, and blocks for it alone.

    Values are decoded when somebody reads them, so an object that nobody reads is not known here. An object stays here
    until it is written again or deleted, which is looked at whenever somebody asks for the list.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[tuple[str, str], UnreadableObject] = {}
        self._reads = 0
        self._reported: frozenset[str] = frozenset()
        """Tables of which a line in the log says that they have such objects."""

    @property
    def reads(self) -> int:
        """How many reads of one object failed, ever."""
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
                "%s; status().unreadable names all of this table's objects that could not be read",
                error,
                extra=fields(table=found.table, key=found.key, topic=found.topic, version=found.version),
            )

    def current(self, version_of: Callable[[str, str], int | None]) -> tuple[UnreadableObject, ...]:
        """Those that are still there in the version that could not be decoded; the others are forgotten."""
        with self._lock:
            over = [ident for ident, each in self._objects.items() if version_of(*ident) != each.version]
            for ident in over:
                del self._objects[ident]
            if over:
                self._reported -= {table for table, _ in over} - {table for table, _ in self._objects}
            return tuple(self._objects.values())
