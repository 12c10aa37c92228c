"""A server's process: started on loopback in a temporary folder, ready when its port answers."""

import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import _processes
from _children import ChildError, Children

from _bench.e2e.packages import Unpacked

START = 30.0
"""Maximum number of seconds until the port answers."""


@contextmanager
def running(
    children: Children, server: Unpacked, name: str, command: Callable[[Path, int], Sequence[str]]
) -> Iterator[int]:
    """Start the program with an empty folder and a free port, and return the port. Raises ChildError."""
    with tempfile.TemporaryDirectory(prefix="pubsub-bench-") as made:
        folder, port = Path(made), _processes.free_port()
        log = folder / "log"
        line = [str(server.programs[name]), *command(folder, port)]
        child = children.start(name, line, log=log, variables=server.variables, cwd=folder)
        try:
            if not _processes.poll(lambda: child.process.poll() is not None or answers(port), START):
                raise ChildError(f"{name} did not answer within {START:.0f} s: {child.last_words()}")
            if child.process.poll() is not None:
                raise ChildError(f"{name} ended with status {child.process.poll()}: {child.last_words()}")
            yield port
        finally:
            child.end()


def answers(port: int) -> bool:
    """Whether a TCP port of this host accepts a connection."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
