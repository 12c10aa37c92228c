"""The process of a hostile peer: garbage for publishers, for the sockets of workers, and for subscribers, over a broker
for all of its clients.

No part of the garbage is a valid message: forged changes are the subject of ``tests/e2e/test_forged_changes.py``.
"""

import random
import socket
import time
from collections.abc import Callable
from typing import Final

import zmq

from _chaos.broker_peer import BrokerPeer, subjects_of
from _chaos.messages import HostileTask, Message, Ready
from pubsub_lib.core import codec
from pubsub_lib.testing.stream_proxy import TCP

PAUSE: Final = 0.01
"""Seconds between two pieces of garbage: the peer is to disturb the protocol, not to take the processor."""
LARGE: Final = 1_500_000
"""Bytes of an oversized frame; the maximum is 1 MiB."""
GREETING: Final = b"\xff" + bytes(8) + b"\x7f\3\0NULL" + bytes(48) + b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03SUB"
"""The begin of a connection of ZeroMQ's protocol, as of a subscriber."""


class Garbage:
    """Random bytes and frames. No I/O."""

    def __init__(self, seed: str) -> None:
        self._rng = random.Random(f"chaos garbage {seed}")

    def raw(self) -> bytes:
        """Bytes for a plain connection: with or without the begin of ZeroMQ's protocol."""
        junk = self._rng.randbytes(self._rng.choice((1, 9, 64, 4096)))
        return self._rng.choice((b"", GREETING[:10], GREETING)) + junk

    def subscription(self) -> bytes:
        """A subscription that is no topic, no hello request, and neither nor."""
        rng = self._rng
        kind = rng.choice((codec.EVERYTHING, b"H", b"P", b""))
        return kind + rng.randbytes(rng.choice((0, 1, 30, 3000)))

    def request(self) -> bytes:
        """Such a subscription as a subscriber's message, or a message that is none, such as a hello request."""
        return self._rng.choice((b"\1", b"")) + self.subscription()

    def frames(self, prefix: bytes) -> list[bytes]:
        """Frames of a message, the first of which is a subscription of the receiver."""
        rng = self._rng
        match rng.randrange(5):
            case 0:
                return [prefix]
            case 1:
                return [prefix, rng.randbytes(rng.choice((1, 40, 3000)))]
            case 2:
                return [prefix, b"\x97\x01" + rng.randbytes(20)]  # truncated
            case 3:
                return [prefix, b"\x97\x02\x00"]  # of another major version
            case _:
                return [prefix, *([rng.randbytes(3)] * rng.randrange(2, 5))]

    def message(self) -> bytes:
        """The body of a message over a broker: that of a frame, or some bytes."""
        return b"".join(self.frames(b"")) or self._rng.randbytes(40)

    @property
    def large(self) -> bool:
        """Whether to send an oversized frame now."""
        return self._rng.random() < 0.01


def run(task: HostileTask, send: Callable[[Message], None]) -> None:
    """Send garbage until the process is killed."""
    garbage = Garbage(task.seed)
    context = zmq.Context()
    subscribers = [_connected(context, zmq.XSUB, address) for address in task.addresses]
    pushers = [_connected(context, zmq.PUSH, f"ipc://{path}") for path in task.hops]
    publisher = context.socket(zmq.XPUB) if task.port else None
    if publisher is not None:
        publisher.setsockopt(zmq.LINGER, 0)
        publisher.bind(f"{TCP}127.0.0.1:{task.port}")
    peer = BrokerPeer(task.driver, task.broker) if task.broker else None
    subjects = subjects_of(task.driver, task.topics) if task.broker else ()
    prefixes: list[bytes] = []
    send(Ready())
    while True:
        for subscriber, address in zip(subscribers, task.addresses, strict=True):
            subscriber.send(garbage.request())
            _raw(address, garbage.raw())
        for pusher in pushers:
            _send(pusher, garbage.frames(codec.EVERYTHING))
        if publisher is not None:
            _answer(publisher, prefixes, garbage)
        if peer is not None:
            for subject in subjects:
                peer.publish(subject, garbage.message())
        time.sleep(PAUSE)  # the pace of the garbage; nothing waits for it


def _connected(context: "zmq.Context[zmq.Socket[bytes]]", kind: int, address: str) -> "zmq.Socket[bytes]":
    made = context.socket(kind)
    made.setsockopt(zmq.LINGER, 0)
    made.connect(address)
    return made


def _raw(address: str, data: bytes) -> None:
    host, _, port = address.removeprefix(TCP).rpartition(":")
    try:
        with socket.create_connection((host, int(port)), 1.0) as connection:
            connection.sendall(data)
    except OSError:
        pass  # the service is down, or has ended the connection


def _send(to: "zmq.Socket[bytes]", frames: list[bytes]) -> None:
    try:
        to.send_multipart(frames, zmq.NOBLOCK)
    except zmq.Again:
        pass  # no peer, or it takes nothing


def _answer(publisher: "zmq.Socket[bytes]", prefixes: list[bytes], garbage: Garbage) -> None:
    while publisher.poll(0):
        frame = publisher.recv()
        if frame[:1] == b"\1":
            prefixes.append(frame[1:])
    for prefix in prefixes:
        _send(publisher, [prefix, bytes(LARGE)] if garbage.large else garbage.frames(prefix))
