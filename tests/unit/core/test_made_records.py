"""Sequences of records that are made when they are read."""

from collections.abc import Iterator

import pytest

from pubsub_lib.core.made_records import MadeRecords
from pubsub_lib.core.model import Record

RECORDS = [Record("port", f"p{number}", number, b"1") for number in range(4)]


class Made(MadeRecords):
    def __len__(self) -> int:
        return len(RECORDS)

    def __iter__(self) -> Iterator[Record]:
        return iter(RECORDS)


def test_records_are_found_by_number_and_slice() -> None:
    made = Made()
    assert (made[1], made[-1], made[1:3]) == (RECORDS[1], RECORDS[3], RECORDS[1:3])
    assert RECORDS[2] in made


def test_equals_each_sequence_with_the_same_records_and_has_no_hash() -> None:
    assert Made() == RECORDS
    assert Made() == Made()
    assert Made() != RECORDS[:3]
    assert Made() != 7
    with pytest.raises(TypeError):
        hash(Made())
