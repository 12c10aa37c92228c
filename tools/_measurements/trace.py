"""Traces one ``set`` from its transaction to a replica's handler: ``tools/bench trace [-f json] [--count N]``.

A writer with a publisher and a replica run in one process, over SQLite and ``zmq_pubsub_driver``. After some warm-up
transactions each thread's calls of the library's and the drivers' functions are counted (``threading.setprofile``). A
move is a call that follows a call in another file on the same thread. Of ``--count`` traces the one with the median
number of calls is printed, so that a hello or a timer between two steps does not count.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import msgspec
from _bench.measure import BenchError
from _children import ROOT
from _command_line import Parser, positive
from _processes import free_port

from _measurements.command import Finding, Findings
from pubsub_lib import Publisher, Replica, Settings, Store, Timing

OURS: Final = (f"{ROOT}/pubsub_lib/", f"{ROOT}/drivers/")
WARM_UP: Final = 20
PATIENCE: Final = 60.0
SETTLE: Final = 0.2
"""Seconds for the threads to end their steps: a wait of the replica's would be recorded too."""


class Step(msgspec.Struct, frozen=True):
    """Calls that follow one another in one file, on one thread."""

    file: str
    functions: tuple[str, ...]


class Trace(msgspec.Struct, frozen=True):
    """One ``set``. ``threads``: the steps of each thread, named by the file of its first call."""

    threads: Sequence[Sequence[Step]]

    @property
    def calls(self) -> int:
        """Calls of functions of the library and its drivers."""
        return sum(len(step.functions) for steps in self.threads for step in steps)

    @property
    def files(self) -> int:
        """Files with at least one call."""
        return len({step.file for steps in self.threads for step in steps})

    @property
    def functions(self) -> int:
        """Different functions that were called."""
        return len({(step.file, name) for steps in self.threads for step in steps for name in step.functions})

    @property
    def moves(self) -> int:
        """Calls that follow a call in another file on the same thread."""
        return sum(len(steps) - 1 for steps in self.threads)


class Recorder:
    """Records calls of every thread that starts after it was installed, and of the thread that installs it."""

    def __init__(self) -> None:
        self._calls: dict[int, list[CodeType]] = {}
        self._on = False
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if self._on and event == "call" and frame.f_code.co_filename.startswith(OURS):
            self._calls.setdefault(threading.get_ident(), []).append(frame.f_code)

    def begin(self) -> None:
        """Forget all calls and record the ones that follow."""
        self._calls = {}
        self._on = True

    def remove(self) -> None:
        """Let threads that start from here on run unrecorded."""
        threading.setprofile(None)
        sys.setprofile(None)

    def end(self) -> Trace:
        """Stop recording."""
        self._on = False
        threads = []
        for codes in list(self._calls.values()):
            steps = [
                Step(file, tuple(code.co_name for code in group))
                for file, group in groupby(codes, key=lambda code: str(Path(code.co_filename).relative_to(ROOT)))
            ]
            threads.append(steps)
        return Trace(threads)


def traces(count: int) -> list[Trace]:
    """Trace one ``set`` as many times."""
    recorder = Recorder()
    handled = threading.Semaphore(0)
    found: list[Trace] = []
    with tempfile.TemporaryDirectory(prefix="pubsub-") as folder, ExitStack() as stack:
        address = f"tcp://127.0.0.1:{free_port()}"
        settings = Settings(
            store_url=f"sqlite:///{folder}/trace.db",
            driver="zmq_pubsub_driver",
            service_name="api-1",
            addresses=(address,),
            bind_address=address,
            discovery_interval=0.0,
            timing=Timing(max_idle_time=60.0),
        )
        store = stack.enter_context(Store(settings))
        stack.enter_context(Publisher(settings, store))
        replica = stack.enter_context(Replica(settings, topics=["t"]))
        replica.on("lport", lambda change: handled.release())
        replica.wait_synced(PATIENCE)
        for number in range(WARM_UP + count):
            if number >= WARM_UP:
                recorder.begin()
            with store.transaction() as tx:
                tx.set("lport", "p1", {"number": number}, topic="t")
            replica_has_it = handled.acquire(timeout=PATIENCE)
            if not replica_has_it:
                raise BenchError(f"transaction {number} was not handled within {PATIENCE:g} s")
            assert tx.commit is not None
            replica.wait_handled(tx.commit, PATIENCE) if number < WARM_UP else time.sleep(SETTLE)
            if number >= WARM_UP:
                found.append(recorder.end())
        recorder.remove()
    return found


def table(trace: Trace) -> str:
    """The trace as a Markdown table: one row for each step."""
    lines = ["| thread | file | functions |", "|---|---|---|"]
    for number, steps in enumerate(trace.threads, 1):
        for step in steps:
            functions = [
                f"{name} × {len(group)}" if len(group := list(same)) > 1 else name
                for name, same in groupby(step.functions)
            ]
            lines.append(f"| {number} | `{step.file}` | {', '.join(functions)} |")
    lines.append("")
    lines.append(
        f"{trace.calls} calls of {trace.functions} functions in {trace.files} files on {len(trace.threads)} threads, "
        f"{trace.moves} moves between files."
    )
    return "\n".join(lines)


def options(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("--count", type=positive, default=15, metavar="N", help="traces to choose from (%(default)s)")


def measure(options: argparse.Namespace) -> Findings:
    """The trace with the median number of calls."""
    found = sorted(traces(options.count), key=lambda trace: (trace.calls, trace.moves))
    chosen = found[len(found) // 2]
    figures = {name: getattr(chosen, name) for name in ("calls", "functions", "files", "moves")}
    yield Finding("set", table(chosen), {**figures, "threads": chosen.threads})
