"""Records as lines: a table for people, and JSON. Control characters are escaped in both."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final
from unicodedata import east_asian_width

import msgspec

from pubsub_lib.audit.settings import SECOND
from pubsub_lib.audit.show.source import Source
from pubsub_lib.journal.rows import ChangeRow, Row, as_dict
from pubsub_lib.logs import printable, printable_json

_COLUMNS: Final = (
    ("time", 24), ("number", -7), ("record", 16), ("topic", 12), ("sequence", -8), ("position", -8), ("object", 20),
    ("operation", 9), ("version", 9), ("publisher", 16), ("note", 0),
)  # fmt: skip
"""Names and widths; a negative width: the text is on the right. A longer text is not cut."""
_GAP: Final = "  "
_UUID: Final = 8
"""Number of digits of a publisher's UUID that the table shows."""


def title() -> str:
    """The names of the table's columns."""
    return _line([name for name, _ in _COLUMNS])


def table_line(row: Row, changes: Sequence[ChangeRow]) -> str:
    """A record as a line of the table. ``changes``: those of the record, the one to show first."""
    first = changes[0] if changes else None
    outcome = f" {row.outcome}" if row.outcome else ""
    return _line(
        [
            moment(row.wall),
            str(row.number),
            f"{row.kind}{outcome}",
            row.topic,
            _number(row.sequence),
            _number(row.position),
            f"{first.table}/{first.key}" if first else "",
            first.action if first else "",
            _version(first) if first else "",
            f"{row.service} {row.uuid[:_UUID]}".strip(),
            ", ".join(_notes(row, len(changes))),
        ]
    )


def json_line(source: Source, row: Row) -> str:
    """A record as a JSON object in one line: all columns of the journal, the file, and the readable time."""
    path = str(source.path).encode(errors="backslashreplace").decode()
    found = {"time": moment(row.wall), "file": path, **as_dict(row)}
    return printable_json(msgspec.json.encode(found).decode())


def summary(source: Source) -> str:
    """The line before the records of a file: whose it is, and since when."""
    file, row = source.file, source.first
    if row is None:
        return printable(f"{source.path}: no record")
    part = f", part {file.part}" if file.part else ""
    parts = f" ({file.parts} in its folder)" if file.part and file.parts else ""
    begin = "begins" if row.kind == "open" else "continues"
    growing = ", being written" if source.growing else ""
    who = f"{row.side} {row.name}".strip()
    return printable(
        f"{source.path}: {who} on {row.host}, run {row.run}{part}{parts}, {begin} {moment(row.wall)}{growing}"
    )


def moment(micros: int) -> str:
    """Microseconds since 1970 as ISO 8601 in UTC, with milliseconds; the number itself when no calendar has it."""
    try:
        time = datetime.fromtimestamp(micros // SECOND, UTC)
    except (ValueError, OverflowError, OSError):
        return str(micros)
    return f"{time:%Y-%m-%dT%H:%M:%S}.{micros % SECOND // 1000:03d}Z"


def _notes(row: Row, changes: int) -> Iterator[str]:
    if changes > 1:
        yield f"1 of {changes} objects"
    if row.parts > 1:
        yield f"part {row.part} of {row.parts}"
    message = row.kind == "data"
    if row.cause and (not message or row.outcome == "dropped"):  # of other messages the origin
        yield row.cause
    if row.count and not message:
        yield f"count {row.count}"
    if row.size and row.kind == "sync_end":
        yield f"{row.size} bytes"
    if row.peer:
        yield f"peer {row.peer}"


def _version(change: ChangeRow) -> str:
    return str(change.version) if change.before is None else f"{change.before}->{change.version}"


def _number(value: int) -> str:
    return str(value) if value else ""


def _line(texts: Sequence[str]) -> str:
    cells = (_padded(printable(text), width) for text, (_, width) in zip(texts, _COLUMNS, strict=True))
    return _GAP.join(cells).rstrip()


def _padded(text: str, width: int) -> str:
    """The text in at least ``width`` cells of a terminal. A Chinese character takes two."""
    wide = 0 if text.isascii() else sum(east_asian_width(each) in "WF" for each in text)
    space = " " * (abs(width) - len(text) - wide)
    return space + text if width < 0 else text + space
