"""A program at a publisher's address that sends a message without an end takes bounded memory of a subscriber."""

import errno
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import zmq

from pubsub_lib.core.limits import Limits
from pubsub_lib.zmq_frames import receive
from pubsub_zmq.arrivals import LOOK, MAX_PARTS, Arrivals, brought_by, identity_of
from pubsub_zmq.endless import WATCHED, Brought, Endless
from tests.unit.drivers.zmq.alone import must_pass_alone
from tests.unit.drivers.zmq.strangers import GREETING, PART, PUBLISHER_READY, publisher
from tests.unit.drivers.zmq.test_inflow_guard import connected
from tests.unit.drivers.zmq.test_subscription_budget import resident
from tests.unit.drivers.zmq.world import Listener, Sender, eventually, world

FRAME = Limits().max_frame_bytes
MUCH = Endless(FRAME, 1).maximum + WATCHED + 1
ADDRESS = "tcp://10.0.0.1:8866"
MEMORY_OF_A_PART = 64
BROUGHT = 40 * 2**20
"""Bytes of parts in one connection, unless it is ended: 1.3 GB of memory."""


def memory_during(check: Callable[[Listener, Sender], None]) -> None:
    """Parts without an end come, and another publisher's messages, in a process of its own."""
    with publisher(PART, BROUGHT // len(PART)) as address, world() as on:
        sender = on.sender()
        listener = on.listener("a", to=(sender.address,))
        listener.wait_for_message(lambda: sender.send("a"), "a")
        before = resident()
        listener.subscriber.register_listen_address(address)
        check(listener, sender)
        grown = resident(peak=True) - before
        assert 20 < grown < BROUGHT // len(PART) * MEMORY_OF_A_PART / 2**20 / 2, grown
        listener.subscriber.unregister_listen_address(address)
        eventually(lambda: resident() - before < 100, "the memory is returned")
        listener.wait_for_message(lambda: sender.send("a"), "a")


def endless() -> None:
    """Three times, because the connection is made again."""

    def check(listener: Listener, sender: Sender) -> None:
        eventually(lambda: listener.counter("unfinished") >= 3, "it was ended each time")
        listener.wait_for_message(lambda: sender.send("a"), "a")
        assert sender.publisher.counters()["disconnected"] == 0, "the other publisher's connection was disturbed"
        assert listener.counter("receive_errors") == 0

    memory_during(check)


def test_message_without_an_end_takes_bounded_memory_and_ends_its_connection() -> None:
    stderr = must_pass_alone(endless)
    assert "the connection to the publisher at tcp://127.0.0.1:" in stderr
    assert stderr.count("without a whole message") == 1, "once in a minute"


def test_connection_that_sends_messages_of_many_parts_is_ended() -> None:
    """ZeroMQ counts whole messages, so that many of them can wait."""
    with publisher(PART * 10_000 + b"\0\0", 1000) as address, world() as on:
        listener = on.listener("a", to=(address,))
        eventually(lambda: listener.counter("unfinished") > 0, "it was ended")


@contextmanager
def by_hand(*topics: str) -> Iterator[tuple[Listener, socket.socket]]:
    """A listener, and its connection to a publisher that a test plays by hand."""
    with socket.create_server(("127.0.0.1", 0)) as server, world() as on:
        listener = on.listener(*topics, to=(f"tcp://127.0.0.1:{server.getsockname()[1]}",))
        client, _ = server.accept()
        with client:
            client.sendall(GREETING + PUBLISHER_READY)
            eventually(lambda: listener.counter("connected") == 1, "the handshake")
            yield listener, client


def looked(listener: Listener) -> None:
    """Wait for three looks at the counters, which see all that came before."""
    arrivals = listener.subscriber._receiver._arrivals
    for _ in range(3):
        before = arrivals.next_time
        eventually(lambda before=before: arrivals.next_time > before, "a look")  # type: ignore[misc]


def dropped(listener: Listener) -> int:
    """Number of messages that were read; none of these tests' is one of this library."""
    return sum(listener.counter(each) for each in ("unwanted", "truncated", "oversized", "version", "foreign"))


def long_frame(size: int, *, more: bool = False) -> bytes:
    """The header of a long frame."""
    return bytes([2 + more]) + size.to_bytes(8, "big")


def test_large_frame_in_progress_over_a_slow_link_is_not_ended() -> None:
    """The largest that ZeroMQ accepts, and as many bytes before as let the connection be watched."""
    with by_hand() as (listener, client):
        for _ in range(3):
            client.sendall(long_frame(FRAME) + bytes(FRAME))
        client.sendall(long_frame(300, more=True) + bytes(300) + long_frame(2 * FRAME))
        eventually(lambda: dropped(listener) == 3, "the messages before")
        for _ in range(8):
            client.sendall(bytes(FRAME // 4))
            looked(listener)
        eventually(lambda: dropped(listener) == 4, "the frame came")
        assert listener.counter("unfinished") == listener.counter("disconnected") == 0


def test_connection_that_sends_heartbeats_and_rare_messages_is_not_ended() -> None:
    """Heartbeats are no messages."""
    ping = b"\4\7\4PING\0\0"
    with by_hand() as (listener, client):
        for number in range(1, 5):
            client.sendall(ping * (FRAME // 4))
            looked(listener)
            client.sendall(long_frame(300) + bytes(300))
            eventually(lambda number=number: dropped(listener) == number, "the message")  # type: ignore[misc]
        assert listener.counter("unfinished") == listener.counter("disconnected") == 0


def test_stalled_subscriber_ends_no_connection() -> None:
    """Its queue is full, and so are the system's buffers."""
    held = threading.Event()
    with world() as on:
        sender = on.sender()
        listener = on.listener("a", to=(sender.address,))
        listener.wait_for_message(lambda: sender.send("a"), "a")
        life: Any = listener.subscriber._life
        deliver = life._on_envelope

        def stall(envelope: object) -> None:
            held.wait()
            deliver(envelope)

        life._on_envelope = stall
        before = listener.messages("a")
        for _ in range(100):
            sender.send("a", b"x" * (FRAME // 2))
        held.set()
        eventually(lambda: listener.messages("a") == before + 100, "all came")
        looked(listener)
        assert listener.counter("unfinished") == listener.counter("disconnected") == 0


def test_bytes_that_wait_in_the_system_were_not_taken() -> None:
    with connected() as (client, server):
        client.sendall(bytes(1000))
        assert brought_by(server.fileno()) == Brought(0, 0)
        server.recv(400)
        some = brought_by(server.fileno())
        assert some == Brought(400, 400)
        server.recv(600)
        every = brought_by(server.fileno(), some)
        assert every == Brought(1000, 1000)
        assert brought_by(server.fileno(), every) is every
        client.sendall(b"x")
        eventually(lambda: brought_by(server.fileno(), every) is not every, "another byte")
        number = server.fileno()
        client.close()
        eventually(lambda: brought_by(number) is None, "its end is seen")


def test_what_is_no_open_tcp_connection_has_no_bytes(tmp_path: Any) -> None:
    one, other = socket.socketpair()
    with one, other, (tmp_path / "file").open("w") as file:
        assert brought_by(one.fileno()) is None
        assert brought_by(file.fileno()) is None
        assert identity_of(file.fileno()) == b""
        assert len({identity_of(one.fileno()), identity_of(other.fileno())}) == 2
        number = one.fileno()
    assert brought_by(number) is None
    assert identity_of(number) == b""


class Rig:
    """Arrivals of one connection, with counters of its bytes that the test sets, and an empty socket."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, descriptor: int) -> None:
        self.counts = {"unfinished": 0}
        self.arrivals = Arrivals(FRAME, 1, self.counts)
        self.descriptor = descriptor
        self.bytes = 0
        self.now = 0.0
        self.events = 0
        self._sub = Mock()
        self._sub.getsockopt = lambda option: self.events
        monkeypatch.setattr("pubsub_zmq.arrivals.brought_by", lambda each, last: Brought(self.bytes, self.bytes))
        self.arrivals.event(int(zmq.EVENT_CONNECTED), ADDRESS, descriptor, self.now)

    def look(self) -> None:
        self.now += LOOK
        self.arrivals.look(self._sub, 1, self.now)

    def bring(self) -> None:
        """Enough to be ended, within two looks."""
        for _ in range(2):
            self.bytes += MUCH
            self.look()


def test_connection_is_watched_only_while_it_may_have_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with connected() as (_, server):
        rig = Rig(monkeypatch, server.fileno())
        rig.look()
        assert rig.arrivals.read is receive
        rig.bytes = MUCH
        rig.look()
        assert rig.arrivals.read is not receive
        assert rig.arrivals.next_time < rig.now + LOOK, "it is looked at more often"
        frames = iter((SimpleNamespace(bytes=b"a", more=True), SimpleNamespace(bytes=b"b", more=False)))
        monkeypatch.setattr("pubsub_zmq.arrivals.descriptor_of", lambda frame: server.fileno())
        read = rig.arrivals.read  # the receiver reads up to 500 messages by it
        assert read(Mock(recv=lambda flags, copy: next(frames))) == [b"a", b"b"]
        for _ in range(3):
            with pytest.raises(zmq.Again):
                read(Mock(recv=Mock(side_effect=zmq.Again)))
        assert rig.arrivals.read is receive
        assert rig.arrivals.next_time == pytest.approx(rig.now + LOOK)


def test_parts_above_the_maximum_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with connected() as (client, server):
        rig = Rig(monkeypatch, server.fileno())
        rig.bytes = MUCH
        rig.look()
        frames = iter([SimpleNamespace(bytes=b"", more=number < 999) for number in range(1000)])
        monkeypatch.setattr("pubsub_zmq.arrivals.descriptor_of", lambda frame: server.fileno())
        assert len(rig.arrivals.read(Mock(recv=lambda flags, copy: next(frames)))) == MAX_PARTS
        assert next(frames, None) is None, "the next message would begin within this one"
        assert rig.counts["unfinished"] == 1
        assert client.recv(1) == b""


def test_socket_that_was_not_found_empty_ends_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with connected() as (_, server):
        rig = Rig(monkeypatch, server.fileno())
        rig.events = int(zmq.POLLIN)
        for _ in range(10):
            rig.bring()
        assert rig.counts["unfinished"] == 0


@pytest.mark.parametrize("reused", [True, False])
def test_other_socket_with_the_descriptor_is_not_ended(monkeypatch: pytest.MonkeyPatch, reused: bool) -> None:
    """A connection to a database gets the number of a closed one before the monitor's event was read."""
    with connected() as (client, server):
        rig = Rig(monkeypatch, server.fileno())
        rig.bytes = MUCH
        rig.look()
        if reused:
            before = identity_of(server.fileno())
            seen = iter((before, b"another"))
            monkeypatch.setattr("pubsub_zmq.arrivals.identity_of", lambda descriptor: next(seen))
        rig.bytes += MUCH
        rig.look()
        assert rig.counts["unfinished"] == (not reused)
        client.settimeout(0.0 if reused else 10.0)
        if reused:
            with pytest.raises(BlockingIOError):
                client.recv(1)
        else:
            assert client.recv(1) == b""


@pytest.mark.parametrize("by", ["event", "look"])
def test_memory_is_returned_also_when_the_other_end_closed_the_connection(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Perhaps in the middle of a message, of which much came since the last look. No event names a connection that this
    end disconnected.
    """
    returned: list[str] = []
    monkeypatch.setattr("pubsub_zmq.arrivals.return_memory", lambda: returned.append("again"))
    with connected() as (_, server):
        rig = Rig(monkeypatch, server.fileno())
        number = server.fileno()
        if by == "event":
            rig.arrivals.event(int(zmq.EVENT_DISCONNECTED), ADDRESS, number, rig.now)
    rig.look()
    assert rig.arrivals.next_time == rig.now + 2.0 - (LOOK if by == "event" else 0.0)
    assert returned == []
    rig.now += 2.0
    rig.look()
    assert returned == ["again"]
    assert rig.arrivals.next_time == float("inf"), "it is forgotten"
    rig.arrivals.event(int(zmq.EVENT_DISCONNECTED), ADDRESS, number, rig.now)
    assert rig.arrivals.next_time == float("inf"), "the event of a connection that a look had found closed"


def test_connection_is_ended_later_when_no_file_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    with connected() as (_, server):
        rig = Rig(monkeypatch, server.fileno())
        with monkeypatch.context() as patch:
            patch.setattr("pubsub_zmq.arrivals.copy_of", Mock(side_effect=OSError(errno.EMFILE, "too many")))
            rig.bring()
        assert rig.counts["unfinished"] == 0
        rig.look()
        assert rig.counts["unfinished"] == 1


def test_memory_is_returned_later_and_the_log_names_the_address_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """ZeroMQ frees it after some time."""
    returned: list[str] = []
    monkeypatch.setattr("pubsub_zmq.arrivals.return_memory", lambda: returned.append("again"))
    with connected() as (_, server):
        rig = Rig(monkeypatch, server.fileno())
        rig.bring()
    ended = rig.now
    assert caplog.text.count(ADDRESS) == 1
    assert rig.arrivals.next_time == ended + 2.0
    while len(returned) < 1:
        rig.look()
    assert rig.now >= ended + 2.0
    rig.look()
    assert len(returned) == 1
    for again, lines in ((30.0, 1), (61.0, 2)):
        rig.now = ended + again
        with connected() as (_, server):
            rig.bytes = 0
            rig.arrivals.event(int(zmq.EVENT_CONNECTED), ADDRESS, server.fileno(), rig.now)
            rig.bring()
        assert caplog.text.count(ADDRESS) == lines
    assert rig.counts["unfinished"] == 3
