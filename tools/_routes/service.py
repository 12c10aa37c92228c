"""A publisher-service of a run, or a relay, as an object that starts, pauses, kills and restarts it."""

import signal
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from _children import Child, ChildError, Children, attached
from _processes import pause
from _ready import ReadySocket

from _routes.plan import SERVICE

END = 15.0
"""Maximum number of seconds for a normal shutdown of the service."""
ANSWER = 5.0
"""Maximum number of seconds for an answer of an endpoint."""


class Service:
    """One service, with a new process for each start; no process is left after the ``with`` block. For one thread.

    The service reports that it is ready by the protocol of systemd. A relay is ready when its ``endpoint`` reports it,
    too: it has read its objects then.
    """

    def __init__(self, configuration: Path, folder: Path, name: str = SERVICE, endpoint: str = "") -> None:
        self._configuration = configuration
        self._name = name
        self._endpoint = endpoint
        self._log = folder / f"{name}.log"
        self._socket = ReadySocket()
        self._children = Children()
        self._process: Child | None = None
        self.starts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._children.__exit__(kind, error, trace)
        self._socket.__exit__(kind, error, trace)

    def start(self) -> None:
        """Start a new process; see ``ready``. Raises OSError."""
        self._socket.expect()
        command = attached("pubsub_lib.service", "--log-level", "warning", "--config-file", self._configuration)
        self._process = self._children.start(self._name, command, log=self._log, variables=self._socket.variables)
        self.starts += 1

    def ready(self) -> bool:
        """Whether the service is ready since its last start. Does not block without an endpoint. Raises ChildError when
        it ended.
        """
        status = self._running().process.poll()
        if status is not None:
            raise ChildError(f"the {self._name} ended with status {status}: {self._running().last_words()}")
        return self._socket.ready() and (not self._endpoint or self._reports_ready())

    def _reports_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._endpoint}/ready", timeout=ANSWER) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False  # it is not ready, or does not listen yet

    def pause(self) -> None:
        """Send SIGSTOP, and wait until all threads of the service are stopped. Raises ChildError when it has ended."""
        if not pause(self._running().process.pid):
            self.ready()

    def resume(self) -> None:
        """Send SIGCONT."""
        self._running().process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end of the process."""
        self._running().kill()

    def end(self) -> None:
        """Send SIGTERM, as an administrator would. Raises ChildError when the service does not end with status 0."""
        self._running().stop(END)

    def _running(self) -> Child:
        if self._process is None:
            raise ChildError(f"the {self._name} was not started")
        return self._process
