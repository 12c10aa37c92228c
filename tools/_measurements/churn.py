"""Measures for how long one client silences the others of a ZeroMQ publisher: ``tools/bench churn``.

A publisher sends a message every 10 ms, and a subscriber in another process notes the longest time without one. A third
process follows ``--topics`` topics with random names of 44 bytes. Meanwhile clients

- make and end hello requests of 2 KiB as fast as one process can (``questions``),
- connect, subscribe and leave as fast as one process can, beside one that subscribes to all it may (``connections``),
- are ``--agents`` replicas of ten topics each that all leave at once, and connect again (``reconnection``).

``--by-names``: all subscribe to topics by their names, as replicas of versions before 1.4 of the wire, and not to
buckets. Prints the longest gaps, the longest time that the publisher itself reports for one call, after 2 s of which
``/ready`` fails, its processor time, and the longest time that ``send_event`` took. On a busy machine most of a gap is
waiting for a processor. Exit code 1: a gap is longer than ``--bound``.
"""

import argparse
import logging
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Final, cast

import zmq
from _bench.measure import BenchError
from _children import Children, Forked, Line
from _command_line import Parser, positive
from _processes import free_port, poll

from _measurements.command import Finding, Findings
from pubsub_lib.api import DriverSettings
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope, Hello, HelloRequest, Message
from pubsub_lib.core.limits import MAX_HELLO_TOPICS, Limits
from pubsub_lib.core.model import ALL, ZERO, Change, Link, Point
from pubsub_zmq.buckets import prefix_of
from pubsub_zmq.driver import ZmqDriver
from pubsub_zmq.publisher import ZmqPublisher
from pubsub_zmq.subscription_budget import TABLE, SubscriptionBudget

TICK: Final = 0.01
TOPIC: Final = "ticks"
PER_AGENT: Final = 10
PATIENCE: Final = 120.0
HANDSHAKE: Final = (
    b"\xff" + bytes(8) + b"\x7f\3\0" + b"NULL".ljust(20, b"\0") + bytes(32)  # https://rfc.zeromq.org/spec/23
    + b"\4\x19\5READY\x0bSocket-Type\0\0\0\3SUB"
)  # fmt: skip
SUBSCRIPTION: Final = b"\0\4\1" + prefix_of(TOPIC)
UUID: Final = "ab" * 16


