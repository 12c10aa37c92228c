"""Choose the object that publishes a program's commits, by the driver's capabilities."""

from pubsub_lib import loader
from pubsub_lib.constructor_checks import check_settings
from pubsub_lib.publisher.publisher import Publisher
from pubsub_lib.publisher.trace_context import TraceSource
from pubsub_lib.publisher.worker import Worker
from pubsub_lib.settings import Settings
from pubsub_lib.store import Store


def open_publisher(settings: Settings, store: Store, *, trace: TraceSource | None = None) -> Publisher | Worker:
    """The object that sends the commits of ``store`` in this process, not started yet: use it as a context manager.

    With a bind-based driver and ``settings.multiproc_driver`` it is a :class:`Worker`: the host's publisher service
    binds the address, and every process hands over to the service. With a connect-based driver, or without a
    ``multiproc_driver``, it is a :class:`Publisher`: this process sends by itself.

    ``trace``: as of both classes. Raises ConfigError (no service name, a store with other limits), DriverError. Blocks
    while it imports the driver.
    """
    check_settings(settings)
    if hands_over(settings):
        return Worker(settings, store, trace=trace)
    return Publisher(settings, store, trace=trace)


def hands_over(settings: Settings) -> bool:
    """Whether programs hand over to the host's publisher service and do not send themselves. Raises DriverError."""
    return bool(settings.multiproc_driver) and is_bound(settings)


def is_bound(settings: Settings) -> bool:
    """Whether publishers bind ``settings.bind_address``. If not, the address is unused and must not be shown. Raises
    DriverError.
    """
    return loader.load(settings.driver, settings.needs()).capabilities.bind_based
