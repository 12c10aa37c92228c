"""Run every check of the project one after another, and print a summary: ``_checks.py [--all | PYTEST ARGUMENT ...]``.

``tools/test`` calls it in the environment that it set up. All checks run even when one fails, so that one run reports
all failures. The last line is pytest's closing line. Without arguments the tests that are not marked ``long`` run in
parallel, with ``--all`` these too, and four times as many generated cases. With other arguments pytest runs the tests
that they select, in one process (so that a debugger works) unless ``-n`` is among them.
"""

import contextlib
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import NamedTuple, NoReturn

from _axe import script_path
from _scale import SCALE_VARIABLE
from _scratch import keep_failed, temporary_files
from _servers import mariadb_binaries, postgres_binaries

from pubsub_lib.audit.spark.java import java_home
from pubsub_lib.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
EVERYTHING = "--all"
MORE_CASES = "4"
"""How many times more generated cases run with ``--all`` and ``-m long``."""


class Result(NamedTuple):
    """The result of one check."""

    name: str
    status: int
    seconds: float
    closing: str


def ensure(probe: Callable[[], object], command: Sequence[str], note: str) -> str:
    """Install a program if it is not found. Returns "" or a sentence that names the missing program."""
    try:
        probe()
        return ""
    except ConfigError:
        print(f"{note} …", flush=True)
    # The installer's output only matters when the program is still missing afterwards.
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    importlib.invalidate_caches()  # a wheel that this process did not see at its start
    try:
        probe()
        return ""
    except ConfigError as error:
        output = " ".join((done.stderr or done.stdout).strip().splitlines()[-1:])
        return f"{error} (the installation failed: {output or 'no output'}); tests that need it are not run."


