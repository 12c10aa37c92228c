"""Redis: ``redis_pubsub_driver``, and redis-py with one PUBLISH a frame, in pipelines."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import redis
from _redis_server import PrivateRedis

from _bench.drivers.side import Receive, Send
from pubsub_lib.api import Driver
from pubsub_redis.driver import RedisDriver

PIPELINE = 500
"""Number of frames in one pipeline."""
CHANNEL = "bench"
UNLIMITED = {"client-output-buffer-limit": "pubsub 0 0 0"}
"""Both senders are faster than their receivers; with its default Redis would end the receiver's connection."""


class RedisSide:
    """See :class:`.side.Side`."""

    name = "redis"
    peer = f"redis-py, pipelines of {PIPELINE} PUBLISH"
    driver: type[Driver] = RedisDriver

    @contextmanager
    def server(self) -> Iterator[Mapping[str, object]]:
        """A private server."""
        with PrivateRedis(UNLIMITED) as server:
            yield {"url": server.url, "send_wait": 1.0}

    @contextmanager
    def sender(self, options: Mapping[str, object]) -> Iterator[Send]:
        """A client with pipelines."""
        with redis.Redis.from_url(str(options["url"])) as client:
            client.ping()

            def send(frames: Sequence[bytes]) -> None:
                for first in range(0, len(frames), PIPELINE):
                    pipe = client.pipeline(transaction=False)
                    for frame in frames[first : first + PIPELINE]:
                        pipe.publish(CHANNEL, frame)
                    pipe.execute()

            yield send

    @contextmanager
    def receiver(self, options: Mapping[str, object]) -> Iterator[Receive]:
        """A client that reads as the library recommends."""
        with redis.Redis.from_url(str(options["url"])) as client, client.pubsub() as channel:
            channel.subscribe(CHANNEL)
            assert next(channel.listen())["type"] == "subscribe"

            def receive(count: int) -> int:
                size, messages = 0, channel.listen()
                for _ in range(count):
                    size += len(next(messages)["data"])
                return size

            yield receive
