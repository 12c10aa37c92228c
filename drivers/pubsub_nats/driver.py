"""The NATS driver's class: its capabilities, and its settings checked."""

from typing import ClassVar

from pubsub_lib.api import Capabilities, Driver, DriverSettings, Publisher, Subscriber
from pubsub_nats.client import access
from pubsub_nats.options import checked
from pubsub_nats.publisher import NatsPublisher
from pubsub_nats.subscriber import NatsSubscriber


class NatsDriver(Driver):
    """Both halves connect to NATS servers, which are named by an option."""

    name: ClassVar[str] = "nats_pubsub_driver"
    capabilities: ClassVar[Capabilities] = Capabilities(
        bind_based=False, cross_process=True, cross_host=True, ordered=True
    )

    @classmethod
    def publisher(cls, settings: DriverSettings) -> Publisher:
        """A publisher to the servers of the options. Raises ConfigError for invalid options and unreadable files."""
        return NatsPublisher(access(checked(settings.options)), settings.limits)

    @classmethod
    def subscriber(cls, settings: DriverSettings) -> Subscriber:
        """A subscriber at the servers of the options. Raises ConfigError for invalid options and unreadable files."""
        return NatsSubscriber(access(checked(settings.options)), settings.limits)
