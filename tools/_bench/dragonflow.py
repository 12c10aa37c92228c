"""Dragonflow's chain, re-created from its specification: worker -> ipc -> publisher service -> tcp -> controller.

The specification of this project describes it: every change is one event with table, key, action and value; a forked
worker packs it and pushes it through a shared ipc socket; the host's one publisher service takes it out, puts it
into its queue and publishes it to the event's topic; the controller's subscriber thread unpacks it, puts it into
the controller's queue, and the controller reads and applies it. Each event is one message per hop, packed (as JSON)
and unpacked in every process. This is our own code, and it does less than the original: no eventlet, no sleeps, no
logging.
"""

import json
import queue
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import zmq
from _children import Children, Line
from _processes import free_port

from _bench.payload import TABLE, key, value

WORKERS = 4
TOPIC = "bench"


def pack(event: dict[str, Any]) -> bytes:
    """An event as bytes."""
    return json.dumps(event).encode()


def unpack(data: bytes) -> dict[str, Any]:
    """The inverse of ``pack``."""
    event: dict[str, Any] = json.loads(data)
    return event


def work(line: Line, path: Path, number: int, count: int) -> None:
    """A worker: one message for each event."""
    socket = zmq.Context().socket(zmq.PUSH)
    socket.sndhwm = 0
    socket.connect(f"ipc://{path}")
    values = [value(each).decode() for each in range(count)]
    line.send()
    line.wait()
    begun = time.monotonic()
    for each, text in enumerate(values):
        event = {"table": TABLE, "key": key(f"tenant-{number}", each), "action": "set", "value": text, "topic": TOPIC}
        socket.send_multipart([TOPIC.encode(), pack(event)])
    line.send(begun)
    line.wait()


def serve(line: Line, path: Path, port: int) -> None:
    """The publisher service: a thread that receives events, a queue, and the publishing loop."""
    context = zmq.Context()
    taking = context.socket(zmq.PULL)
    taking.rcvhwm = 0
    taking.bind(f"ipc://{path}")
    sending = context.socket(zmq.XPUB)  # as PUB, but it also receives subscriptions
    sending.sndhwm = 0
    sending.bind(f"tcp://127.0.0.1:{port}")
    events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def take() -> None:
        while True:
            _, data = taking.recv_multipart()
            events.put(unpack(data))

    line.send()
    sending.recv()
    line.send()
    threading.Thread(target=take, daemon=True).start()
    while True:
        event = events.get()
        sending.send_multipart([event["topic"].encode(), pack(event)])


def control(line: Line, port: int, count: int) -> None:
    """The controller: a subscriber thread, the queue of database changes, and the loop that applies them."""
    socket = zmq.Context().socket(zmq.SUB)
    socket.rcvhwm = 0
    socket.connect(f"tcp://127.0.0.1:{port}")
    socket.subscribe(TOPIC.encode())
    changes: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def receive() -> None:
        while True:
            _, data = socket.recv_multipart()
            changes.put(unpack(data))

    threading.Thread(target=receive, daemon=True).start()
    cache: dict[tuple[str, str], str] = {}
    for _ in range(count):
        change = changes.get()
        cache[change["table"], change["key"]] = change["value"]
    line.send((time.monotonic(), len(cache)))


def measure(count: int) -> float:
    """Applied events per second, from the first worker's first event to the last applied event."""
    each = max(1, count // WORKERS)
    with tempfile.TemporaryDirectory(prefix="pubsub-bench-") as folder, Children() as children:
        port, path = free_port(), Path(folder, "chain")
        service = children.fork(serve, path, port)
        service.receive()
        controller = children.fork(control, port, each * WORKERS)
        service.receive()
        workers = [children.fork(work, path, number, each) for number in range(WORKERS)]
        for worker in workers:
            worker.receive()
        for worker in workers:
            worker.send()
        begun = min(float(worker.receive()) for worker in workers)
        ended, objects = controller.receive()
        assert objects == each * WORKERS
        return each * WORKERS / float(ended - begun)
