"""Makes ZeroMQ's contexts, and only while enough files are free."""

import os
from contextlib import ExitStack
from typing import Final

import zmq

from pubsub_lib.errors import TransportError

FREE_FILES: Final = 32
"""A context with a bound socket and its monitor needs 12. libzmq 4.3.5 ends the process when it finds none for one of
its threads ("Too many open files", epoll.cpp), and other threads open files meanwhile."""


def make_context() -> "zmq.Context[zmq.Socket[bytes]]":
    """Make a context. Raises TransportError when this process may open fewer than ``FREE_FILES`` further files."""
    with ExitStack() as opened:
        try:
            for _ in range(FREE_FILES):
                opened.callback(os.close, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            raise TransportError(
                f"cannot start ZeroMQ, which needs {FREE_FILES} free files: {error.strerror}; close others, or raise "
                "this process's limit of open files"
            ) from error
    return zmq.Context()
