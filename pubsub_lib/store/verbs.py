"""The four verbs as frozen data, and their combined effects: a pure function of the verbs and the current objects."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from pubsub_lib.core import digest, values
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import DEFAULT_TOPIC
from pubsub_lib.errors import AlreadyExists, InvalidValueError, NotFound, VersionMismatch

Identity = tuple[str, str]
"""(table, key) of an object."""
Verb = Literal["create", "update", "set", "delete"]


class Operation(msgspec.Struct, frozen=True, gc=False):
    """One recorded verb. ``value`` is canonical JSON: the whole value, or an update's members; None for a delete.

    ``topic`` None keeps the object's. ``version`` is the expected current version (0: no such object), None: any.
    """

    verb: Verb
    table: str
    key: str
    value: bytes | None = None
    topic: str | None = None
    version: int | None = None
    missing_ok: bool = False


class Stored(msgspec.Struct, frozen=True, gc=False):
    """One object as the store holds it: its topic, version and value (canonical JSON, verbatim)."""

    table: str
    key: str
    topic: str
    version: int
    value: bytes
    fingerprint: int = 0

    @property
    def ident(self) -> Identity:
        """(table, key)"""
        return self.table, self.key

    @property
    def real_fingerprint(self) -> int:
        """The fingerprint computed from table, key, version and value."""
        return digest.fingerprint(self.table, self.key, self.version, self.value)

    @property
    def is_sound(self) -> bool:
        """Whether the object matches its stored fingerprint, as all objects do that a writer wrote."""
        return self.real_fingerprint == self.fingerprint


class Effect(msgspec.Struct, frozen=True, gc=False):
    """The effect of a transaction on one object: from ``before`` to ``topic`` and ``value`` (None: absent)."""

    table: str
    key: str
    before: Stored | None
    topic: str
    value: bytes | None

    @property
    def moves(self) -> bool:
        """The object changes its topic: two changes, a delete there and a create here."""
        return self.before is not None and self.value is not None and self.before.topic != self.topic

    @property
    def changes(self) -> int:
        """Number of positions that the effect takes."""
        return 2 if self.moves else 1

    @property
    def is_needed(self) -> bool:
        """Whether the write changes the object. That of a damaged row whose bytes are the new value does, too: without
        it a repair would restore the old bytes.
        """
        before = self.before
        if before is None or self.value is None:
            return True
        return (before.topic, before.value) != (self.topic, self.value) or not before.is_sound


class ReadChanged(VersionMismatch):
    """An object that a transaction had read was changed before the commit."""


def read_changed(identity: Identity) -> ReadChanged:
    """The error for a read object that was changed."""
    table, key = identity
    return ReadChanged(f"{table} {key!r} was changed by another writer since this transaction read it; run it again")


Encode = Callable[[str, object], bytes]
"""(table, value) -> canonical JSON, checked against the table's type."""


def fold(operations: Sequence[Operation], stored: Mapping[Identity, Stored], encode: Encode) -> list[Effect]:
    """Run the verbs in order over the current objects, and return the final effect on each object.

    ``stored`` holds every named object that exists. Several verbs on one key become one effect (or none, when bytes and
    topic do not change), in the order in which the keys were first named. A compare-and-set always means the version
    before the transaction. Raises AlreadyExists, NotFound, VersionMismatch, InvalidValueError.
    """
    state: dict[Identity, tuple[str, bytes] | None] = {}
    for operation in operations:
        identity = (operation.table, operation.key)
        before = stored.get(identity)
        if identity not in state:
            state[identity] = None if before is None else (before.topic, before.value)
        if operation.version is not None:
            _check_version(operation, before)
        state[identity] = _apply(operation, state[identity], encode)
    effects = []
    for (table, key), after in state.items():
        before = stored.get((table, key))
        if after is None:
            if before is not None:
                effects.append(Effect(table, key, before, before.topic, None))
        else:
            effects.append(Effect(table, key, before, *after))
    return [effect for effect in effects if effect.is_needed]


def _check_version(operation: Operation, before: Stored | None) -> None:
    current = 0 if before is None else before.version
    if operation.version != current and not (before is None and operation.missing_ok):
        if before is None and operation.verb in ("update", "delete"):
            raise NotFound(f"{_named(operation)} expects version {operation.version}, but there is no such object")
        raise VersionMismatch(
            f"{_named(operation)} expects version {operation.version}, but it is {current}; read it again"
        )


def _apply(operation: Operation, now: tuple[str, bytes] | None, encode: Encode) -> tuple[str, bytes] | None:
    verb = operation.verb
    if verb == "delete":
        if now is None and not operation.missing_ok:
            raise NotFound(f"{_named(operation)}: there is no such object; pass missing_ok=True if that is fine")
        return None
    assert operation.value is not None
    if verb == "create" and now is not None:
        raise AlreadyExists(f"{_named(operation)}: it exists already; use set or update")
    if verb == "update":
        if now is None:
            raise NotFound(f"{_named(operation)}: there is no such object; use set or create")
        return operation.topic or now[0], _merge(operation, now[1], encode)
    kept = now[0] if now is not None else DEFAULT_TOPIC
    return operation.topic or kept, operation.value


def _named(operation: Operation) -> str:
    return f"{operation.verb} of {operation.table} {operation.key!r}"


def _merge(operation: Operation, current: bytes, encode: Encode) -> bytes:
    value = values.decode(current)
    if not isinstance(value, dict):
        raise InvalidValueError(f"{_named(operation)}: its value is not a JSON object with members; use set")
    assert operation.value is not None
    return encode(operation.table, value | values.decode(operation.value))


def check_size(effects: Sequence[Effect], limits: Limits, max_bytes: int) -> int:
    """The number of changes. Raises InvalidValueError for a transaction that is too large."""
    count = size = 0
    for effect in effects:
        count += effect.changes
        size += len(effect.key.encode()) + len(effect.value or b"")
    if count > limits.max_transaction_changes:
        raise InvalidValueError(
            f"the transaction has {count} changes; at most {limits.max_transaction_changes} are allowed: split it"
        )
    if size > max_bytes:
        raise InvalidValueError(
            f"the transaction has {size} bytes of keys and values; at most {max_bytes} are allowed: split it"
        )
    return count
