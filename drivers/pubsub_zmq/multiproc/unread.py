"""Lets the service read what a worker that closes has sent.

ZeroMQ's close returns when the system has taken the last message. While the service's own queue is full, it reads
nothing more from the connection; when the connection ends then, libzmq 4.3.5 drops what is still in the system's buffer
(about 200 KB). So the worker keeps a copy of the connection open until the buffer is empty.
"""

import fcntl
import socket
import struct
import termios
import time
from typing import Final

from pubsub_zmq.inflow_guard import copy_of

_LOOK: Final = 0.002
"""Seconds between two looks. The system reports when there is room, but not when all was read."""


def copy_of_connection(descriptor: int) -> socket.socket | None:
    """A copy of the Unix connection with this descriptor; None when it is closed already."""
    try:
        copied = copy_of(descriptor)
    except OSError:
        return None
    if copied.family == socket.AF_UNIX:
        return copied
    copied.close()  # another connection of the process has the number now
    return None


def wait_until_read(connection: socket.socket, deadline: float) -> None:
    """Wait until the peer has read all that was sent, or until this monotonic time; then close this copy."""
    with connection:
        while time.monotonic() < deadline and _unread(connection):
            time.sleep(_LOOK)


def _unread(connection: socket.socket) -> int:
    """Memory of what the peer has not read yet, in bytes; 0 when it has closed."""
    (number,) = struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4)))
    return int(number)
