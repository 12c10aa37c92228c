"""The ZeroMQ driver's class: its capabilities, and its settings checked."""

from typing import ClassVar

from pubsub_lib.api import Capabilities, Driver, DriverSettings, Publisher, Subscriber
from pubsub_lib.errors import ConfigError
from pubsub_zmq import addresses
from pubsub_zmq.options import checked
from pubsub_zmq.publisher import ZmqPublisher
from pubsub_zmq.subscriber import ZmqSubscriber


class ZmqDriver(Driver):
    """A publisher binds one tcp or ipc address; a subscriber connects to those of any number of publishers."""

    name: ClassVar[str] = "zmq_pubsub_driver"
    capabilities: ClassVar[Capabilities] = Capabilities(
        bind_based=True, cross_process=True, cross_host=True, ordered=True
    )

    @classmethod
    def publisher(cls, settings: DriverSettings) -> Publisher:
        """A publisher that will bind ``settings.bind_address``. Raises ConfigError for invalid settings."""
        options = checked(settings.options)
        if not settings.bind_address:
            raise ConfigError("zmq_pubsub_driver needs an address to bind; set publisher_bind_address")
        addresses.check(settings.bind_address, bind=True)
        return ZmqPublisher(settings.bind_address, settings.limits, options)

    @classmethod
    def subscriber(cls, settings: DriverSettings) -> Subscriber:
        """A subscriber to the publishers at ``settings.addresses``. Raises ConfigError for invalid settings."""
        options = checked(settings.options)
        for address in settings.addresses:
            addresses.check(address)
        return ZmqSubscriber(settings.addresses, settings.limits, options)
