"""``zmq_pubsub_multiproc_driver``: the worker processes of one host hand their changes to its one publisher service.

Importing this package imports no ZeroMQ, so that the options can be read without it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pubsub_zmq.multiproc.driver import IpcDriver

__all__ = ["IpcDriver"]


def __getattr__(name: str) -> object:
    """Import the driver's class when it is needed (PEP 562)."""
    if name == "IpcDriver":
        from pubsub_zmq.multiproc.driver import IpcDriver

        return IpcDriver
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
