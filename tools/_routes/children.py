"""The child processes of a run, seen from the process that started them."""

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
"""Seconds that a child has to end before it is killed."""


class ChildError(PubSubError):
    """A child process failed, or went silent."""


class Child:
    """One running process."""

    def __init__(self, task: Task, environment: Mapping[str, str], said: "queue.SimpleQueue[Said]", log: Path) -> None:
        self.name = task.name
        self._said = said
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
        """Its process id."""
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL; what it had said is still heard, and then its end."""
        self._process.kill()
        self._process.wait()

    def order(self, order: Finish | GoOn) -> None:
        """Tell a replica, or a writer, to do this."""
        self._send(msgspec.json.encode(order))

    def status(self) -> int:
        """How it ended: its exit status, or minus the signal's number. Blocks until it has ended."""
        return self._process.wait(STOP)

    def last_words(self) -> str:
        """The last line that it wrote to stderr."""
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def end(self) -> None:
        """Kill it if it still runs, and release everything. Idempotent."""
        self._process.kill()
        self._process.wait()
        self._reader.join(STOP)
        try:
            self._stdin.close()
        except OSError:
            pass  # what was still to be sent has nobody to go to
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _send(self, line: bytes) -> None:
        try:
            self._stdin.write(line + b"\n")
            self._stdin.flush()
        except OSError:
            pass  # it has ended; the reader tells so

    def _listen(self, lines: IO[bytes]) -> None:
        decoder = msgspec.json.Decoder(Message)
        for line in lines:
            try:
                self._said.put((self, decoder.decode(line)))
            except msgspec.MsgspecError:
                self._said.put((self, Failed(f"{self.name} said what nobody understands: {line[:80]!r}")))
        self._said.put((self, None))


Said = tuple[Child, Message | None]
"""A message of a child, or None at the end of its stdout."""


class Children:
    """All child processes of a run; none of them is left after the ``with`` block, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._said: queue.SimpleQueue[Said] = queue.SimpleQueue()
        self._all: list[Child] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self._all:
            child.end()

    def start(self, task: Task, environment: Mapping[str, str] | None = None) -> Child:
        """A new process with this task and these variables besides our own. Raises OSError."""
        # Ctrl-C between the start and the note of it would leave a process behind.
        with uninterrupted():
            child = Child(task, environment or {}, self._said, self._folder / f"{task.name}.log")
            self._all.append(child)
        return child

    def hear(self, seconds: float) -> Said | None:
        """The next message of any child; None when there is none for so long. Raises ChildError when one failed."""
        try:
            child, message = self._said.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(message, Failed):
            raise ChildError(message.sentence)
        return child, message
