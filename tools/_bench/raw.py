"""The peer of the bursts: raw pyzmq, one message per event, PUB to SUB over tcp, both in tight loops.

A message is one frame: the topic, NUL, and the value. No key, no version, no number, no check: as cheap as it gets.
"""

import time

import zmq
from _processes import free_port

from _bench.children import Child, Line, crew
from _bench.payload import value

TOPIC = b"Dbench\0"


def send(line: Line, port: int, count: int) -> None:
    """The sending process."""
    context = zmq.Context()
    socket = context.socket(zmq.XPUB)  # as PUB, and sees when the subscriber is there
    socket.sndhwm = 0
    socket.bind(f"tcp://127.0.0.1:{port}")
    messages = [TOPIC + value(number) for number in range(count)]
    line.say()
    socket.recv()
    line.say()
    line.wait()
    begun = time.monotonic()
    for message in messages:
        socket.send(message)
    line.say((begun, time.monotonic()))
    line.wait()


def receive(line: Line, port: int, count: int) -> None:
    """The receiving process."""
    context = zmq.Context()
    socket = context.socket(zmq.SUB)
    socket.rcvhwm = 0
    socket.connect(f"tcp://127.0.0.1:{port}")
    socket.subscribe(TOPIC)
    size = 0
    for _ in range(count):
        size += len(socket.recv())
    line.say((time.monotonic(), size))


def measure(count: int) -> float:
    """Messages per second, from the first one's sending to the last one's arrival."""
    with crew() as start:
        port = free_port()
        sender = start(send, port, count)
        sender.hear()
        receiver: Child = start(receive, port, count)
        sender.hear()
        sender.tell()
        begun, _ = sender.hear()
        ended, size = receiver.hear()
        assert size == count * (len(TOPIC) + len(value(0)))
        return count / float(ended - begun)
