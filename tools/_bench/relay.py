"""One relay more: from the call after the commit to the handler, through a relay, less the same without it.

The peer is one hop more of raw pyzmq: a process that receives and sends in a tight loop. All four ways run at the same
time: one process sends a few messages over each of them in turns, at 1,000 a second, so other work on the machine
delays all of them alike. The relay is that of ``publisher-service``, without HTTP endpoint, database and journals.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import msgspec
import zmq
from _children import Children, Line
from _processes import free_ports

from _bench.latency import RATE, STAMP, raw_receive, replicate, stamped
from _bench.measure import Log, Row, Sizes, row
from _bench.payload import Plan, plan, value
from _bench.replicas import settings
from _bench.store import PlannedStore
from pubsub_lib.publisher.publisher import Publisher
from pubsub_lib.relay.runtime import RelayRuntime
from pubsub_lib.service.relay_service import relay_drivers

MAX_HOP = 2.0
"""Maximum of a relay's p50, as a multiple of one hop more of raw pyzmq."""
PEER = "raw pyzmq, received and sent"
BLOCK = 50
"""Number of messages that are sent over one way before the next one's turn."""
LOOK = 0.01
"""Seconds between two looks whether the relay is subscribed and synced."""
DIRECT, THROUGH = b"D", b"T"
"""The raw messages of the two ways."""


def run(sizes: Sizes, rounds: int, log: Log) -> Sequence[Row]:
    """One row."""
    values = []
    for number in range(rounds):
        log(f"round {number + 1} of {rounds}")
        direct, through, raw_direct, raw_through = measure(sizes.latency_messages)
        values.append(((through - direct) * 1e6, (raw_through - raw_direct) * 1e6))
    title = "p50 of one relay more at 1,000/s"
    return [row("relay-hop", title, "µs", PEER, values, "most", MAX_HOP)]


def measure(count: int) -> Sequence[float]:
    """The medians in seconds of ``count`` messages each: direct, through the relay, and both of raw pyzmq."""
    plans = [plan(topic, 1000, count, 1, seed) for seed, topic in enumerate(("direct", "through"))]
    with Children() as children:
        above, below, raw_above, raw_below = ports = free_ports(4)
        sender = children.fork(send, ports, plans)
        sender.receive()
        children.fork(relay, above, below, plans[1]).receive()
        children.fork(forward, raw_above, raw_below).receive()
        receivers = [
            children.fork(replicate, above, plans[0]),
            children.fork(replicate, below, plans[1]),
            children.fork(raw_receive, raw_above, count, DIRECT),
            children.fork(raw_receive, raw_below, count, THROUGH),
        ]
        for each in receivers:
            each.receive()
        sender.send()
        return [float(each.receive()) for each in receivers]


def send(line: Line, ports: Sequence[int], plans: Sequence[Plan]) -> None:
    """The process that sends on all ways."""
    above, _, raw_above, _ = ports
    socket = zmq.Context().socket(zmq.XPUB)
    socket.bind(f"tcp://127.0.0.1:{raw_above}")
    body = value(0)

    def raw(way: bytes, _number: int) -> None:
        socket.send(way + STAMP.pack(time.monotonic()) + body)

    with Publisher(settings(above), PlannedStore(plans)) as publisher:
        line.send()
        line.wait()
        for _ in (DIRECT, THROUGH):
            socket.recv()  # both subscriptions have arrived
        ways: list[Callable[[int], None]] = [partial(committed, publisher, each) for each in plans]
        ways += [partial(raw, way) for way in (DIRECT, THROUGH)]
        count = len(plans[0].links)
        due = time.monotonic()
        for begin in range(0, count, BLOCK):
            for way in ways:
                for number in range(begin, min(begin + BLOCK, count)):
                    due = max(due + 1 / RATE, time.monotonic())
                    time.sleep(max(0.0, due - time.monotonic()))
                    way(number)
        line.wait()


def committed(publisher: Publisher, planned: Plan, number: int) -> None:
    """Publish a link, as after its commit."""
    publisher.publish([stamped(planned.links[number])])


def relay(line: Line, above: int, below: int, planned: Plan) -> None:
    """A relay, until the benchmark ends it."""
    with relayed(above, below, [planned]):
        line.send()
        line.wait()


@contextmanager
def relayed(above: int, below: int, plans: Sequence[Plan]) -> Iterator[RelayRuntime]:
    """A relay of the plans' topics that is subscribed and synced."""
    made = msgspec.structs.replace(
        settings(below), addresses=(), parents=(f"tcp://127.0.0.1:{above}",),
        topics=tuple(each.topic for each in plans), default_topic=False, service_name="relay",
    )  # fmt: skip
    sender, subscriber = relay_drivers(made)
    with RelayRuntime(made, PlannedStore(plans), sender, subscriber, None) as running:
        while not (running.reading().synced and running.counters()["receiving"]["received"]):
            time.sleep(LOOK)
        yield running


def forward(line: Line, above: int, below: int) -> None:
    """Raw pyzmq's relay."""
    context = zmq.Context()
    sender, receiver = context.socket(zmq.XPUB), context.socket(zmq.SUB)
    sender.bind(f"tcp://127.0.0.1:{below}")
    receiver.connect(f"tcp://127.0.0.1:{above}")
    line.send()
    receiver.subscribe(sender.recv()[1:])
    while True:
        sender.send(receiver.recv())
