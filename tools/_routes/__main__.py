"""``python -m _routes``: a child process of a run. It reports on stdout and ends when its stdin is closed.

The first line of stdin is the task. It is not an argument, because a URL may contain a password and arguments are
visible to all users.
"""

import os
import signal
import sys
import threading

import msgspec

from _routes import replica, writer
from _routes.messages import Failed, Message
from _routes.plan import Task, WriterTask
from pubsub_lib.errors import PubSubError

_encoder = msgspec.json.Encoder()
_lock = threading.Lock()


def send(message: Message) -> None:
    """Write one line to the parent process. Any thread may call."""
    with _lock:
        sys.stdout.buffer.write(_encoder.encode(message) + b"\n")
        sys.stdout.buffer.flush()


def main() -> int:
    """Exit status 0, or 1 after a :class:`Failed`."""
    # Ctrl-C reaches all processes of the terminal; only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    task = msgspec.json.decode(sys.stdin.readline(), type=Task)
    try:
        if isinstance(task, WriterTask):
            writer.run(task, send)
        else:
            replica.run(task, send)
    except (PubSubError, OSError) as error:
        send(Failed(f"{task.name}: {error}"))
        return 1
    return 0


if __name__ == "__main__":
    # A thread waits in a read of stdin; a normal exit of the interpreter would wait for the lock of stdin.
    status = main()
    sys.stdout.flush()
    os._exit(status)
