"""Above the maximum number of connections, new ones are dropped, and those that are open are unaffected."""

import errno
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import zmq

from pubsub_zmq.connection_limit import ConnectionLimit, backlog_of, maximum_of
from tests.unit.drivers.zmq.world import Sender, World, eventually, without_guard, world

GREETING = b"\xff" + bytes(8) + b"\x7f\3\0NULL" + bytes(48)
READY = b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03SUB"
REFUSED = 0.5
"""Seconds after which a connection that is not made counts as dropped: on loopback it is made at once."""


@pytest.fixture
def on() -> Iterator[World]:
    with world() as made:
        yield made


def stranger(sender: Sender, stack: ExitStack, greeting: bytes = GREETING + READY) -> socket.socket | None:
    """A raw connection to the publisher; None when it is dropped."""
    host, _, port = sender.address.removeprefix("tcp://").rpartition(":")
    try:
        made = stack.enter_context(socket.create_connection((host, int(port)), REFUSED))
    except TimeoutError:
        return None
    made.sendall(greeting)
    return made


def is_open(sender: Sender) -> int:
    counts = sender.publisher.counters()
    return counts["accepted"] - counts["disconnected"]


def test_connections_above_the_maximum_are_dropped_and_accepted_again_below(
    on: World, caplog: pytest.LogCaptureFixture
) -> None:
    sender = on.sender(max_connections=5)
    without_guard(sender)  # it would hold new connections while a step takes long
    listener = on.listener("a", to=(sender.address,))
    listener.wait_for_message(lambda: sender.send("a"), "a")
    with ExitStack() as stack:
        held = [stranger(sender, stack) for _ in range(4)]
        eventually(lambda: sender.publisher.counters()["limited"] == 1, "the limit is reached")
        assert None not in held
        assert stranger(sender, stack) is None
        assert sender.publisher.counters()["accepted"] == 5
        listener.wait_for_message(lambda: sender.send("a"), "a")
        assert f"5 connections are open at {sender.address}, the maximum" in caplog.text
        for each in held[:2]:
            assert each is not None
            each.close()
        eventually(lambda: is_open(sender) == 3, "two have left")
        eventually(lambda: "are accepted again: 4 are open" in caplog.text, "new ones are accepted")
        eventually(lambda: stranger(sender, stack) is not None, "a new one is accepted")
    assert sender.publisher.counters()["limited"] == 1


@pytest.mark.parametrize("greeting", [b"", GREETING, b"GET / HTTP/1.1\r\n\r\n" + bytes(80), GREETING + bytes(30)])
def test_connection_without_a_handshake_is_counted_until_it_ends(greeting: bytes, on: World) -> None:
    sender = on.sender(connect_timeout=0.2)
    without_guard(sender)
    with ExitStack() as stack:
        for _ in range(3):
            stranger(sender, stack, greeting)
        eventually(lambda: sender.publisher.counters()["accepted"] == 3, "they are counted")
        eventually(lambda: is_open(sender) == 0, "they are ended after connect_timeout")


def test_subscriber_above_the_maximum_connects_when_another_one_has_left(on: World) -> None:
    sender = on.sender(max_connections=1)
    without_guard(sender)
    with ExitStack() as stack:
        assert stranger(sender, stack) is not None
        eventually(lambda: sender.publisher.counters()["limited"] == 1, "the limit is reached")
        listener = on.listener("a", to=(sender.address,), connect_timeout=0.3)
        sender.send("a")
        assert listener.messages("a") == 0
    listener.wait_for_message(lambda: sender.send("a"), "a")


def test_only_an_open_connection_of_this_socket_is_ended(on: World) -> None:
    sender = on.sender()
    with ExitStack() as stack:
        peer = stranger(sender, stack)
        assert peer is not None
        eventually(lambda: is_open(sender) == 1, "it is counted")
        assert peer.recv(1000)[:1] == b"\xff", "the publisher's greeting"
        limit = sender.publisher._connections
        (descriptor,) = limit._open
        other, other_end = map(stack.enter_context, socket.socketpair())
        pipe, pipe_end = os.pipe()
        stack.callback(os.close, pipe)
        stack.callback(os.close, pipe_end)
        for wrong in (other.fileno(), pipe, 1_000_000):
            assert not limit.end(wrong), "no connection"
            limit._open.add(wrong)
            assert not limit.end(wrong), "its number belongs to another file now"
            limit._open.discard(wrong)
        other_end.sendall(b"still open")
        assert other.recv(100) == b"still open"
        assert limit.end(descriptor)
        assert b"" in iter(lambda: peer.recv(1000), None), "after the rest of the greeting"
        eventually(lambda: is_open(sender) == 0, "ZeroMQ finds it closed")
        assert sender.publisher.counters()["ended"] == 1


def test_event_without_a_free_file_is_logged_and_connections_are_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception would end the thread that makes a socket with keys again, and all sending with it."""

    def dup(descriptor: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    limit = ConnectionLimit("tcp://127.0.0.1:*", 5)
    with monkeypatch.context() as patch:
        patch.setattr(os, "dup", dup)
        limit.event(zmq.EVENT_LISTENING, 7)
    assert "tcp://127.0.0.1:*: Too many open files; raise this process's limit of open files" in caplog.text
    limit.event(zmq.EVENT_ACCEPTED, 8)
    assert not limit.end(8)
    assert limit.renewed() == 1


def test_port_is_free_after_close(on: World) -> None:
    sender = on.sender(max_connections=1)
    without_guard(sender)
    with ExitStack() as stack:
        assert stranger(sender, stack) is not None
        eventually(lambda: sender.publisher.counters()["limited"] == 1, "the limit is reached")
        sender.end()
        on.sender(sender.address)


def test_new_connections_are_dropped_while_held_and_open_ones_continue(on: World) -> None:
    sender = on.sender(max_connections=3)
    listener = on.listener("a", to=(sender.address,))
    listener.wait_for_message(lambda: sender.send("a"), "a")
    limit = sender.publisher._connections
    without_guard(sender)
    with ExitStack() as stack:
        limit.hold(True)
        limit.hold(True)
        assert stranger(sender, stack) is None
        listener.wait_for_message(lambda: sender.send("a"), "a")
        limit.hold(False)
        assert stranger(sender, stack) is not None
        assert stranger(sender, stack) is not None
        eventually(lambda: sender.publisher.counters()["limited"] == 1, "the limit is reached")
        limit.hold(True)
        limit.hold(False)
        assert stranger(sender, stack) is None, "the maximum still holds"
        assert sender.publisher.counters()["held"] == 2


def test_connections_get_at_most_half_of_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {64: 32, 1024: 512, 65_536: 10_000, resource.RLIM_INFINITY: 10_000}
    for files, maximum in limits.items():
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert maximum_of(10_000) == maximum
    assert maximum_of(7) == 7
    assert [backlog_of(maximum) for maximum in (1, 32, 10_000)] == [16, 16, 1024]
