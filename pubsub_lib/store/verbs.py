"""The four verbs as frozen data, and what they amount to together: a pure function of the objects as they stand."""

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
    """One recorded verb. ``value`` is canonical JSON: the whole value, or what an update merges; None for a delete.

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
        """The fingerprint as its table, key, version and value make it."""
        return digest.fingerprint(self.table, self.key, self.version, self.value)

    @property
    def is_sound(self) -> bool:
        """Whether it fits its fingerprint, as everything does that a writer wrote."""
        return self.real_fingerprint == self.fingerprint


class Effect(msgspec.Struct, frozen=True, gc=False):
    """What a transaction does to one object: from ``before`` to ``topic`` and ``value`` (None: absent)."""

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
        """Number of positions that it takes."""
        return 2 if self.moves else 1


Encode = Callable[[str, object], bytes]
"""(table, value) -> canonical JSON, checked against the table's type."""


def fold(operations: Sequence[Operation], stored: Mapping[Identity, Stored], encode: Encode) -> list[Effect]:
    """Run the verbs in order over the objects as they stand, and keep per object what came out of it.

    ``stored`` holds every named object that exists. Several verbs on one key become one effect (or, when bytes and
    topic end as they began, none), in the order in which the keys were first named. A compare-and-set always means the
    version before the transaction. Raises AlreadyExists, NotFound, VersionMismatch, InvalidValueError.
    """
    state: dict[Identity, tuple[str, bytes] | None] = {}
    for operation in operations:
        identity = (operation.table, operation.key)
        before = stored.get(identity)
        if identity not in state:
            state[identity] = None if before is None else (before.topic, before.value)
        _check_version(operation, before)
        state[identity] = _apply(operation, state[identity], encode)
    effects = []
    for (table, key), after in state.items():
        before = stored.get((table, key))
        if after is None:
            if before is not None:
                effects.append(Effect(table, key, before, before.topic, None))
        elif before is None or (before.topic, before.value) != after or not before.is_sound:
            # Bytes that somebody altered to equal ones are written, too: a repair would else put back the old ones.
            effects.append(Effect(table, key, before, *after))
    return effects


def _check_version(operation: Operation, before: Stored | None) -> None:
    if operation.version is None:
        return
    current = 0 if before is None else before.version
    if operation.version != current and not (before is None and operation.missing_ok):
        where = f"{operation.table} {operation.key!r}"
        if before is None and operation.verb in ("update", "delete"):
            raise NotFound(
                f"{operation.verb} of {where} expects version {operation.version}, but there is no such object"
            )
        raise VersionMismatch(
            f"{operation.verb} of {where} expects version {operation.version}, but it is {current}; read it again"
        )


def _apply(operation: Operation, now: tuple[str, bytes] | None, encode: Encode) -> tuple[str, bytes] | None:
    where = f"{operation.table} {operation.key!r}"
    if operation.verb == "delete":
        if now is None and not operation.missing_ok:
            raise NotFound(f"delete of {where}: there is no such object; pass missing_ok=True if that is fine")
        return None
    assert operation.value is not None
    if operation.verb == "create" and now is not None:
        raise AlreadyExists(f"create of {where}: it exists already; use set or update")
    if operation.verb == "update":
        if now is None:
            raise NotFound(f"update of {where}: there is no such object; use set or create")
        return operation.topic or now[0], _merge(operation, now[1], encode)
    kept = now[0] if now is not None else DEFAULT_TOPIC
    return operation.topic or kept, operation.value


def _merge(operation: Operation, current: bytes, encode: Encode) -> bytes:
    value = values.decode(current)
    if not isinstance(value, dict):
        raise InvalidValueError(
            f"update of {operation.table} {operation.key!r}: its value is no object with members; use set"
        )
    assert operation.value is not None
    return encode(operation.table, value | values.decode(operation.value))


def check_size(effects: Sequence[Effect], limits: Limits, max_bytes: int) -> None:
    """Refuse a transaction that is too large. Raises InvalidValueError."""
    count = sum(effect.changes for effect in effects)
    if count > limits.max_transaction_changes:
        raise InvalidValueError(
            f"the transaction has {count} changes; at most {limits.max_transaction_changes} are allowed: split it"
        )
    size = sum(len(effect.key.encode()) + len(effect.value or b"") for effect in effects)
    if size > max_bytes:
        raise InvalidValueError(
            f"the transaction has {size} bytes of keys and values; at most {max_bytes} are allowed: split it"
        )
