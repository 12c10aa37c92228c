"""NATS: ``nats_pubsub_driver``, and nats-py with one PUB a frame. Neither side stores messages: both use core NATS."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import nats
from _broker import NatsServer
from nats.aio.client import Client
from nats.aio.msg import Msg

from _bench.drivers.side import Receive, Send
from pubsub_lib.api import Driver
from pubsub_nats.driver import NatsDriver

SUBJECT = "bench"
MANY = 2**30
UNLIMITED = f'max_pending: {MANY}\nwrite_deadline: "120s"\n'
"""Both senders are faster than their receivers; with its defaults NATS would end the receiver's connection."""
PATIENCE = 120
"""Maximum number of seconds until the server has handled what was sent."""


class NatsSide:
    """See :class:`.side.Side`."""

    name = "nats"
    peer = "nats-py, one PUB a frame"
    driver: type[Driver] = NatsDriver

    @contextmanager
    def server(self) -> Iterator[Mapping[str, object]]:
        """A private server."""
        with NatsServer(UNLIMITED) as server:
            yield {"servers": (server.url,), "send_wait": 1.0, "pending_messages": MANY, "pending_bytes": MANY}

    @contextmanager
    def sender(self, options: Mapping[str, object]) -> Iterator[Send]:
        """A client, which joins waiting frames itself."""
        with asyncio.Runner() as runner:
            client = runner.run(connected(options))

            async def send(frames: Sequence[bytes]) -> None:
                for frame in frames:
                    await client.publish(SUBJECT, frame)
                await client.flush(PATIENCE)

            yield lambda frames: runner.run(send(frames))
            runner.run(client.close())

    @contextmanager
    def receiver(self, options: Mapping[str, object]) -> Iterator[Receive]:
        """A client with a callback, which is its fastest way to receive."""
        with asyncio.Runner() as runner:
            client = runner.run(connected(options))
            received = Received()
            runner.run(received.subscribe(client))
            yield lambda count: runner.run(received.until(count))
            runner.run(client.close())


class Received:
    """The frames of one subscription."""

    def __init__(self) -> None:
        self._number = self._size = self._wanted = 0
        self._complete = asyncio.Event()

    async def subscribe(self, client: Client) -> None:
        """Subscribe; returns when that is in effect."""
        await client.subscribe(SUBJECT, cb=self._add, pending_msgs_limit=0, pending_bytes_limit=0)
        await client.flush(PATIENCE)

    async def until(self, count: int) -> int:
        """Wait for this number of frames, before the first has come; the bytes of all."""
        self._wanted = count
        await self._complete.wait()
        return self._size

    async def _add(self, message: Msg) -> None:
        self._number += 1
        self._size += len(message.data)
        if self._number == self._wanted:
            self._complete.set()


async def connected(options: Mapping[str, Any]) -> Client:
    """A client without reconnection, because frames that are sent meanwhile would be missing."""
    return await nats.connect(list(options["servers"]), allow_reconnect=False)
