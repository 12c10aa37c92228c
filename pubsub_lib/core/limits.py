"""The limits of all sizes, in one frozen struct."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from pubsub_lib.core.model import MAX_KEY_BYTES, MAX_NAME_BYTES
from pubsub_lib.errors import InvalidValueError

MAX_LINKS: Final = 2**53
"""Largest number of links that can be counted exactly, also where numbers are floats."""
MAX_HELLO_TOPICS: Final = 200
"""Maximum number of topics in one hello. A hello request about more topics gets several replies."""

Positive = Annotated[int, Meta(ge=1)]


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits in bytes and counts. Data to send beyond a limit raises an error; received data is dropped and counted."""

    max_value_bytes: Annotated[Positive, Meta(description="Maximum size of one value as canonical JSON, in bytes.")] = (
        256 * 1024
    )
    max_value_depth: Annotated[Positive, Meta(description="Maximum nesting depth of one value.")] = 64
    max_transaction_changes: Annotated[
        Positive, Meta(description="Maximum number of changes in one transaction, after changes of one key are folded.")
    ] = 10_000
    max_transaction_bytes: Annotated[
        Positive, Meta(description="Maximum size of a transaction's keys and values, in bytes.")
    ] = 16 * 1024 * 1024
    max_frame_bytes: Annotated[
        Positive, Meta(description="Maximum size of one wire frame, in bytes. Use one value on all hosts.")
    ] = 1024 * 1024
    # A link that needs more is sent as a run of messages.
    max_waiting_links: Annotated[
        Positive,
        Meta(
            description="Maximum number of messages of one topic that wait for an earlier message. Of all topics of a "
            "replica together 10 times as many."
        ),
    ] = 10_000
    max_waiting_bytes: Annotated[
        Positive,
        Meta(
            description="Maximum size of the waiting messages of one topic, in bytes. Of all topics of a replica "
            "together twice as much."
        ),
    ] = 64 * 1024 * 1024
    # The size is that of table, key and value of each change, and 200 bytes for its Python objects, so that deletes
    # count as well.


def check_name(kind: str, name: str) -> str:
    """Return a topic, table or service name. Raises InvalidValueError when it is empty, too long, not text, or holds a
    NUL.
    """
    return _check(kind, name, MAX_NAME_BYTES)


def check_key(key: str) -> str:
    """Return a key. Raises InvalidValueError when it is empty, too long, not text, or holds a NUL."""
    return _check("key", key, MAX_KEY_BYTES)


def _check(kind: str, text: str, maximum: int) -> str:
    if type(text) is str and text.isascii() and 0 < len(text) <= maximum and "\0" not in text:
        return text  # as nearly all are; the checks below name the fault of the others
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
