"""A publisher that is closed while it starts."""

import socket
import threading

import pytest

from pubsub_lib.api import Publisher
from pubsub_lib.errors import TransportError

LONG = 60.0


def reason_of_a_start_that_close_ends(publisher: Publisher, server: socket.socket) -> str:
    """The error of the start. ``server``: the listening socket to which the publisher connects; it answers nothing."""
    errors: list[TransportError] = []

    def start() -> None:
        with pytest.raises(TransportError) as caught:
            publisher.initialize(lambda request: None, lambda: None)
        errors.append(caught.value)

    starting = threading.Thread(target=start, daemon=True)
    starting.start()
    server.accept()[0].close()
    publisher.close()
    starting.join(LONG)
    (error,) = errors
    return str(error)
