"""The processes of a case: forked, one pipe each, and an end for all of them whatever happens."""

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
"""Seconds that a process has for one step of a round."""


class BenchError(PubSubError):
    """A case could not be run to its end; the message says which process failed and how."""


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

    def tell(self, what: object = None) -> None:
        """Send the process something to go on with."""
        self._pipe.send(what)

    def hear(self, patience: float = PATIENCE) -> Any:
        """What it sends next. Raises BenchError when that is an error, nothing, or does not come in time."""
        try:
            if not self._pipe.poll(patience):
                raise BenchError(f"the process {self._name!r} said nothing for {patience:.0f} s")
            kind, what = self._pipe.recv()
        except EOFError as error:
            raise BenchError(f"the process {self._name!r} ended in the middle of its work") from error
        if kind == "error":
            raise BenchError(f"the process {self._name!r} failed: {what}")
        return what

    def end(self) -> None:
        """Kill it, if it still runs."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self._pipe.close()


class Line:
    """A process' end of the pipe."""

    def __init__(self, pipe: "Connection[Any, Any]") -> None:
        self._pipe = pipe

    def say(self, what: object = None) -> None:
        """To the parent."""
        self._pipe.send(("said", what))

    def wait(self) -> Any:
        """For what the parent tells."""
        return self._pipe.recv()


def _run(pipe: "Connection[Any, Any]", target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    try:
        target(Line(pipe), *arguments)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the parent must hear of it
        text = str(error) if isinstance(error, PubSubError) else traceback.format_exc()
        pipe.send(("error", text))
    os._exit(0)  # no interpreter's end of a forked heap of a million objects


@contextmanager
def crew() -> Iterator[Callable[..., Child]]:
    """A function that starts children; all of them are ended with the block."""
    started: list[Child] = []

    def start(target: Callable[..., None], *arguments: Any) -> Child:
        started.append(Child(target, *arguments))
        return started[-1]

    try:
        yield start
    finally:
        for child in started:
            child.end()
