"""One participant of a run, as an object of the parent: a new process for each start."""

import queue
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from _children import Child, ChildError, Children, attached
from _processes import pause

from _chaos.messages import Failed, Message, Order, Task

Received = tuple[str, int, Message]
"""The name of a participant, the number of its start, and its message."""
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
_encoder = msgspec.json.Encoder()
Start = Callable[[int], Child]
"""Starts the process; its argument is the number of the start, from 1."""


class Participant:
    """A service, a worker or a replica. For one thread. Methods raise OSError and ChildError."""

    def __init__(self, name: str, children: Children, start: Start) -> None:
        self.name = name
        self._children = children
        self._start = start
        self._child: Child | None = None
        self._paused = False
        self.starts = 0
        self.again_at: float | None = None
        """When to start it again after it ended by itself, by the monotonic clock; None: by the end of a fault."""
        self.over = False
        """Whether it ended as ordered."""

    @property
    def running(self) -> bool:
        """Whether a process was started and not ended by ``kill``; it may have ended by itself."""
        return self._child is not None

    @property
    def pid(self) -> int | None:
        """The process id; None: it does not run."""
        return None if self._child is None else self._child.pid

    def start(self) -> None:
        """Start a process, unless one runs."""
        if self._child is None:
            self.again_at = None
            self.starts += 1
            self._child = self._start(self.starts)

    def kill(self) -> None:
        """SIGKILL, and wait for the end of the process and of those that it started. Idempotent."""
        self.again_at = None
        if self._child is not None:
            child, self._child = self._child, None
            self._paused = False
            self._children.end(child)

    def pause(self) -> None:
        """SIGSTOP, and wait until all threads are stopped. Does nothing when the process has ended."""
        if self._child is not None:
            self._paused = pause(self._child.pid)

    def resume(self) -> None:
        """SIGCONT, when it was paused."""
        if self._child is not None and self._paused:
            self._child.process.send_signal(signal.SIGCONT)
        self._paused = False

    def status(self) -> int | None:
        """The exit status of a process that has ended by itself, minus the number of a signal; None: it has not."""
        return None if self._child is None else self._child.process.poll()

    def forget(self) -> str:
        """Release a process that has ended by itself, and return the last line of its log."""
        child, self._child = self._child, None
        if child is None:
            return ""
        self._children.end(child)
        return child.last_words()

    def order(self, order: Order) -> None:
        """Send an order."""
        if self._child is not None:
            self._child.write(_encoder.encode(order))

    def terminate(self, patience: float) -> None:
        """SIGTERM. Raises ChildError when the process does not end with status 0 in time; its log then has the stacks
        of its threads.
        """
        if self._child is not None:
            try:
                self._child.stop(patience)
            except ChildError:
                if self.status() is None:
                    self._child.process.send_signal(signal.SIGABRT)
                    self._child.process.wait()
                raise


class Part(Child):
    """The process of a worker or a replica: it gets its task, and its messages go to a queue."""

    def __init__(
        self, task: Task, start: int, received: "queue.SimpleQueue[Received]", log: Path, variables: Mapping[str, str]
    ) -> None:
        self._received = received
        self._number = start
        super().__init__(
            task.name,
            attached("_chaos"),
            log=log,
            variables=variables,
            on_line=self._note,
            stdin=subprocess.PIPE,
            whole_session=True,
        )
        self.write(_encoder.encode(task))

    def _note(self, line: bytes | None) -> None:
        if line is None:
            return  # the parent finds the end of the process by its status
        try:
            self._received.put((self.name, self._number, _decoder.decode(line)))
        except msgspec.MsgspecError:
            # A killed process may leave half a line; then the end of its stdout follows.
            if line.endswith(b"\n"):
                failed = Failed(f"{self.name} sent an invalid message: {line!r:.80}")
                self._received.put((self.name, self._number, failed))
