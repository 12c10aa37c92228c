"""Mutations of bytes, of trees (what JSON or msgpack decode to) and of sequences. All randomness is the caller's."""

import math
from random import Random
from typing import Any, Final

import msgspec

_INTEGERS: Final = (0, 1, -1, 2, 127, 128, 255, 256, 65_535, 2**31 - 1, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, 2**63,
                    2**64 - 1, -(2**31), -(2**63))  # fmt: skip
_FLOATS: Final = (0.0, -0.0, 1.5, 1e300, -1e15, 1e-320, math.inf, -math.inf, math.nan)
_TEXTS: Final = ("", "a", "\0", "a\0b", "\n", "\x1b[2J", "../..", "é", "😀", "\u202e", "x" * 65, "x" * 300, "x" * 5000)
_BYTES: Final = (b"", b"\0", b"{}", b'"\\ud800"', b"\xff\xfe", b"1e999", b"[" * 200, b"x" * 70, bytes(16), bytes(5000))

MOST: Final = 1 << 20
"""Maximum bytes of an input; a larger one is cut."""


def edge(rng: Random) -> Any:
    """A value at the edge of some type."""
    kind = rng.randrange(8)
    if kind < 3:
        return rng.choice(_INTEGERS)
    if kind == 3:
        return rng.choice(_FLOATS)
    if kind == 4:
        return rng.choice(_TEXTS)
    if kind == 5:
        return rng.choice(_BYTES)
    return rng.choice((None, True, False, [], {}, [[]], [None] * 40, {"": 0}))


def changed_bytes(data: bytes, rng: Random) -> bytes:
    """The bytes with one to four random changes."""
    result = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(result) + 1)
        size = min(rng.choice((1, 1, 2, 4, 8, 64)), len(result) - at)
        kind = rng.randrange(6)
        if kind == 0 and size:
            result[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            result[at : at + size] = rng.randbytes(size)
        elif kind == 2:
            del result[at : at + size]
        elif kind == 3:
            result[at:at] = rng.randbytes(rng.choice((1, 2, 8)))
        elif kind == 4:
            result[at:at] = result[at : at + size] * rng.choice((1, 2, 20))
        elif rng.randrange(4) == 0:
            del result[at:]
    return bytes(result[:MOST])


def changed_list(items: list[Any], rng: Random, change: Any) -> list[Any]:
    """The list with one item changed by ``change(item, rng)``, removed, repeated or moved."""
    result = list(items)
    kind = rng.randrange(8)
    if not result or kind == 0:
        result.insert(rng.randrange(len(result) + 1), rng.choice(result) if result else edge(rng))
        return result
    at = rng.randrange(len(result))
    if kind == 1:
        del result[at]
    elif kind == 2:
        other = rng.randrange(len(result))
        result[at], result[other] = result[other], result[at]
    else:
        result[at] = change(result[at], rng)
    return result


def changed_tree(tree: Any, rng: Random) -> Any:
    """A copy of the tree with one change somewhere in it."""
    if isinstance(tree, list | tuple) and tree and rng.randrange(8):
        return changed_list(list(tree), rng, changed_tree)
    if isinstance(tree, dict) and tree and rng.randrange(8):
        name = rng.choice(list(tree))
        if rng.randrange(5) == 0:
            return {key: value for key, value in tree.items() if key != name}
        if rng.randrange(5) == 0:
            return {(edge_key(rng) if key == name else key): value for key, value in tree.items()}
        return {**tree, name: changed_tree(tree[name], rng)}
    if isinstance(tree, bytes) and tree and rng.randrange(3):
        return changed_bytes(tree, rng)
    if isinstance(tree, int) and rng.randrange(3) == 0:
        return tree + rng.choice((-1, 1, 2, 1 << 31))
    return edge(rng)


def edge_key(rng: Random) -> str:
    """A name of a member."""
    return rng.choice(_TEXTS)


def changed_msgpack(data: bytes, rng: Random) -> bytes:
    """Encoded data with one change of its tree, or of its bytes when these are not msgpack or cannot be encoded."""
    if rng.randrange(5) == 0:
        return changed_bytes(data, rng)
    try:
        return msgspec.msgpack.encode(changed_tree(msgspec.msgpack.decode(data), rng))
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError):
        return changed_bytes(data, rng)


def changed_json(data: bytes, rng: Random) -> bytes:
    """As :func:`changed_msgpack` for JSON. Bytes in the tree become base64."""
    if rng.randrange(5) == 0:
        return changed_bytes(data, rng)
    try:
        return msgspec.json.encode(changed_tree(msgspec.json.decode(data), rng))
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError):
        return changed_bytes(data, rng)
