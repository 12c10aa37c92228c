"""Try mutants: each is applied to a private copy of the tree, and its tests run there."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from functools import partial
from importlib.util import cache_from_source
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import msgspec
from _children import Children
from _scale import SCALE_VARIABLE
from _servers import PrivateMariaDB, PrivatePostgres, PrivateServer, mariadb_binaries, port_variable, postgres_binaries

from _mutants.runner import Runner, RunnerError
from _mutants.table import NOT_QUICK, Mutant
from pubsub_lib.errors import ConfigError, PubSubError

TIMEOUT = 300.0
"""Maximum number of seconds for the tests of one mutant. Far above the longest tests, so that it only ends hangs."""
LEFT_OUT = (".*", "*.egg-info", "build", "dist", "_build")
OPTIONS = ("-x", "-q", "-m", " and ".join(f"not {each}" for each in NOT_QUICK), "-p", "no:cacheprovider")
TESTS_FAILED = 1
SERVERS: Mapping[str, tuple[Callable[[], object], type[PrivateServer]]] = {
    "postgresql": (postgres_binaries, PrivatePostgres),
    "mariadb": (mariadb_binaries, PrivateMariaDB),
}
"""Marker → the search for the server's programs, and the server."""
Pair = tuple[str, Mutant]
"""An area and one of its mutants."""


class TrialError(Exception):
    """Mutants cannot be tried; one sentence for the user."""


class Verdict(StrEnum):
    """The result of a mutant."""

    CAUGHT = "caught"
    SURVIVED = "survived"
    HUNG = "hung"
    """The tests did not end within ``TIMEOUT``. They must fail by themselves."""
    DOES_NOT_APPLY = "does not apply"
    NOT_RUN = "not run"
    """Every test was skipped, or pytest failed: the result is unknown."""


class Trial(msgspec.Struct, frozen=True):
    """One mutant and its result."""

    area: str
    name: str
    outcome: Verdict
    seconds: float
    by: str = ""
    """The test that caught it, or the reason why it is not caught."""


class Copy:
    """A private copy of the tree, to which one mutant at a time is applied."""

    def __init__(self, root: Path, to: Path) -> None:
        self.root = to
        shutil.copytree(root, to, ignore=shutil.ignore_patterns(*LEFT_OUT))

    @contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        """The copy with the error during the block. Raises ValueError if the mutant does not apply."""
        path = self.root / mutant.path
        if not path.is_file():
            raise ValueError(f"{mutant.name}: there is no file {mutant.path}")
        source = path.read_text(encoding="utf-8")
        changed = mutant.applied(source)
        # Python would use a stale .pyc with the same second and size instead of the changed source.
        Path(cache_from_source(str(path))).unlink(missing_ok=True)
        path.write_text(changed, encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(source, encoding="utf-8")

    def runner(self, servers: Sequence[PrivateServer]) -> Runner:
        """A process that runs pytest in the copy; all imports of the project come from the copy."""
        folders = [self.root, self.root / "drivers", self.root / "tools"]
        variables = {
            "CI": "true",  # the same examples in every run, and a missing server is a failure of the first run
            SCALE_VARIABLE: "1",  # a mutant must be caught by what every run has, also below tools/test --all
            "PYTHONPATH": os.pathsep.join(map(str, folders)),
            "XDG_CACHE_HOME": str(self.root / ".cache"),
            **{port_variable(each): str(each.port) for each in servers},
        }
        return Runner(self.root, self.root.with_suffix(".output"), variables)


class Bench(NamedTuple):
    """A copy, and the process that runs pytest in it."""

    copy: Copy
    runner: Runner


class Laboratory:
    """``jobs`` copies of the tree, and the runs of pytest in them. All runs are ended at the end of the block.

    ``servers`` run already: the tests take these and start none. Each test has its own database there. A run ends with
    all its processes, and with them the connections and locks that a mutant left.
    """

    def __init__(self, root: Path, jobs: int, timeout: float = TIMEOUT, servers: Sequence[PrivateServer] = ()) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="pubsub-mutants-")
        self._timeout = timeout
        self._jobs = jobs
        self._runners = Children()
        self._benches: SimpleQueue[Bench] = SimpleQueue()
        self._ended = False
        copies = [Copy(root, Path(self._folder.name) / "0")]
        for number in range(1, jobs):  # copies of the first copy, so that edits meanwhile do not matter
            copies.append(Copy(copies[0].root, Path(self._folder.name) / str(number)))
        try:
            for copy in copies:
                self._benches.put(Bench(copy, self._runners.add(partial(copy.runner, servers))))
        except BaseException:
            self._stop()
            raise

    def __enter__(self) -> "Laboratory":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._folder.cleanup()

    def _stop(self) -> None:
        self._ended = True
        self._runners.__exit__()

    def check(self, tests: Sequence[str]) -> None:
        """Check that the tests pass without a mutant. Raises TrialError with pytest's output when they do not."""
        bench = self._benches.get()
        try:
            status, output = self._run(bench.runner, tests, planted=False)
        finally:
            self._benches.put(bench)
        if status != 0:
            how = "took too long" if status is None else "did not pass"
            raise TrialError(f"{output}\nthe tests {how} without any mutant, so mutants cannot be judged")

    def tried(self, mutants: Sequence[Pair], done: Callable[[Trial], None]) -> list[Trial]:
        """Try mutants; ``done`` is called at the end of each, on one of the threads."""

        def one(area: str, mutant: Mutant) -> Trial:
            trial = self._try(area, mutant)
            done(trial)
            return trial

        with ThreadPoolExecutor(self._jobs) as pool:
            try:
                return list(pool.map(one, *zip(*mutants, strict=True))) if mutants else []
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self._stop()
                raise

    def _try(self, area: str, mutant: Mutant) -> Trial:
        bench, started = self._benches.get(), time.monotonic()
        try:
            with bench.copy.planted(mutant):
                status, output = self._run(bench.runner, mutant.tests, planted=True)
            outcome, by = judged(status, output)
        except ValueError as error:
            outcome, by = Verdict.DOES_NOT_APPLY, str(error)
        finally:
            self._benches.put(bench)
        return Trial(area, mutant.name, outcome, round(time.monotonic() - started, 1), by)

    def _run(self, runner: Runner, tests: Sequence[str], planted: bool) -> tuple[int | None, str]:
        """The exit status of pytest, or None when it did not end in time, and its output. Bytecode is written only
        without a mutant, so that the runs that follow need not compile again.
        """
        try:
            return runner.run([*OPTIONS, *tests], self._timeout, planted)
        except RunnerError as error:
            raise TrialError("interrupted" if self._ended else str(error)) from None


