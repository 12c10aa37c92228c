"""Redis with redis-py: a hash of the objects and a stream of the changes, both in one MULTI, with an AOF."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from _children import Children

from _bench.e2e import downloads, packages
from _bench.e2e.plan import Cell, Changes
from _bench.e2e.program import running
from _bench.e2e.seen import Seen
from _bench.e2e.side import Facts, Put

OBJECTS, CHANGES = "objects", "changes"
MAX_STREAM = 100_000
BLOCK_MS = 1_000
READ = 1_000
LACKS = (
    "gap detection when the stream was trimmed; resync, a copy in the watcher, and a bound of its staleness; a version "
    "guard except by WATCH; the last second of confirmed writes after a power failure"
)


class RedisSession:
    """One server."""

    def __init__(self, redis: Any, port: int) -> None:
        self._redis = redis
        self._port = port

    @contextmanager
    def writer(self, number: int) -> Iterator[Put]:
        """A client."""
        with self._redis.Redis("127.0.0.1", self._port) as client:

            def put(changes: Changes) -> None:
                pipe = client.pipeline(transaction=True)
                for key, value in changes:
                    encoded = msgspec.json.encode(value)
                    pipe.hset(OBJECTS, key, encoded)
                    pipe.xadd(CHANGES, {"key": key, "value": encoded}, maxlen=MAX_STREAM, approximate=True)
                pipe.execute()

            yield put

    def watch(self, seen: Seen) -> None:
        """A blocking reader of the stream."""
        with self._redis.Redis("127.0.0.1", self._port) as client:
            last: Any = "0"
            seen.connected()
            while not seen.done:
                for _, entries in client.xread({CHANGES: last}, count=READ, block=BLOCK_MS) or ():
                    for last, fields in entries:  # noqa: B007 - the position of the next read
                        seen.change(fields[b"key"].decode(), msgspec.json.decode(fields[b"value"]))


class RedisStream:
    """The side. Raises LeftOutError."""

    def __init__(self) -> None:
        self._server = packages.server("redis-server", ["redis-server"], ["redis-tools"])
        self._client, version = downloads.client("redis", "redis")
        durable = "appendonly yes, appendfsync everysec (default): fsync every second"
        self.facts = Facts("redis", version, durable, LACKS, self._server.version)

    @contextmanager
    def session(self, children: Children, cell: Cell) -> Iterator[RedisSession]:
        """A new server."""
        with running(children, self._server, "redis-server", _command) as port:
            yield RedisSession(self._client, port)


def _command(folder: Path, port: int) -> list[str]:
    settings = {
        "bind": "127.0.0.1", "port": str(port), "dir": str(folder), "appendonly": "yes", "save": "",
        "loglevel": "warning",
    }  # fmt: skip
    return [word for name, text in settings.items() for word in (f"--{name}", text)]
