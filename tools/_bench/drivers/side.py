"""What a driver over a broker gives to the case: its server, and its client library with raw frames."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from pubsub_lib.api import Driver

Send = Callable[[Sequence[bytes]], None]
"""Sends frames, and returns when the server has taken them."""
Receive = Callable[[int], int]
"""Receives this number of frames, and returns their bytes."""


class Side(Protocol):
    """One driver. A new one needs one module with a class like this, and its entry in ``sides.py``."""

    name: str
    peer: str
    """How the client library sends the raw frames."""
    driver: type[Driver]

    def server(self) -> AbstractContextManager[Mapping[str, object]]:
        """Start a server, and return the driver's options for it. Raises LeftOutError when it cannot be had."""

    def sender(self, options: Mapping[str, object]) -> AbstractContextManager[Send]:
        """A connected client that publishes on one channel."""

    def receiver(self, options: Mapping[str, object]) -> AbstractContextManager[Receive]:
        """A client that has subscribed to this channel."""
