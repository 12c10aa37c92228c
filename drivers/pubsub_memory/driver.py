"""The ``memory`` driver's class: its capabilities, and its settings checked."""

from typing import ClassVar

from pubsub_lib.api import Capabilities, Driver, DriverSettings, Publisher, Subscriber
from pubsub_lib.config.fields import checked_options
from pubsub_lib.fault_injection import Loss
from pubsub_memory.bus import MemoryBus, bus
from pubsub_memory.options import MemoryOptions
from pubsub_memory.publisher import MemoryPublisher
from pubsub_memory.subscriber import MemorySubscriber

SCHEME = "memory://"


class MemoryDriver(Driver):
    """Publishers and subscribers of one process, on a bus found by name, by a ``memory://name`` address, or given."""

    name: ClassVar[str] = "memory"
    capabilities: ClassVar[Capabilities] = Capabilities(
        bind_based=False, cross_process=False, cross_host=False, ordered=True
    )

    @classmethod
    def publisher(cls, settings: DriverSettings) -> Publisher:
        """A publisher on the settings' bus. Raises ConfigError for options it cannot use."""
        found, _ = _bus_of(settings, (settings.bind_address, *settings.addresses))
        return MemoryPublisher(found, settings.limits)

    @classmethod
    def subscriber(cls, settings: DriverSettings) -> Subscriber:
        """A subscriber on the settings' bus. Raises ConfigError for options it cannot use."""
        found, options = _bus_of(settings, (*settings.addresses, settings.bind_address))
        return MemorySubscriber(found, settings.limits, options.queue_limit)


def _bus_of(settings: DriverSettings, addresses: tuple[str, ...]) -> tuple[MemoryBus, MemoryOptions]:
    given = dict(settings.options)
    found = given.pop("bus", None) if isinstance(given.get("bus"), MemoryBus) else None
    options = checked_options(MemoryOptions, given, "the memory driver", "pubsub_memory")
    if not isinstance(found, MemoryBus):
        named = [address.removeprefix(SCHEME) for address in addresses if address.startswith(SCHEME)]
        found = bus(named[0] if named else options.bus)
    loss = Loss(options.drop, options.duplicate, options.reorder, options.delay, 0.0, options.max_delay)
    if loss != Loss(max_delay=options.max_delay):  # otherwise keep the faults that a test may have set on the bus
        found.set_loss(loss, options.seed)
    return found, options
