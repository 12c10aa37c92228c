"""etcd with aetcd: put or a transaction, and a watch of a prefix.

aetcd is maintained and uses gRPC. The usual older client, etcd3, needs a version of protobuf from 2020; etcd3gw sends
JSON over HTTP, half as many puts a second.
"""

import asyncio
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

LACKS = (
    "resync: a watch ends with its connection, or when its revision was compacted, and the program must read all keys "
    "again; a copy in the watcher, a comparison with it, and a bound of its staleness"
)


class EtcdSession:
    """One server."""

    def __init__(self, aetcd: Any, port: int) -> None:
        self._aetcd = aetcd
        self._port = port

    @contextmanager
    def writer(self, number: int) -> Iterator[Put]:
        """A client."""
        with asyncio.Runner() as runner:
            client = self._aetcd.Client("127.0.0.1", self._port)
            runner.run(client.connect())

            async def write(changes: Changes) -> None:
                rows = [(key.encode(), msgspec.json.encode(value)) for key, value in changes]
                if len(rows) == 1:
                    await client.put(*rows[0])
                else:
                    puts = [client.transactions.put(key, value) for key, value in rows]
                    await client.transaction(compare=[], success=puts, failure=[])

            loop = runner.get_loop()
            yield lambda changes: loop.run_until_complete(write(changes))
            runner.run(client.close())

    def watch(self, seen: Seen) -> None:
        """A watch of all keys."""
        asyncio.run(self._watch(seen))

    async def _watch(self, seen: Seen) -> None:
        async with self._aetcd.Client("127.0.0.1", self._port) as client:
            watch = await client.watch(b"\0", range_end=b"\0")
            seen.connected()
            async for event in watch:
                seen.change(event.kv.key.decode(), msgspec.json.decode(event.kv.value))
                if seen.done:
                    return


class Etcd:
    """The side. Raises LeftOutError."""

    def __init__(self) -> None:
        self._server = packages.server("etcd-server", ["etcd"])
        self._client, version = downloads.client("aetcd", "aetcd")
        durable = "default: fsync before a put returns"
        self.facts = Facts("etcd", version, durable, LACKS, self._server.version)

    @contextmanager
    def session(self, children: Children, cell: Cell) -> Iterator[EtcdSession]:
        """A new server."""
        with running(children, self._server, "etcd", _command) as port:
            yield EtcdSession(self._client, port)


def _command(folder: Path, port: int) -> list[str]:
    url = f"http://127.0.0.1:{port}"
    return [
        "--data-dir", str(folder / "data"), "--listen-client-urls", url, "--advertise-client-urls", url,
        "--listen-peer-urls", "http://127.0.0.1:0", "--log-level", "error",
    ]  # fmt: skip
