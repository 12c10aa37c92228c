"""``zmq_pubsub_multiproc_driver``: worker processes of one host hand their changes to its one publisher service."""

from pubsub_ipc.driver import IpcDriver

__all__ = ["IpcDriver"]
