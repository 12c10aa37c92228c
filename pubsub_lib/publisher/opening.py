"""Which object publishes what a program commits: decided by the driver's capabilities, so that no program has to."""

from pubsub_lib import loader
from pubsub_lib.constructor_checks import check_settings
from pubsub_lib.publisher.publisher import Publisher
from pubsub_lib.publisher.trace_context import TraceSource
from pubsub_lib.publisher.worker import Worker
from pubsub_lib.settings import Settings
from pubsub_lib.store import Store


def open_publisher(settings: Settings, store: Store, *, trace: TraceSource | None = None) -> Publisher | Worker:
    """What sends the commits of ``store`` in this process, not started yet: use it as a context manager.

    By a bind-based driver, and with ``settings.multiproc_driver``, a :class:`Worker`: the host's one publisher service
    binds the address, and every process hands over to it. By a connect-based driver, and without a
    ``multiproc_driver``, a :class:`Publisher`: this process sends by itself.

    ``trace``: as of both. Raises ConfigError (no service name, a store with other limits), DriverError. Blocks for
    importing the driver.
    """
    check_settings(settings)
    if hands_over(settings):
        return Worker(settings, store, trace=trace)
    return Publisher(settings, store, trace=trace)


def hands_over(settings: Settings) -> bool:
    """Whether programs hand over to the host's publisher service, in place of sending themselves. Raises
    DriverError.
    """
    return bool(settings.multiproc_driver) and is_bound(settings)


def is_bound(settings: Settings) -> bool:
    """Whether publishers bind ``settings.bind_address``; else it means nothing, and is not to be shown. Raises
    DriverError.
    """
    return loader.load(settings.driver, settings.needs()).capabilities.bind_based
