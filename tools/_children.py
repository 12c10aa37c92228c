"""Child processes of a command or a test: programs and forked functions. All are ended with a ``with`` block.

::

    with Children() as children:
        service = children.start("service", attached("pubsub_lib.service", "--config-file", "net.conf"))
        worker = children.fork(work, port)
        worker.receive()

A program runs in a separate session, so that Ctrl-C in a terminal reaches only the parent, which then ends it.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from _attached import die_with_parent
from _processes import kill_tree
from _termination import uninterrupted

from pubsub_lib.errors import PubSubError

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (ROOT, ROOT / "drivers", ROOT / "tools")
"""The folders from which children import the project."""
PATIENCE = 120.0
"""Maximum number of seconds for one step of a forked function."""
READER = 5.0
"""Maximum number of seconds until the thread that reads an ended program's output has ended."""


class ChildError(PubSubError):
    """A child process failed or sent no message in time; the message names the process and its error."""


def python(module: str, *arguments: object) -> list[str]:
    """The command that runs a module with this Python."""
    return [sys.executable, "-m", module, *map(str, arguments)]


def attached(module: str, *arguments: object) -> list[str]:
    """As ``python``; the process is killed when its parent ends, also when the parent is killed."""
    return python("_attached", module, *arguments)


def environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment for a child, which imports the project from this source tree."""
    path = [*map(str, FOLDERS), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), **(variables or {})}


class Child:
    """A program that runs. ``log``: the file to which the streams are appended that ``options`` do not name.

    ``variables`` are additional environment variables. ``on_line``: called on a thread with each line of stdout, and
    with None at its end. ``whole_session``: the end of the child ends all processes of its session, also when the
    program itself has ended. ``options``: as of Popen; stdin is empty by default.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path | None = None,
        variables: Mapping[str, str] | None = None,
        on_line: Callable[[bytes | None], None] | None = None,
        whole_session: bool = False,
        **options: Any,
    ) -> None:
        self.name = name
        self._log = log
        self._whole_session = whole_session
        self._reader: threading.Thread | None = None
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL}
        with nullcontext() if log is None else log.open("ab") as file:
            if file is not None:
                streams.update(stdout=file, stderr=file)
            if on_line is not None:
                streams["stdout"] = subprocess.PIPE
            self.process: subprocess.Popen[bytes] = subprocess.Popen(
                command, env=environment(variables), start_new_session=True, **{**streams, **options}
            )
        if on_line is not None and self.process.stdout is not None:
            self._reader = threading.Thread(target=_read, args=(self.process.stdout, on_line), daemon=True)
            self._reader.start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    def write(self, line: bytes) -> None:
        """Write one line to its stdin. Does nothing when the program has ended."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line + b"\n")
            self.process.stdin.flush()
        except OSError:
            pass  # the program has ended; its status and the end of its output show this

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end of the program. Its descendants continue to run."""
        self.process.kill()
        self.process.wait()

    def stop(self, patience: float) -> None:
        """Send SIGTERM, as an administrator would. Raises ChildError when it does not end with status 0."""
        self.process.terminate()
        try:
            status = self.process.wait(patience)
        except subprocess.TimeoutExpired:
            raise ChildError(f"the {self.name} did not end within {patience:.0f} s after SIGTERM") from None
        if status != 0:
            raise ChildError(f"the {self.name} ended with status {status} after SIGTERM: {self.last_words()}")

    def last_words(self) -> str:
        """The last line of its log."""
        lines = self._log.read_text(errors="replace").strip().splitlines() if self._log is not None else []
        return lines[-1] if lines else "it wrote no error"

    def end(self) -> None:
        """Kill the program and its descendants, if it still runs, and release its resources. Idempotent."""
        if self.process.poll() is None:
            kill_tree(self.pid)
        if self._whole_session:
            self._end_session()
        self.process.wait()
        if self._reader is not None:
            self._reader.join(READER)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    pass  # unsent data is lost, because the program has ended

    def _end_session(self) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # the usual end
        if self.process.stderr is not None and not self.process.stderr.closed:
            for _ in self.process.stderr:  # it ends when the last process of the session has ended
                pass


