"""The child processes of a run, as objects of the parent process."""

import queue
import subprocess
from collections.abc import Mapping
from pathlib import Path

import _children
import msgspec
from _children import ChildError, python

from _routes.messages import Failed, Finish, GoOn, Message
from _routes.plan import Task

STOP = 5.0
"""Seconds until a child that does not end is killed."""
_decoder = msgspec.json.Decoder(Message)


class Child(_children.Child):
    """One running process."""

    def __init__(
        self, task: Task, environment: Mapping[str, str], received: "queue.SimpleQueue[Received]", log: Path
    ) -> None:
        self._received = received
        super().__init__(
            task.name, python("_routes"), log=log, variables=environment, on_line=self._note, stdin=subprocess.PIPE
        )
        self.write(msgspec.json.encode(task))

    def order(self, order: Finish | GoOn) -> None:
        """Send a command to a replica or a writer."""
        self.write(msgspec.json.encode(order))

    def status(self) -> int:
        """The exit status, or minus the signal's number. Blocks until the process has ended."""
        return self.process.wait(STOP)

    def _note(self, line: bytes | None) -> None:
        try:
            self._received.put((self, None if line is None else _decoder.decode(line)))
        except msgspec.MsgspecError:
            self._received.put((self, Failed(f"{self.name} sent an invalid message: {line!r:.80}")))


Received = tuple[Child, Message | None]
"""A message of a child, or None at the end of its stdout."""


class Children(_children.Children):
    """All child processes of a run."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._received: queue.SimpleQueue[Received] = queue.SimpleQueue()

    def participate(self, task: Task, environment: Mapping[str, str] | None = None) -> Child:
        """Start a process with this task and these additional environment variables. Raises OSError."""
        log = self._folder / f"{task.name}.log"
        return self.add(lambda: Child(task, environment or {}, self._received, log))

    def receive(self, seconds: float) -> Received | None:
        """The next message of any child; None after ``seconds`` without one. Raises ChildError when a child failed."""
        try:
            child, message = self._received.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(message, Failed):
            raise ChildError(message.sentence)
        return child, message
