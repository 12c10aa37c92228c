"""Facts about a journal file that its Parquet form keeps in its metadata (docs/audit.md, "Files")."""

from collections.abc import Mapping, Sequence
from typing import Final

from pubsub_lib.journal.entries import Contents

SCHEMA_KEY: Final = b"pubsub_lib.journal.schema"
TORN_KEY: Final = b"pubsub_lib.journal.torn"
RECORDS_KEY: Final = b"pubsub_lib.journal.records"
"""A file with this key is sealed (:mod:`pubsub_lib.journal.seal`)."""
_SEALED: Final = 2
"""Files with this schema version, or a later one, were always sealed."""
_CUT, _DAMAGED = "cut", "damaged"


def metadata_of(contents: Contents) -> dict[bytes, bytes]:
    """The metadata of the Parquet file that is made of an append file."""
    found = {SCHEMA_KEY: str(contents.header.schema).encode()}
    if contents.torn:
        found[TORN_KEY] = f"{_DAMAGED if contents.damaged else _CUT} {contents.torn}".encode()
    return found


def is_sealed(metadata: Mapping[bytes, bytes] | None) -> bool:
    """Whether the file was written with a checksum."""
    return RECORDS_KEY in (metadata or {})


def lacks_seal(metadata: Mapping[bytes, bytes]) -> bool:
    """Whether the file has no checksum, although its schema version is younger than checksums."""
    return not is_sealed(metadata) and int(metadata[SCHEMA_KEY]) >= _SEALED


def unsealed_problem(names: Sequence[object]) -> str:
    """The sentence about files without a checksum; "" without any."""
    if not names:
        return ""
    return (
        f"{len(names)} files have no checksum (first: {names[0]}), as those from before 2026-11-26, so it is not known "
        "whether their records were altered; remove them, or copy the original files again"
    )


def is_torn(metadata: Mapping[bytes, bytes] | None) -> bool:
    """Whether bytes at the end of the append file were not read."""
    return TORN_KEY in (metadata or {})


def is_cut(metadata: Mapping[bytes, bytes] | None) -> bool:
    """Whether the append file ended in the middle of a record, and was not damaged otherwise."""
    return (metadata or {}).get(TORN_KEY, b"").startswith(_CUT.encode())


def as_damaged(metadata: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """The metadata of a cut file, for one that a later look at the append file showed to be damaged."""
    size = metadata[TORN_KEY].partition(b" ")[2]
    return {**metadata, TORN_KEY: _DAMAGED.encode() + b" " + size}


def torn_problem(name: str, metadata: Mapping[bytes, bytes] | None, records: int) -> str:
    """The sentence about records that are missing at the end of a file with this number of records; "" without any."""
    torn = (metadata or {}).get(TORN_KEY, b"").decode(errors="replace")
    if not torn:
        return ""
    why, _, size = torn.partition(" ")
    if why == _CUT:
        return (
            f"{name} ends in the middle of a record: {_records(records)} read, and the last {size} bytes were not; "
            "its writer was killed or its disk was full, or the file is an incomplete copy: then copy it again"
        )
    return (
        f"{name} was damaged after it was written: {_records(records)} read, and the last {size} bytes were not, so "
        "their records are missing; check the disk, or copy the file again"
    )


def empty_problem(name: object, *, begun: bool) -> str:
    """The sentence about a file without any record that no process writes; ``begun``: it has a header. A program writes
    a record as soon as it has begun a file.
    """
    what = "has no whole record, as after a full disk" if begun else "is empty, as after a power loss"
    return f"{name} {what}; its records count as lost"


def _records(number: int) -> str:
    return "1 whole record was" if number == 1 else f"{number} whole records were"
