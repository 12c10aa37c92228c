"""The objects of a replica, for the process that compares: a file of MessagePack pages."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from pubsub_lib.core.model import Record

PAGE = 10_000
"""Number of objects that are encoded together. It bounds the additional memory."""


def write(path: Path, records: Sequence[Record]) -> None:
    """Write table, key, version and value of every object. Raises OSError."""
    encoder = msgspec.msgpack.Encoder()
    with path.open("wb") as file:
        for start in range(0, len(records), PAGE):
            page = encoder.encode(records[start : start + PAGE])
            file.write(len(page).to_bytes(8, "big") + page)


def read(path: Path) -> Iterator[Record]:
    """The objects of a dump. Raises OSError."""
    decoder = msgspec.msgpack.Decoder(list[Record])
    with path.open("rb") as file:
        while size := file.read(8):
            yield from decoder.decode(file.read(int.from_bytes(size, "big")))
