"""Checks of a worker's request before the service commits it: those that a store makes for its own callers.

A store checks what its program writes when a verb is called, in the program's process. A request comes from any process
that can open the socket: without these checks it could write rows that no sync of their topic can read.
"""

from typing import Final

from pubsub_lib.core import values
from pubsub_lib.core.limits import Limits, check_key, check_name
from pubsub_lib.core.model import MAX_NUMBER
from pubsub_lib.errors import FrameError, InvalidValueError
from pubsub_lib.store.verbs import Operation
from pubsub_lib.store.writer import Work

_INVALID: Final = "foreign"


def check_request(work: Work, limits: Limits) -> None:
    """Raises FrameError for a transaction that no store with these limits records. Any thread; does not block."""
    try:
        if not 1 <= work.nonce <= MAX_NUMBER:
            raise InvalidValueError(f"the nonce {work.nonce} is not valid")
        if work.origin:
            check_name("service", work.origin)
        for (table, key), version in work.reads.items():
            _check_place(table, key, version)
        for operation in work.operations:
            _check(operation, limits)
    except InvalidValueError as error:
        raise FrameError(f"a worker requests what no store records: {error}", _INVALID) from error


def _check_place(table: str, key: str, version: int | None) -> None:
    check_name("table", table)
    check_key(key)
    if version is not None and not 0 <= version <= MAX_NUMBER:
        raise InvalidValueError(f"the version {version} is not a valid position")


def _check(operation: Operation, limits: Limits) -> None:
    _check_place(operation.table, operation.key, operation.version)
    if operation.topic is not None:
        check_name("topic", operation.topic)
    if operation.verb == "delete":
        if operation.value is not None or operation.topic is not None:
            raise InvalidValueError("a delete has neither a value nor a topic")
        return
    if operation.missing_ok:
        raise InvalidValueError(f"missing_ok is of a delete, and not of {operation.verb!r}")
    if operation.value is None:
        raise InvalidValueError(f"the verb {operation.verb!r} needs a value")
    if len(operation.value) > limits.max_value_bytes:
        raise InvalidValueError(f"the value has {len(operation.value)} bytes of JSON")
    value = values.decode(operation.value)
    if values.encode(value, limits) != operation.value:
        raise InvalidValueError(f"the bytes {operation.value[:40]!r} are not canonical JSON")
    if operation.verb == "update" and not isinstance(value, dict):
        raise InvalidValueError("an update needs an object with the members to merge")
