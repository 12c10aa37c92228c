"""The append form of a journal: length, checksum, msgpack; one frame per entry (docs/audit.md, "Journals").

An entry holds its participant's data without conversion: all messages of an envelope at once, values included. Hashes
are computed when the entry is converted to rows, outside the path of the messages.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import xxhash

from pubsub_lib.core.envelope import Message, Packed
from pubsub_lib.core.model import ZERO, Point, Record
from pubsub_lib.errors import JournalError
from pubsub_lib.journal.previous_versions import with_previous
from pubsub_lib.journal.rows import SCHEMA, ChangeRow, Kind, Outcome, Row, Side, message_hash, signed, value_hash

MAGIC: Final = b"pubsub-journal\n"
PREFIX: Final = struct.Struct("<II")
"""Before a frame's body: its length and its checksum."""
MAX_FRAME: Final = 1 << 30
"""Maximum bytes of a frame. A longer one is not a valid entry, and is not read into memory."""


class Header(msgspec.Struct, frozen=True, array_like=True):
    """The writer of the file, as the first frame of every file. New fields are appended."""

    schema: int
    side: Side
    name: str
    host: str
    run: str
    part: int
    """Number of this file in its run, from 1."""


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One entry: one record, or one for each of its ``messages`` or ``objects``, numbered from ``number`` on.

    ``outcomes`` has one item for all messages, or one for each. New fields are appended.
    """

    number: int
    wall: int
    mono: int
    kind: Kind
    outcomes: Sequence[Outcome] = ()
    service: str = ""
    uuid: str = ""
    topic: str = ""
    sequence: int = 0
    messages: Sequence[Message] = ()
    objects: Sequence[Record] = ()
    point: Point = ZERO
    prev: Point = ZERO
    cause: str = ""
    peer: str = ""
    size: int = 0
    count: int = 0
    digest: int = 0

    @property
    def records(self) -> int:
        """How many running numbers the entry takes."""
        return len(self.messages) or len(self.objects) or 1


UNDECODABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""Errors of decoding any bytes; a text that is not UTF-8 is a ValueError."""

_encoder = msgspec.msgpack.Encoder()
_header_decoder = msgspec.msgpack.Decoder(Header)
_entry_decoder = msgspec.msgpack.Decoder(Entry)


def checksum_of(body: bytes | memoryview) -> int:
    """The checksum of a frame's body, as its prefix has it."""
    return xxhash.xxh3_64_intdigest(body) & 0xFFFFFFFF


def beginning(header: Header) -> bytes:
    """The first bytes of a file."""
    body = _encoder.encode(header)
    return MAGIC + PREFIX.pack(len(body), checksum_of(body)) + body


def frame_parts(entry: Entry, buffer: bytearray) -> tuple[bytes | bytearray, ...]:
    """The bytes of an entry, to be written one part after the other. Some of them are in ``buffer``, which the next
    call overwrites: this saves memory and copies.
    """
    if isinstance(entry.messages, Packed):
        return _around(entry, entry.messages)
    if len(buffer) < PREFIX.size:
        buffer.extend(bytes(PREFIX.size))
    _encoder.encode_into(entry, buffer, PREFIX.size)
    with memoryview(buffer) as whole, whole[PREFIX.size :] as body:
        PREFIX.pack_into(buffer, 0, len(body), checksum_of(body))
    return (buffer,)


def _around(entry: Entry, messages: Packed) -> tuple[bytes, bytes, bytes]:
    """The parts of an entry around messages that are already encoded for the wire, which has the same form: the
    messages are neither decoded nor copied.
    """
    number = len(messages)
    header = msgspec.Raw(_encoder.encode([None] * number)[:-number])
    begin = _encoder.encode(msgspec.structs.replace(entry, messages=header))
    # All fields after the messages; the first byte is the list's own.
    after = _encoder.encode(
        [entry.objects, entry.point, entry.prev, entry.cause, entry.peer, entry.size, entry.count, entry.digest]
    )[1:]
    begin = begin[: -len(after)]
    checksum = xxhash.xxh3_64(begin)
    checksum.update(messages.encoded)
    checksum.update(after)
    length = len(begin) + len(messages.encoded) + len(after)
    return PREFIX.pack(length, checksum.intdigest() & 0xFFFFFFFF) + begin, messages.encoded, after


def frame(entry: Entry) -> bytes:
    """The bytes of an entry."""
    return b"".join(frame_parts(entry, bytearray()))


class Contents(msgspec.Struct, frozen=True):
    """The contents of an append file. ``torn``: number of bytes after the last whole entry; ``damaged``: whether they
    are other bytes than the begin of one frame.
    """

    header: Header
    entries: Sequence[Entry]
    torn: int
    damaged: bool = False


def parse(data: bytes, name: str) -> Contents:
    """Read an append file's bytes; ``name`` is for errors. Bytes after the last whole entry are counted as torn.

    Raises JournalError when the file is not a journal, or has a newer schema.
    """
    if not data.startswith(MAGIC):
        raise JournalError(f"{name} is not a journal; remove it from the journals' folder")
    frames = _frames(data, len(MAGIC))
    body, end = next(frames, (b"", 0))
    header = header_of(body, name)
    entries = []
    for body, after in frames:
        try:
            entries.append(_entry_decoder.decode(body))
        except UNDECODABLE:
            break  # its checksum is right, so another program wrote it; no entry after it is trusted
        end = after
    return Contents(header, entries, len(data) - end, damaged=end < len(data) and not is_cut_at(data, end))


