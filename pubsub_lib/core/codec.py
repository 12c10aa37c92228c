"""Frames <-> envelopes: the byte form of everything that is sent (rules W1 to W5).

A message on the wire has two frames. A third frame is reserved for a signature over the first two; it is currently
ignored.

- The *topic frame*: ``D`` + topic + NUL for data, ``H`` + nonce + NUL + topic + NUL for a hello reply. The
  closing NUL makes a transport's prefix match exact: ``tenant-1`` never matches ``tenant-10``.
- The *body*: msgpack, one array ``[major, minor, service, uuid, sequence, messages, hello, store_id]``. Fields
  are only ever appended, so a newer minor version (further fields) and an older one (fewer of those that have a
  default) are read. The second byte alone identifies another major version.

Values are sent as the bytes that the store holds. This module keeps no state: any thread may call any function, and
none blocks.
"""

import functools
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Final

import msgspec

from pubsub_lib.core.envelope import Envelope, Hello, HelloRequest, Message, Packed, Uuid, part_of
from pubsub_lib.core.limits import MAX_HELLO_TOPICS, Limits
from pubsub_lib.core.model import (
    MAX_NAME_BYTES,
    MAX_NUMBER,
    MAX_PARTS,
    MAX_SECONDS,
    NO_STORE,
    Change,
    Link,
    Name,
    Origin,
    Position,
)
from pubsub_lib.errors import FrameError, InvalidValueError

MAJOR: Final = 1
"""Wire version that two peers must share."""
MINOR: Final = 4
"""Grows when a field is appended, or a publisher sends in a further way."""
DRAIN_MINOR: Final = 5
"""The minor version of a relay's goodbye that names addresses."""
SYNC_MINOR: Final = 6
"""The minor version of a hello that names the port of a sync channel, which alone has the last field."""
_MINORS: Final = {9: DRAIN_MINOR, 10: SYNC_MINOR}  # by number of fields of the hello

EVERYTHING: Final = b"D"
"""Prefix of every data topic frame: a subscriber of ``ALL`` subscribes to it."""

MAX_NONCE_BYTES: Final = 64
"""Maximum size of a nonce, in bytes."""
MAX_HEADER_BYTES: Final = 1 + MAX_NONCE_BYTES + 1 + MAX_NAME_BYTES + 1
"""Maximum size of a topic frame, in bytes."""

SHARED_BYTES: Final = 64 * 1024
"""Bytes up to which messages share one frame. Larger frames save nothing more, and their decoded links are no longer in
the processor's caches when they are applied: frames of 1 MiB cost a replica nearly twice as much."""

_DATA: Final = EVERYTHING[0]
_PRIVATE: Final = b"H"[0]

# Maximum size of a body without its messages: array header, versions, service with its header, uuid with its header,
# sequence, header of the messages, no hello, the store's id with its header. The same for every envelope, so that
# split() and pack() need no envelope and cut one link always at the same places.
_BODY_OVERHEAD: Final = 1 + 2 + (3 + MAX_NAME_BYTES) + (2 + 16) + 9 + 5 + 1 + (2 + 16)
# Maximum number of bytes by which the header of a run's list of changes and its part numbers exceed those of an empty
# link.
_RUN_OVERHEAD: Final = 4 + 2 * 8
_UUID_SIZE: Final = 2 + 16


