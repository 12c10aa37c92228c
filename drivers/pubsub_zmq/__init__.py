"""The ZeroMQ drivers: ``zmq_pubsub_driver`` between hosts, :mod:`pubsub_zmq.multiproc` between a host's processes.

Importing this package imports no ZeroMQ, so that the options can be read without it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pubsub_zmq.driver import ZmqDriver

__all__ = ["ZmqDriver"]


def __getattr__(name: str) -> object:
    """Import the driver's class when it is needed (PEP 562)."""
    if name == "ZmqDriver":
        from pubsub_zmq.driver import ZmqDriver

        return ZmqDriver
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