def ensure_servers() -> list[str]:
    """Private servers, tmux, shells, Java, a browser and its checker. Returns a sentence per missing one."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "pgserver"]
    axe = [sys.executable, str(ROOT / "tools" / "_axe.py")]
    missing = [
        ensure(postgres_binaries, pip, "No PostgreSQL found; installing the wheel pgserver"),
        # The core packages contain the programs without a system service, so that no service is started.
        ensure_package(mariadb_binaries, "MariaDB", "mariadb-server-core mariadb-client-core"),
        ensure_package(tmux, "tmux", "tmux"),
        ensure_package(shells, "zsh or fish", "zsh fish"),
        ensure_package(java_home, "Java", "default-jre-headless"),
        ensure_package(chromium, "Chromium", "chromium chromium-driver"),
        ensure(script_path, axe, "No axe-core found; getting its package from the npm registry"),
    ]
    return [each for each in missing if each]


def ensure_package(probe: Callable[[], object], what: str, packages: str) -> str:
    """As ``ensure``, for a program of a system package, which only root may install."""
    if os.geteuid() == 0 and shutil.which("apt-get"):
        apt = f"apt-get update -q && apt-get install -qy --no-install-recommends {packages}"
        return ensure(probe, ["sh", "-c", apt], f"No {what} found; installing {packages}")
    return ensure(probe, ["sh", "-c", "echo only root may install it with apt-get >&2; exit 1"], f"No {what} found")


def tmux() -> str:
    """The terminal in which tests drive screens. Raises ConfigError."""
    found = shutil.which("tmux")
    if found is None:
        raise ConfigError("no tmux found; install the package tmux")
    return found


def shells() -> str:
    """The shells for which ``pubsub-db complete`` has scripts, besides bash. Raises ConfigError."""
    missing = [shell for shell in ("zsh", "fish") if shutil.which(shell) is None]
    if missing:
        raise ConfigError(f"no {' and no '.join(missing)} found; install the packages {' and '.join(missing)}")
    return "zsh fish"


def chromium() -> str:
    """The browser that opens pages, with its driver. Raises ConfigError."""
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            raise ConfigError(f"no {program} found; install the packages chromium and chromium-driver")
    return "chromium"


def check(name: str, command: Sequence[str], environment: Mapping[str, str]) -> Result:
    """Run one check and print its output; ``closing`` is the last line of the output."""
    print(f"\n== {name}", flush=True)
    started = time.monotonic()
    closing = ""
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            for line in running.stdout:
                print(line, end="", flush=True)
                closing = line.rstrip() or closing
        except KeyboardInterrupt:
            print(running.stdout.read())  # the check was also interrupted, and stops its servers now
            raise
    return Result(name, running.returncode, time.monotonic() - started, closing)


def side_by_side() -> list[str]:
    """Two processes per processor, because many tests wait; an idle process takes tests from a busy one."""
    return ["-n", str(2 * len(os.sched_getaffinity(0))), "--dist", "worksteal"]


END_HANGING = ("-o", "faulthandler_exit_on_timeout=true")
"""A test that hangs is failed by its name: its process ends after ``faulthandler_timeout``, another one runs the rest.
Not with the long tests, of which some take longer."""


def selection(arguments: Sequence[str]) -> list[str]:
    """The arguments of pytest for those of ``tools/test``."""
    if arguments and arguments[0] == EVERYTHING:
        return [*side_by_side(), *arguments[1:]]
    return list(arguments) or [*side_by_side(), *END_HANGING, "-m", "not long"]


def compiling(environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """A process that imports all tests, and so writes their bytecode, while the checks before them use one processor.

    Otherwise each of the parallel test processes compiles the project. An error is reported by pytest's own run.
    """
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q"]
    nothing = subprocess.DEVNULL
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdin=nothing, stdout=nothing, stderr=nothing)


def main(pytest_arguments: Sequence[str]) -> int:
    """Exit status 0 when every check passed, else 1."""
    missing = ensure_servers()
    everything = bool(pytest_arguments) and pytest_arguments[0] == EVERYTHING
    with tempfile.TemporaryDirectory(prefix="pubsub-cache-") as cache, temporary_files() as in_memory:
        # A cache for each run: stevedore may otherwise list the drivers of an earlier installation.
        # "": where Python may write no bytecode, each of the many processes would compile the project again.
        caches = {"XDG_CACHE_HOME": cache, "PUBSUB_TEST_CACHE": cache}
        environment = {**os.environ, **in_memory, **caches, "PYTHONDONTWRITEBYTECODE": ""}
        if everything or "long" in pytest_arguments:
            environment.setdefault(SCALE_VARIABLE, MORE_CASES)
        commands: dict[str, list[str]] = {
            "ruff": [str(BIN / "ruff"), "check", "."],
            "mypy": [str(BIN / "mypy")],
            "import contracts": [str(BIN / "lint-imports")],
        }
        with ExitStack() as stack:
            if not pytest_arguments or everything:
                stack.enter_context(compiling(environment))
            results = [check(name, command, environment) for name, command in commands.items()]
        tests = [sys.executable, "-m", "pytest", *selection(pytest_arguments)]
        results.append(check("pytest", tests, environment))
        kept = keep_failed(Path(in_memory["TMPDIR"])) if in_memory and results[-1].status != 0 else None
    print("\n== summary")
    for sentence in missing:
        print(sentence)
    if kept is not None:
        print(f"The files of the failed tests are in {kept}.")
    for each in results:
        print(f"{each.name:18}{'passed' if each.status == 0 else 'FAILED':8}{each.seconds:7.1f} s")
    print(results[-1].closing, flush=True)
    return int(any(each.status != 0 for each in results))


def terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    """End like after Ctrl-C: otherwise the temporary files of the tests would stay in memory. Unlike Ctrl-C, SIGTERM
    does not reach the child processes by itself.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    own = os.getpid()
    for child in Path(f"/proc/{own}/task/{own}/children").read_text(encoding="ascii").split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGTERM)
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, terminate)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("interrupted")
