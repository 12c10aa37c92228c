"""The ``zmq_pubsub_driver``: XPUB and SUB sockets of ZeroMQ over tcp, and over ipc within one host."""

from pubsub_zmq.driver import ZmqDriver

__all__ = ["ZmqDriver"]
