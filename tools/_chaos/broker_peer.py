"""A raw client of a broker, as any program could be: it publishes any bytes, and floods subscribers that are slow."""

import select
import socket
import threading
from collections.abc import Sequence
from typing import Final

from pubsub_lib.core.model import ALL
from pubsub_nats.subjects import Subjects
from pubsub_redis.frames import Channels

PIECE: Final = 128 * 1024
"""Bytes of one message of a flood; no part of it is a valid message."""
PAUSE: Final = 0.005
"""Seconds between two messages of a flood: all other processes need the processor, too."""
MOST: Final = 64 * 1024 * 1024
"""Maximum number of bytes of a flood."""
_TIMEOUT: Final = 1.0
_NATS: Final = Subjects("pubsub")
_REDIS: Final = Channels("pubsub_lib:")


def subjects_of(driver: str, topics: Sequence[str]) -> Sequence[bytes]:
    """The subjects (of Redis: channels) with the default prefixes: of messages to every subscriber, of hello requests,
    and of the topics.
    """
    if driver == "nats":
        return [each.encode() for each in (_NATS.hello, _NATS.ask, *map(_NATS.pattern, topics))]
    return [_REDIS.of_topic(ALL), _REDIS.requests, *map(_REDIS.of_topic, topics)]


class BrokerPeer:
    """It connects with the first message, and again with the next one after a loss. For one thread."""

    def __init__(self, driver: str, port: int) -> None:
        """``driver``: ``nats`` or ``redis``; ``port``: of the broker on 127.0.0.1."""
        self._encode = nats if driver == "nats" else redis
        self._greeting = b'CONNECT {"verbose":false}\r\n' if driver == "nats" else b""
        self._port = port
        self._socket: socket.socket | None = None

    def publish(self, subject: bytes, body: bytes) -> bool:
        """Publish a message. False: the broker is down, is stopped, or has ended the connection."""
        try:
            if self._socket is None:
                self._socket = socket.create_connection(("127.0.0.1", self._port), _TIMEOUT)
                self._socket.sendall(self._greeting)
            self._socket.sendall(self._encode(subject, body))
            self._drain(self._socket)
        except OSError:
            self.close()
            return False
        return True

    def close(self) -> None:
        """End the connection. Idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _drain(self, connection: socket.socket) -> None:
        """Drop the answers: else the broker would buffer them. Raises OSError at the end of the connection."""
        while select.select([connection], [], [], 0.0)[0]:
            if not connection.recv(PIECE):
                raise ConnectionResetError("the broker has ended the connection")


def nats(subject: bytes, body: bytes) -> bytes:
    """The bytes of NATS's protocol that publish a message."""
    return b"PUB %b %d\r\n%b\r\n" % (subject, len(body), body)


def redis(channel: bytes, body: bytes) -> bytes:
    """The bytes of Redis's protocol that publish a message."""
    words = (b"PUBLISH", channel, body)
    return b"*3\r\n" + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


class Flood:
    """Publishes large garbage to every subscriber of a broker, on a thread of its own, until ``stop``, or until more
    was sent than all buffers between the broker and a stopped subscriber take.
    """

    def __init__(self, driver: str, port: int) -> None:
        self._peer = BrokerPeer(driver, port)
        (self._subject, *_) = subjects_of(driver, ())
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flood", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Return when the thread has ended. Idempotent."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        sent, piece = 0, bytes(PIECE)
        while sent < MOST and not self._stopped.wait(PAUSE):
            if self._peer.publish(self._subject, piece):
                sent += PIECE
        self._peer.close()
