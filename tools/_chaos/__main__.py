"""``python -m _chaos``: a process of a run. It reads its task and orders on stdin, and reports on stdout."""

import os
import signal
import sys
import threading

import msgspec

from _chaos import replica, worker
from _chaos.messages import Failed, Message, Order, Task, WorkerTask
from pubsub_lib.errors import PubSubError

_encoder = msgspec.json.Encoder()
_lock = threading.Lock()


def send(message: Message) -> None:
    """Write one line to the parent. Any thread may call."""
    with _lock:
        sys.stdout.buffer.write(_encoder.encode(message) + b"\n")
        sys.stdout.buffer.flush()


def receive() -> Order | None:
    """The next order of the parent; None when it has ended."""
    line = sys.stdin.readline()
    return msgspec.json.decode(line, type=Order) if line else None  # type: ignore[arg-type, return-value]


def main() -> int:
    """Exit status 0, or 1 after a :class:`Failed`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C: the parent ends us
    task = msgspec.json.decode(sys.stdin.readline(), type=Task)  # type: ignore[arg-type]
    try:
        if isinstance(task, WorkerTask):
            worker.run(task, send, receive)
        else:
            replica.run(task, send, receive)
    except (PubSubError, OSError) as error:
        send(Failed(f"{task.name}: {error}"))
        return 1
    return 0


if __name__ == "__main__":
    # A thread may wait in a read of stdin; a normal exit of the interpreter would wait for the lock of stdin.
    status = main()
    sys.stdout.flush()
    os._exit(status)
