"""Signals of the service: shutdown, also requested by a thread of the service, and reloading of the configuration."""

import signal
from typing import Final

from pubsub_lib.command.stop_signal import StopSignal

RELOAD: Final = signal.SIGHUP


class ShutdownSignal(StopSignal):
    """As :class:`.stop_signal.StopSignal`, and a request to reload, which ends a wait with False.

    One signal ends the service in order; for an immediate end send SIGKILL, which loses no stored data.
    """

    def __init__(self) -> None:
        super().__init__(RELOAD)
        self._reload = False

    def take_reload(self) -> bool:
        """Whether a reload was requested since the last call. The main thread."""
        asked, self._reload = self._reload, False
        return asked

    def _take(self, received: bytes) -> None:
        self._reload = self._reload or RELOAD in received
        super()._take(received)
