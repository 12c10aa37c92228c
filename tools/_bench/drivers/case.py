"""From ``send_event`` of a driver's publisher to ``on_envelope`` of its subscriber in another process, one change an
envelope; compared with the client library that sends raw frames of the same size."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence

from _children import Children, Line

from _bench.drivers.side import Side
from _bench.drivers.sides import SIDES
from _bench.e2e.side import LeftOutError
from _bench.measure import BenchError, Log, Row, Sizes, in_turns, row
from _bench.payload import plan
from pubsub_lib.api import DriverSettings
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope, Message

REQUIRED = 0.8
ROWS = [f"driver-{side.name}" for side in SIDES]
"""The rows of all drivers; each has a required ratio."""
KEYS = 1_000
PATIENCE = 120.0
TOPIC, SERVICE, UUID = "bench", "bench", "0" * 32


def run(sizes: Sizes, rounds: int, log: Log) -> Sequence[Row]:
    """Measure every driver whose server can be had; the others are logged. Raises BenchError when there is none."""
    made = envelopes(min(KEYS, sizes.keys), sizes.changes)
    rows, left_out = [], []
    for side in SIDES:
        try:
            with side.server() as options:
                rows.append(measured(side, options, made, rounds, log))
        except LeftOutError as error:
            left_out.append(f"{side.name} is left out: {error}")
            log(left_out[-1])
    if not rows:
        raise BenchError("; ".join(left_out))
    return rows


def measured(side: Side, options: Mapping[str, object], made: Sequence[Envelope], rounds: int, log: Log) -> Row:
    """The row of one driver."""
    sizes = [sum(map(len, codec.encode(envelope))) for envelope in made]
    values = list(in_turns(rounds, lambda: ours(side, options, made), lambda: raw(side, options, sizes), log))
    title = f"{side.driver.name}, {sum(sizes) // len(sizes)}-byte envelopes"
    return row(f"driver-{side.name}", title, "messages/s", side.peer, values, "least", REQUIRED)


def envelopes(keys: int, count: int) -> Sequence[Envelope]:
    """One message with one change in each."""
    links = plan(TOPIC, keys, count, 1, seed=1).links
    return [Envelope(SERVICE, UUID, TOPIC, number, [Message(link)]) for number, link in enumerate(links, 1)]


# -- the driver ------------------------------------------------------------------------------------------------------


def publish(line: Line, side: Side, options: Mapping[str, object], made: Sequence[Envelope]) -> None:
    """The publishing process."""
    publisher = side.driver.publisher(DriverSettings(options=options))
    publisher.initialize(lambda ask: None, lambda: None)
    line.send()
    line.wait()
    begun = time.monotonic()
    for envelope in made:
        publisher.send_event(envelope)
    line.send(begun)
    line.wait()
    publisher.close()


def subscribe(line: Line, side: Side, options: Mapping[str, object], count: int) -> None:
    """The subscribing process."""
    subscribed, done = threading.Event(), threading.Event()
    received, ended, wrong = 0, 0.0, ""

    def receive(envelope: Envelope) -> None:
        nonlocal received, ended, wrong
        if envelope.sequence != received + 1:
            wrong = wrong or f"envelope {envelope.sequence} in place of {received + 1}"
        received += len(envelope.messages)  # of several envelopes that shared a frame
        if received == count or wrong:
            ended = time.monotonic()
            done.set()

    subscriber = side.driver.subscriber(DriverSettings(options=options))
    subscriber.initialize(receive, subscribed.set)
    subscriber.register_topic(TOPIC)
    subscriber.daemonize()
    if not subscribed.wait(PATIENCE):
        raise BenchError(f"{side.driver.name} did not connect")
    line.send()
    if not done.wait(PATIENCE) or wrong:
        raise BenchError(f"{side.driver.name} received {wrong or f'{received} of {count} envelopes'}")
    line.send(ended)
    subscriber.close()


def ours(side: Side, options: Mapping[str, object], made: Sequence[Envelope]) -> float:
    """Envelopes a second."""
    with Children() as children:
        receiver = children.fork(subscribe, side, options, len(made))
        receiver.receive()
        sender = children.fork(publish, side, options, made)
        sender.receive()
        sender.send()
        begun = sender.receive()
        ended = receiver.receive()
        sender.send()
        return len(made) / float(ended - begun)


# -- the client library ----------------------------------------------------------------------------------------------


def send_raw(line: Line, side: Side, options: Mapping[str, object], sizes: Sequence[int]) -> None:
    """The sending process."""
    frames = list(raw_frames(sizes))
    with side.sender(options) as send:
        line.send()
        line.wait()
        begun = time.monotonic()
        send(frames)
        line.send(begun)
        line.wait()


def raw_frames(sizes: Sequence[int]) -> Iterator[bytes]:
    """Different frames of these sizes."""
    for number, size in enumerate(sizes):
        yield number.to_bytes(8, "big").ljust(size, b"x")


def receive_raw(line: Line, side: Side, options: Mapping[str, object], sizes: Sequence[int]) -> None:
    """The receiving process."""
    with side.receiver(options) as receive:
        line.send()
        size = receive(len(sizes))
        ended = time.monotonic()
        if size != sum(sizes):  # before the answer, because the parent ends this process after it
            raise BenchError(f"the raw frames had {size} bytes instead of {sum(sizes)}")
        line.send(ended)


def raw(side: Side, options: Mapping[str, object], sizes: Sequence[int]) -> float:
    """Frames a second."""
    with Children() as children:
        receiver = children.fork(receive_raw, side, options, sizes)
        receiver.receive()
        sender = children.fork(send_raw, side, options, sizes)
        sender.receive()
        sender.send()
        begun = sender.receive()
        ended = receiver.receive()
        sender.send()
        return len(sizes) / float(ended - begun)
