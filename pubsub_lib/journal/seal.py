"""A checksum over a whole Parquet file, kept inside the file (docs/audit.md, "Files").

Parquet's own checksums cover pages. Headers of pages and the metadata at the end have none: one changed bit there can
hide records or shift their values.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, Literal

import xxhash

CHECKSUM_KEY: Final = b"pubsub_lib.journal.xxh3"
UNSEALED: Final = b"0" * 16
"""The value of the key before a file is sealed. The checksum is that of the file with this value."""
_FIELD: Final = b"\x18\x10"
"""Thrift's bytes between the key and its value: a text of 16 bytes follows."""
_MAGIC: Final = b"PAR1"
_END: Final = 4 + len(_MAGIC)  # the length of Parquet's metadata, and the last letters of a complete file
_CHUNK: Final = 1 << 20


def seal(path: Path) -> None:
    """Replace ``UNSEALED`` by the checksum of the file. Blocks while it reads the file. Raises OSError, and ValueError
    when the file has no unsealed key.
    """
    with path.open("r+b") as file:
        at = _place(file)
        if at is None:
            raise ValueError(f"{path} has no key {CHECKSUM_KEY.decode()}")
        checksum = _checksum(file, at)
        file.seek(at)
        file.write(checksum)


def check_seal(path: Path) -> Literal["right", "wrong", "none"]:
    """Whether the file is as it was sealed; ``none``: the file has no checksum. Blocks while it reads the file. Raises
    OSError.
    """
    with path.open("rb") as file:
        at = _place(file)
        if at is None:
            return "none"
        file.seek(at)
        sealed = file.read(len(UNSEALED))
        return "right" if _checksum(file, at) == sealed else "wrong"


def _place(file: BinaryIO) -> int | None:
    """The offset of the checksum: in the metadata at the end of the file."""
    size = file.seek(0, os.SEEK_END)
    if size < _END:
        return None
    file.seek(size - _END)
    end = file.read(_END)
    if not end.endswith(_MAGIC):
        return None
    length = int.from_bytes(end[:4], "little") + _END
    begin = size - length if length <= size else 0  # the length may be damaged
    file.seek(begin)
    found = file.read().rfind(CHECKSUM_KEY + _FIELD)
    return None if found < 0 else begin + found + len(CHECKSUM_KEY + _FIELD)


def _checksum(file: BinaryIO, at: int) -> bytes:
    digest = xxhash.xxh3_64()
    file.seek(0)
    for chunk in _chunks(file, at):
        digest.update(chunk)
    digest.update(UNSEALED)
    size = file.seek(0, os.SEEK_END)
    file.seek(at + len(UNSEALED))
    for chunk in _chunks(file, size - at - len(UNSEALED)):
        digest.update(chunk)
    return digest.hexdigest().encode()


def _chunks(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size > 0 and (chunk := file.read(min(size, _CHUNK))):
        size -= len(chunk)
        yield chunk
