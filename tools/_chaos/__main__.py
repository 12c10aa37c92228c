"""``python -m _chaos``: a process of a run. It reads its task and orders on stdin, and reports on stdout."""

import os
import signal
import sys
import threading
import traceback

import msgspec

from _chaos import hostile, lying, replica, storm, worker
from _chaos.messages import Failed, HostileTask, LieTask, Message, Order, ReplicaTask, StormTask, Task, WorkerTask
from pubsub_lib.command.exit_codes import INTERNAL_ERROR
from pubsub_lib.errors import PubSubError, described

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
    return msgspec.json.decode(line, type=Order) if line else None


def main() -> int:
    """Exit status 0; after a :class:`Failed` 1, or 70 for an exception that is a fault of the program."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C: the parent ends us
    task = msgspec.json.decode(sys.stdin.readline(), type=Task)
    try:
        match task:
            case WorkerTask():
                worker.run(task, send, receive)
            case ReplicaTask():
                replica.run(task, send, receive)
            case StormTask():
                storm.run(task, send, receive)
            case HostileTask():
                hostile.run(task, send)
            case LieTask():
                lying.run(task, send)
    except (PubSubError, OSError) as error:
        send(Failed(f"{task.name}: {error}", type(error).__name__))
        return 1
    except Exception as error:  # noqa: BLE001 - no fault of a run explains it, so it has a status of its own
        traceback.print_exc()
        send(Failed(f"{task.name}: {described(error)}", type(error).__name__))
        return INTERNAL_ERROR
    return 0


if __name__ == "__main__":
    # A thread may wait in a read of stdin; a normal exit of the interpreter would wait for the lock of stdin.
    status = main()
    sys.stdout.flush()
    os._exit(status)
