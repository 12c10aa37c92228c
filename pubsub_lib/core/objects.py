"""One object as a replica or a store shows it."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")


class Object(msgspec.Struct, Generic[T], frozen=True):
    """One object of a replica, or of a store, at one moment: table, key, topic, version and value.

    Immutable; any thread; no call blocks.
    """

    table: str
    key: str
    topic: str
    version: int
    json: bytes
    """The value as canonical JSON, as stored."""
    read: Callable[["Object[Any]"], Any]
    """Decodes the value; for :attr:`value`."""

    @property
    def value(self) -> T:
        """The value, as ``get`` returns it: of the table's declared type, or plain data. Decoded at each access.
        Raises InvalidValueError when it does not fit the type.
        """
        value: T = self.read(self)
        return value
