"""The Redis driver's class: its capabilities, and its settings checked."""

from typing import ClassVar

from pubsub_lib.api import Capabilities, Driver, DriverSettings, Publisher, Subscriber
from pubsub_redis.options import checked
from pubsub_redis.publisher import RedisPublisher
from pubsub_redis.subscriber import RedisSubscriber


class RedisDriver(Driver):
    """Every publisher and subscriber connects to one Redis server, whose channels are the topics."""

    name: ClassVar[str] = "redis_pubsub_driver"
    capabilities: ClassVar[Capabilities] = Capabilities(
        bind_based=False, cross_process=True, cross_host=True, ordered=True
    )

    @classmethod
    def publisher(cls, settings: DriverSettings) -> Publisher:
        """A publisher, not yet connected. Raises ConfigError for invalid settings."""
        return RedisPublisher(*checked(settings.options), settings.limits)

    @classmethod
    def subscriber(cls, settings: DriverSettings) -> Subscriber:
        """A subscriber, not yet connected. Raises ConfigError for invalid settings."""
        return RedisSubscriber(*checked(settings.options), settings.limits)
