"""The ZeroMQ driver's class: its capabilities, and its settings checked."""

from typing import ClassVar

import zmq

from pubsub_lib import curve_keys
from pubsub_lib.api import Capabilities, Driver, DriverSettings, Publisher, Subscriber
from pubsub_lib.curve_keys import check_zeromq
from pubsub_lib.errors import ConfigError
from pubsub_zmq import addresses
from pubsub_zmq.keyed_publisher import KeyedPublisher
from pubsub_zmq.options import checked
from pubsub_zmq.publisher import ZmqPublisher
from pubsub_zmq.subscriber import ZmqSubscriber


class ZmqDriver(Driver):
    """A publisher binds one tcp or ipc address; a subscriber connects to those of any number of publishers."""

    name: ClassVar[str] = "zmq_pubsub_driver"
    capabilities: ClassVar[Capabilities] = Capabilities(
        bind_based=True, cross_process=True, cross_host=True, ordered=True, keys=True
    )

    @classmethod
    def publisher(cls, settings: DriverSettings) -> Publisher:
        """A publisher that will bind ``settings.bind_address``. Raises ConfigError for invalid settings."""
        options = checked(settings.options)
        if not settings.bind_address:
            raise ConfigError("zmq_pubsub_driver needs an address to bind; set publisher_bind_address")
        addresses.check(settings.bind_address, bind=True)
        if settings.keys:
            return KeyedPublisher(settings.bind_address, settings.limits, options, curve_keys.new_pair())
        return ZmqPublisher(settings.bind_address, settings.limits, options)

    @classmethod
    def subscriber(cls, settings: DriverSettings) -> Subscriber:
        """A subscriber to the publishers at ``settings.addresses``. Raises ConfigError for invalid settings."""
        options = checked(settings.options)
        for address in settings.addresses:
            addresses.check(address)
        own = None
        if settings.keys:
            check_zeromq(zmq.zmq_version_info(), zmq.has("curve"))
            if not settings.client_key_file:
                raise ConfigError(
                    "with keys = true a replica needs a key: make one by pubsub-db clients add, and set "
                    "client_key_file in [pubsub]"
                )
            own = curve_keys.read_file(settings.client_key_file)
        return ZmqSubscriber(settings.addresses, settings.limits, options, own)
