"""Runs of pytest in one folder, each in a forked copy of a process that has already imported the libraries."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue

from _children import Child
from _patience import HURRY
from _processes import alive, kill_tree, poll

from _mutants.warm_pytest import Request

GRACE = 30.0
"""Seconds after SIGTERM in which pytest stops its private servers; then all its processes are killed."""
START = 120.0
"""Maximum number of seconds until the libraries are imported and the run has started."""
PROGRAM = Path(__file__).with_name("warm_pytest.py")


class RunnerError(Exception):
    """The process that runs pytest has ended."""


class Runner:
    """Runs pytest in ``folder``, one run at a time. ``output``: a file for the output of a run.

    :meth:`run` belongs to one thread. :meth:`end` may be called by another thread meanwhile; it ends the run.
    """

    def __init__(self, folder: Path, output: Path, variables: Mapping[str, str]) -> None:
        self._output = output
        self._answers: SimpleQueue[bytes | None] = SimpleQueue()
        self._running: int | None = None
        # -P: the folder of the program is not for imports. The libraries' bytecode may be written.
        self._process = Child(
            "pytest", [sys.executable, "-P", str(PROGRAM)], on_line=self._answers.put, whole_session=True,
            variables={**variables, "PYTHONDONTWRITEBYTECODE": ""}, stdin=subprocess.PIPE, cwd=folder,
        )  # fmt: skip

    def run(self, arguments: Sequence[str], timeout: float, planted: bool) -> tuple[int | None, str]:
        """The exit status of pytest, or None when it did not end within ``timeout`` seconds, and its output.

        ``planted``: a mutant is planted. Then no bytecode is written, and tests wait a shorter time for an event.
        Raises RunnerError.
        """
        # A new file, because a process that a mutant left behind may still write to the previous one.
        self._output.unlink(missing_ok=True)
        only_planted = "1" if planted else ""
        request: Request = {
            "arguments": list(arguments), "output": str(self._output),
            "variables": {"PYTHONDONTWRITEBYTECODE": only_planted, HURRY: only_planted},
        }  # fmt: skip
        self._process.write(json.dumps(request).encode())
        self._running = self._answer(START)
        if self._running is None:
            raise RunnerError(f"pytest did not start within {START:.0f} s")
        status = self._answer(timeout)
        if status is None:
            self._end_run(self._running)
            self._answer(GRACE)
        self._running = None
        return status, self._output.read_text(encoding="utf-8", errors="replace")

    def end(self) -> None:
        """End the run and all processes. Idempotent."""
        if self._running is not None:
            self._end_run(self._running)
        self._process.end()

    def _answer(self, timeout: float) -> int | None:
        """The next number that the process writes; None when there is none in time."""
        try:
            line = self._answers.get(timeout=timeout)
        except Empty:
            return None
        if line is None:
            raise RunnerError("the process that runs pytest has ended")
        return int(line)

    def _end_run(self, pid: int) -> None:
        """Send SIGTERM, so that servers are stopped; then kill the remaining processes."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        if not poll(lambda: not alive(pid), GRACE):
            kill_tree(pid)
