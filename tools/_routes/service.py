"""The host's publisher-service, as an object of the run that starts, pauses, kills and restarts it."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from _termination import uninterrupted

from _routes.children import TOOLS, ChildError
from _routes.plan import SERVICE

END = 15.0
"""Maximum number of seconds for a normal shutdown of the service."""


class Service:
    """One service, with a new process for each start; no process is left after the ``with`` block. For one thread.

    The service reports that it is ready by the protocol of systemd.
    """

    def __init__(self, configuration: Path, folder: Path) -> None:
        self._configuration = configuration
        self._log = folder / f"{SERVICE}.log"
        self._notify = folder / "notify"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False
        self.starts = 0

    def __enter__(self) -> Self:
        self._socket.bind(str(self._notify))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._socket.close()

    def start(self) -> None:
        """Start a new process; see ``ready``. Raises OSError."""
        self._receive()  # discard messages of the previous process
        self._ready = False
        path = os.pathsep.join(filter(None, (str(TOOLS), os.environ.get("PYTHONPATH", ""))))
        command = [sys.executable, "-m", "_routes.attached", "pubsub_lib.service", "--log-level", "warning"]
        with uninterrupted(), self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--config-file", str(self._configuration)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": path, "NOTIFY_SOCKET": str(self._notify)},
                start_new_session=True,
            )
            self.starts += 1

    def ready(self) -> bool:
        """Whether the service is ready since its last start. Does not block. Raises ChildError when it ended."""
        self._ready = self._ready or b"READY=1" in self._receive()
        status = self._running().poll()
        if status is not None:
            raise ChildError(f"the {SERVICE} ended with status {status}: {self._last_words()}")
        return self._ready

    def pause(self) -> None:
        """Send SIGSTOP, and wait until all threads of the service are stopped. Raises ChildError when it has ended."""
        process = self._running()
        process.send_signal(signal.SIGSTOP)
        # /proc would show the state of only one thread. NOWAIT leaves the exit status to Popen.
        found = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if found is None or found.si_code != os.CLD_STOPPED:
            self.ready()

    def resume(self) -> None:
        """Send SIGCONT."""
        self._running().send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end of the process."""
        process = self._running()
        process.kill()
        process.wait()

    def end(self) -> None:
        """Send SIGTERM, as an administrator would. Raises ChildError when the service does not end with status 0."""
        process = self._running()
        process.terminate()
        try:
            status = process.wait(END)
        except subprocess.TimeoutExpired:
            raise ChildError(f"the {SERVICE} did not end within {END:.0f} s after SIGTERM") from None
        if status != 0:
            raise ChildError(f"the {SERVICE} ended with status {status} after SIGTERM: {self._last_words()}")

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise ChildError(f"the {SERVICE} was not started")
        return self._process

    def _receive(self) -> bytes:
        received = b""
        while True:
            try:
                received += self._socket.recv(4096) + b"\n"
            except BlockingIOError:
                return received

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it wrote no error"
