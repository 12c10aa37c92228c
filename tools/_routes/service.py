"""The host's publisher-service, seen from the run that starts, stops, kills and starts it again."""

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
"""Seconds that the service has for its orderly end."""


class Service:
    """One service, in as many processes as there are starts; none is left after the ``with`` block. For one thread.

    It says when it is ready as it would to systemd.
    """

    def __init__(self, configuration: Path, folder: Path) -> None:
        self._configuration = configuration
        self._log = folder / f"{SERVICE}.log"
        self._notify = folder / "notify"
        self._said = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False
        self.starts = 0

    def __enter__(self) -> Self:
        self._said.bind(str(self._notify))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._said.close()

    def start(self) -> None:
        """A new process; it gets ready by itself. Raises OSError."""
        self._hear()  # what the one before still said
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
        """Whether it is, since its last start. Does not block. Raises ChildError when it ended."""
        self._ready = self._ready or b"READY=1" in self._hear()
        status = self._running().poll()
        if status is not None:
            raise ChildError(f"the {SERVICE} ended with status {status}: {self._last_words()}")
        return self._ready

    def pause(self) -> None:
        """SIGSTOP; when this returns, every thread of it stands still. Raises ChildError when it ended instead."""
        process = self._running()
        process.send_signal(signal.SIGSTOP)
        # Not read from /proc, which tells of one thread. NOWAIT: how it ended is Popen's to hear.
        found = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if found is None or found.si_code != os.CLD_STOPPED:
            self.ready()

    def resume(self) -> None:
        """SIGCONT."""
        self._running().send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL; it is gone when this returns."""
        process = self._running()
        process.kill()
        process.wait()

    def end(self) -> None:
        """SIGTERM, as an administrator would. Raises ChildError when that is not an orderly end."""
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

    def _hear(self) -> bytes:
        heard = b""
        while True:
            try:
                heard += self._said.recv(4096) + b"\n"
            except BlockingIOError:
                return heard

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"
