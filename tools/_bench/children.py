"""The processes of a case. Each is forked and has one pipe; all are ended with the case, even after an error."""

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from pubsub_lib.errors import PubSubError

PATIENCE = 120.0
"""Maximum number of seconds for one step of a round."""


class BenchError(PubSubError):
    """A case could not be completed; the message names the process and its error."""


class Child:
    """A process that runs ``target(connection, *arguments)``."""

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        # Forked, so that plans need not be built or copied again. The parent has neither threads nor sockets.
        context = multiprocessing.get_context("fork")
        self._name = target.__name__
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_run, args=(other, target, arguments), daemon=True)
        self._process.start()
        other.close()

    def send(self, what: object = None) -> None:
        """Send an object to the process."""
        self._pipe.send(what)

    def receive(self, patience: float = PATIENCE) -> Any:
        """The next object that the process sends. Raises BenchError for an error, its end or a timeout."""
        try:
            if not self._pipe.poll(patience):
                raise BenchError(f"the process {self._name!r} sent nothing for {patience:.0f} s")
            kind, what = self._pipe.recv()
        except EOFError as error:
            raise BenchError(f"the process {self._name!r} ended in the middle of its work") from error
        if kind == "error":
            raise BenchError(f"the process {self._name!r} failed: {what}")
        return what

    def end(self) -> None:
        """Kill the process, if it still runs."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self._pipe.close()


class Line:
    """The child's end of the pipe."""

    def __init__(self, pipe: "Connection[Any, Any]") -> None:
        self._pipe = pipe

    def send(self, what: object = None) -> None:
        """Send an object to the parent."""
        self._pipe.send(("object", what))

    def wait(self) -> Any:
        """Wait for an object of the parent."""
        return self._pipe.recv()


def _run(pipe: "Connection[Any, Any]", target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    try:
        target(Line(pipe), *arguments)
    except BaseException as error:  # noqa: BLE001 - every error is sent to the parent
        text = str(error) if isinstance(error, PubSubError) else traceback.format_exc()
        pipe.send(("error", text))
    os._exit(0)  # a normal exit would free a forked heap of a million objects


@contextmanager
def crew() -> Iterator[Callable[..., Child]]:
    """A function that starts children; all of them are ended at the end of the block."""
    started: list[Child] = []

    def start(target: Callable[..., None], *arguments: Any) -> Child:
        started.append(Child(target, *arguments))
        return started[-1]

    try:
        yield start
    finally:
        for child in started:
            child.end()
