"""The bare parts of our way: the statements of a commit by the database's driver, then one raw ZeroMQ message.

It is the upper bound of this library with the same rows and transport in Python: it builds no link, checks nothing, and
its watcher keeps no copy. A required ratio that this side misses cannot be met.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import _processes
import msgspec
import zmq
from _children import Children
from sqlalchemy import make_url

from _bench.bare_writer import open_bare
from _bench.e2e.ours import topic
from _bench.e2e.plan import Cell, Changes
from _bench.e2e.seen import Seen
from _bench.e2e.side import Facts, Put
from _bench.measure import BenchError
from pubsub_lib import Settings, Store

LACKS = "everything but the rows: no conditions, no check, no numbering, no resync, no copy in the watcher"


CONNECT = 30
"""Maximum number of seconds until each watcher has subscribed."""


class BareSession:
    """A database, and one port for each writer's publishing socket."""

    def __init__(self, url: str, ports: Sequence[int], watchers: int) -> None:
        self._url, self._ports, self._watchers = url, ports, watchers

    @contextmanager
    def writer(self, number: int) -> Iterator[Put]:
        """A connection and a bound socket, with a subscription of each watcher. Raises BenchError."""
        with zmq.Context() as context, context.socket(zmq.XPUB) as socket, open_bare(make_url(self._url)) as commit:
            bind(socket, self._ports[number])
            await_subscriptions(socket, self._watchers)

            def put(changes: Changes) -> None:
                keys, values = [key for key, _ in changes], [msgspec.json.encode(value) for _, value in changes]
                commit(topic(number), keys, values)
                socket.send(msgspec.msgpack.encode(list(zip(keys, values, strict=True))))

            yield put

    def watch(self, seen: Seen) -> None:
        """A subscriber to all writers."""
        watch(self._ports, seen)


def bind(socket: "zmq.Socket[bytes]", port: int) -> None:
    """Bind an XPUB socket, which loses no message."""
    socket.set_hwm(0)
    socket.linger = 0
    socket.setsockopt(zmq.XPUB_VERBOSE, 1)  # every watcher's subscription is shown, not only the first
    socket.bind(f"tcp://127.0.0.1:{port}")


def await_subscriptions(socket: "zmq.Socket[bytes]", watchers: int) -> None:
    """Wait for a subscription of each watcher. Raises BenchError."""
    for _ in range(watchers):
        if not socket.poll(CONNECT * 1000):
            raise BenchError(f"fewer than {watchers} watchers subscribed within {CONNECT} s")
        socket.recv()


def watch(ports: Sequence[int], seen: Seen) -> None:
    """Call ``seen`` for each key and value of the messages from these ports."""
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        socket.set_hwm(0)
        socket.linger = 0
        socket.subscribe(b"")
        for port in ports:
            socket.connect(f"tcp://127.0.0.1:{port}")
        seen.connected()
        while not seen.done:
            for key, value in msgspec.msgpack.decode(socket.recv()):
                seen.change(key, msgspec.json.decode(value))


class Bare:
    """The side. ``new_url``: makes the URL of an empty database, in the given folder with SQLite."""

    def __init__(self, facts: Facts, new_url: Callable[[Path], str]) -> None:
        self.facts = facts
        self._new_url = new_url

    @contextmanager
    def session(self, children: Children, cell: Cell) -> Iterator[BareSession]:
        """An empty database with our tables."""
        with tempfile.TemporaryDirectory(prefix="pubsub-bench-") as folder:
            url = self._new_url(Path(folder))
            with Store(Settings(store_url=url)):
                pass  # the schema
            yield BareSession(url, _processes.free_ports(cell.writers), cell.watchers)


def sqlite() -> Bare:
    """The statements of a commit by ``sqlite3``."""
    durable = "synchronous=FULL: fsync before a commit returns"
    return Bare(Facts("bare-sqlite3", "sqlite3, pyzmq", durable, LACKS), lambda folder: f"sqlite:///{folder}/bench.db")


def postgresql(new_url: Callable[[], str]) -> Bare:
    """The statements of a commit by psycopg."""
    durable = "synchronous_commit=on (default): fsync before a commit returns"
    return Bare(Facts("bare-psycopg", "psycopg, pyzmq", durable, LACKS), lambda _: new_url())
