"""Helpers for the tests of the ZeroMQ driver: both halves, a publisher in another process, a raw socket."""

import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import zmq
from _patience import longest
from _processes import poll

from pubsub_lib.api import DriverSettings
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope, Hello, HelloRequest, Message
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import EMPTY, NO_STORE, ZERO, Change, Link, Point
from pubsub_lib.testing.rig import Collector
from pubsub_zmq.buckets import bucketed
from pubsub_zmq.driver import ZmqDriver
from pubsub_zmq.publisher import ZmqPublisher
from pubsub_zmq.sockets import has_work
from pubsub_zmq.subscriber import ZmqSubscriber

ROOT = Path(__file__).parents[4]
PATIENCE = longest(60.0)
ANY = "tcp://127.0.0.1:*"
QUICK: dict[str, Any] = {"reconnect_interval": 0.02, "max_reconnect_interval": 0.1, "answer_time": 60.0}
"""With time for the reply to a hello request on a busy machine: a later one is dropped."""
ALERT: dict[str, Any] = {
    **QUICK,
    "tcp_keepalive_idle": 1,
    "tcp_keepalive_interval": 1,
    "tcp_keepalive_count": 1,
    "tcp_user_timeout": 2,
}
GIVEN_UP = 2.0
"""Seconds after which these options end the connection to a silent peer."""


def envelope(topic: str, sequence: int, who: str, value: bytes = b"1") -> Envelope:
    """One message; its link's point is its sequence."""
    link = Link(
        topic,
        Point(sequence - 1, 7) if sequence > 1 else ZERO,
        Point(sequence, 7),
        [Change("t", "k", "set", sequence, value)],
        1,
        0,
        ZERO,
        1,
    )
    return Envelope("world", who, topic, sequence, [Message(link)])


class Sender:
    """A publisher with the state of a service; answers hello requests."""

    def __init__(self, address: str = ANY, **options: Any) -> None:
        limits = options.pop("limits", Limits())
        keys = options.pop("keys", False)
        made = ZmqDriver.publisher(DriverSettings(limits, bind_address=address, keys=keys, options=options))
        assert isinstance(made, ZmqPublisher)
        self.publisher = made
        self.uuid = uuid.uuid4().hex
        self.sequences: Counter[str] = Counter()
        self.asks: list[HelloRequest] = []
        self.meetings = 0
        self.publisher.initialize(self.answer, self.met)

    @property
    def address(self) -> str:
        return self.publisher.endpoint

    def send(self, topic: str, value: bytes = b"1") -> int:
        self.sequences[topic] += 1
        self.publisher.send_event(envelope(topic, self.sequences[topic], self.uuid, value))
        return self.sequences[topic]

    def end(self) -> None:
        """Close it, and wait until its address is free: a close that waits too long for a thread leaves it behind."""
        self.publisher.close()
        eventually(lambda: not any(each.is_alive() for each in self.publisher._threads), "its threads ended")

    def settle(self) -> None:
        """Wait until the socket has no work to do for its clients, as just after it was bound: the next message is then
        sent by the caller.
        """

        def done() -> bool:
            with self.publisher._socket_lock:
                used = self.publisher._used
                return used is not None and not has_work(used.signal)

        eventually(done, "the socket has no work")

    def answer(self, ask: HelloRequest) -> None:
        self.asks.append(ask)
        sequences = {topic: self.sequences[topic] for topic in ask.topics if topic}
        hello = Hello(sequences, dict.fromkeys(sequences, EMPTY), ZERO, 0.0, ask.nonce)
        self.publisher.send_event(Envelope("world", self.uuid, "", 0, [], hello))

    def met(self) -> None:
        self.meetings += 1

    def goodbye(self) -> None:
        self.publisher.send_event(Envelope("world", self.uuid, "", 0, [], Hello({}, {}, ZERO, 0.0, "", True)))


