"""Canonical JSON: the one byte form of a value. Encoded once by the writer, then stored, sent and compared verbatim.

Object members are sorted by name, there are no spaces, text is UTF-8 and not escaped. NaN and the infinities, integers
outside of 64 bits and all other values that JSON does not have are refused, never changed silently. After RFC 8785
(JSON Canonicalization Scheme), but with the members sorted by code point and with integers of the full 64 bits.
"""

import math
from collections.abc import Collection
from typing import Any, Final

import msgspec

from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import InvalidValueError

_ENCODER = msgspec.json.Encoder(order="sorted")
_DECODER = msgspec.json.Decoder()
_NAME: Final = frozenset((str,))
_TEXT: Final = frozenset((str, bool, type(None)))
_INTEGER: Final = frozenset((int,))
_MIN: Final = -(2**63)
_MAX: Final = 2**64 - 1
_PLAIN_DEPTH: Final = 2
"""Levels of a value that is only checked by its types."""
DECODE_ERRORS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for JSON that is invalid, that does not fit a type, or that is nested too deeply."""


def encode(value: object, limits: Limits) -> bytes:
    """Return the canonical JSON of a value made of dict, list, tuple, str, int, float, bool and None.

    Raises InvalidValueError when the value holds anything else, NaN, an infinity, an integer outside of 64 bits, text
    that is not valid Unicode, more nesting than ``limits.max_value_depth`` (a cycle, too), or more than
    ``limits.max_value_bytes``. Any thread; does not block.
    """
    if not _is_plain(value, limits):
        _check(value, limits)
    try:
        data = _ENCODER.encode(value)
    except UnicodeEncodeError as error:
        raise InvalidValueError(
            f"the value holds text that is not valid Unicode ({error.reason}); clean it first"
        ) from None
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidValueError(f"the value cannot be encoded as JSON: {error}") from error
    if len(data) > limits.max_value_bytes:
        raise InvalidValueError(
            f"the value has {len(data)} bytes of JSON; at most {limits.max_value_bytes} are allowed"
        )
    return data


def decode(data: bytes) -> Any:
    """Return the value of canonical (or any other) JSON. Raises InvalidValueError for invalid JSON. Any thread."""
    try:
        return _DECODER.decode(data)
    except DECODE_ERRORS as error:
        raise InvalidValueError(f"the bytes {data[:40]!r} are not valid JSON: {error}") from error


def _is_plain(value: object, limits: Limits) -> bool:
    """Whether the value is an object of text, integers and lists of these within the limits, as most values are."""
    if type(value) is not dict or not _NAME.issuperset(map(type, value)) or limits.max_value_depth < _PLAIN_DEPTH:
        return False
    nodes = len(value)
    if not _TEXT.issuperset(map(type, value.values())):
        for each in value.values():
            kind = type(each)
            if kind is int:
                if not _MIN <= each <= _MAX:
                    return False
            elif kind is list:
                nodes += len(each)
                kinds = set(map(type, each))
                if not (_TEXT.issuperset(kinds) or (kinds == _INTEGER and min(each) >= _MIN and max(each) <= _MAX)):
                    return False
            elif kind not in _TEXT:
                return False
    return nodes <= limits.max_value_bytes


def _check(value: object, limits: Limits) -> None:
    """Check level by level, without recursion. Every node costs at least one byte of JSON, so ``max_value_bytes``
    bounds their number, also for a small graph that shares its parts."""
    level: list[Collection[object]] = [(value,)]
    nodes = depth = 0
    while level:
        if depth > limits.max_value_depth:
            raise InvalidValueError(f"the value is nested deeper than {limits.max_value_depth} levels; make it flatter")
        deeper: list[Collection[object]] = []
        for members in level:
            nodes += len(members)
            if nodes > limits.max_value_bytes:
                raise InvalidValueError(
                    f"the value has more than {limits.max_value_bytes} bytes of JSON; make it smaller"
                )
            if not _TEXT.issuperset(map(type, members)):  # most containers hold text only
                deeper.extend(found for found in map(_inner, members) if found is not None)
        level = deeper
        depth += 1


def _inner(item: object) -> Collection[object] | None:
    """The members of a container, or None for a leaf that JSON has."""
    kind = type(item)
    if kind in _TEXT:
        return None
    if kind is int:
        assert isinstance(item, int)
        if not _MIN <= item <= _MAX:
            raise InvalidValueError(f"the value holds {item}, which has more than 64 bits; write it as a string")
        return None
    if isinstance(item, dict):
        if not _NAME.issuperset(map(type, item)):
            for name in item:
                if not isinstance(name, str):
                    raise InvalidValueError(
                        f"the value has the member name {name!r}, a {type(name).__name__}; use a string"
                    )
        return item.values()
    if isinstance(item, list | tuple):
        return item
    if kind is float:
        assert isinstance(item, float)
        if not math.isfinite(item):
            raise InvalidValueError(f"the value holds {item}, which JSON does not have; use null or a string")
        return None
    raise InvalidValueError(f"the value holds {item!r:.80}, a {kind.__name__}, which JSON does not have; convert it")
