"""Looking up the addresses of a host with a timeout: no call of the system ends a look-up that hangs."""

import ipaddress
import socket
import threading
from typing import Any

from pubsub_lib.threads.start import start_thread


class NameLookup:
    """Asks the system on a daemon thread, at most one at a time. One thread asks; any thread may ``end`` its wait."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._numeric = _is_numeric(host)
        self._changed = threading.Condition()
        self._running = False
        self._ended = False
        self._answer: list[tuple[Any, ...]] | Exception = []
        """Of the last look-up."""

    def addresses(self, timeout: float) -> list[tuple[Any, ...]]:
        """The answers of ``socket.getaddrinfo`` for streams. A look-up that still runs is waited for again. Raises
        OSError and UnicodeError as that function, and OSError after the timeout or ``end``; TransportError when no
        thread can be started. The address of a numeric host needs neither a thread nor a wait.
        """
        if self._numeric:
            return self._asked()
        with self._changed:
            if not self._running and not self._ended:
                start_thread(threading.Thread(target=self._look_up, name="pubsub-name-lookup", daemon=True))
                self._running = True
            self._changed.wait_for(lambda: self._ended or not self._running, timeout)
            if self._ended:
                raise OSError("closed meanwhile")
            if self._running:
                late = f"no name server answered for {self._host!r} within {timeout:g} s"
                raise socket.gaierror(socket.EAI_AGAIN, late)
            if isinstance(self._answer, Exception):
                raise self._answer
            return self._answer

    def end(self) -> None:
        """End the wait, and all later ones. Idempotent."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _look_up(self) -> None:
        try:
            answer: list[tuple[Any, ...]] | Exception = self._asked()
        except (OSError, UnicodeError) as error:
            answer = error
        with self._changed:
            self._answer = answer
            self._running = False
            self._changed.notify_all()

    def _asked(self) -> list[tuple[Any, ...]]:
        return list(socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM))


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