def options(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("--topics", type=positive, default=10_000, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--agents", type=positive, default=1000, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=8.0, metavar="S", help="of each churn (default: %(default)s)")
    parser.add_argument("--by-names", action="store_true", help="subscribe by names, as older versions")
    parser.add_argument("--bound", type=float, default=1.0, metavar="S", help="longest gap (default: %(default)s)")
    parser.add_argument("--only", choices=("questions", "connections", "reconnection"), default="", help="only this")


def measure(options: argparse.Namespace) -> Findings:
    """A finding for each kind of client."""
    logging.disable(logging.WARNING)  # many pauses
    address = f"tcp://127.0.0.1:{free_port()}"
    names = random_names(options.topics)
    with Children() as children:
        # Forked before this process has threads and sockets.
        listening = children.fork(listener, address)
        following = children.fork(follower, address, names, options.by_names)
        churning = {
            "questions": children.fork(asker, address, options.seconds),
            "connections": children.fork(leaver, address, options.seconds),
            "reconnection": children.fork(agents, address, options.agents, names, options.by_names),
        }
        with closing(Sender(address, by_names=options.by_names)) as sender:
            for ready in (following, listening):
                ready.receive(PATIENCE)
            yield one(sender, listening, "calm", sender.rest, float("inf"))
            for kind, child in churning.items():
                if options.only in ("", kind):
                    yield one(sender, listening, kind, partial(churned, child), options.bound)


def one(sender: "Sender", listening: Forked, kind: str, churn: Callable[[], int], bound: float) -> Finding:
    """The longest gap while ``churn`` runs, and until all that it caused is done."""
    listening.send()
    listening.receive(PATIENCE)
    sender.longest_call = sender.longest_send = sender.most_work = 0.0
    clients = churn()
    sender.settle()
    listening.send()
    gap = cast("float", listening.receive(PATIENCE))
    words = (
        f"{kind:<13} longest gap {gap:.2f} s, call {sender.longest_call:.2f} s ({sender.most_work:.2f} s processor), "
        f"send_event {sender.longest_send:.2f} s; {clients} clients or requests"
        f"{'' if gap <= bound else f': OVER {bound:g} s'}"
    )
    figures = {"gap_seconds": gap, "call_seconds": sender.longest_call, "send_seconds": sender.longest_send}
    figures |= {"work_seconds": sender.most_work, "number": clients}
    return Finding(kind, words, figures, gap <= bound)


def churned(child: Forked) -> int:
    """Let the process churn once; its number of connections or requests."""
    child.send()
    return cast("int", child.receive(PATIENCE))


def random_names(count: int) -> list[str]:
    """Topics of 44 bytes that have no begin in common."""
    rng = random.Random(1)
    return [f"{rng.getrandbits(176):044x}" for _ in range(count)]


class Sender:
    """The publisher, with a thread that sends a message every ``TICK``, and one that asks how long a call lasts."""

    def __init__(self, address: str, *, by_names: bool) -> None:
        options = {"max_subscription_bytes": 2**30} if by_names else {}
        made = ZmqDriver.publisher(DriverSettings(Limits(), bind_address=address, options=options))
        assert isinstance(made, ZmqPublisher)
        self._publisher = made
        self.longest_call = self.longest_send = self.most_work = 0.0
        self._closed = threading.Event()
        self._publisher.initialize(self._answer, lambda: None)
        self._threads = [threading.Thread(target=each) for each in (self._send, self._watch)]
        for thread in self._threads:
            thread.start()

    def rest(self) -> int:
        """Two seconds without any client's doing."""
        time.sleep(2.0)
        return 0

    def settle(self) -> None:
        """Wait until all that clients sent is done: a message gets out, and no call lasts."""
        begun = self._publisher.counters()["frames"]
        if not poll(lambda: self._publisher.counters()["frames"] > begun + 20, PATIENCE):
            raise BenchError(f"the publisher sent nothing for {PATIENCE:g} s")

    def close(self) -> None:
        """End the threads and the publisher."""
        self._closed.set()
        for thread in self._threads:
            thread.join()
        self._publisher.close()

    def _send(self) -> None:
        number = 0
        while not self._closed.wait(TICK):
            number += 1
            change = Change("t", "k", "set", number, b"1")
            link = Link(TOPIC, Point(number - 1, 7) if number > 1 else ZERO, Point(number, 7), [change], 1, 0, ZERO, 1)
            begun = time.monotonic()
            self._publisher.send_event(Envelope("bench", UUID, TOPIC, number, [Message(link)]))
            self.longest_send = max(self.longest_send, time.monotonic() - begun)

    def _watch(self) -> None:
        (sending,) = (each.ident for each in threading.enumerate() if each.name == "pubsub-zmq-send")
        assert sending is not None
        clock = time.pthread_getcpuclockid(sending)
        begun = time.clock_gettime(clock)
        while not self._closed.wait(TICK):
            call, work = self._publisher.sending_for(time.monotonic()), time.clock_gettime(clock)
            if call < TICK:  # between two calls
                begun = work
            self.longest_call, self.most_work = max(self.longest_call, call), max(self.most_work, work - begun)

    def _answer(self, asked: HelloRequest) -> None:
        topics = asked.topics[:MAX_HELLO_TOPICS]
        hello = Hello({topic: 0 for topic in topics if topic}, {}, ZERO, 0.0, asked.nonce)
        self._publisher.send_event(Envelope("bench", UUID, ALL, 0, [], hello))


def listener(line: Line, address: str) -> None:
    """A subscriber. Sends the longest time between two messages since the order before."""
    longest = last = 0.0
    lock = threading.Lock()

    def take(envelope: Envelope) -> None:
        nonlocal longest, last
        if envelope.topic == TOPIC:
            with lock:
                now = time.monotonic()
                longest = max(longest, now - last) if last else 0.0
                last = now

    subscriber = ZmqDriver.subscriber(DriverSettings(Limits(), addresses=(address,)))
    subscriber.initialize(take, lambda: None)
    subscriber.register_topic(TOPIC)
    subscriber.daemonize()
    if not poll(lambda: last > 0, PATIENCE):
        raise BenchError(f"no message was received in {PATIENCE:g} s")
    line.send()
    while True:
        line.wait()
        with lock:
            found, longest = max(longest, time.monotonic() - last), 0.0
        line.send(found)


def follower(line: Line, address: str, names: list[str], by_names: bool) -> None:
    """A subscriber of many topics, which stays."""
    following = subscriber(zmq.Context(), address)
    subscribe(following, names, by_names)
    following.subscribe(prefix_of(TOPIC))  # the last one: a message shows that all have arrived
    following.recv_multipart()
    line.send()
    while True:
        following.recv_multipart()


def asker(line: Line, address: str, seconds: float) -> None:
    """Makes and ends hello requests."""
    topics = [f"{each:03x}" for each in range(380)]
    requests = [codec.hello_request_frame(secrets.token_hex(6), topics) for _ in range(2000)]
    while True:
        line.wait()
        with zmq.Context() as context, context.socket(zmq.XSUB) as asking:
            asking.linger = 0
            asking.sndtimeo = 100
            asking.connect(address)
            number, until = 0, time.monotonic() + seconds
            while time.monotonic() < until:
                request = requests[number % len(requests)]
                with suppress(zmq.Again):  # the publisher reads no more from this client for a moment
                    asking.send(b"\1" + request)
                    asking.send(b"\0" + request)
                    number += 1
        line.send(number)


def leaver(line: Line, address: str, seconds: float) -> None:
    """Connects, subscribes and leaves, by bare TCP, which is faster than a socket of ZeroMQ."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    holding = subscriber(zmq.Context(), address)
    subscribe(holding, [each * (SubscriptionBudget.AUTOMATIC // 2 - 2 * TABLE) for each in "xy"], by_names=True)
    while True:
        line.wait()
        number, until = 0, time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                with socket.create_connection((host, int(port)), timeout=1.0) as bare:
                    bare.sendall(HANDSHAKE)
                    received = b""
                    while b"XPUB" not in received:
                        received += bare.recv(1024) or b"XPUB"
                    bare.sendall(SUBSCRIPTION)
            except OSError:
                continue  # held
            number += 1
        line.send(number)


def agents(line: Line, address: str, number: int, names: list[str], by_names: bool) -> None:
    """Replicas of a few topics each that all leave at once, and connect again."""
    while True:
        line.wait()
        for _ in range(2):
            with connected(address, number, names, by_names) as made:
                if not all(each.poll(round(1000 * PATIENCE)) for each in made):
                    raise BenchError(f"an agent received nothing in {PATIENCE:g} s")
        line.send(number)


@contextmanager
def connected(address: str, number: int, names: list[str], by_names: bool) -> "Iterator[list[zmq.Socket[bytes]]]":
    """Subscribers, which all end with the block."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    context.max_sockets = number + 10
    try:
        made = [subscriber(context, address) for _ in range(number)]
        for agent, one_agent in enumerate(made):
            mine = [names[(agent * PER_AGENT + each) % len(names)] for each in range(PER_AGENT)]
            subscribe(one_agent, [*mine, TOPIC], by_names)
        yield made
    finally:
        context.destroy(0)


def subscriber(context: "zmq.Context[zmq.Socket[bytes]]", address: str) -> "zmq.Socket[bytes]":
    """A socket as that of a replica."""
    made = context.socket(zmq.SUB)
    made.linger = 0
    made.setsockopt(zmq.SNDHWM, 0)
    made.subscribe(codec.topic_frame(ALL))
    made.connect(address)
    return made


def subscribe(made: "zmq.Socket[bytes]", names: list[str], by_names: bool) -> None:
    """Subscribe to topics."""
    for name in names:
        made.subscribe(codec.subscription(name) if by_names else prefix_of(name))
