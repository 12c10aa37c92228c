"""NATS JetStream's key-value store in files, with nats-py: put and watch."""

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

BUCKET = "bench"
LACKS = (
    "transactions over several keys (its changes are concurrent puts, each visible by itself); fsync before a put "
    "returns; a copy in the watcher, a comparison with it, and a bound of its staleness"
)


class JetStreamSession:
    """One server."""

    def __init__(self, nats: Any, port: int) -> None:
        self._nats = nats
        self._url = f"nats://127.0.0.1:{port}"

    @contextmanager
    def writer(self, number: int) -> Iterator[Put]:
        """A client."""
        with asyncio.Runner() as runner:
            client = runner.run(self._nats.connect(self._url))
            bucket = runner.run(client.jetstream().key_value(BUCKET))

            async def write(changes: Changes) -> None:
                rows = [(key, msgspec.json.encode(value)) for key, value in changes]
                if len(rows) == 1:
                    await bucket.put(*rows[0])
                else:
                    await asyncio.gather(*(bucket.put(key, value) for key, value in rows))

            loop = runner.get_loop()
            yield lambda changes: loop.run_until_complete(write(changes))
            runner.run(client.close())

    def watch(self, seen: Seen) -> None:
        """A watch of all keys."""
        asyncio.run(self._watch(seen))

    async def _watch(self, seen: Seen) -> None:
        client = await self._nats.connect(self._url)
        bucket = await client.jetstream().key_value(BUCKET)
        watcher = await bucket.watchall()
        seen.connected()
        async for entry in watcher:
            if entry is not None:  # None: the existing keys have been sent
                seen.change(entry.key, msgspec.json.decode(entry.value))
            if seen.done:
                break
        await client.close()


class JetStream:
    """The side. Raises LeftOutError."""

    def __init__(self) -> None:
        self._server = packages.server("nats-server", ["nats-server"])
        self._client, version = downloads.client("nats-py", "nats")
        durable = "file storage (default): in the page cache; fsync every two minutes"
        self.facts = Facts("nats", version, durable, LACKS, self._server.version)

    @contextmanager
    def session(self, children: Children, cell: Cell) -> Iterator[JetStreamSession]:
        """A new server with an empty bucket."""
        with running(children, self._server, "nats-server", _command) as port:
            asyncio.run(self._create(f"nats://127.0.0.1:{port}"))
            yield JetStreamSession(self._client, port)

    async def _create(self, url: str) -> None:
        client = await self._client.connect(url)
        await client.jetstream().create_key_value(bucket=BUCKET)  # in files by default
        await client.close()


def _command(folder: Path, port: int) -> list[str]:
    return ["-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder / "data")]