class Listener:
    """A running subscriber and its received messages."""

    def __init__(self, *topics: str, to: tuple[str, ...] = (), **options: Any) -> None:
        limits = options.pop("limits", Limits())
        own = options.pop("client_key_file", "")
        settings = DriverSettings(
            limits, addresses=to, keys=bool(own), client_key_file=own, options={**QUICK, **options}
        )
        made = ZmqDriver.subscriber(settings)
        assert isinstance(made, ZmqSubscriber)
        self.subscriber = made
        self.received = Collector(PATIENCE)
        self.meetings = 0
        self.subscriber.initialize(self.received, self.met)
        for topic in topics:
            self.subscriber.register_topic(topic)
        self.subscriber.daemonize()

    def met(self) -> None:
        self.meetings += 1

    def counter(self, name: str) -> int:
        return self.subscriber.counters()[name]

    def wait_for_message(self, send: Callable[[], object], topic: str, patience: float = PATIENCE) -> None:
        """Send repeatedly until a message on this topic arrives."""
        before = self.messages(topic)

        def came() -> bool:
            if self.messages(topic) > before:
                return True
            send()
            return False

        eventually(came, f"a message on {topic!r} came", patience)

    def messages(self, topic: str) -> int:
        return sum(len(each.messages) for each in list(self.received.envelopes) if each.topic == topic)

    def numbers(self, topic: str) -> list[int]:
        return [
            each.link.point.position
            for one in list(self.received.envelopes)
            if one.topic == topic
            for each in one.messages
        ]

    def latest(self, topic: str) -> int:
        """The position of the last message on this topic; 0 without one. Unlike :meth:`numbers` it takes no longer the
        more messages came, which matters to a test that asks at every message.
        """
        for one in reversed(self.received.envelopes):
            if one.topic == topic and one.messages:
                return one.messages[-1].link.point.position
        return 0


class RawSocket:
    """A raw XPUB socket that sends any frames and stores the received subscriptions."""

    def __init__(self, address: str = "") -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self.context.socket(zmq.XPUB)
        self.socket.setsockopt(zmq.LINGER, 0)
        if address:
            self.socket.bind(address)
        else:
            address = f"tcp://127.0.0.1:{self.socket.bind_to_random_port('tcp://127.0.0.1', 15_000, 32_000)}"
        self.address = address
        self.frames: list[bytes] = []
        self.store_id = NO_STORE
        """The store that its envelopes name."""

    def wait_for_frame(self, wanted: Callable[[bytes], bool]) -> None:
        def received() -> bool:
            while self.socket.poll(0):
                self.frames.append(self.socket.recv())
            return any(wanted(each) for each in self.frames)

        eventually(received, "the raw socket received the frame")

    def send(self, topic: str, body: bytes | None = None) -> None:
        named = msgspec.structs.replace(envelope(topic, 1, "ab" * 16), store_id=self.store_id)
        head, good = codec.encode(named)
        self.socket.send_multipart((bucketed(head), good if body is None else body))

    def close(self) -> None:
        self.socket.close()
        self.context.term()


CHILD = """
import sys
from tests.unit.drivers.zmq.world import Sender
sender = Sender(sys.argv[1])
print(sender.address, flush=True)
for line in sys.stdin:
    sender.send(line.strip())
"""


class Remote:
    """A publisher in another process: it sends one message on each topic that is written to its input."""

    def __init__(self, address: str = ANY) -> None:
        path = os.pathsep.join(str(ROOT / each) for each in ("", "drivers", "tools"))
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
            cwd=ROOT,
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        assert self.address, "the publisher's process did not start"

    def send(self, topic: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{topic}\n")
        self.process.stdin.flush()

    def close(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                pass  # the process ended before it read a line


class World:
    """Makes these helpers and closes them."""

    def __init__(self) -> None:
        self._open: list[Callable[[], None]] = []

    def sender(self, address: str = ANY, **options: Any) -> Sender:
        made = Sender(address, **options)
        self._open.append(made.publisher.close)
        return made

    def listener(self, *topics: str, to: tuple[str, ...] = (), **options: Any) -> Listener:
        made = Listener(*topics, to=to, **options)
        self._open.append(made.subscriber.close)
        return made

    def remote(self, address: str = ANY) -> Remote:
        made = Remote(address)
        self._open.append(made.close)
        return made

    def raw_socket(self, address: str = "") -> RawSocket:
        made = RawSocket(address)
        self._open.append(made.close)
        return made

    def close(self) -> None:
        for each in self._open:
            each()


@contextmanager
def world() -> Iterator[World]:
    made = World()
    try:
        yield made
    finally:
        made.close()


def without_guard(sender: Sender) -> None:
    """Stop the thread that would leave the socket to its own thread when a step takes long."""
    guard = sender.publisher._guard
    assert guard is not None
    guard.close()
    sender.publisher._threads[2].join()
    guard.alarmed = False


def eventually(condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    assert poll(condition, patience), f"after {patience} s still not: {what}"
