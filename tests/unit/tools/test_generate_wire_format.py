"""The hexdump shows every byte once and each value at its field, and rejects bytes that the codec does not send."""

import msgspec
import pytest
from generate_wire_format import DUMPS, FRAMES, Reader, Row, dump, head_rows, recorded

from pubsub_lib.core import codec

BODY = msgspec.inspect.type_info(codec._Body)


def rows_of(body: bytes) -> list[Row]:
    return list(Reader(body).rows(BODY, ""))


@pytest.mark.parametrize("name", sorted(path.stem for path in FRAMES.glob("*.hex")))
def test_dump_contains_every_byte_once(name: str) -> None:
    head, body = recorded(name)
    assert b"".join(row.data for row in rows_of(body)) == body
    assert [row.at for row in rows_of(body)] == sorted({row.at for row in rows_of(body)})
    assert b"".join(row.data for row in head_rows(head)) == head


def test_dump_shows_values_at_their_fields() -> None:
    shown = {row.name: row.meaning for row in rows_of(recorded("data-1.1")[1])}
    (message,) = codec.decode(recorded("data-1.1")).messages
    assert shown["messages[0].link.prev.position"] == str(message.link.prev.position) == "3"
    assert shown["messages[0].link.point.nonce"] == str(message.link.point.nonce)
    assert shown["messages[0].link.changes[0].key"] == '"p1"'
    assert shown["messages[0].link.digest"] == str(2**64 - 1)
    assert shown["messages[0].link.changes[0].value"] == '15 bytes: {"switch":"s1"}'


def test_reader_rejects_bytes_that_the_codec_does_not_write() -> None:
    body = recorded("data-1.1")[1]
    with pytest.raises(ValueError, match="does not begin this collection"):
        rows_of(b"\xc0" + body[1:])
    with pytest.raises(ValueError, match="0xd0 is unknown here"):
        rows_of(body[:1] + b"\xd0\x01" + body[2:])


def test_dump_rejects_a_frame_of_an_older_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    head, body = recorded("data-1.1")
    monkeypatch.setattr("generate_wire_format.recorded", lambda name: (head, b"\x98" + body[1:] + b"\xc0"))
    with pytest.raises(ValueError, match="older version"):
        dump(next(iter(DUMPS)))
