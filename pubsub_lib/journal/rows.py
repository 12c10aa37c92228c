"""The documented schema of a journal's records, version 2 (docs/audit.md, "Journals"). One row is one record.

The audit reads rows. An append file keeps entries (:mod:`~pubsub_lib.journal.entries`), which are cheaper to write and
are converted to rows when the file is compacted or read.
"""

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
import xxhash

SCHEMA: Final = 2
"""Version of the schema. It grows when older programs would misjudge the records; a newer version is rejected."""
PLAIN: Final = 1
"""The version of journals of participants that are neither relays nor below one: older programs read them rightly."""

Side = Literal["writer", "service", "replica", "relay", "store"]
Kind = Literal[
    "open", "mark", "close", "data", "hello", "ask", "interest", "drop", "sync_begin", "sync_end", "reject",
    "object", "listing", "changelog", "rot", "contradicted", "held", "parent",
]  # fmt: skip
Outcome = Literal[
    "", "committed", "handed", "taken", "sent", "applied", "waiting", "old", "part", "dropped",
    "delta", "full", "incomplete", "failed",
]  # fmt: skip


class ChangeRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One change of a message, or one object of a listing. ``hash`` is of the value's bytes, 0 without a value;
    ``before`` is the version that was replaced, when the participant knows it.
    """

    table: str
    key: str
    version: int
    action: str
    hash: int
    size: int
    before: int | None = None


class Row(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One record. Columns that a kind does not use hold their defaults; docs/audit.md lists the kinds.

    Times are microseconds: ``wall`` since 1970 in UTC, ``mono`` of the host's monotonic clock. ``hash``, ``digest``
    and the hashes of changes are 64 bits, signed because Parquet's readers have no unsigned type.
    """

    side: Side
    name: str
    host: str
    run: str
    number: int
    kind: Kind
    wall: int
    mono: int
    service: str = ""
    uuid: str = ""
    topic: str = ""
    sequence: int = 0
    position: int = 0
    nonce: int = 0
    prev_position: int = 0
    prev_nonce: int = 0
    part: int = 0
    parts: int = 0
    hash: int = 0
    size: int = 0
    outcome: Outcome = ""
    cause: str = ""
    peer: str = ""
    written: int = 0
    count: int = 0
    digest: int = 0
    changes: tuple[ChangeRow, ...] = ()


COLUMNS: Final = tuple(field.name for field in msgspec.structs.fields(Row))

_ENCODE = msgspec.msgpack.Encoder().encode


def signed(value: int) -> int:
    """The signed 64-bit integer with the same bits."""
    return value - (1 << 64) if value >= 1 << 63 else value


def value_hash(value: bytes | None) -> int:
    """XXH3-64 of a value's bytes as a signed integer; 0 when there is no value. Any thread, does not block."""
    return 0 if value is None else signed(xxhash.xxh3_64_intdigest(value))


def message_hash(prev: Sequence[int], point: Sequence[int], part: int, parts: int, changes: Sequence[ChangeRow]) -> int:
    """XXH3-64 of a message's contents, signed: points as (position, nonce), its part, and its changes.

    The fields are named here one by one, so that fields which a later version appends to the wire do not change it.
    """
    listed = [[each.table, each.key, each.version, each.action, each.hash] for each in changes]
    return signed(xxhash.xxh3_64_intdigest(_ENCODE([*prev, *point, part, parts, listed])))


_CHANGE_COLUMNS: Final = tuple(field.name for field in msgspec.structs.fields(ChangeRow))


_VALUES: Final = operator.attrgetter(*COLUMNS)
_CHANGE_VALUES: Final = operator.attrgetter(*_CHANGE_COLUMNS)


def as_columns(rows: Sequence[Row]) -> dict[str, Sequence[object]]:
    """Rows as the values of each column by its name, for Parquet's writer; a change is the tuple of its values. It
    takes a fraction of the time of a dict for each row. ``rows``: at least one.
    """
    columns: dict[str, Sequence[object]] = dict(zip(COLUMNS, zip(*map(_VALUES, rows), strict=True), strict=True))
    columns["changes"] = [list(map(_CHANGE_VALUES, row.changes)) for row in rows]
    return columns


def as_dict(row: Row) -> dict[str, object]:
    """A row as a dict by column names."""
    values: dict[str, object] = {name: getattr(row, name) for name in COLUMNS}
    values["changes"] = [{name: getattr(each, name) for name in _CHANGE_COLUMNS} for each in row.changes]
    return values


def from_dict(values: Mapping[str, Any]) -> Row:
    """The row of a dict as ``as_dict`` makes it. Raises TypeError when columns are missing or unknown."""
    changes = tuple(ChangeRow(**each) for each in values["changes"])
    return Row(**{**values, "changes": changes})


def arrow_schema() -> Any:
    """The schema of the Parquet form (a ``pyarrow.Schema``). Raises ImportError without pyarrow."""
    import pyarrow as pa

    number, text = pa.int64(), pa.string()
    of_change = {"table": text, "key": text, "version": number, "action": text, "hash": number, "size": number}
    changes = pa.list_(pa.struct([*of_change.items(), ("before", number)]))
    columns = {
        field.name: text if field.type in (str, Side, Kind, Outcome) else number
        for field in msgspec.structs.fields(Row)
        if field.name != "changes"
    }
    return pa.schema([*columns.items(), ("changes", changes)])
