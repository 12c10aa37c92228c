"""The examples of the docs run unchanged: their own tests, the programs together, INI and unit file. Each example is
shorter than the limit in docs/examples/README.md.
"""

import configparser
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

import pytest
from _processes import free_port

from pubsub_lib import Settings

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
NAMES = ("controller", "inventory")
PATIENCE = 60.0  # seconds; a line ends the wait at once


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "drivers")])}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of both examples in one folder, as a user would try them."""
    for name in NAMES:
        shutil.copytree(EXAMPLES / name, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_example_is_shorter_than_its_documented_limit(name: str) -> None:
    page = (EXAMPLES / "README.md").read_text()
    found = re.search(r"^Each has fewer than (\d+) lines:$", page, re.MULTILINE)
    assert found is not None
    assert f"- [{name}/](" in page
    promised = int(found[1])
    assert len((EXAMPLES / name / f"{name}.py").read_text().splitlines()) < promised <= 100


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_an_examples_own_tests_pass(name: str, folder: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", f"test_{name}.py"]
    done = subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


class Program:
    """A running example, with its output by lines."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *arguments], cwd=folder, env=environment(),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._reader = Thread(target=self._read)
        self._reader.start()

    def send_line(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def next_line(self) -> str:
        try:
            return self._lines.get(timeout=PATIENCE)
        except Empty:
            raise AssertionError(f"{self._process.args!r} printed no further line in {PATIENCE} s") from None

    def end(self, number: signal.Signals | None = None) -> int:
        """End the program by a signal or by the end of its input; return its exit code."""
        if number is not None:
            self._process.send_signal(number)
        assert self._process.stdin is not None
        self._process.stdin.close()
        status = self._process.wait(PATIENCE)
        self._reader.join()
        return status

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))


class Stage:
    """The folder where the examples run, with a free port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[Program] = []
        port = free_port()
        for name in NAMES:
            config = folder / f"{name}.conf"
            config.write_text(config.read_text().replace("8866", str(port)))

    def run(self, *arguments: str) -> Program:
        self._running.append(Program(list(arguments), self._folder))
        return self._running[-1]

    def close(self) -> None:
        for program in self._running:
            program.close()


@pytest.fixture
def stage(folder: Path) -> Iterator[Stage]:
    made = Stage(folder)
    yield made
    made.close()


def command_of_the_unit() -> list[str]:
    """Return the arguments of the unit file's command, with the files of this folder, for this Python."""
    unit = configparser.ConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(EXAMPLES / "controller" / "controller.service")
    assert unit["Service"]["RestartPreventExitStatus"] == "2"
    env, python, *arguments = shlex.split(unit["Service"]["ExecStart"])
    assert (env, python) == ("/usr/bin/env", "python3")
    return [Path(each).name if each.startswith("/") else each for each in arguments]


def test_inventory_and_controller_work_together(stage: Stage) -> None:
    inventory = stage.run("inventory.py", "--config-file", "inventory.conf")
    for line in ("port p1 s1 3", "port p2 s1 3", "route 10.0.0.0/24 p1"):
        inventory.send_line(line)
    assert inventory.next_line().startswith("inventory: 'port p2 s1 3': ")
    inventory.send_line("done")
    assert inventory.next_line() == "inventory: 'done': no such command"  # so the route is committed

    controller = stage.run(*command_of_the_unit())
    assert controller.next_line() == "s1: 10.0.0.0/24 -> 3"
    inventory.send_line("port p1 s1 4")
    assert controller.next_line() == "s1: 10.0.0.0/24 -> 4"
    assert controller.end(signal.SIGTERM) == 0

    for line in ("remove 10.0.0.0/24", "route 10.1.0.0/16 p1"):
        inventory.send_line(line)
    assert inventory.end() == 0
    controller = stage.run(*command_of_the_unit())  # the inventory has ended: the controller reads the missed changes
    assert controller.next_line() == "s1: 10.1.0.0/16 -> 4"
    assert controller.end(signal.SIGINT) == 0


def test_controller_waits_for_blocked_signals() -> None:
    """A handler may run too late for the wait that follows it, or meet a lock of its own thread."""
    code = (EXAMPLES / "controller" / "controller.py").read_text()
    assert "signal.sigwait(ends)" in code
    assert "signal.signal(" not in code


def test_controller_exits_with_2_and_one_sentence_for_an_invalid_configuration(stage: Stage, folder: Path) -> None:
    (folder / "controller.conf").write_text("[pubsub]\nstore_url = sqlite:///net.db\ntopcis = tenant-1\n")
    controller = stage.run(*command_of_the_unit())
    assert controller.end() == 2
    assert "sets an unknown option 'topcis' in group [pubsub]; did you mean 'topics'?" in controller.next_line()


@pytest.mark.parametrize("name", NAMES)
def test_example_configuration_is_valid(name: str) -> None:
    settings = Settings.from_file(EXAMPLES / name / f"{name}.conf")
    assert settings.driver == "zmq_pubsub_driver"