class _Body(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The body on the wire. Fields are only appended, with defaults."""

    major: int
    minor: int
    service: Name
    uuid: Uuid
    sequence: Position
    messages: list[Message]
    hello: Hello | None = None
    store_id: Uuid | None = None


_encode = msgspec.msgpack.Encoder().encode
_NO_HELLO: Final = _encode(None)
_decode_body = msgspec.msgpack.Decoder(_Body).decode
_decode_topics = msgspec.msgpack.Decoder(Annotated[list[Origin], msgspec.Meta(max_length=MAX_HELLO_TOPICS)]).decode


# -- topic frames --------------------------------------------------------------------------------------------


def topic_frame(topic: str) -> bytes:
    """The first frame of data on this topic (``ALL``: of a hello about several topics)."""
    return b"D%b\0" % topic.encode()


def subscription(topic: str) -> bytes:
    """The prefix that matches the data of this topic and nothing else; for ``ALL`` that of every topic."""
    return topic_frame(topic) if topic else EVERYTHING


def private_frame(nonce: str) -> bytes:
    """The prefix that matches the hello replies for this nonce and nothing else."""
    return b"H%b\0" % nonce.encode()


def hello_request_frame(nonce: str, topics: Collection[str], limits: Limits = Limits()) -> bytes:  # noqa: B008 - frozen
    """A hello request in one frame: the private prefix, then the topics. It may also be a subscription, for transports
    whose publishers see subscriptions. No reply is ever sent under it, so subscribe to ``private_frame(nonce)`` first.

    Raises InvalidValueError when the nonce is empty, longer than ``MAX_NONCE_BYTES``, or holds a NUL, and
    FrameError("oversized") when publishers would not read it: request fewer topics at once.
    """
    check_nonce(nonce)
    try:
        frame = private_frame(nonce) + _encode(sorted(topics))
    except UnicodeEncodeError as error:
        raise InvalidValueError(f"a hello request for {sorted(topics)!r} is not valid Unicode: {error}") from error
    if len(frame) > limits.max_frame_bytes:
        raise FrameError(
            f"a hello request for {len(topics)} topics has {len(frame)} bytes but at most {limits.max_frame_bytes} "
            "are allowed; request fewer topics at once",
            "oversized",
        )
    return frame


def read_hello_request(frame: bytes, limits: Limits = Limits()) -> HelloRequest:  # noqa: B008 - frozen
    """The request in a :func:`hello_request_frame`. Raises FrameError for any other frame, also for the bare private
    prefix.
    """
    if len(frame) > limits.max_frame_bytes:
        raise FrameError(f"a hello request of {len(frame)} bytes exceeds max_frame_bytes", "oversized")
    nonce_bytes, end, rest = frame[1:].partition(b"\0")
    if frame[:1] != b"H" or not end or not nonce_bytes or len(nonce_bytes) > MAX_NONCE_BYTES:
        raise FrameError(f"the subscription {frame[:40]!r} is not a hello request", "foreign")
    try:
        return HelloRequest(nonce_bytes.decode(), tuple(_decode_topics(rest)))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise FrameError(f"the hello request {frame[:40]!r} names no topics: {error}", "foreign") from error


def check_nonce(nonce: str) -> None:
    """Raise InvalidValueError for a nonce that is empty, longer than ``MAX_NONCE_BYTES``, or holds a NUL."""
    if not nonce or "\0" in nonce or len(nonce.encode(errors="replace")) > MAX_NONCE_BYTES:
        raise InvalidValueError(
            f"the nonce {nonce[:40]!r} must have 1 to {MAX_NONCE_BYTES} bytes and no NUL; use a random hex"
        )


# -- encode --------------------------------------------------------------------------------------------------


def encode(envelope: Envelope, limits: Limits = Limits()) -> tuple[bytes, bytes]:  # noqa: B008 - frozen
    """(topic frame, body) of an envelope. A hello reply gets the topic frame of its nonce.

    Raises FrameError("oversized") when the body exceeds ``limits.max_frame_bytes`` (split the link, or name fewer
    topics in the hello), and InvalidValueError for an envelope that every receiver would drop as foreign.
    """
    hello = envelope.hello
    topic = envelope.topic
    wrong = _complaint(topic, envelope.sequence, envelope.messages, hello)
    if wrong is not None:
        raise InvalidValueError(f"cannot send the envelope of {envelope.service!r} on topic {topic!r}: {wrong}")
    try:
        if hello is not None and hello.nonce:
            check_nonce(hello.nonce)
            head = b"%b%b\0" % (private_frame(hello.nonce), topic.encode())
        else:
            head = topic_frame(topic)
        messages = envelope.messages
        if isinstance(messages, Packed):
            body = join(envelope, len(messages), (messages.encoded,))
        else:
            service, uuid = envelope.service, _checked_uuid(envelope.service, envelope.uuid)
            store = _checked_id(envelope.store_id)
            sent = None if hello is None else hello.fields()
            minor = MINOR if sent is None else _MINORS.get(len(sent), MINOR)
            body = _encode((MAJOR, minor, service, uuid, envelope.sequence, list(messages), sent, store))
    except (UnicodeEncodeError, OverflowError, TypeError) as error:
        raise InvalidValueError(
            f"cannot send an envelope on topic {topic!r}: {error}; check its values first"
        ) from error
    if len(body) > limits.max_frame_bytes or len(head) > MAX_HEADER_BYTES:
        raise FrameError(
            f"a frame on topic {topic[:80]!r} has {len(body)} bytes but at most "
            f"{limits.max_frame_bytes} are allowed; "
            "split its contents or raise max_frame_bytes at both ends",
            "oversized",
        )
    return head, body


def messages_of(envelope: Envelope, body: bytes) -> bytes:
    """The bytes of the messages in the body that :func:`encode` made of this envelope, which must hold messages."""
    service = len(envelope.service.encode())
    before = 3 + (1 if service < 32 else 2 if service < 256 else 3) + service + _UUID_SIZE
    before += _integer_size(envelope.sequence) + len(_array(len(envelope.messages)))
    return body[before : -len(_body_end(envelope.store_id))]


def join(first: Envelope, count: int, messages: Iterable[bytes]) -> bytes:
    """The body for ``count`` consecutive messages from ``first`` on, whose bytes :func:`messages_of` gave.

    Byte for byte the same as :func:`encode` of one envelope with all of them, at the cost of a copy. The caller must
    enforce the size limit.
    """
    start, end = _body_start(first.service, first.uuid), _body_end(first.store_id)
    return b"".join((start, _encode(first.sequence), _array(count), *messages, end))


@functools.lru_cache(maxsize=16)  # as below
def _body_start(service: str, uuid: str) -> bytes:
    """The begin of every body of a publisher: all bytes before the sequence."""
    empty = _encode(_Body(MAJOR, MINOR, service, _checked_uuid(service, uuid), 0, [], None))
    return empty[: -len(_encode(0) + _array(0) + _body_end(NO_STORE))]


@functools.lru_cache(maxsize=16)  # as below
def _body_end(store_id: bytes) -> bytes:
    """The end of every body with messages from a store: no hello, and the store's id."""
    return _NO_HELLO + _encode(_checked_id(store_id))


def _checked_id(store_id: bytes) -> bytes | None:
    """The store's id as it is sent: nil for ``NO_STORE``."""
    if len(store_id) not in (0, 16):
        raise InvalidValueError(f"cannot send the store id {store_id.hex()!r}; give 16 bytes, as a Store has them")
    return store_id or None


def _integer_size(number: int) -> int:
    """Size in bytes of an integer >= 0 in msgpack."""
    return 1 if number < 2**7 else 2 if number < 2**8 else 3 if number < 2**16 else 5 if number < 2**32 else 9


def _array(length: int) -> bytes:
    """The header of an array, in msgpack."""
    if length < 2**4:
        return bytes((0x90 | length,))
    return b"\xdc" + length.to_bytes(2) if length < 2**16 else b"\xdd" + length.to_bytes(4)


@functools.lru_cache(maxsize=16)  # a process sends under very few names
def _checked_uuid(service: str, uuid: str) -> bytes:
    try:
        found = bytes.fromhex(uuid)
    except ValueError:
        found = b""
    if len(found) != 16 or not 0 < len(service) <= MAX_NAME_BYTES:
        raise InvalidValueError(f"cannot send as service {service!r} with uuid {uuid!r}; give a name and 32 hex digits")
    return found


class Piece(msgspec.Struct, frozen=True, gc=False):
    """A message with its bytes, which were made to know the size."""

    message: Message
    encoded: bytes


def split(link: Link, limits: Limits = Limits()) -> list[Message]:  # noqa: B008 - frozen
    """The messages of :func:`pieces`."""
    return [each.message for each in pieces(link, limits)]


def pieces(link: Link, limits: Limits = Limits()) -> list[Piece]:  # noqa: B008 - frozen
    """One message, or the run of messages that a large link needs; each fits in a frame of its own.

    Deterministic: the same link and limits give the same changes in the same parts in every process, so that a link
    which is sent twice can be completed from both. The trace does not change the parts, since only the writer's
    publisher knows it: it is put into the last part, or left out when it does not fit. Raises FrameError("oversized")
    when a single change does not fit in a frame.
    """
    room = limits.max_frame_bytes - _BODY_OVERHEAD
    whole = _piece(Message(link))
    if len(whole.encoded) <= room:
        return [whole]
    if link.trace:
        *run, last = pieces(part_of(link, link.changes), limits)
        end = last.message
        traced = _piece(Message(part_of(link, end.link.changes, link.trace), end.part, end.parts))
        return [*run, traced if len(traced.encoded) <= room else last]
    room -= len(_encode(Message(part_of(link, [])))) + _RUN_OVERHEAD
    runs: list[list[Change]] = []
    used = room + 1
    for change in link.changes:
        size = len(_encode(change))
        if size > room:
            raise FrameError(
                f"the change of {change.table!r} {change.key!r} needs {size} bytes but a frame has room for {room}; "
                "raise max_frame_bytes or lower max_value_bytes",
                "oversized",
            )
        if used + size > room:
            runs.append([])
            used = 0
        runs[-1].append(change)
        used += size
    return [_piece(Message(part_of(link, run), number, len(runs))) for number, run in enumerate(runs, 1)]


def _piece(message: Message) -> Piece:
    return Piece(message, _encode(message))


def pack(pieces: Sequence[Piece], limits: Limits = Limits()) -> list[Packed]:  # noqa: B008 - frozen
    """Group messages of one topic, in order, into frames of at most ``SHARED_BYTES`` and ``max_frame_bytes``.

    A larger message gets a frame of its own; :func:`encode` raises when it is too large for a frame.
    """
    return _grouped([piece.message for piece in pieces], [piece.encoded for piece in pieces], limits)


def packed(links: Sequence[Link], limits: Limits = Limits()) -> list[Packed]:  # noqa: B008 - frozen
    """:func:`pack` of the :func:`pieces` of these links of one topic, in order. Raises as they do.

    Nearly every link fits in a frame. When all do, no link is examined separately.
    """
    room = limits.max_frame_bytes - _BODY_OVERHEAD
    if len(links) == 1:  # nearly always when latency counts
        alone = Message(links[0])
        whole = _encode(alone)
        if len(whole) <= room:
            return [Packed([alone], whole)]
    messages = [Message(link) for link in links]
    encoded = [_encode(message) for message in messages]
    if max(map(len, encoded), default=0) > room:
        return pack([piece for link in links for piece in pieces(link, limits)], limits)
    return _grouped(messages, encoded, limits)


def _grouped(messages: list[Message], encoded: list[bytes], limits: Limits) -> list[Packed]:
    room = min(limits.max_frame_bytes, SHARED_BYTES) - _BODY_OVERHEAD
    groups: list[Packed] = []
    begun = used = 0
    for number, size in enumerate(map(len, encoded)):
        if used + size > room and number > begun:
            groups.append(Packed(messages[begun:number], b"".join(encoded[begun:number])))
            begun, used = number, 0
        used += size
    if messages:
        groups.append(Packed(messages[begun:], b"".join(encoded[begun:])))
    return groups


# -- decode --------------------------------------------------------------------------------------------------


def decode(frames: Sequence[bytes], limits: Limits = Limits()) -> Envelope:  # noqa: B008 - frozen
    """The envelope of a received message, which may hold any bytes.

    Raises FrameError, and nothing else, with ``reason``: ``oversized`` (by ``limits.max_frame_bytes``),
    ``truncated`` (the bytes end too early), ``version`` (another major wire version), ``foreign`` (anything
    else that this library does not send).
    """
    if len(frames) == 2:
        head, body = frames
    elif len(frames) == 3:
        head, body, _signature = frames
    elif len(frames) == 1:
        raise FrameError("a message has 1 frame but needs 2", "truncated")
    else:
        raise FrameError(f"a message has {len(frames)} frames but needs 2 or 3", "foreign")
    if len(body) > limits.max_frame_bytes or len(head) > MAX_HEADER_BYTES:
        raise FrameError(f"a message of {len(head)} + {len(body)} bytes exceeds max_frame_bytes", "oversized")
    _check_major(body)
    try:
        decoded = _decode_body(body)
        nonce, topic = _read_head(head)
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
        # msgspec raises one exception for all cases. Only its text distinguishes them; a test checks that text.
        reason = "truncated" if "truncated" in str(error) else "foreign"
        raise FrameError(f"a message that starts with {head[:40]!r} cannot be read: {error}", reason) from error
    messages = decoded.messages
    hello = decoded.hello
    wrong = _complaint(topic, decoded.sequence, messages, hello)
    if wrong is None and nonce != (hello.nonce if hello is not None else ""):
        wrong = "the private topic and the hello's nonce differ"
    if wrong is not None:
        raise FrameError(f"a message of {decoded.service!r} on topic {topic!r} is inconsistent: {wrong}", "foreign")
    store_id = decoded.store_id or NO_STORE
    return Envelope(decoded.service, decoded.uuid.hex(), topic, decoded.sequence, messages, hello, store_id)


def _check_major(body: bytes) -> None:
    """Distinguish another major version from garbage by at most four bytes, without reading the rest."""
    if len(body) < 2:
        raise FrameError(f"a body of {len(body)} bytes is cut off", "truncated")
    first = body[0]
    if 0x90 <= first <= 0x9F:
        major = body[1]
    elif first == 0xDC:  # a far newer minor version with more than 15 fields
        if len(body) < 4:
            raise FrameError(f"a body of {len(body)} bytes is cut off", "truncated")
        major = body[3]
    else:
        raise FrameError(f"a body that starts with {body[:8]!r} is not of this library", "foreign")
    if major == MAJOR:
        return
    if major > 0x7F:
        raise FrameError(f"a body that starts with {body[:8]!r} is not of this library", "foreign")
    raise FrameError(
        f"a message has the wire version {major}, this library uses {MAJOR}; run the same major version at both ends",
        "version",
    )


def _read_head(head: bytes) -> tuple[str, str]:
    """(nonce or "", topic) of a topic frame. Raises ValueError."""
    if not head:
        raise ValueError("the topic frame is truncated")
    if head[0] == _DATA and head.find(0) == len(head) - 1:
        return "", head[1:-1].decode()
    parts = head[1:].split(b"\0")
    if parts[-1]:
        raise ValueError("the topic frame does not end in NUL")
    if head[0] == _PRIVATE and len(parts) == 3 and parts[0]:
        return parts[0].decode(), parts[1].decode()
    raise ValueError("the topic frame is neither of data nor of a hello reply")


def _complaint(topic: str, sequence: int, messages: Sequence[Message], hello: Hello | None) -> str | None:
    """The inconsistency in an envelope's contents, or None. Called for every message: keep it fast."""
    if "\0" in topic:
        return "its topic holds a NUL"
    if messages:
        if hello is not None:
            return "it holds both messages and a hello"
        if not 1 <= sequence <= MAX_NUMBER + 1 - len(messages):
            return f"its sequence is {sequence} but sequences count from 1 to {MAX_NUMBER}"
        for message in messages:
            link = message.link
            if link.topic != topic:
                return f"it holds a link of topic {link.topic!r}"
            if not 1 <= message.part <= message.parts <= MAX_PARTS:
                return f"it holds part {message.part} of {message.parts}"
            if not -MAX_SECONDS <= link.written_at <= MAX_SECONDS:  # nor NaN
                return f"it holds a link that was written at {link.written_at}"
            if link.prev.position >= link.point.position:
                return f"it holds a link from position {link.prev.position} to {link.point.position}"
        return None
    if hello is None:
        return "it holds neither messages nor a hello"
    if sequence != 0:
        return f"it is a hello with the sequence {sequence}"
    return hello.complaint()