def header_of(body: bytes, name: str) -> Header:
    """The header in the first frame's body; ``name`` is for errors. Raises JournalError: invalid, newer schema."""
    try:
        header = _header_decoder.decode(body)
    except UNDECODABLE as error:
        raise JournalError(f"{name} has no readable header ({error}); remove it, nothing else is readable") from error
    if header.schema > SCHEMA:
        raise JournalError(
            f"{name} has the schema version {header.schema}, this program reads up to {SCHEMA}; "
            "read it with a newer version of this library"
        )
    return header


def whole_until(data: bytes) -> int:
    """The offset after the last whole frame of an append file's bytes. Frames are not decoded."""
    return max((after for _, after in _frames(data, len(MAGIC))), default=len(MAGIC))


def is_cut_at(data: bytes, at: int) -> bool:
    """Whether the frame at this offset would end beyond the end of the file."""
    begin = at + PREFIX.size
    if begin > len(data):
        return True
    length: int = PREFIX.unpack_from(data, at)[0]
    return length <= MAX_FRAME and begin + length > len(data)


def _frames(data: bytes, at: int) -> Iterator[tuple[bytes, int]]:
    """Bodies and the offsets after them, up to the first incomplete frame."""
    while at + PREFIX.size <= len(data):
        length, checksum = PREFIX.unpack_from(data, at)
        begin, end = at + PREFIX.size, at + PREFIX.size + length
        if length > MAX_FRAME or end > len(data):
            return
        body = data[begin:end]
        if checksum_of(body) != checksum:
            return
        yield body, end
        at = end


def rows(contents: Contents, name: str) -> Iterator[Row]:
    """The records of a file, in its order; ``name`` is for errors. Does not block. Raises JournalError for an entry
    that no row can have, whatever its error is: one file must not end the reading of others.
    """
    try:
        yield from with_previous(row for entry in contents.entries for row in rows_of(contents.header, entry))
    except MemoryError:
        raise
    except Exception as error:
        raise inconvertible(name, error) from error


def inconvertible(name: str, error: Exception) -> JournalError:
    """The error for a file with an entry that no row or column can have."""
    return JournalError(
        f"{name} has an entry that cannot be converted ({type(error).__name__}: {error}); another program wrote it, or "
        "an older version received it from one; remove the file, its records are missing evidence"
    )


def rows_of(header: Header, entry: Entry) -> Iterator[Row]:
    """The records of an entry, without ``before``. Does not block."""
    if entry.messages:
        yield from (_of_message(header, entry, index) for index in range(len(entry.messages)))
    elif entry.objects:
        yield from (_of_object(header, entry, index, each) for index, each in enumerate(entry.objects))
    else:
        yield _row(header, entry, 0, {"sequence": entry.sequence, "size": entry.size})


def _of_message(header: Header, entry: Entry, index: int) -> Row:
    message = entry.messages[index]
    link = message.link
    changes = tuple(
        ChangeRow(each.table, each.key, each.version, each.action, value_hash(each.value), len(each.value or b""))
        for each in link.changes
    )
    prev, point = (link.prev.position, link.prev.nonce), (link.point.position, link.point.nonce)
    return _row(
        header,
        entry,
        index,
        {
            "topic": link.topic,
            "sequence": entry.sequence + index if entry.sequence else 0,
            "position": point[0],
            "nonce": point[1],
            "prev_position": prev[0],
            "prev_nonce": prev[1],
            "part": message.part,
            "parts": message.parts,
            "hash": message_hash(prev, point, message.part, message.parts, changes),
            "size": sum(each.size for each in changes),
            "written": round(link.written_at * 1e6),
            "count": link.count,
            "digest": signed(link.digest),
            "changes": changes,
            "cause": entry.cause or link.origin,
        },
    )


def _of_object(header: Header, entry: Entry, index: int, each: Record) -> Row:
    change = ChangeRow(each.table, each.key, each.version, "set", value_hash(each.value), len(each.value))
    return _row(header, entry, index, {"sequence": entry.sequence, "changes": (change,), "size": change.size})


def _row(header: Header, entry: Entry, index: int, special: dict[str, object]) -> Row:
    outcomes = entry.outcomes
    common = {
        "topic": entry.topic,
        "position": entry.point.position,
        "nonce": entry.point.nonce,
        "prev_position": entry.prev.position,
        "prev_nonce": entry.prev.nonce,
        "cause": entry.cause,
        "count": entry.count,
        "digest": signed(entry.digest),
        **special,
    }
    return Row(
        side=header.side,
        name=header.name,
        host=header.host,
        run=header.run,
        number=entry.number + index,
        kind=entry.kind,
        wall=entry.wall,
        mono=entry.mono,
        service=entry.service,
        uuid=entry.uuid,
        outcome=(outcomes[index] if len(outcomes) > 1 else outcomes[0]) if outcomes else "",
        peer=entry.peer,
        **common,  # type: ignore[arg-type]
    )
