"""Receive messages from a ZeroMQ socket. Shared by the ZeroMQ drivers, which may not import each other.

Imported by drivers only: pubsub_lib itself runs without pyzmq.
"""

from typing import Final

import zmq

_NOW: Final = int(zmq.NOBLOCK)  # a plain number, because access to the library's enumerations is slow


def receive(socket: "zmq.Socket[bytes]") -> list[bytes]:
    """The frames of the next message. Does not block; only the socket's thread may call it.

    Raises zmq.Again when there is none.

    ``recv_multipart`` reads a socket option after each frame, by an enumeration, which takes longer than to receive the
    frame. A ``zmq.Frame`` has the flag ``more`` itself.
    """
    frames = []
    more = True
    while more:
        frame = socket.recv(_NOW, copy=False)
        frames.append(frame.bytes)
        more = frame.more
    return frames
