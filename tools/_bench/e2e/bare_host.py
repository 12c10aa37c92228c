"""The bare parts of ``group_commit = host``: writers send encoded transactions over a Unix socket to one process, which
commits those that wait together, and then sends them as one raw ZeroMQ message.

It is the upper bound of this design in Python. The process has one thread and makes the three round trips of our
commit: objects; counter and heads; all writes and the COMMIT. Each has one statement for all rows of a group. Nothing
is announced before the COMMIT, nothing is checked, and links and digests are constants.
"""

import selectors
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import _processes
import msgspec
import zmq
from _children import Children, Line
from sqlalchemy import make_url

from _bench.bare_groups import BareGroups, Transaction
from _bench.e2e import bare
from _bench.e2e.ours import topic
from _bench.e2e.plan import Cell, Changes
from _bench.e2e.seen import Seen
from _bench.e2e.side import Facts, Put
from pubsub_lib import Settings, Store

GATHER: Final = 0.002
"""Maximum seconds after an answer to wait for the next transactions, as our service does."""
_LENGTH: Final = struct.Struct(">I")
_DONE: Final = b"\1"
_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(Transaction).decode


class BareHostSession:
    """The address of the process that commits."""

    def __init__(self, path: Path, port: int) -> None:
        self._path, self._port = path, port

    @contextmanager
    def writer(self, number: int) -> Iterator[Put]:
        """A connection to the process that commits."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(str(self._path))

            def put(changes: Changes) -> None:
                keys, values = [key for key, _ in changes], [msgspec.json.encode(value) for _, value in changes]
                body = _ENCODE(Transaction(topic(number), keys, values))
                connection.sendall(_LENGTH.pack(len(body)) + body)
                if connection.recv(1) != _DONE:
                    raise ConnectionResetError("the process that commits has ended")

            yield put

    def watch(self, seen: Seen) -> None:
        """A subscriber to the process that commits."""
        bare.watch([self._port], seen)


def serve(line: Line, url: str, path: Path, port: int, cell: Cell) -> None:
    """The process that commits. Sends once when writers and watchers can connect; runs until it is killed."""
    with zmq.Context() as context, context.socket(zmq.XPUB) as publisher, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(cell.writers)
        bare.bind(publisher, port)
        with closing(BareGroups(make_url(url))) as database:
            line.send()
            bare.await_subscriptions(publisher, cell.watchers)
            connections = [listener.accept()[0] for _ in range(cell.writers)]
            Gathering(connections, database.commit, publisher.send).run()


class Gathering:
    """Receives transactions and commits those that wait. It waits after an answer, as our service does, for as many as
    the last group had. ``run`` returns when a writer has closed its connection.
    """

    def __init__(
        self,
        connections: Sequence[socket.socket],
        commit: Callable[[Sequence[Transaction]], None],
        send: Callable[[bytes], object],
    ) -> None:
        self._commit, self._send = commit, send
        self._selector = selectors.EpollSelector()
        self._received = dict.fromkeys(connections, b"")
        self._waiting: list[tuple[socket.socket, Transaction]] = []
        for each in connections:
            self._selector.register(each, selectors.EVENT_READ)

    def run(self) -> None:
        """Commit group after group."""
        expected, until = 1, 0.0
        while True:
            left = until - time.monotonic()
            if self._waiting and (len(self._waiting) >= expected or left <= 0):
                expected = len(self._waiting)
                self._finish()
                until = time.monotonic() + GATHER
                continue
            for key, _ in self._selector.select(left if self._waiting else None):
                connection: Any = key.fileobj
                if not self._receive(connection):
                    return

    def _receive(self, connection: socket.socket) -> bool:
        """Read once; False at the end of the connection."""
        data = connection.recv(65536)
        if not data:
            return False
        data = self._received[connection] + data
        # A writer waits for the answer to its last transaction, so there is at most one.
        if len(data) < _LENGTH.size or len(data) < _LENGTH.size + _LENGTH.unpack_from(data)[0]:
            self._received[connection] = data
        else:
            self._received[connection] = b""
            self._waiting.append((connection, _DECODE(memoryview(data)[_LENGTH.size :])))
        return True

    def _finish(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._commit([each for _, each in waiting])
        for connection, _ in waiting:
            connection.send(_DONE)
        self._send(_ENCODE([pair for _, each in waiting for pair in zip(each.keys, each.values, strict=True)]))


class BareHost:
    """The side. ``new_url``: makes the URL of an empty database."""

    def __init__(self, new_url: Callable[[], str]) -> None:
        durable = "synchronous_commit=on (default): fsync before a commit returns"
        client = "psycopg, one process for all writers, pyzmq"
        self.facts = Facts("bare-psycopg-host", client, durable, bare.LACKS, least_writers=2)
        self._new_url = new_url

    @contextmanager
    def session(self, children: Children, cell: Cell) -> Iterator[BareHostSession]:
        """An empty database with our tables, and the process that commits."""
        with tempfile.TemporaryDirectory(prefix="pubsub-bench-") as folder:
            url, path, port = self._new_url(), Path(folder) / "socket", _processes.free_port()
            with Store(Settings(store_url=url)):
                pass  # the schema
            children.fork(serve, url, path, port, cell).receive()
            yield BareHostSession(path, port)
