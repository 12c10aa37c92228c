"""A subscriber cannot fill a publisher's memory: the attack with 41 MB of subscriptions, over real sockets."""

import os
import socket
import threading
import time
from pathlib import Path

import pytest
import zmq

from pubsub_lib.core import codec
from pubsub_zmq.peer_budget import ALL_PEERS, PeerBudget
from tests.unit.drivers.zmq.world import eventually, world

MIB = 1024 * 1024
BUDGET = 8 * MIB
MEMORY_OF_A_BYTE = 45
"""Bytes of memory that ZeroMQ needs for a byte of a subscription, at most."""


def memory() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def flood(port: int, number: int, size: int) -> None:
    """A peer of ZeroMQ's protocol that subscribes to ``number`` different topics of ``size`` bytes at once."""
    ready = b"\x05READY\x0bSocket-Type\0\0\0\x03SUB"
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(b"\xff" + bytes(8) + b"\x7f\3\0NULL" + bytes(48) + b"\x04" + bytes([len(ready)]) + ready)
        greeting = b""
        while not greeting.endswith(b"XPUB"):
            greeting += peer.recv(4096)
        try:
            for _ in range(number):
                topic = b"\1D" + os.urandom(size // 2).hex().encode()
                peer.sendall(b"\2" + len(topic).to_bytes(8) + topic)
        except ConnectionError:
            return  # cut off
        peer.settimeout(10)
        while peer.recv(4096):
            pass


def test_41_mb_of_subscriptions_end_the_connection_within_the_budget_of_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with world() as on:
        sender = on.sender()
        listener = on.listener("a", to=(sender.address,))
        listener.wait_for_message(lambda: sender.send("a"), "a")
        before = memory()
        port = int(sender.address.rpartition(":")[2])
        attacker = threading.Thread(target=flood, args=(port, 20_000, 2000))
        attacker.start()
        most = 0
        while attacker.is_alive():
            most = max(most, memory() - before)
            time.sleep(0.02)
        attacker.join()
        eventually(lambda: sender.publisher.counters()["disconnected"] == 1, "its subscriptions are dropped")
        most = max(most, memory() - before)
        assert sender.publisher.counters()["excessive"] == 1
        # Until the next check of the connection, some more bytes may arrive.
        assert most < 2 * BUDGET * MEMORY_OF_A_BYTE, f"{most / MIB:.0f} MiB"
        assert "raise max_subscription_bytes in [pubsub_zmq] if it is a replica" in caplog.text
        listener.wait_for_message(lambda: sender.send("a"), "a")
        assert listener.counter("disconnected") == 0, "other subscribers are unaffected"


def test_many_topics_of_a_replica_are_within_the_budget() -> None:
    """100,000 subscriptions of 45 bytes, the size that the design asks for: none is lost."""
    topics = [f"{number:045}" for number in range(100_000)]
    with world() as on:
        sender = on.sender()
        listener = on.listener(*topics, to=(sender.address,))
        listener.wait_for_message(lambda: sender.send(topics[-1]), topics[-1])
        expected = sum(len(codec.subscription(topic)) for topic in topics)
        eventually(lambda: sender.publisher._subscribed >= expected, "all arrived")
        assert sender.publisher.counters()["excessive"] == 0


def connection() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        return listener.accept()[0], client


def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("pubsub_zmq.peer_budget.time.monotonic", lambda: now[0])
    return now


def send(served: socket.socket, client: socket.socket, size: int) -> None:
    client.sendall(b"x" * size)
    while size:
        size -= len(served.recv(size))


def test_budget_is_filled_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock(monkeypatch)
    served, client = connection()
    with served, client:
        budget = PeerBudget("here", MIB)
        budget.event(zmq.EVENT_ACCEPTED, served.fileno())
        for _ in range(5):
            send(served, client, MIB - 1)
            budget.check(0)
            now[0] += 1.0
        assert budget.ended == 0
        send(served, client, MIB)
        budget.check(0)
        now[0] += 0.25
        assert budget.ended == 0
        send(served, client, MIB)
        budget.check(0)
        assert budget.ended == 1
        assert client.recv(1) == b""


def test_peer_that_sent_the_most_is_ended_when_all_have_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch)
    pairs = [connection() for _ in range(3)]
    budget = PeerBudget("here", MIB)
    for (served, client), size in zip(pairs, (10, 1000, 100), strict=True):
        budget.event(zmq.EVENT_ACCEPTED, served.fileno())
        send(served, client, size)
    budget.check(ALL_PEERS * MIB + 1)
    assert budget.ended == 1
    assert pairs[1][1].recv(1) == b""
    for each in pairs:
        for one in each:
            one.close()


def test_another_connection_with_a_reused_number_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch)
    served, client = connection()
    other, other_client = connection()
    number = served.fileno()
    budget = PeerBudget("here", MIB)
    budget.event(zmq.EVENT_ACCEPTED, number)
    os.dup2(other.fileno(), number)  # the first one was closed, and the system gave its number to another one
    with served, client, other, other_client:
        send(other, other_client, 3 * MIB)
        budget.check(0)
        assert budget.ended == 0
        other.sendall(b"still open")
        assert other_client.recv(10) == b"still open"


def test_closed_connection_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock(monkeypatch)
    served, client = connection()
    budget = PeerBudget("here", MIB)
    assert budget.wait() is None
    budget.event(zmq.EVENT_ACCEPTED, served.fileno())
    budget.check(0)
    assert budget.wait() == 250
    budget.event(zmq.EVENT_DISCONNECTED, served.fileno())
    assert budget.wait() is None
    budget.event(zmq.EVENT_ACCEPTED, served.fileno())
    served.close()
    client.close()
    now[0] += 1.0
    budget.check(0)
    assert budget.wait() is None
    budget.event(zmq.EVENT_ACCEPTED, -1)
    assert budget.wait() is None
