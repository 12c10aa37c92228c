"""The argument of a handler: one change of the merged view of a replica (rules H1 and H2)."""

from collections.abc import Callable
from typing import Any

import msgspec

from pubsub_lib.core.model import Action
from pubsub_lib.core.values import DECODE_ERRORS
from pubsub_lib.errors import InvalidValueError

Decode = Callable[[bytes], Any]
"""Decodes a value's canonical JSON. Must return a new object at each call."""

plain: Decode = msgspec.json.Decoder().decode
"""The decoder of tables without a declared type."""


def decoder_of(kind: type | None) -> Decode:
    """The decoder of a table whose values are of this type (a msgspec Struct); None: plain JSON. Does not block."""
    return plain if kind is None else msgspec.json.Decoder(kind).decode


def decoded(decode: Decode, table: str, key: str, value: bytes) -> Any:
    """The value as a new object. Raises InvalidValueError for invalid JSON, or if it does not fit the type."""
    try:
        return decode(value)
    except DECODE_ERRORS as error:
        raise InvalidValueError(
            f"the value of {table} {key!r} cannot be decoded ({error}); declare another type for the "
            "table or write the object again"
        ) from error


class Event(msgspec.Struct, frozen=True, gc=False):
    """One change of an object as a replica shows it. Immutable; any thread; no call blocks.

    ``action`` follows from the merged view before and after: ``create``, ``set`` or ``delete``. ``version`` is
    the version now shown, or of the delete; None for a delete that a sync found (its own version is not
    known), that comes from unfollowing a topic, or that a handler which failed gets again after a notice of a
    changed history. ``old_version`` is the version shown before (None: no object).
    ``old_value`` and ``new_value`` are the canonical JSON bytes (None: no object); :attr:`old` and
    :attr:`new` decode them. ``topic`` is the topic of the object now (for a delete: its last topic), ``old_topic``
    the topic under which it was shown before. ``position`` is that of the point that the replica reached by this.
    ``trace`` is the writer's trace context, as the link carried it ("" = none; a change that a sync brought has none).
    ``written_at`` is the writer's wall clock in Unix seconds, 0.0 when a full sync brought the change: for
    latency figures only.
    """

    table: str
    key: str
    topic: str
    action: Action
    version: int | None
    old_version: int | None
    old_value: bytes | None
    new_value: bytes | None
    position: int
    written_at: float = 0.0
    old_topic: str | None = None
    decode: Decode = plain
    trace: str = ""

    @property
    def old(self) -> Any:
        """The value before, decoded at each access; None when there was none. Raises InvalidValueError."""
        return None if self.old_value is None else decoded(self.decode, self.table, self.key, self.old_value)

    @property
    def new(self) -> Any:
        """The value now, decoded at each access; None after a delete. Raises InvalidValueError."""
        return None if self.new_value is None else decoded(self.decode, self.table, self.key, self.new_value)

    def since(self, version: int | None, value: bytes | None, topic: str | None) -> "Event":
        """One event from an earlier old state (of this version, value and topic) to this event's new one."""
        action: Action = "delete" if self.new_value is None else "create" if value is None else "set"
        return msgspec.structs.replace(self, action=action, old_version=version, old_value=value, old_topic=topic)