def tried(root: Path, pairs: Sequence[Pair], jobs: int, done: Callable[[Trial], None]) -> list[Trial]:
    """Check that the tests pass, then try every mutant whose server is installed. Raises TrialError."""
    missing = missing_servers()
    trials = [
        Trial(area, mutant.name, Verdict.NOT_RUN, 0.0, missing[mutant.marker])
        for area, mutant in pairs
        if mutant.marker in missing
    ]
    for trial in trials:
        done(trial)
    there = [(area, mutant) for area, mutant in pairs if mutant.marker not in missing]
    if there:
        with ExitStack() as stack:
            servers = _started({mutant.marker for _, mutant in there}, stack)
            laboratory = stack.enter_context(Laboratory(root, min(jobs, len(there)), servers=servers))
            laboratory.check(tests_of(there))
            trials += laboratory.tried(there, done)
    return trials


def tests_of(pairs: Sequence[Pair]) -> list[str]:
    """The tests of all these mutants, each once."""
    return list(dict.fromkeys(test for _, mutant in pairs for test in mutant.tests))


def _started(markers: Collection[str], stack: ExitStack) -> list[PrivateServer]:
    """The servers that these mutants need; they are stopped with the stack. Raises TrialError."""
    try:
        return [stack.enter_context(server()) for marker, (_, server) in SERVERS.items() if marker in markers]
    except PubSubError as error:
        raise TrialError(str(error)) from error


def missing_servers() -> dict[str, str]:
    """Marker → the reason why its server cannot be started."""
    missing = {}
    for marker, (probe, _) in SERVERS.items():
        try:
            probe()
        except ConfigError as error:
            missing[marker] = str(error)
    return missing


def judged(status: int | None, output: str) -> tuple[Verdict, str]:
    """The result of a mutant, by pytest's exit status and output."""
    if status is None:
        return Verdict.HUNG, "its tests did not end; they must fail by themselves"
    if status == TESTS_FAILED:
        summary = output.rpartition("short test summary info")[2]  # a log before it may contain such lines
        failed = [line for line in summary.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        return Verdict.CAUGHT, failed[0].split(" - ")[0].split(" ", 1)[1] if failed else ""
    last = output.strip().splitlines()[-1:] or [""]
    if status == 0 and " passed" in last[0]:
        return Verdict.SURVIVED, last[0]
    return Verdict.NOT_RUN, last[0]
