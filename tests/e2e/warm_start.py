"""Starts programs of the project within milliseconds.

Python needs most of a second of processor time to import a program's modules, and the tests start hundreds of programs.
Here a program is a process forked from one that has imported them: by the fork server of :mod:`multiprocessing`. It has
arguments, an environment and streams of its own, and is killed and waited for as any process. What differs: functions
of :mod:`atexit` are not called at its end.
"""

import faulthandler
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from multiprocessing.util import Finalize
from pathlib import Path
from typing import IO, Protocol
from unittest.mock import patch

from _children import environment

from pubsub_lib.failpoints import VARIABLE, armed, parse

IMPORTED = (
    "pubsub_lib.cli.main",
    "pubsub_lib.service.main",
    "pubsub_lib.replica.replica",
    "pubsub_lib.publisher.worker",
    "pubsub_zmq.driver",
    "pubsub_zmq.publisher",
    "pubsub_zmq.subscriber",
    "pubsub_zmq.multiproc.driver",
    "sqlalchemy.dialects.sqlite",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.mysql.pymysql",
)
"""What the fork server imports at its start. None of them starts a thread."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(list(IMPORTED))


class Running(Protocol):
    """A program's process, as the tests use it: a :class:`WarmProcess` or a :class:`subprocess.Popen`."""

    stdin: IO[str] | None
    stdout: IO[str] | None
    stderr: IO[str] | None

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int) -> None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...

    def communicate(self, *, timeout: float | None = None) -> tuple[str, str]: ...


def started(
    arguments: Sequence[str], variables: Mapping[str, str], errors: Path, prefix: Sequence[str] = ()
) -> Running:
    """Start a program, as :class:`WarmProcess` does. ``prefix``: a program that starts it, which needs a new Python."""
    if not prefix:
        return WarmProcess(arguments, variables, errors)
    with errors.open("a") as complaints:  # not a pipe: no thread reads it, and a full pipe would block the process
        return subprocess.Popen(
            [*prefix, sys.executable, *arguments],
            env=environment(variables), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints, text=True,
        )  # fmt: skip


class WarmProcess:
    """A running program. ``arguments``: ``-m`` and a module, or a script, and those of the program. ``variables``:
    additional environment variables. Its streams are pipes; what it writes to stderr is added to the file ``errors``,
    if there is one. The methods are as those of :class:`subprocess.Popen`.
    """

    def __init__(self, arguments: Sequence[str], variables: Mapping[str, str], errors: Path | None = None) -> None:
        ours, its = [], []
        for number in range(2 if errors is not None else 3):
            read, write = _context.Pipe(duplex=False)
            its.append(read if number == 0 else write)
            ours.append(write if number == 0 else read)
        given = list(arguments), environment(variables), its, errors
        self._process = _context.Process(target=_run, args=given, daemon=True)
        with patch.dict(os.environ, environment()):  # the first start also starts the fork server, which imports
            self._process.start()
        Finalize(self, _end, (self._process,), exitpriority=0)  # one that a failed test has stopped would not end
        for pipe in its:
            pipe.close()
        self._lock = threading.Lock()
        streams = [_stream(pipe, "w" if number == 0 else "r") for number, pipe in enumerate(ours)]
        self.stdin: IO[str] | None = streams[0]
        self.stdout: IO[str] | None = streams[1]
        self.stderr: IO[str] | None = streams[2] if errors is None else None

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def poll(self) -> int | None:
        with self._lock:  # the end is reported once, to the first that asks
            return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        if not wait([self._process.sentinel], timeout):
            raise subprocess.TimeoutExpired(str(self._process), timeout or 0.0)
        status = self.poll()
        assert status is not None
        return status

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, *, timeout: float | None = None) -> tuple[str, str]:
        """Close its input, and wait for its end. Returns the rest of its output and of its errors."""
        deadline = None if timeout is None else time.monotonic() + timeout
        rest = [_Rest(each) for each in (self.stdout, self.stderr)]
        if self.stdin is not None:
            try:
                self.stdin.close()
            except BrokenPipeError:
                pass  # it has ended
        for each in rest:
            if not each.read(deadline):
                raise subprocess.TimeoutExpired(str(self._process), timeout or 0.0)
        self.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return rest[0].text, rest[1].text


def _end(process: "ForkServerProcess") -> None:
    if process.is_alive():
        process.kill()


class _Rest:
    """The rest of a stream, read on a thread: a process that writes to two must not wait for one of them."""

    def __init__(self, stream: IO[str] | None) -> None:
        self.text = ""
        self._stream = stream
        self._thread = threading.Thread(target=self._read, daemon=True)
        if stream is not None and not stream.closed:
            self._thread.start()

    def _read(self) -> None:
        assert self._stream is not None
        self.text = self._stream.read()
        self._stream.close()

    def read(self, deadline: float | None) -> bool:
        """Whether all of it has come."""
        if self._thread.ident is not None:
            self._thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return not self._thread.is_alive()


def _stream(pipe: "Connection[object, object]", mode: str) -> IO[str]:
    made: IO[str] = os.fdopen(os.dup(pipe.fileno()), mode)
    pipe.close()
    return made


def _run(
    arguments: list[str],
    variables: dict[str, str],
    streams: "list[Connection[object, object]]",
    errors: Path | None,
) -> None:
    """Be the program: runs in the new process."""
    for number, pipe in enumerate(streams):
        os.dup2(pipe.fileno(), number)
        pipe.close()
    if errors is not None:
        file = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, 2)
        os.close(file)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, closefd=False)  # noqa: SIM115 - for as long as the process runs
        for number, mode in ((0, "r"), (1, "w"), (2, "w"))
    )
    os.environ.clear()
    os.environ.update(variables)
    armed.update(parse(variables.get(VARIABLE, "")))  # they were read at the import
    faulthandler.enable()
    multiprocessing.set_start_method(None, force=True)  # the default, for the program's own children
    multiprocessing.current_process().daemon = False  # it may have some
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).parent))
        runpy.run_path(arguments[0], run_name="__main__")
