"""Runs of pytest in forked copies of a process that has imported the libraries."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from _children import Children
from _mutants.runner import Runner, RunnerError
from _processes import alive, poll

LONG = 120.0
CONFTEST = """
import signal


def pytest_configure():
    signal.signal(signal.SIGTERM, signal.default_int_handler)
"""
TESTS = """
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest


def test_imports():
    assert "hypothesis" in sys.modules
    assert not {"pubsub_lib", "tests", "_mutants", "_children"} & set(sys.modules)
    assert threading.active_count() == 1


def test_directory():
    assert Path.cwd() == Path(__file__).parent


def test_planted():
    assert os.environ["PUBSUB_TEST_HURRY"] == os.environ["PYTHONDONTWRITEBYTECODE"] == "1"
    assert sys.dont_write_bytecode


def test_not_planted():
    assert os.environ["PUBSUB_TEST_HURRY"] == os.environ["PYTHONDONTWRITEBYTECODE"] == ""
    assert not sys.dont_write_bytecode


def test_leaves_a_process():
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path("left").write_text(str(left.pid))
    left.returncode = 0  # no warning that it still runs


def test_kills_itself():
    os.kill(os.getpid(), signal.SIGKILL)


def test_hangs_until_a_signal():
    try:
        Path("hangs").write_text(str(os.getpid()))
        threading.Event().wait()
    finally:
        Path("cleaned").touch()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    (made / "conftest.py").write_text(CONFTEST)
    (made / "test_it.py").write_text(TESTS)
    return made


@pytest.fixture
def start(folder: Path, tmp_path: Path) -> Iterator[Callable[..., Runner]]:
    def started(**variables: str) -> Runner:
        return children.add(lambda: Runner(folder, tmp_path / "output", variables))

    with Children() as children:
        yield started


def test_runner_returns_the_status_and_the_output_of_each_run(start: Callable[..., Runner], folder: Path) -> None:
    runner = start()
    status, output = runner.run(["test_it.py::test_imports", "test_it.py::test_directory"], LONG, planted=True)
    assert (status, output.splitlines()[-1].split(" in ")[0].strip("= ")) == (0, "2 passed")
    (folder / "test_it.py").write_text("def test_changed():\n    assert 1 == 2\n")
    status, output = runner.run(["-q", "test_it.py"], LONG, planted=True)
    assert status == 1
    assert "assert 1 == 2" in output
    assert "2 passed" not in output


@pytest.mark.long
def test_only_runs_with_a_mutant_hurry_and_write_no_bytecode(start: Callable[..., Runner]) -> None:
    runner = start()
    for planted, test in ((True, "test_planted"), (False, "test_not_planted"), (True, "test_planted")):
        status, output = runner.run([f"test_it.py::{test}"], LONG, planted=planted)
        assert status == 0, output


@pytest.mark.long
def test_runner_ends_processes_that_a_run_left_and_reports_a_killed_run(
    start: Callable[..., Runner], folder: Path
) -> None:
    runner = start()
    assert runner.run(["test_it.py::test_leaves_a_process"], LONG, planted=True)[0] == 0
    assert poll(lambda: not alive(int((folder / "left").read_text())), LONG)
    assert runner.run(["test_it.py::test_kills_itself"], LONG, planted=True)[0] == -signal.SIGKILL
    assert runner.run(["test_it.py::test_directory"], LONG, planted=True)[0] == 0


@pytest.mark.long
def test_end_of_the_runner_lets_a_run_clean_up(start: Callable[..., Runner], folder: Path) -> None:
    runner = start()
    failed: list[RunnerError] = []

    def run() -> None:
        try:
            runner.run(["test_it.py::test_hangs_until_a_signal"], LONG, planted=True)
        except RunnerError as error:
            failed.append(error)

    running = threading.Thread(target=run)
    running.start()
    assert poll(lambda: (folder / "hangs").exists() and (folder / "hangs").read_text() != "", LONG)
    runner.end()
    running.join(LONG)
    assert not running.is_alive()
    assert not alive(int((folder / "hangs").read_text()))
    assert (folder / "cleaned").exists()


def test_runner_reports_that_its_process_ended(start: Callable[..., Runner], folder: Path) -> None:
    runner = start()
    assert runner.run(["test_it.py::test_directory"], LONG, planted=True)[0] == 0
    os.kill(runner._process.pid, signal.SIGKILL)
    with pytest.raises(RunnerError, match="has ended"):
        runner.run(["test_it.py::test_directory"], LONG, planted=True)


def test_libraries_that_start_threads_are_an_error(
    start: Callable[..., Runner], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "libraries").mkdir()
    (tmp_path / "libraries" / "alembic.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    runner = start(PYTHONPATH=str(tmp_path / "libraries"))
    with pytest.raises(RunnerError, match="has ended"):
        runner.run(["test_it.py::test_directory"], LONG, planted=True)
    assert "2 threads run after the imports" in capfd.readouterr().err
