"""The multi-process driver's class: its capabilities, and its settings checked."""

from pathlib import Path
from typing import ClassVar

from pubsub_lib.api import Capabilities, Driver, DriverSettings, Publisher, Subscriber
from pubsub_lib.config.fields import checked_options
from pubsub_lib.errors import HandoffRejectedError
from pubsub_lib.socket_path import path_of
from pubsub_zmq.multiproc.options import GROUP, IpcOptions
from pubsub_zmq.multiproc.publisher import IpcPublisher
from pubsub_zmq.multiproc.subscriber import IpcSubscriber


class IpcDriver(Driver):
    """ZeroMQ PUSH and PULL over a socket file: many workers push, one service receives. ``bind_address`` names it.

    Only one hop (``fan_out`` is False): the service gives the messages new sequences and sends them to the replicas.
    """

    name: ClassVar[str] = "zmq_pubsub_multiproc_driver"
    capabilities: ClassVar[Capabilities] = Capabilities(
        bind_based=False, cross_process=True, cross_host=False, ordered=True, fan_out=False
    )

    @classmethod
    def publisher(cls, settings: DriverSettings) -> Publisher:
        """A worker's end. Raises ConfigError for options or an address that it cannot use."""
        path, options = _checked(settings)
        if options.when_full == "wait":
            return IpcPublisher(path, settings.limits, options.buffer, options.full_wait, options.linger)
        return IpcPublisher(path, settings.limits, options.buffer, 0.0, options.linger, HandoffRejectedError)

    @classmethod
    def subscriber(cls, settings: DriverSettings) -> Subscriber:
        """The service's end; binds at ``daemonize``. Raises ConfigError for options or an address it cannot use."""
        path, options = _checked(settings)
        return IpcSubscriber(path, settings.limits, options.receive_buffer)


def _checked(settings: DriverSettings) -> tuple[Path, IpcOptions]:
    options = checked_options(IpcOptions, settings.options, "zmq_pubsub_multiproc_driver", GROUP)
    return path_of(settings.bind_address), options
