"""The codec (rules W1 to W4): round trips, every kind of bad input, and the recorded bytes that future versions must
still read."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope, Hello, HelloRequest, Message, merge
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import (
    ALL,
    EMPTY,
    MAX_NAME_BYTES,
    MAX_SECONDS,
    MAX_TRACE_CHARACTERS,
    NO_STORE,
    ZERO,
    Change,
    Head,
    Link,
    Point,
)
from pubsub_lib.errors import FrameError, InvalidValueError
from tests.unit.core.builders import History

FRAMES = Path(__file__).parent / "frames"
REASONS = {"truncated", "oversized", "version", "foreign"}
UUID = "00112233445566778899aabbccddeeff"


def link(topic: str = "tenant-1", position: int = 7, changes: list[Change] | None = None) -> Link:
    if changes is None:
        changes = [Change("lport", "p1", "set", position, b'{"switch":"s1"}')]
    return Link(topic, Point(3, 33), Point(position, 77), changes, 5, 2**64 - 1, Point(5, 55), 1, "api-1", 1.5)


STORE = bytes.fromhex("ffeeddccbbaa99887766554433221100")


def envelope(
    *messages: Message,
    topic: str = "tenant-1",
    sequence: int = 1,
    hello: Hello | None = None,
    store_id: bytes = NO_STORE,
) -> Envelope:
    return Envelope("api-1", UUID, topic, sequence, list(messages), hello, store_id)


# -- strategies ----------------------------------------------------------------------------------------------

names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
numbers = st.integers(0, 2**63 - 1)
points = st.builds(Point, numbers, numbers)
store_ids = st.sampled_from([NO_STORE, STORE])
heads = st.builds(Head, points, numbers, st.integers(0, 2**64 - 1))
changes = st.builds(
    Change,
    names,
    names,
    st.sampled_from(["create", "set", "delete"]),
    numbers,
    st.none() | st.binary(max_size=60),
)


@st.composite
def links(draw: st.DrawFn, topic: str, maximum: int = 5) -> Link:
    before = draw(st.integers(0, 2**62))
    after = draw(st.integers(before + 1, 2**63 - 1))
    return Link(
        topic,
        Point(before, draw(numbers)),
        Point(after, draw(numbers)),
        draw(st.lists(changes, max_size=maximum)),
        draw(numbers),
        draw(st.integers(0, 2**64 - 1)),
        draw(points),
        draw(st.integers(1, 2**31)),
        draw(st.just("") | names),
        draw(st.floats(0, 1e12)),
        draw(st.sampled_from(["", TRACE, "t" * MAX_TRACE_CHARACTERS])),
    )


@st.composite
def envelopes(draw: st.DrawFn) -> Envelope:
    service, uuid = draw(names), draw(st.binary(min_size=16, max_size=16)).hex()
    if draw(st.booleans()):
        topic = draw(names)
        messages = []
        for one in draw(st.lists(links(topic), min_size=1, max_size=4)):
            parts = draw(st.integers(1, 9))
            messages.append(Message(one, draw(st.integers(1, parts)), parts))
        sequence = draw(st.integers(1, 2**63 - len(messages)))
        return Envelope(service, uuid, topic, sequence, messages, None, draw(store_ids))
    hello = Hello(
        draw(st.dictionaries(names, numbers, max_size=4)),
        draw(st.dictionaries(names, heads, max_size=4)),
        draw(st.none() | points),
        draw(st.floats(0, 1e9)),
        draw(st.just("") | names),
        draw(st.booleans()),
        0.0,
        tuple(draw(st.lists(st.binary(min_size=16, max_size=16), max_size=2))),
    )
    return Envelope(service, uuid, draw(st.just(ALL) | names), 0, [], hello, draw(store_ids))


# -- round trip ----------------------------------------------------------------------------------------------


@given(envelopes())
def test_encoded_envelope_is_decoded(sent: Envelope) -> None:
    assert codec.decode(codec.encode(sent)) == sent


@given(names, names)
def test_subscription_matches_its_topic_exactly(one: str, other: str) -> None:
    frame = codec.topic_frame(one)
    assert frame.startswith(codec.subscription(other)) == (one == other)
    assert frame.startswith(codec.subscription(ALL))
    assert not frame.startswith(codec.private_frame(other))


def test_subscription_does_not_match_a_longer_topic() -> None:
    assert not codec.topic_frame("tenant-10").startswith(codec.subscription("tenant-1"))


@given(names, names)
def test_hello_reply_matches_only_the_prefix_of_its_nonce(nonce: str, other: str) -> None:
    head, _ = codec.encode(envelope(topic=ALL, sequence=0, hello=Hello({}, {}, None, 0.0, nonce)))
    assert head.startswith(codec.private_frame(other)) == (nonce == other)
    assert not head.startswith(codec.EVERYTHING)
    assert not head.startswith(codec.hello_request_frame(nonce, ["a"]))


@given(names, st.sets(names | st.just(ALL), max_size=5))
def test_hello_request_is_read_back(nonce: str, topics: set[str]) -> None:
    frame = codec.hello_request_frame(nonce, topics)
    assert frame.startswith(codec.private_frame(nonce))
    assert codec.read_hello_request(frame) == HelloRequest(nonce, tuple(sorted(topics)))


def test_oversized_hello_request_is_refused() -> None:
    topics = [f"{number:04}" + "t" * 251 for number in range(4200)]
    with pytest.raises(FrameError, match="fewer topics") as refused:
        codec.hello_request_frame("abc", topics)
    assert refused.value.reason == "oversized"
    size = len(codec.hello_request_frame("abc", ["t"]))
    assert codec.hello_request_frame("abc", ["t"], Limits(max_frame_bytes=size))
    with pytest.raises(FrameError):
        codec.hello_request_frame("abc", ["t"], Limits(max_frame_bytes=size - 1))


@pytest.mark.parametrize(
    ("topics", "number"), [([f"t{number}" for number in range(201)], 201), (["x" * 256], 1)], ids=["many", "long"]
)
def test_hello_request_with_more_topics_than_a_replica_names_is_refused(topics: list[str], number: int) -> None:
    frame = codec.hello_request_frame("abc", topics)
    with pytest.raises(FrameError, match="names no topics") as refused:
        codec.read_hello_request(frame)
    assert refused.value.reason == "foreign"
    shorter = [topic[:255] for topic in topics[:200]]
    assert len(codec.read_hello_request(codec.hello_request_frame("abc", shorter)).topics) == min(number, 200)


def test_bare_private_prefix_is_not_a_hello_request() -> None:
    with pytest.raises(FrameError, match="names no topics"):
        codec.read_hello_request(codec.private_frame("abc"))


@pytest.mark.parametrize("nonce", ["", "a\0b", "n" * 65])
def test_invalid_nonce_is_refused(nonce: str) -> None:
    with pytest.raises(InvalidValueError, match="nonce"):
        codec.hello_request_frame(nonce, [])


# -- recorded bytes ------------------------------------------------------------------------------------------

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 vendor=1"
OF_1_0 = {
    "data": envelope(Message(link())),
    "delete": envelope(Message(link(changes=[Change("lport", "p1", "delete", 7, None)])), sequence=2**40),
    "run": envelope(Message(link(), 2, 3), Message(link(), 3, 3), sequence=300),
    "utf8": envelope(Message(link("mieter-ä")), topic="mieter-ä"),
    "hello": envelope(
        topic=ALL,
        sequence=0,
        hello=Hello({"a": 4}, {"a": Head(Point(9, 99), 1, 2), "b": Head(ZERO, 0, 0)}, Point(9, 99), 0.25),
    ),
    "goodbye": envelope(topic=ALL, sequence=0, hello=Hello({}, {}, None, 0.0, "", True)),
    "hello-reply": envelope(topic=ALL, sequence=0, hello=Hello({"a": 4}, {}, Point(9, 99), 0.5, "abc123")),
}
OF_1_1 = {
    **{f"{name}-1.1": known for name, known in OF_1_0.items()},
    "trace-1.1": envelope(Message(msgspec.structs.replace(link(), trace=TRACE))),
}
OF_1_2 = {
    f"{name.removesuffix('-1.1')}-1.2": msgspec.structs.replace(known, store_id=STORE) for name, known in OF_1_1.items()
}
ABOVE = (bytes.fromhex(UUID), bytes(range(16)))
OF_1_3 = {
    "relay-hello-1.3": envelope(
        topic=ALL,
        sequence=0,
        hello=Hello({"a": 4}, {"a": Head(Point(9, 99), 1, 2)}, Point(9, 99), 0.5, "abc123", False, 0.25, ABOVE),
        store_id=STORE,
    )
}
OF_1_4 = {f"{name.rpartition('-')[0]}-1.4": known for name, known in {**OF_1_2, **OF_1_3}.items()}
INSTEAD = ("tcp://10.0.0.8:8866", "tcp://relay-9:8866")
OF_1_5 = {
    "relay-goodbye-1.5": envelope(
        topic=ALL,
        sequence=0,
        hello=Hello({}, {}, Point(9, 99), 0.5, "", True, 0.25, ABOVE, INSTEAD),
        store_id=STORE,
    )
}


def serving(known: Envelope) -> Envelope:
    """The same hello of a publisher with a sync channel."""
    assert known.hello is not None
    return msgspec.structs.replace(known, hello=msgspec.structs.replace(known.hello, serves=8867))


OF_1_6 = {f"{name}-1.6": serving(OF_1_4[f"{name}-1.4"]) for name in ("hello", "hello-reply", "relay-hello")}
KNOWN = {**OF_1_0, **OF_1_1, **OF_1_2, **OF_1_3, **OF_1_4, **OF_1_5, **OF_1_6}


def recorded(name: str) -> tuple[bytes, bytes]:
    head, body = (FRAMES / f"{name}.hex").read_text().split()
    return bytes.fromhex(head), bytes.fromhex(body)


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_recorded_frames_are_still_read(name: str) -> None:
    assert codec.decode(recorded(name)) == KNOWN[name]


@pytest.mark.parametrize("name", sorted({**OF_1_4, **OF_1_5, **OF_1_6}))
def test_recorded_frames_of_this_version_are_still_written(name: str) -> None:
    assert codec.encode(KNOWN[name]) == recorded(name)


def test_every_recorded_frame_has_an_expectation() -> None:
    assert {path.stem for path in FRAMES.glob("*.hex")} == set(KNOWN)


def test_hello_has_the_last_fields_only_when_they_are_needed() -> None:
    plain = Hello({"a": 4}, {}, Point(9, 99), 0.5)
    for hello, fields in (
        (plain, 6),
        (msgspec.structs.replace(plain, least_age=0.25), 8),
        (msgspec.structs.replace(plain, path=ABOVE), 8),
        (msgspec.structs.replace(plain, goodbye=True, instead=INSTEAD), 9),
        (msgspec.structs.replace(plain, serves=8867), 10),
        (msgspec.structs.replace(plain, path=ABOVE, serves=1), 10),
    ):
        body = body_of(envelope(topic=ALL, sequence=0, hello=hello))
        assert len(msgspec.msgpack.decode(msgspec.msgpack.encode(body[6]))) == fields
        assert body[1] == {9: codec.DRAIN_MINOR, 10: codec.SYNC_MINOR}.get(fields, codec.MINOR)


@pytest.mark.parametrize("port", [-1, 65536, "8867", "relay-9:8867", True])
def test_hello_names_a_port_and_nothing_else_for_syncs(port: Any) -> None:
    """A hello with a host would lead a replica to a host that its configuration does not name."""
    hello = Hello({}, {}, Point(9, 99), 0.5, serves=8867)
    body = body_of(envelope(topic=ALL, sequence=0, hello=hello))
    fields: list[Any] = msgspec.convert(body[6], list[Any])
    assert fields[-1] == 8867
    with pytest.raises(FrameError) as refused:
        decode_fields([*body[:6], [*fields[:-1], port], *body[7:]], ALL)
    assert refused.value.reason == "foreign"


def test_hello_with_an_invalid_port_is_not_sent() -> None:
    with pytest.raises(InvalidValueError, match="names the port 65536"):
        codec.encode(envelope(topic=ALL, sequence=0, hello=Hello({}, {}, None, 0.0, serves=65536)))


# -- versions ------------------------------------------------------------------------------------------------


def body_of(sent: Envelope) -> list[object]:
    fields = msgspec.msgpack.decode(codec.encode(sent)[1])
    assert isinstance(fields, list)
    return fields


def decode_fields(fields: list[object], topic: str = "tenant-1") -> Envelope:
    return codec.decode([codec.topic_frame(topic), msgspec.msgpack.encode(fields)])


@pytest.mark.parametrize("more", [1, 20, 70_000])
def test_a_newer_minor_version_with_more_fields_is_read(more: int) -> None:
    sent = envelope(Message(link()))
    fields = body_of(sent)
    fields[1] = 9
    body = msgspec.msgpack.encode([*fields, *["new"] * more])
    if len(fields) + more > 0xFFFF:  # beyond array16: no version of this library sends that
        with pytest.raises(FrameError) as caught:
            codec.decode([codec.topic_frame("tenant-1"), body])
        assert caught.value.reason == "foreign"
    else:
        assert codec.decode([codec.topic_frame("tenant-1"), body]) == sent


def test_a_newer_minor_version_with_longer_structs_is_read() -> None:
    sent = envelope(Message(link()))
    fields = body_of(sent)
    fields[5][0].append("new in message")  # type: ignore[index]
    fields[5][0][0].append({"new": "in link"})  # type: ignore[index]
    fields[5][0][0][3][0].append([1, 2])  # type: ignore[index]
    assert decode_fields(fields) == sent


def test_an_older_minor_version_with_fewer_fields_is_read() -> None:
    fields = body_of(envelope(Message(link())))
    one = fields[5][0][0]  # type: ignore[index]
    del one[8:]
    fields[5] = [[one]]
    got = decode_fields(fields[:6])
    assert got == envelope(Message(msgspec.structs.replace(link(), origin="", written_at=0.0)))


@pytest.mark.parametrize("major", [0, 2, 127])
def test_another_major_version_is_identified_without_reading_the_rest(major: int) -> None:
    for body in (bytes([0x91, major]), bytes([0x97, major]) + b"\xc1 garbage", bytes([0xDC, 0, 20, major])):
        with pytest.raises(FrameError, match=f"wire version {major}") as caught:
            codec.decode([b"Da\0", body])
        assert caught.value.reason == "version"


# -- bad input -----------------------------------------------------------------------------------------------


def reason_of(frames: list[bytes] | tuple[bytes, ...], limits: Limits = Limits()) -> str:  # noqa: B008
    with pytest.raises(FrameError) as caught:
        codec.decode(frames, limits)
    assert "\n" not in str(caught.value)
    return caught.value.reason


@given(envelopes(), st.data())
def test_incomplete_body_is_truncated(sent: Envelope, data: st.DataObject) -> None:
    head, body = codec.encode(sent)
    assert reason_of([head, body[: data.draw(st.integers(0, len(body) - 1))]]) == "truncated"


def test_single_frame_is_truncated() -> None:
    assert reason_of([b"Da\0"]) == "truncated"
    assert reason_of([b"", codec.encode(envelope(Message(link())))[1]]) == "truncated"


@pytest.mark.parametrize("count", [0, 4])
def test_a_wrong_number_of_frames_is_foreign(count: int) -> None:
    assert reason_of([b"x"] * count) == "foreign"


def test_a_signature_frame_is_allowed() -> None:
    sent = envelope(Message(link()))
    assert codec.decode([*codec.encode(sent), b"signature"]) == sent


def may_decode(frames: list[bytes]) -> None:
    try:
        got = codec.decode(frames)
    except FrameError as error:
        reason = error.reason
    else:  # a decoded envelope can be encoded again: the tracker gets only checked envelopes
        codec.encode(got)
        return
    assert reason in REASONS


@given(st.lists(st.binary(max_size=80), max_size=4))
def test_random_bytes_raise_only_frame_errors(frames: list[bytes]) -> None:
    may_decode(frames)


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_random_bytes_after_a_valid_start_raise_only_frame_errors(head: bytes, body: bytes) -> None:
    may_decode([b"D" + head + b"\0", b"\x97\x01\x00" + body])
    may_decode([b"H" + head + b"\0", b"\x97\x01\x00" + body])


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_well_formed_nonsense_raises_only_frame_errors(nonsense: object) -> None:
    may_decode([b"Da\0", msgspec.msgpack.encode([1, 0, "s", bytes(16), 1, nonsense])])
    may_decode([b"Da\0", msgspec.msgpack.encode([1, 0, "s", bytes(16), 0, [], nonsense])])


@settings(max_examples=300)
@given(envelopes(), st.data())
def test_flipped_bits_raise_only_frame_errors(sent: Envelope, data: st.DataObject) -> None:
    frames = [bytearray(frame) for frame in codec.encode(sent)]
    for _ in range(data.draw(st.integers(1, 4))):
        frame = data.draw(st.sampled_from(frames))
        frame[data.draw(st.integers(0, len(frame) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    may_decode([bytes(frame) for frame in frames])


def test_deep_nesting_is_foreign() -> None:
    fields = body_of(envelope(Message(link())))
    deep = msgspec.msgpack.encode(fields)[1:] + b"\x91" * 200_000 + b"\x01"
    assert reason_of([b"Dtenant-1\0", b"\x98" + deep]) == "foreign"


def test_header_with_a_huge_length_allocates_no_memory() -> None:
    body = b"\x97\x01\x00\xa1s\xc4\x10" + bytes(16) + b"\x01\xdd\xff\xff\xff\xff"
    assert reason_of([b"Da\0", body]) == "truncated"


def test_an_oversized_body_or_topic_is_dropped_unread() -> None:
    assert reason_of([b"Da\0", b"x" * 101], Limits(max_frame_bytes=100)) == "oversized"
    assert reason_of([b"D" + b"a" * 400 + b"\0", b"x"]) == "oversized"


@pytest.mark.parametrize(
    "sent",
    [
        lambda name: envelope(Message(msgspec.structs.replace(link(), origin=name))),
        lambda name: envelope(topic=ALL, sequence=0, hello=Hello({name: 1}, {}, None, 0.0)),
        lambda name: envelope(topic=ALL, sequence=0, hello=Hello({}, {name: EMPTY}, None, 0.0)),
    ],
    ids=["origin", "sequences", "heads"],
)
def test_too_long_name_is_foreign(sent: Callable[[str], Envelope]) -> None:
    """The name would be remembered, and no memory limit counts it."""
    longest = sent("n" * MAX_NAME_BYTES)
    assert codec.decode(codec.encode(longest)) == longest
    assert reason_of(codec.encode(sent("n" * (MAX_NAME_BYTES + 1)))) == "foreign"


@pytest.mark.parametrize(
    "head", [b"D", b"Da", b"Da\0b\0", b"Xa\0", b"H\0a\0", b"Ha\0", b"D\xff\0", b"Dother\0", b"D\0"]
)
def test_invalid_topic_frame_is_foreign(head: bytes) -> None:
    assert reason_of([head, codec.encode(envelope(Message(link())))[1]]) == "foreign"


def own(nonce: str) -> bytes:
    return codec.encode(envelope(topic=ALL, sequence=0, hello=Hello({}, {}, None, 0.0, nonce)))[1]


def test_hello_under_another_nonces_topic_is_foreign() -> None:
    assert reason_of([b"Hother\0\0", own("mine")]) == "foreign"
    assert reason_of([b"D\0", own("mine")]) == "foreign"
    assert reason_of([b"Hother\0\0", own("")]) == "foreign"


HELLO = Hello({"a": 1}, {}, None, 0.0)
NONSENSE = {
    "link of another topic": envelope(Message(link("tenant-2"))),
    "second link of another topic": envelope(Message(link()), Message(link("tenant-2"))),
    "sequence 0": envelope(Message(link()), sequence=0),
    "nothing": envelope(),
    "hello with sequence": envelope(sequence=3, hello=HELLO),
    "hello and messages": envelope(Message(link()), hello=HELLO),
    "part 0": envelope(Message(link(), 0, 1)),
    "part beyond": envelope(Message(link(), 3, 2)),
    "link backwards": envelope(Message(link(position=3))),
    "age nan": envelope(sequence=0, hello=msgspec.structs.replace(HELLO, age=float("nan"))),
    "age below 0": envelope(sequence=0, hello=msgspec.structs.replace(HELLO, age=-0.1)),
    "age infinite": envelope(sequence=0, hello=msgspec.structs.replace(HELLO, age=float("inf"))),
    # The next ones ended journals and the audit: their numbers fit in no column.
    "written at infinity": envelope(Message(msgspec.structs.replace(link(), written_at=float("inf")))),
    "written at nan": envelope(Message(msgspec.structs.replace(link(), written_at=float("nan")))),
    "written at 1e300": envelope(Message(msgspec.structs.replace(link(), written_at=1e300))),
    "written before all times": envelope(Message(msgspec.structs.replace(link(), written_at=-1e15))),
    "sequence that overflows": envelope(Message(link()), Message(link()), sequence=2**63 - 1),
    "too many parts": envelope(Message(link(), 1, 2**20 + 1)),
    "parts beyond 64 bits, signed": envelope(Message(link(), 2**62, 2**64 - 1)),
    "hello about more topics than can be asked for": envelope(
        sequence=0, hello=msgspec.structs.replace(HELLO, sequences={f"t{number}": 1 for number in range(201)})
    ),
    "hello with more heads than can be asked for": envelope(
        sequence=0, hello=msgspec.structs.replace(HELLO, heads={f"t{number}": EMPTY for number in range(201)})
    ),
    "age beyond all times": envelope(sequence=0, hello=msgspec.structs.replace(HELLO, age=1e300)),
    "sequence of a hello beyond 64 bits, signed": envelope(
        sequence=0, hello=msgspec.structs.replace(HELLO, sequences={"a": 2**63})
    ),
    "negative sequence": envelope(sequence=0, hello=msgspec.structs.replace(HELLO, sequences={"a": -1})),
}


@pytest.mark.parametrize("name", sorted(NONSENSE))
def test_inconsistent_envelope_is_neither_sent_nor_received(name: str) -> None:
    bad = NONSENSE[name]
    with pytest.raises(InvalidValueError):
        codec.encode(bad)
    fields = [1, 0, bad.service, bytes.fromhex(bad.uuid), bad.sequence, bad.messages, bad.hello]
    assert reason_of([codec.topic_frame(bad.topic), msgspec.msgpack.encode(fields)]) == "foreign"


@pytest.mark.parametrize(
    "bad",
    [
        msgspec.structs.replace(envelope(Message(link())), uuid="xyz"),
        msgspec.structs.replace(envelope(Message(link())), uuid="00" * 15),
        msgspec.structs.replace(envelope(Message(link())), service=""),
        envelope(Message(link("a\0b")), topic="a\0b"),
        envelope(Message(link("\ud800")), topic="\ud800"),
        envelope(Message(link(changes=[Change("t", "\ud800", "set", 1, b"1")]))),
    ],
)
def test_envelope_that_cannot_be_encoded_is_refused(bad: Envelope) -> None:
    with pytest.raises(InvalidValueError):
        codec.encode(bad)


# -- split and pack ------------------------------------------------------------------------------------------

SMALL = Limits(max_frame_bytes=900)
big_links = links("topic", maximum=60)


@given(big_links)
def test_split_link_fits_into_frames_and_is_merged_again(one: Link) -> None:
    run = codec.split(one, SMALL)
    assert [message.part for message in run] == list(range(1, len(run) + 1))
    assert {message.parts for message in run} == {len(run)}
    for message in run:
        # the longest service name, the largest sequence: the frame must fit for every
        # envelope
        codec.encode(Envelope("s" * 255, UUID, "topic", 2**63 - 1, [message]), SMALL)
    traced = bool(run[-1].link.trace)
    assert merge(run) == (one if traced else msgspec.structs.replace(one, trace=""))
    assert codec.split(one, SMALL) == run


@given(big_links)
def test_trace_does_not_change_the_parts_of_a_run(one: Link) -> None:
    bare = codec.split(msgspec.structs.replace(one, trace=""), SMALL)
    traced = codec.split(one, SMALL)
    assert [message.link.changes for message in traced] == [message.link.changes for message in bare]


def test_run_has_the_trace_in_its_last_part_only() -> None:
    changes = [Change("lport", f"p{number}", "set", number, b"x" * 200) for number in range(1, 6)]
    run = codec.split(msgspec.structs.replace(link(changes=changes), trace=TRACE), SMALL)
    assert [message.link.trace for message in run] == ["", "", TRACE]
    assert merge(run).trace == TRACE


def test_trace_that_does_not_fit_is_left_out() -> None:
    one = link(changes=[Change("lport", "p1", "set", 7, b"x" * 450)])
    (whole,) = codec.split(msgspec.structs.replace(one, trace="t" * MAX_TRACE_CHARACTERS), SMALL)
    assert whole == Message(one)


def test_too_long_trace_is_foreign() -> None:
    fields = body_of(envelope(Message(link())))
    fields[5][0][0][10] = "t" * (MAX_TRACE_CHARACTERS + 1)  # type: ignore[index]
    assert reason_of([b"Dtenant-1\0", msgspec.msgpack.encode(fields)]) == "foreign"


def test_a_small_link_is_one_message() -> None:
    assert codec.split(link()) == [Message(link())]


def test_error_names_a_change_that_is_too_large_for_a_frame() -> None:
    with pytest.raises(FrameError, match="'lport' 'p9' needs") as caught:
        codec.split(link(changes=[Change("lport", "p9", "set", 7, b"x" * 2000)]), SMALL)
    assert caught.value.reason == "oversized"


@given(st.lists(links("topic", maximum=3), max_size=30))
def test_packed_messages_keep_their_order_and_fit(several: list[Link]) -> None:
    pieces = [piece for one in several for piece in codec.pieces(one, SMALL)]
    frames = list(codec.pack(pieces, SMALL))
    assert codec.packed(several, SMALL) == frames
    assert [frame.encoded for frame in codec.packed(several, SMALL)] == [frame.encoded for frame in frames]
    assert [message for frame in frames for message in frame] == [piece.message for piece in pieces]
    for frame in frames:
        packed = Envelope("s" * 255, UUID, "topic", 2**63 - 200, frame)
        # The passed-through bytes equal a new encoding.
        again = msgspec.structs.replace(packed, messages=list(frame))
        assert packed == again
        assert codec.encode(packed, SMALL) == codec.encode(again, SMALL)


def test_small_messages_share_a_frame() -> None:
    assert len(list(codec.pack(codec.pieces(link()) * 100))) == 1


def test_shared_frames_stay_within_shared_bytes() -> None:
    kilobyte = codec.pieces(link(changes=[Change("lport", "p", "set", 7, b"x" * 1024)]))
    frames = [codec.encode(envelope(*frame))[1] for frame in codec.pack(kilobyte * 200)]
    assert codec.SHARED_BYTES * 0.9 < max(map(len, frames)) <= codec.SHARED_BYTES
    (large,) = codec.pieces(link(changes=[Change("lport", "p", "set", 7, b"x" * 2 * codec.SHARED_BYTES)]))
    assert list(codec.pack([large, large])) == [[large.message], [large.message]]


@settings(max_examples=80)
@given(
    st.lists(st.lists(links("topic", maximum=2), min_size=1, max_size=20), min_size=1, max_size=4),
    st.integers(1, 2**20) | st.sampled_from([127, 128, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32]),
    st.sampled_from([1, 31, 32, 85, 255]),
    store_ids,
)
def test_joined_bodies_are_those_of_one_envelope_byte_for_byte(
    parts: list[list[Link]], first: int, name: int, store_id: bytes
) -> None:
    service, sequence, envelopes, payloads = "ü" + "s" * (name - 1), first, [], []
    for part in parts:
        made = Envelope(service, UUID, "topic", sequence, [Message(each) for each in part], None, store_id)
        envelopes.append(made)
        payloads.append(codec.messages_of(made, codec.encode(made)[1]))
        sequence += len(part)
    messages = [each for one in envelopes for each in one.messages]
    whole = Envelope(service, UUID, "topic", first, messages, None, store_id)
    assert codec.join(envelopes[0], len(whole.messages), payloads) == codec.encode(whole)[1]


def test_joined_bodies_may_hold_more_messages_than_sixteen_bits_count() -> None:
    small = Message(link())
    roomy = Limits(max_frame_bytes=64 * 1024 * 1024)
    made = envelope(*[small] * 70_000)
    body = codec.encode(made, roomy)[1]
    assert codec.join(made, 70_000, [codec.messages_of(made, body)]) == body


def test_an_oversized_frame_is_an_error_when_sent() -> None:
    with pytest.raises(FrameError, match="max_frame_bytes") as caught:
        codec.encode(envelope(*[Message(link())] * 50), SMALL)
    assert caught.value.reason == "oversized"


def test_values_are_sent_verbatim() -> None:
    value = json.dumps({"b": 1, "a": "ä"}).encode()
    got = codec.decode(codec.encode(envelope(Message(link(changes=[Change("t", "k", "set", 7, value)])))))
    assert got.messages[0].link.changes[0].value == value


@pytest.mark.parametrize("size", [1, 15, 17])
def test_store_id_has_16_bytes_or_none(size: int) -> None:
    with pytest.raises(InvalidValueError, match=f"cannot send the store id '{'00' * size}'; give 16 bytes"):
        codec.encode(envelope(Message(link()), store_id=bytes(size)))
    fields = body_of(envelope(Message(link())))
    with pytest.raises(FrameError) as caught:
        decode_fields([*fields[:-1], bytes(size)])
    assert caught.value.reason == "foreign"


def test_store_id_makes_a_frame_18_bytes_longer() -> None:
    with_id, without = (codec.encode(envelope(Message(link()), store_id=each))[1] for each in (STORE, NO_STORE))
    assert len(with_id) == len(without) - 1 + 18


SOUND = History().one()
GREETING = Hello({}, {}, None, 0.0)


def test_correct_contents_have_no_complaint() -> None:
    assert codec._complaint("t", 1, [Message(SOUND)], None) is None
    assert codec._complaint("", 0, [], GREETING) is None


@pytest.mark.parametrize(
    ("topic", "sequence", "messages", "hello", "words"),
    [
        ("t\0", 1, [Message(SOUND)], None, "NUL"),
        ("t", 1, [Message(SOUND)], GREETING, "both messages and a hello"),
        ("t", 0, [Message(SOUND)], None, "sequences count from 1"),
        ("u", 1, [Message(SOUND)], None, "a link of topic 't'"),
        ("t", 1, [Message(SOUND, 3, 2)], None, "part 3 of 2"),
        ("t", 1, [Message(msgspec.structs.replace(SOUND, written_at=2.0 * MAX_SECONDS))], None, "written at"),
        ("t", 1, [Message(msgspec.structs.replace(SOUND, prev=SOUND.point))], None, "from position 1 to 1"),
        ("t", 0, [], None, "neither messages nor a hello"),
        ("", 1, [], GREETING, "a hello with the sequence 1"),
        ("", 0, [], msgspec.structs.replace(GREETING, age=-1.0), "-1.0 s old"),
        ("", 0, [], msgspec.structs.replace(GREETING, age=1.0, least_age=2.0), "at least 2.0 s and at most 1.0 s"),
        ("", 0, [], msgspec.structs.replace(GREETING, least_age=-1.0), "at least -1.0 s"),
        ("", 0, [], msgspec.structs.replace(GREETING, path=(bytes(16),) * 17), "more than 16 publishers"),
        ("", 0, [], msgspec.structs.replace(GREETING, sequences={"t": -1}), "below 0"),
        ("", 0, [], msgspec.structs.replace(GREETING, sequences=dict.fromkeys(map(str, range(201)), 0)), "than 200"),
    ],
)
def test_complaint_names_the_inconsistency(
    topic: str, sequence: int, messages: list[Message], hello: Hello | None, words: str
) -> None:
    assert words in (codec._complaint(topic, sequence, messages, hello) or "")
