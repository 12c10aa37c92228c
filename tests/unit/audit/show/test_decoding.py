"""Entries of this version, of a newer one, and of other programs."""

from typing import Any

import msgspec
import pytest
from hypothesis import given

from pubsub_lib.audit.show.decoding import KINDS, entry_of
from pubsub_lib.core.envelope import Message
from pubsub_lib.journal.entries import PREFIX, UNDECODABLE, Entry, frame
from tests.unit.journal.builders import entries, link


def body(entry: Entry) -> bytes:
    return frame(entry)[PREFIX.size :]


@given(entries)
def test_known_entry_is_decoded_as_by_all_readers(entry: Entry) -> None:
    assert entry_of(body(entry)) == msgspec.msgpack.decode(body(entry), type=Entry)


@pytest.mark.parametrize("more", [[], [["held", "held"], "s1", "cd", "t1", 5], [[], "s1", "cd", "t1", 5, [], []]])
def test_unknown_kind_is_decoded(more: list[Any]) -> None:
    found = entry_of(msgspec.msgpack.encode([7, 8, 9, "election", *more]))
    assert "election" not in KINDS
    assert (found.number, found.wall, found.mono, found.kind) == (7, 8, 9, "election")
    assert list(found.outcomes) == (more[0] if more else [])
    assert (found.topic, found.sequence) == (("t1", 5) if more else ("", 0))


def test_unknown_outcome_of_a_message_is_decoded() -> None:
    known = Entry(1, 2, 3, "data", ("applied",), "s1", "cd", "t1", 4, [Message(link(7))])
    unknown = msgspec.structs.replace(known, outcomes=("parked",))
    found = entry_of(body(unknown))
    assert found.outcomes == ["parked"]
    assert found.messages == entry_of(body(known)).messages


@pytest.mark.parametrize(
    "other", [7, [], [1, 2, 3], [1, 2, 3, 4], [1, 2, "3", "new"], [1, 2, 3, "new", "held"], [1, 2, 3, "new", [], 7], {}]
)
def test_other_data_is_an_error(other: object) -> None:
    with pytest.raises(UNDECODABLE):
        entry_of(msgspec.msgpack.encode(other))


@pytest.mark.parametrize("other", [b"", b"\xc1", b"\x94\x01\x02\x03\xa1\xff"])
def test_other_bytes_are_an_error(other: bytes) -> None:
    with pytest.raises(UNDECODABLE):
        entry_of(other)
