"""The peer of the bursts: raw pyzmq, one message per event, PUB to SUB over tcp, both in tight loops.

A message is one frame: the topic, NUL, and the value. It has no key, version, number or check: the minimum cost.
"""

import time

import zmq
from _children import Children, Line
from _processes import free_port

from _bench.payload import value

TOPIC = b"Dbench\0"


def send(line: Line, port: int, count: int) -> None:
    """The sending process."""
    context = zmq.Context()
    socket = context.socket(zmq.XPUB)  # as PUB, but it also receives subscriptions
    socket.sndhwm = 0
    socket.bind(f"tcp://127.0.0.1:{port}")
    messages = [TOPIC + value(number) for number in range(count)]
    line.send()
    socket.recv()
    line.send()
    line.wait()
    begun = time.monotonic()
    for message in messages:
        socket.send(message)
    line.send((begun, time.monotonic()))
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
    line.send((time.monotonic(), size))


def measure(count: int) -> float:
    """Messages per second, from the sending of the first to the arrival of the last."""
    with Children() as children:
        port = free_port()
        sender = children.fork(send, port, count)
        sender.receive()
        receiver = children.fork(receive, port, count)
        sender.receive()
        sender.send()
        begun, _ = sender.receive()
        ended, size = receiver.receive()
        assert size == count * (len(TOPIC) + len(value(0)))
        return count / float(ended - begun)
