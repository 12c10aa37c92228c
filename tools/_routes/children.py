"""The child processes of a run, as objects of the parent process."""

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import msgspec
from _termination import uninterrupted

from _routes.messages import Failed, Finish, GoOn, Message
from _routes.plan import Task
from pubsub_lib.errors import PubSubError

TOOLS = Path(__file__).resolve().parent.parent
STOP = 5.0
"""Seconds until a child that does not end is killed."""


class ChildError(PubSubError):
    """A child process failed or sent no message in time."""


class Child:
    """One running process."""

    def __init__(
        self, task: Task, environment: Mapping[str, str], received: "queue.SimpleQueue[Received]", log: Path
    ) -> None:
        self.name = task.name
        self._received = received
        self._log = log
        path = os.pathsep.join(filter(None, (str(TOOLS), os.environ.get("PYTHONPATH", ""))))
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "_routes"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": path, **environment},
                start_new_session=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin: IO[bytes] = self._process.stdin
        self._reader = threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True)
        self._reader.start()
        self._send(msgspec.json.encode(task))

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def kill(self) -> None:
        """Send SIGKILL. Messages that the child has sent are still received, then its end."""
        self._process.kill()
        self._process.wait()

    def order(self, order: Finish | GoOn) -> None:
        """Send a command to a replica or a writer."""
        self._send(msgspec.json.encode(order))

    def status(self) -> int:
        """The exit status, or minus the signal's number. Blocks until the process has ended."""
        return self._process.wait(STOP)

    def last_words(self) -> str:
        """The last line that the child wrote to stderr."""
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it wrote no error"

    def end(self) -> None:
        """Kill the process if it still runs, and release its resources. Idempotent."""
        self._process.kill()
        self._process.wait()
        self._reader.join(STOP)
        try:
            self._stdin.close()
        except OSError:
            pass  # unsent data is lost, because the process has ended
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _send(self, line: bytes) -> None:
        try:
            self._stdin.write(line + b"\n")
            self._stdin.flush()
        except OSError:
            pass  # the process has ended; the reader thread reports it

    def _listen(self, lines: IO[bytes]) -> None:
        decoder = msgspec.json.Decoder(Message)
        for line in lines:
            try:
                self._received.put((self, decoder.decode(line)))
            except msgspec.MsgspecError:
                self._received.put((self, Failed(f"{self.name} sent an invalid message: {line[:80]!r}")))
        self._received.put((self, None))


Received = tuple[Child, Message | None]
"""A message of a child, or None at the end of its stdout."""


class Children:
    """All child processes of a run. All are ended after the ``with`` block, however the block ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._received: queue.SimpleQueue[Received] = queue.SimpleQueue()
        self._all: list[Child] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self._all:
            child.end()

    def start(self, task: Task, environment: Mapping[str, str] | None = None) -> Child:
        """Start a process with this task and these additional environment variables. Raises OSError."""
        # Without this, Ctrl-C between the start and its registration would leave a process behind.
        with uninterrupted():
            child = Child(task, environment or {}, self._received, self._folder / f"{task.name}.log")
            self._all.append(child)
        return child

    def receive(self, seconds: float) -> Received | None:
        """The next message of any child; None after ``seconds`` without one. Raises ChildError when a child failed."""
        try:
            child, message = self._received.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(message, Failed):
            raise ChildError(message.sentence)
        return child, message
