"""The routes in their files, and the expected contents of a database after them."""

import gzip
import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from pubsub_lib.core import digest
from pubsub_lib.errors import UsageError

Identity = tuple[str, str]
"""(table, key)."""
State = dict[Identity, tuple[str, bytes]]
"""Topic and canonical value of every object."""


class Route(msgspec.Struct, frozen=True, gc=False):
    """One line of a file."""

    time: int
    table: str
    key: str
    topic: str
    action: Literal["create", "set", "delete"]
    value: dict[str, Any] | None


def read(path: Path, maximum: int | None = None) -> Iterator[Route]:
    """The lines of a file, at most ``maximum``. Raises UsageError when it is missing or invalid."""
    decoder = msgspec.json.Decoder(Route)
    try:
        with gzip.open(path) as lines:
            for line in itertools.islice(lines, maximum):
                yield decoder.decode(line)
    except FileNotFoundError as error:
        raise UsageError(f"the file {path} is missing; name the folder that holds it") from error
    except (OSError, EOFError, zlib.error, msgspec.MsgspecError) as error:
        raise UsageError(f"the file {path} cannot be read as routes ({error}); copy it again") from error


def count(path: Path) -> int:
    """Number of lines. Raises UsageError."""
    try:
        with gzip.open(path) as lines:
            return sum(1 for _ in lines)
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"the file {path} cannot be read ({error}); name the folder that holds it") from error


def share(routes: Iterable[Route], index: int, of: int) -> list[Route]:
    """The part of one of ``of`` writers: all lines of a key go to the same writer, so their order is kept.

    The hash is not crc32, by which the small files were cut: crc32 would give one writer nearly all lines.
    """
    return [route for route in routes if digest.bucket_of(route.table, route.key) % of == index]


def batches(routes: Iterable[Route], size: int) -> Iterator[list[Route]]:
    """The lines in lists of at most ``size``."""
    left = iter(routes)
    while part := list(itertools.islice(left, size)):
        yield part


def follow(state: State, routes: Iterable[Route]) -> dict[str, int]:
    """Apply these lines to ``state``. Returns the number of lines that changed something, by topic."""
    # Not the library's encoder, so that the expected state does not share its errors.
    encoder = msgspec.json.Encoder(order="sorted")
    changed = dict[str, int]()
    for route in routes:
        identity = (route.table, route.key)
        old = state.get(identity)
        new = None if route.action == "delete" else (route.topic, encoder.encode(route.value))
        if new == old:
            continue
        if new is None:
            del state[identity]
        else:
            state[identity] = new
        for topic in {each[0] for each in (old, new) if each is not None}:
            changed[topic] = changed.get(topic, 0) + 1
    return changed


def topics_of(state: State) -> Sequence[str]:
    """The topics in a state, sorted."""
    return sorted({topic for topic, _ in state.values()})