class Forked:
    """A forked process that runs ``target(line, *arguments)``; both ends exchange objects."""

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        # Forked, so that data need not be built or copied again. The parent has neither threads nor sockets.
        context = multiprocessing.get_context("fork")
        self.name = target.__name__
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_run, args=(other, target, arguments), daemon=True)
        self._process.start()
        other.close()

    def send(self, what: object = None) -> None:
        """Send an object to the process."""
        self._pipe.send(what)

    def sent(self, patience: float) -> bool:
        """Whether the process sends something, or has ended, within this time; ``receive`` then does not wait."""
        return self._pipe.poll(max(0.0, patience))

    def receive(self, patience: float = PATIENCE) -> Any:
        """The next object that the process sends. Raises ChildError for an error, its end or a timeout."""
        try:
            if not self._pipe.poll(patience):
                raise ChildError(f"the process {self.name!r} sent nothing for {patience:.0f} s")
            kind, what = self._pipe.recv()
        except (EOFError, ConnectionError) as error:
            raise ChildError(f"the process {self.name!r} ended in the middle of its work") from error
        if kind == "error":
            raise ChildError(f"the process {self.name!r} failed: {what}")
        return what

    def end(self) -> None:
        """Kill the process, if it still runs. Idempotent."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self._pipe.close()


class Line:
    """The forked process's end of the pipe."""

    def __init__(self, pipe: "Connection[Any, Any]") -> None:
        self._pipe = pipe

    def send(self, what: object = None) -> None:
        """Send an object to the parent."""
        self._pipe.send(("object", what))

    def wait(self) -> Any:
        """Wait for an object of the parent."""
        return self._pipe.recv()


class Endable(Protocol):
    """What ``Children`` ends."""

    def end(self) -> None:
        """End the process. Idempotent."""


Made = TypeVar("Made", bound=Endable)


class Children:
    """All children of a command. For the main thread, because a signal must not interrupt a start.

    All are ended at the end of the ``with`` block, however it ends; the last one first.
    """

    def __init__(self) -> None:
        self._all: list[Endable] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        errors = []
        for child in reversed(self._all):
            try:
                child.end()
            except (OSError, ChildError) as error:  # end the others as well
                errors.append(error)
        self._all.clear()
        if errors:
            raise errors[0]

    def add(self, make: Callable[[], Made]) -> Made:
        """Start a child by calling ``make``. Raises OSError."""
        # Without this, Ctrl-C between the start and its registration would leave a process behind.
        with uninterrupted():
            child = make()
            self._all.append(child)
        return child

    def start(self, name: str, command: Sequence[str], **options: Any) -> Child:
        """Start a program; ``options`` as of :class:`Child`. Raises OSError."""
        return self.add(lambda: Child(name, command, **options))

    def fork(self, target: Callable[..., None], *arguments: Any) -> Forked:
        """Fork a process that runs ``target(line, *arguments)``. Raises OSError."""
        return self.add(lambda: Forked(target, *arguments))

    def end(self, child: Endable) -> None:
        """End one child now, and forget it: another process may get its process id. Raises OSError, ChildError."""
        with uninterrupted():
            child.end()
            self._all.remove(child)

    def output(self, name: str, command: Sequence[str]) -> bytes:
        """Run a program to its end, and return its output. Raises ChildError with its last line when it fails."""
        child = self.start(name, command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, whole_session=True)
        output, errors = child.process.communicate()
        if child.process.returncode != 0:
            lines = errors.decode(errors="replace").strip().splitlines() or ["it wrote no error"]
            raise ChildError(f"{name} ended with {child.process.returncode}: {lines[-1]}")
        return output


def _read(lines: Iterable[bytes], on_line: Callable[[bytes | None], None]) -> None:
    for line in lines:
        on_line(line)
    on_line(None)


def _run(pipe: "Connection[Any, Any]", target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    die_with_parent()  # the pipe does not show its end: this process has a copy of the parent's end
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the start of a child delays it in the parent
    try:
        target(Line(pipe), *arguments)
    except BaseException as error:  # noqa: BLE001 - every error is sent to the parent
        text = str(error) if isinstance(error, PubSubError) else traceback.format_exc()
        pipe.send(("error", text))
    os._exit(0)  # a normal exit would free a forked heap of a million objects
