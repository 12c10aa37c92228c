"""The limits of all sizes, in one frozen struct."""

from typing import Annotated

import msgspec

from pubsub_lib.core.model import MAX_KEY_BYTES, MAX_NAME_BYTES
from pubsub_lib.errors import InvalidValueError

Positive = Annotated[int, msgspec.Meta(ge=1)]


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits in bytes and counts. Data to send beyond a limit raises an error; received data is dropped and counted."""

    max_value_bytes: Positive = 256 * 1024
    """One value, as canonical JSON."""
    max_value_depth: Positive = 64
    """Nesting of one value."""
    max_transaction_changes: Positive = 10_000
    """Changes of one transaction, after folding."""
    max_transaction_bytes: Positive = 16 * 1024 * 1024
    """Keys and values of one transaction."""
    max_frame_bytes: Positive = 1024 * 1024
    """One wire frame. A link that needs more is sent as a run of messages."""
    max_waiting_links: Positive = 10_000
    """Links that wait in one chain for an earlier one (runs count each part)."""
    max_waiting_bytes: Positive = 64 * 1024 * 1024
    """Changes that wait in one chain: table, key and value of each, and 200 bytes for its Python objects, so that
    deletes count as well."""


def check_name(kind: str, name: str) -> str:
    """Return a topic, table or service name. Raises InvalidValueError when it is empty, too long, not text, or holds a
    NUL.
    """
    return _check(kind, name, MAX_NAME_BYTES)


def check_key(key: str) -> str:
    """Return a key. Raises InvalidValueError when it is empty, too long, not text, or holds a NUL."""
    return _check("key", key, MAX_KEY_BYTES)


def _check(kind: str, text: str, maximum: int) -> str:
    if not isinstance(text, str):
        raise InvalidValueError(f"the {kind} {text!r} is a {type(text).__name__}; give a string")
    if not text:
        raise InvalidValueError(f"the {kind} is empty; give at least one character")
    if "\0" in text:
        raise InvalidValueError(f"the {kind} {text!r} holds a NUL character; leave it out")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidValueError(f"the {kind} {text!r} is not valid Unicode ({error.reason}); clean it first") from None
    if size > maximum:
        raise InvalidValueError(f"the {kind} {text[:40]!r}... has {size} bytes; at most {maximum} are allowed")
    return text
