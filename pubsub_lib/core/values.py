"""Canonical JSON: the one byte form of a value. Encoded once by the writer, then stored, sent and compared verbatim.

Object members are sorted by name, there are no spaces, text is UTF-8 and not escaped. NaN and the infinities, integers
outside of 64 bits and all other values that JSON does not have are refused, never changed silently. After RFC 8785
(JSON Canonicalization Scheme), but with the members sorted by code point and with integers of the full 64 bits.
"""

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import InvalidValueError

_ENCODER = msgspec.json.Encoder(order="sorted")
_DECODER = msgspec.json.Decoder()


def encode(value: object, limits: Limits) -> bytes:
    """Return the canonical JSON of a value made of dict, list, tuple, str, int, float, bool and None.

    Raises InvalidValueError when the value holds anything else, NaN, an infinity, an integer outside of 64 bits, text
    that is not valid Unicode, more nesting than ``limits.max_value_depth`` (a cycle, too), or more than
    ``limits.max_value_bytes``. Any thread; does not block.
    """
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
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidValueError(f"the bytes {data[:40]!r} are not valid JSON: {error}") from error


def _check(value: object, limits: Limits) -> None:
    """Check without recursion. Every node costs at least one byte of JSON, so ``max_value_bytes`` bounds their number,
    also for a small graph that shares its parts."""
    nodes = 0
    stack: list[Iterator[object]] = [iter((value,))]
    while stack:
        for item in stack[-1]:
            nodes += 1
            if nodes > limits.max_value_bytes:
                raise InvalidValueError(
                    f"the value has more than {limits.max_value_bytes} bytes of JSON; make it smaller"
                )
            inner = _inner(item)
            if inner is not None:
                if len(stack) > limits.max_value_depth:
                    raise InvalidValueError(
                        f"the value is nested deeper than {limits.max_value_depth} levels; make it flatter"
                    )
                stack.append(inner)
                break
        else:
            stack.pop()


def _inner(item: object) -> Iterator[object] | None:
    """The members of a container, or None for a leaf that JSON has."""
    kind = type(item)
    if kind is str or kind is bool or item is None:
        return None
    if isinstance(item, dict):
        for name in item:
            if not isinstance(name, str):
                raise InvalidValueError(
                    f"the value has the member name {name!r}, a {type(name).__name__}; use a string"
                )
        return iter(item.values())
    if isinstance(item, list | tuple):
        return iter(item)
    if kind is int:
        assert isinstance(item, int)
        if not -(2**63) <= item < 2**64:
            raise InvalidValueError(f"the value holds {item}, which has more than 64 bits; write it as a string")
        return None
    if kind is float:
        assert isinstance(item, float)
        if not math.isfinite(item):
            raise InvalidValueError(f"the value holds {item}, which JSON does not have; use null or a string")
        return None
    raise InvalidValueError(f"the value holds {item!r:.80}, a {kind.__name__}, which JSON does not have; convert it")
