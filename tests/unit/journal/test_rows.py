"""Rows: the documented schema."""

import re
from pathlib import Path

import pyarrow as pa
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib.journal.entries import Entry, rows_of
from pubsub_lib.journal.rows import (
    COLUMNS,
    SCHEMA,
    ChangeRow,
    arrow_schema,
    as_columns,
    as_dict,
    from_dict,
    message_hash,
    signed,
    value_hash,
)
from tests.unit.journal.builders import HEADER, entries

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "audit.md"


def test_every_column_is_documented_with_its_version() -> None:
    text = DOCUMENT.read_text().partition("\n## Journals\n")[2]
    assert f"version {SCHEMA}" in text
    table = text.partition("\n### Columns\n")[2].partition("\n### ")[0]
    assert tuple(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == COLUMNS


def test_columns_of_parquet_are_those_of_the_row() -> None:
    assert tuple(arrow_schema().names) == COLUMNS
    changes = arrow_schema().field("changes").type.value_type
    assert [changes.field(index).name for index in range(changes.num_fields)] == list(ChangeRow.__struct_fields__)


@given(st.integers(0, 2**64 - 1))
def test_signed_keeps_the_bits(value: int) -> None:
    assert signed(value) % 2**64 == value
    assert -(2**63) <= signed(value) < 2**63


def test_value_hash_is_xxh3_and_zero_for_none() -> None:
    assert value_hash(b"abc") % 2**64 == xxhash.xxh3_64_intdigest(b"abc")
    assert value_hash(None) == 0


def test_message_hash_depends_on_every_field() -> None:
    change = ChangeRow("t", "k", 2, "set", 9, 1)
    one = message_hash((1, 2), (3, 4), 1, 1, [change])
    of_changes = [
        ChangeRow("u", "k", 2, "set", 9, 1),
        ChangeRow("t", "l", 2, "set", 9, 1),
        ChangeRow("t", "k", 3, "set", 9, 1),
        ChangeRow("t", "k", 2, "create", 9, 1),
        ChangeRow("t", "k", 2, "set", 8, 1),
    ]
    others = [
        message_hash((1, 3), (3, 4), 1, 1, [change]),
        message_hash((1, 2), (3, 5), 1, 1, [change]),
        message_hash((1, 2), (3, 4), 1, 2, [change]),
        message_hash((1, 2), (3, 4), 1, 1, []),
        *(message_hash((1, 2), (3, 4), 1, 1, [each]) for each in of_changes),
    ]
    assert len({one, *others}) == 1 + len(others)
    assert one == message_hash((1, 2), (3, 4), 1, 1, [ChangeRow("t", "k", 2, "set", 9, 1, before=1)])


@given(entries)
def test_row_round_trips_through_its_dict(entry: Entry) -> None:
    for row in rows_of(HEADER, entry):
        assert from_dict(as_dict(row)) == row


@given(st.lists(entries, min_size=1, max_size=5))
def test_columns_make_the_same_table_as_dicts(some: list[Entry]) -> None:
    rows = [row for entry in some for row in rows_of(HEADER, entry)]
    schema = arrow_schema()
    of_dicts = pa.Table.from_pylist([as_dict(row) for row in rows], schema=schema)
    if rows:
        assert pa.Table.from_pydict(as_columns(rows), schema=schema).equals(of_dicts)
