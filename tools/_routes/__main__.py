"""``python -m _routes``: a child process of a run, which reports on stdout and ends when its stdin does.

Its task is the first line of stdin: a URL may hold a password, which an argument would show to everybody.
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


def tell(message: Message) -> None:
    """One line to whoever started this process. Any thread."""
    with _lock:
        sys.stdout.buffer.write(_encoder.encode(message) + b"\n")
        sys.stdout.buffer.flush()


def main() -> int:
    """Exit status 0, or 1 after a :class:`Failed`."""
    # Ctrl-C reaches the whole terminal; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    task = msgspec.json.decode(sys.stdin.readline(), type=Task)
    try:
        if isinstance(task, WriterTask):
            writer.run(task, tell)
        else:
            replica.run(task, tell)
    except (PubSubError, OSError) as error:
        tell(Failed(f"{task.name}: {error}"))
        return 1
    return 0


if __name__ == "__main__":
    # A thread waits in stdin; an orderly end of the interpreter would wait for its lock.
    status = main()
    sys.stdout.flush()
    os._exit(status)
