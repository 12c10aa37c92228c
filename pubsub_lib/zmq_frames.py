"""Taking messages from a ZeroMQ socket: what the drivers that use ZeroMQ share, because they may not import each other.

Imported by drivers only: pubsub_lib itself runs without pyzmq.
"""

from typing import Final

import zmq

_NOW: Final = int(zmq.NOBLOCK)  # as a plain number: to look at the library's enumerations takes long


def receive(socket: "zmq.Socket[bytes]") -> list[bytes]:
    """The frames of the next message. Does not wait; only the thread that the socket belongs to may call it.

    Raises zmq.Again when there is none.

    ``recv_multipart`` asks the socket after each frame whether more belong to it, by way of an enumeration, which takes
    longer than to receive them; a ``zmq.Frame`` knows it.
    """
    frames = []
    more = True
    while more:
        frame = socket.recv(_NOW, copy=False)
        frames.append(frame.bytes)
        more = frame.more
    return frames
