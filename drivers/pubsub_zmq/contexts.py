"""Makes ZeroMQ's contexts, and only while enough files are free."""

import resource
from pathlib import Path
from typing import Final

import zmq

from pubsub_lib.errors import TransportError

FREE_FILES: Final = 32
"""A context with a bound socket and its monitor needs 12. libzmq 4.3.5 ends the process when it finds none for one of
its threads ("Too many open files", epoll.cpp), and other threads open files meanwhile."""


def make_context() -> "zmq.Context[zmq.Socket[bytes]]":
    """Make a context. Raises TransportError when this process may open fewer than ``FREE_FILES`` further files."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        # Opening files instead could leave other threads without one.
        used = sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError as error:
        raise _no_file(error.strerror or str(error)) from error
    if limit != resource.RLIM_INFINITY and limit - used < FREE_FILES:
        raise _no_file(f"{used} of {limit} are in use")
    return zmq.Context()


def _no_file(reason: str) -> TransportError:
    return TransportError(
        f"cannot start ZeroMQ, which needs {FREE_FILES} free files: {reason}; close others, or raise this process's "
        "limit of open files"
    )
