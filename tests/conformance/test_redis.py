"""The Redis driver passes the conformance suite, with a server of its own."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from _patience import longest
from _redis_server import PrivateRedis

from pubsub_lib.api import DriverSettings
from pubsub_lib.core.model import ALL
from pubsub_lib.testing.conformance import DriverConformance, Rig
from pubsub_lib.testing.rig import scene
from pubsub_redis.driver import RedisDriver
from pubsub_redis.frames import Channels, encode_pair
from tests.conformance.proxies import proxies

_numbers = itertools.count()

LONG = longest(30.0)


@contextmanager
def rig_on(server: PrivateRedis) -> Iterator[Rig]:
    """A rig with channels of its own on this server."""
    prefix = f"test-{next(_numbers)}*:"

    def inject(head: bytes, body: bytes) -> None:
        channel = Channels(prefix).of_topic("") + head[1:-1]
        with server.client() as client:
            client.publish(channel, encode_pair(head, body))

    def ask(frame: bytes) -> None:
        with server.client() as client:
            client.publish(Channels(prefix).requests, encode_pair(b"raw", frame))

    with proxies([f"tcp://127.0.0.1:{server.port}"]) as between:
        options = {
            "url": between.addresses[0].replace("tcp://", "redis://"), "prefix": prefix,
            "reconnect_interval": 0.02, "max_reconnect_interval": 0.1,
        }  # fmt: skip
        settings = DriverSettings(options=options)
        yield Rig(
            RedisDriver, settings, inject=inject, **between.ways, patience=LONG, ask=ask
        )


class TestRedis(DriverConformance):
    @pytest.fixture
    def rig(self, redis_server: PrivateRedis) -> Iterator[Rig]:
        with rig_on(redis_server) as rig:
            yield rig

    def test_a_topic_is_delivered_after_everything_was_unregistered_while_cut_off(self, rig: Rig) -> None:
        with scene(rig) as on:
            listener = on.listening("tenant-1")
            listener.subscriber.register_topic(ALL)
            on.settle(listener, "tenant-2")
            with on.cut_off():
                listener.subscriber.unregister_topic(ALL)
            on.settle(listener, "tenant-1")

    def test_a_topic_beside_everything_is_delivered_once(self, rig: Rig) -> None:
        with scene(rig) as on:
            listener = on.listening("tenant-1")
            listener.subscriber.register_topic(ALL)
            on.settle(listener, "tenant-2")
            link = on.send("tenant-1")
            on.wait_for(listener, link)
            on.fence(listener, "tenant-1")
            assert listener.received.points("tenant-1").count(link.point) == 1
