"""Old and new programs run together: this code reads recorded frames of wire version 1.0, a reader of version 1.0 reads
this code's frames, and fields that a future version may append harm neither. Over the codec and over real ZeroMQ.
"""

import binascii
import contextlib
from collections.abc import Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal

import msgspec
import pytest
import zmq

from pubsub_lib.api import DriverSettings, Subscriber
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope, HelloRequest
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL
from pubsub_zmq.driver import ZmqDriver

FRAMES = Path(__file__).parents[1] / "unit" / "core" / "frames"
NAMES = sorted(path.stem for path in FRAMES.glob("*.hex"))
SINCE_BUCKETS = tuple(name for name in NAMES if name.endswith("-1.4"))
OF_1_0 = ("data", "delete", "goodbye", "hello", "hello-reply", "run", "utf8")
PATIENCE = 60.0  # seconds; an answer ends each wait at once


def recorded(name: str) -> tuple[bytes, bytes]:
    head, body = (FRAMES / f"{name}.hex").read_text().split()
    return bytes.fromhex(head), bytes.fromhex(body)


def test_no_recorded_frame_of_1_0_is_lost() -> None:
    assert set(OF_1_0) <= set(NAMES)


# -- the reader of wire version 1.0: its structures as they were, independent of the current code ----------------------


class OldPoint(msgspec.Struct, frozen=True, array_like=True):
    position: int
    nonce: int


class OldChange(msgspec.Struct, frozen=True, array_like=True):
    table: str
    key: str
    action: Literal["create", "set", "delete"]
    version: int
    value: bytes | None


class OldLink(msgspec.Struct, frozen=True, array_like=True):
    topic: str
    prev: OldPoint
    point: OldPoint
    changes: list[OldChange]
    count: int
    digest: int
    tx_prev: OldPoint
    tx_links: int
    origin: str = ""
    written_at: float = 0.0


class OldMessage(msgspec.Struct, frozen=True, array_like=True):
    link: OldLink
    part: int = 1
    parts: int = 1


class OldHead(msgspec.Struct, frozen=True, array_like=True):
    point: OldPoint
    count: int
    digest: int


class OldHello(msgspec.Struct, frozen=True, array_like=True):
    sequences: Mapping[str, int]
    heads: Mapping[str, OldHead]
    store: OldPoint | None
    age: float
    nonce: str = ""
    goodbye: bool = False


class OldBody(msgspec.Struct, frozen=True, array_like=True):
    major: int
    minor: int
    service: str
    uuid: bytes
    sequence: int
    messages: list[OldMessage]
    hello: OldHello | None = None


def old_reading(body: bytes) -> OldBody:
    """Decode a body as a program of wire version 1.0 does; the minor version is not compared."""
    read = msgspec.msgpack.decode(body, type=OldBody)
    assert read.major == 1
    return msgspec.structs.replace(read, minor=0)


# -- frames of a newer minor version: every structure has more fields at its end ---------------------------------------


