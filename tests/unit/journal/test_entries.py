"""The append form: whole entries are read, whatever bytes follow them."""

import struct

import msgspec
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib.core.codec import pieces
from pubsub_lib.core.envelope import Packed
from pubsub_lib.core.model import Point, Record
from pubsub_lib.errors import JournalError
from pubsub_lib.journal.entries import MAGIC, Entry, beginning, frame, parse, rows_of
from pubsub_lib.journal.rows import SCHEMA, value_hash
from tests.unit.journal.builders import HEADER, entries, envelope, link


@given(st.lists(entries, max_size=4), st.data())
def test_truncated_file_returns_all_whole_entries(written: list[Entry], data: st.DataObject) -> None:
    whole = beginning(HEADER)
    ends = [len(whole)]
    for entry in written:
        whole += frame(entry)
        ends.append(len(whole))
    cut = data.draw(st.integers(ends[0], len(whole)))
    contents = parse(whole[:cut], "f")
    kept = max(index for index, end in enumerate(ends) if end <= cut)
    assert contents.header == HEADER
    assert [frame(each) for each in contents.entries] == [frame(each) for each in written[:kept]]
    assert contents.torn == cut - ends[kept]
    assert not contents.damaged


@given(st.lists(entries, min_size=1, max_size=3), st.data())
def test_parse_stops_at_a_changed_byte(written: list[Entry], data: st.DataObject) -> None:
    whole = bytearray(beginning(HEADER))
    begin = len(whole)
    for entry in written:
        whole += frame(entry)
    at = data.draw(st.integers(begin, len(whole) - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    contents = parse(bytes(whole), "f")
    assert contents.torn > 0
    assert [frame(each) for each in contents.entries] == [frame(each) for each in written[: len(contents.entries)]]
    assert len(contents.entries) < len(written)


def test_whole_frame_with_a_wrong_checksum_is_damage_also_at_the_end() -> None:
    entry = Entry(1, 2, 3, "mark")
    whole = bytearray(beginning(HEADER) + frame(entry))
    whole[-1] ^= 1
    assert parse(bytes(whole), "f").damaged
    assert parse(beginning(HEADER) + frame(entry) + bytes(8), "f").damaged  # zeros after a power cut
    assert not parse(beginning(HEADER) + frame(entry) + frame(entry)[:-1], "f").damaged


@pytest.mark.parametrize("data", [b"", b"PAR1" * 40, beginning(HEADER)[:30]])
def test_invalid_file_is_rejected_in_one_sentence(data: bytes) -> None:
    with pytest.raises(JournalError, match=r"^ab\.journal (is not a journal|has no readable header)"):
        parse(data, "ab.journal")


def test_newer_schema_is_rejected_by_its_number() -> None:
    newer = msgspec.structs.replace(HEADER, schema=SCHEMA + 1)
    with pytest.raises(JournalError, match=f"has the schema version {SCHEMA + 1}"):
        parse(beginning(newer), "x")


def test_messages_become_a_row_each() -> None:
    sent = envelope(7, 8)
    entry = Entry(40, 1, 2, "data", ("applied", "waiting"), sent.service, sent.uuid, sent.topic, 11, sent.messages)
    first, second = rows_of(HEADER, entry)
    assert (first.number, first.sequence, first.outcome, first.position) == (40, 11, "applied", 7)
    assert (second.number, second.sequence, second.outcome, second.position) == (41, 12, "waiting", 8)
    assert (first.prev_position, first.prev_nonce, first.nonce) == (6, 5, 6)
    assert (first.side, first.name, first.run, first.wall, first.mono) == ("replica", "controller-1", "ab" * 16, 1, 2)
    assert (first.service, first.uuid, first.topic, first.written) == ("s1", "cd" * 16, "t1", 1_500_000)
    assert first.digest == 1 - 2**63
    (change,) = first.changes
    assert (change.table, change.key, change.version, change.action) == ("lport", "p1", 7, "set")
    assert (change.hash, change.size, change.before) == (value_hash(b'{"a":1}'), 7, None)
    assert first.hash != second.hash


@pytest.mark.parametrize("number", [1, 15, 16, 70_000])
def test_packed_messages_give_the_same_journal_bytes(number: int) -> None:
    whole = [piece for position in range(7, 7 + min(number, 20)) for piece in pieces(link(position))]
    made = (whole * number)[:number]
    packed = Packed([each.message for each in made], b"".join(each.encoded for each in made))
    entry = Entry(1, 1, 1, "data", ("sent",), "s1", "cd" * 16, "t1", 11, packed)
    assert frame(entry) == frame(msgspec.structs.replace(entry, messages=list(packed)))


def test_link_without_an_envelope_has_no_sequence() -> None:
    (message,) = envelope(7).messages
    (row,) = rows_of(HEADER, Entry(1, 1, 1, "data", ("applied",), messages=[message], cause="delta"))
    assert (row.sequence, row.uuid, row.topic, row.cause) == (0, "", link().topic, "delta")


def test_objects_become_a_row_each() -> None:
    objects = [Record("lport", f"p{index}", index, b"1") for index in (3, 4)]
    entry = Entry(5, 1, 1, "object", topic="t1", sequence=2, objects=objects, point=Point(9, 8))
    rows = list(rows_of(HEADER, entry))
    assert [(row.number, row.sequence, row.position, row.nonce) for row in rows] == [(5, 2, 9, 8), (6, 2, 9, 8)]
    assert [(row.changes[0].key, row.changes[0].version) for row in rows] == [("p3", 3), ("p4", 4)]
    assert entry.records == 2


def raw(*bodies: bytes) -> bytes:
    """A file with these frames, their checksums right."""
    parts = [struct.pack("<II", len(body), xxhash.xxh3_64_intdigest(body) & 0xFFFFFFFF) + body for body in bodies]
    return MAGIC + b"".join(parts)


def test_text_that_is_not_utf8_is_an_unreadable_header_or_a_torn_entry() -> None:
    header = msgspec.msgpack.encode(HEADER)
    bad = header.replace(b"controller-1", b"\xffontroller-1")
    with pytest.raises(JournalError, match="x has no readable header"):
        parse(raw(bad), "x")
    entry = msgspec.msgpack.encode(Entry(1, 2, 3, "mark", topic="t1"))
    contents = parse(raw(header, entry, entry.replace(b"t1", b"\xff1"), entry), "x")
    assert (len(contents.entries), contents.torn, contents.damaged) == (1, 2 * (8 + len(entry)), True)