def longer(thing: object) -> Any:
    """Return the same value with fields appended to every structure at any depth."""
    if isinstance(thing, msgspec.Struct):
        own = [longer(getattr(thing, field)) for field in thing.__struct_fields__]
        return [*own, "appended", {"more": [1, None]}]
    if isinstance(thing, Mapping):
        return {key: longer(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [longer(each) for each in thing]
    return thing


def of_the_future(name: str) -> tuple[bytes, bytes]:
    """Return a recorded frame as a future minor version may send it."""
    head, body = codec.encode(codec.decode(recorded(name)))
    fields = longer(msgspec.msgpack.decode(body, type=codec._Body))
    fields[1] = 99
    return head, msgspec.msgpack.encode(fields)


def in_its_bucket(head: bytes) -> bytes:
    """The topic frame as publishers since 1.4 send it, by another code than theirs."""
    if not head.startswith(b"D") or head == b"D\0":
        return head
    number = binascii.crc32(head[1:-1]) & 0x3FF
    return b"B" + bytes([64 + number // 256, number % 256]) + head[1:]


def begins_with(new: object, old: object) -> bool:
    """Whether ``old`` is the part of ``new`` that a reader without the appended fields reads."""
    if isinstance(old, list):
        return isinstance(new, list) and len(new) >= len(old) and all(map(begins_with, new, old))
    if isinstance(old, dict):
        return (
            isinstance(new, dict) and new.keys() == old.keys() and all(begins_with(new[key], old[key]) for key in old)
        )
    return type(new) is type(old) and new == old


@pytest.mark.parametrize("name", NAMES)
def test_this_code_reads_the_recorded_frame(name: str) -> None:
    got = codec.decode(recorded(name))
    assert old_reading(codec.encode(got)[1]) == old_reading(recorded(name)[1])


@pytest.mark.parametrize("name", NAMES)
def test_this_code_and_the_old_one_read_a_newer_minor_version(name: str) -> None:
    assert of_the_future(name) != recorded(name)
    assert codec.decode(of_the_future(name)) == codec.decode(recorded(name))
    assert old_reading(of_the_future(name)[1]) == old_reading(recorded(name)[1])


@pytest.mark.parametrize("name", NAMES)
def test_frames_of_this_code_begin_with_the_frames_of_1_0(name: str) -> None:
    head, body = codec.encode(codec.decode(recorded(name)))
    assert head == recorded(name)[0]
    new, old = msgspec.msgpack.decode(body), msgspec.msgpack.decode(recorded(name)[1])
    assert new[0] == old[0]
    assert new[1] >= old[1]
    assert begins_with([*new[2:]], [*old[2:]])


def test_begins_with_detects_changes_that_break_an_old_reader() -> None:
    assert begins_with([1, [2, 3, "new"]], [1, [2, 3]])
    assert begins_with({"a": [1, 2]}, {"a": [1]})
    for broken in ([1], [2, [2, 3]], [1, [3, 2]], [1, [2, 3.0]], ["new", 1, [2, 3]], [1, {"2": 3}]):
        assert not begins_with(broken, [1, [2, 3]])


# -- over real sockets: a program of 1.0 is a raw socket with the recorded bytes ---------------------------------------


def asked_by(subscriber: Subscriber, xpub: "zmq.Socket[bytes]", *, old: bool) -> None:
    """A replica asks by a message. An old publisher ignores it, and gets the next one in the form that it knows."""
    subscriber.request_hello("abc123", ["a"])
    assert [xpub.recv() for _ in range(2)] == [b"\1Hab", b"Habc123\0\x91\xa1a"]
    if old:
        assert xpub.recv() == b"\0Hab"
        subscriber.request_hello("abc123", ["a"])
        assert [xpub.recv() for _ in range(2)] == [b"\1Habc123\0", b"\1Habc123\0\x91\xa1a"]  # as of 1.0


@pytest.mark.parametrize("future", [False, True], ids=["of-1.0", "of-the-future"])
def test_a_replicas_driver_understands_a_publisher_of_another_minor_version(future: bool) -> None:
    names = [name for name in NAMES if not recorded(name)[0].startswith(b"H")]  # a hello reply: only to its requester
    if future:
        sent = [(in_its_bucket(head), body) for head, body in map(of_the_future, names)]
    else:
        names = ["hello", *(name for name in names if name != "hello" and name not in SINCE_BUCKETS)]
        sent = [recorded(name) for name in names]
    got: SimpleQueue[Envelope] = SimpleQueue()
    with zmq.Context() as context, context.socket(zmq.XPUB) as xpub:
        xpub.linger = 0
        xpub.rcvtimeo = round(PATIENCE * 1000)
        port = xpub.bind_to_random_port("tcp://127.0.0.1")
        subscriber = ZmqDriver.subscriber(DriverSettings(limits=Limits(), addresses=(f"tcp://127.0.0.1:{port}",)))
        with contextlib.closing(subscriber):
            subscriber.initialize(got.put, lambda: None)
            subscriber.register_topic(ALL)
            subscriber.daemonize()
            # The old publisher receives the new replica's subscriptions: to hellos to all subscribers, and to all
            # buckets. Neither is a hello request, so a publisher of 1.0 ignores both.
            assert {xpub.recv() for _ in range(2)} == {b"\1D\0", b"\1B"}
            asked_by(subscriber, xpub, old=not future)
            xpub.send_multipart(of_the_future("hello-reply") if future else recorded("hello-reply"))
            assert got.get(timeout=PATIENCE) == codec.decode(recorded("hello-reply"))
            if not future:  # its reply shows that it sends under names alone
                seen = {xpub.recv() for _ in range(3)}
                assert seen == {b"\1D", b"\0Habc123\0", b"\0Habc123\0\x91\xa1a"}
            for frames in sent:
                xpub.send_multipart(frames)
            envelopes = [got.get(timeout=PATIENCE) for _ in sent]
            assert envelopes == [codec.decode(recorded(name)) for name in names]
            assert subscriber.counters()["foreign"] == subscriber.counters()["version"] == 0


def test_a_replica_of_1_0_understands_this_codes_publisher() -> None:
    asked: SimpleQueue[HelloRequest] = SimpleQueue()
    publisher = ZmqDriver.publisher(DriverSettings(limits=Limits(), bind_address="tcp://127.0.0.1:*"))
    with contextlib.closing(publisher), zmq.Context() as context, context.socket(zmq.SUB) as sub:
        publisher.initialize(asked.put, lambda: None)
        sub.linger = 0
        sub.rcvtimeo = round(PATIENCE * 1000)
        sub.subscribe(b"D")
        sub.subscribe(b"Habc123\0")
        sub.subscribe(b"Habc123\0\x91\xa1a")
        sub.connect(publisher.endpoint)  # type: ignore[attr-defined]
        assert asked.get(timeout=PATIENCE) == HelloRequest(
            "abc123", ("a",)
        )  # and all subscriptions before it are there
        for name in NAMES:
            publisher.send_event(codec.decode(recorded(name)))
            head, body = sub.recv_multipart()  # under its name; the copy in its bucket is not for an old replica
            assert head == recorded(name)[0]
            assert old_reading(body) == old_reading(recorded(name)[1])


def test_replica_of_a_topic_receives_hellos_of_an_old_publisher() -> None:
    """A publisher of 1.0 sent a hello for each topic, under that topic. A current replica still receives them."""
    got: SimpleQueue[Envelope] = SimpleQueue()
    with zmq.Context() as context, context.socket(zmq.XPUB) as xpub:
        xpub.linger = 0
        xpub.rcvtimeo = round(PATIENCE * 1000)
        port = xpub.bind_to_random_port("tcp://127.0.0.1")
        subscriber = ZmqDriver.subscriber(DriverSettings(limits=Limits(), addresses=(f"tcp://127.0.0.1:{port}",)))
        with contextlib.closing(subscriber):
            subscriber.initialize(got.put, lambda: None)
            subscriber.register_topic("a")
            subscriber.daemonize()
            assert {xpub.recv() for _ in range(2)} == {b"\1D\0", b"\1" + in_its_bucket(b"Da\0")[:3]}
            head, body = recorded("hello-reply")  # to the request that a replica makes at its start
            asked_by(subscriber, xpub, old=True)
            xpub.send_multipart((head, body))
            assert got.get(timeout=PATIENCE) == codec.decode((head, body))
            while xpub.recv() != b"\1Da\0":
                pass
            _, body = recorded("hello")
            for head in (b"Da\0", b"D\0"):  # about this topic, and about several
                xpub.send_multipart((head, body))
            assert [got.get(timeout=PATIENCE).hello for _ in range(2)] == [codec.decode(recorded("hello")).hello] * 2


def test_replica_of_1_0_that_follows_a_topic_gets_hello_replies() -> None:
    """It does not subscribe to hellos to all subscribers, so it misses those of a current publisher. Its freshness and
    all limits depend on hello replies, which it requests as before.
    """
    asked: SimpleQueue[HelloRequest] = SimpleQueue()
    publisher = ZmqDriver.publisher(DriverSettings(limits=Limits(), bind_address="tcp://127.0.0.1:*"))
    with contextlib.closing(publisher), zmq.Context() as context, context.socket(zmq.SUB) as sub:
        publisher.initialize(asked.put, lambda: None)
        sub.linger = 0
        sub.rcvtimeo = round(PATIENCE * 1000)
        sub.subscribe(b"Da\0")
        sub.subscribe(b"Habc123\0")
        sub.subscribe(b"Habc123\0\x91\xa1a")
        sub.connect(publisher.endpoint)  # type: ignore[attr-defined]
        assert asked.get(timeout=PATIENCE) == HelloRequest(
            "abc123", ("a",)
        )  # and all subscriptions before it are there
        for name in ("hello", "hello-reply"):
            publisher.send_event(codec.decode(recorded(name)))
        head, body = sub.recv_multipart()
        assert head == recorded("hello-reply")[0]
        assert old_reading(body) == old_reading(recorded("hello-reply")[1])
