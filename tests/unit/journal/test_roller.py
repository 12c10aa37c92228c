"""Finished files of ended processes are converted, and retention applied, by the next process that opens a journal."""

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pubsub_lib.journal import Journal, JournalSettings
from pubsub_lib.journal.reading import find, read
from pubsub_lib.journal.roller import LOG_NAME, Roller
from tests.unit.journal.builders import files_that_end_at, settings

ROLL = 300.0
PATIENCE = 60.0
SHORT = """
import sys
from pubsub_lib.journal import Journal, JournalSettings
from tests.unit.journal.builders import envelope
journal = Journal(JournalSettings(sys.argv[1], mark_seconds=3600.0, keep_bytes=int(sys.argv[2])), "writer", "cron")
for position in range(7, 107):
    journal.messages(("sent",), envelope(position))
print(journal.run, flush=True)
sys.stdin.read()
"""


def short_process(folder: Path, keep_bytes: int = 1 << 30, until: Callable[[], bool] = lambda: True) -> str:
    """Run a process with a journal for a moment, and at least until this is so; returns its run."""
    command = [sys.executable, "-c", SHORT, str(folder), str(keep_bytes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        run = process.stdout.readline().strip()
        end = time.monotonic() + PATIENCE
        while not until():
            assert time.monotonic() < end
            time.sleep(0.01)
    assert process.returncode == 0
    return run


def age(path: Path, seconds: float) -> Path:
    at = time.time() - seconds
    os.utime(path, (at, at))
    return path


def test_files_of_short_processes_are_converted_by_later_ones(tmp_path: Path) -> None:
    runs = [short_process(tmp_path) for _ in range(3)]
    for run in runs:
        age(tmp_path / f"{run}-000001.journal", ROLL + 60)
    last = short_process(tmp_path, until=(tmp_path / f"{max(runs)}-000001.parquet").exists)
    found = find([tmp_path])
    assert {path.name.partition("-")[0] for path in found.parquet} == set(runs)
    assert [path.name for path in found.append] == [f"{last}-000001.journal"]
    for path in found.parquet:
        assert [row.kind for row in read(path)] == ["open", *["data"] * 100, "close"]


@pytest.mark.long
def test_retention_holds_across_short_processes(tmp_path: Path) -> None:
    runs = [short_process(tmp_path) for _ in range(7)]
    for number, run in enumerate(runs):
        age(tmp_path / f"{run}-000001.journal", 86_400 - 60 * number)
    size = 3 * (tmp_path / f"{runs[0]}-000001.journal").stat().st_size
    live = Journal(settings(tmp_path), "replica", "r")
    of_live = age(tmp_path / f"{live.run}-000001.journal", 2 * 86_400)
    log = tmp_path / LOG_NAME
    last = short_process(tmp_path, size, until=lambda: log.exists() and log.stat().st_size > 0)
    with log.open() as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)  # the compaction has ended
    assert of_live.exists(), "it is being written"
    kept = [*tmp_path.glob("*.parquet"), *tmp_path.glob("*.journal")]
    assert sum(path.stat().st_size for path in kept if path != of_live) <= size
    assert any(path.name.startswith(last) for path in kept), "newer than the others"
    live.close()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """The descriptor for messages of each compaction that was started."""
    found: list[int | None] = []

    class Process:
        def __init__(self, command: list[str], stderr: int | None, **_: object) -> None:
            assert command[1:3] == ["-m", "pubsub_lib.journal.compaction"]
            found.append(stderr)

        def poll(self) -> int:
            return 0

    monkeypatch.setattr(subprocess, "Popen", Process)
    return found


def roller(folder: Path, *, to_parquet: bool = True) -> Roller:
    complaints: list[str] = []
    return Roller(JournalSettings(str(folder), to_parquet=to_parquet), complaints.append)


def left(folder: Path, seconds: float = ROLL + 60) -> Path:
    journal = Journal(settings(folder), "writer", "cron")
    journal.close()
    return age(folder / f"{journal.run}-000001.journal", seconds)


def test_compaction_is_started_only_for_files_that_ended_processes_have_left(
    tmp_path: Path, started: list[int | None]
) -> None:
    roller(tmp_path / "missing").start_for_left_files()
    left(tmp_path, ROLL - 60)
    live = Journal(settings(tmp_path), "replica", "r")
    age(tmp_path / f"{live.run}-000001.journal", 2 * ROLL)
    (tmp_path / "gone.journal").symlink_to("nowhere")
    roller(tmp_path).start_for_left_files()
    assert started == []
    left(tmp_path)
    roller(tmp_path, to_parquet=False).start_for_left_files()
    assert started == []
    roller(tmp_path).start_for_left_files()
    assert len(started) == 1
    live.close()


def test_processes_of_a_folder_start_one_compaction_in_roll_seconds(
    tmp_path: Path, started: list[int | None]
) -> None:
    left(tmp_path)
    for _ in range(3):
        roller(tmp_path).start_for_left_files()
    assert len(started) == 1
    log = age(tmp_path / LOG_NAME, ROLL + 60)
    roller(tmp_path).start_for_left_files()
    assert len(started) == 2
    assert log.read_text() == f"started by process {os.getpid()}\n"
    age(log, -ROLL)  # by a clock that was ahead
    roller(tmp_path).start_for_left_files()
    assert len(started) == 3


def test_compaction_that_runs_is_not_started_again_for_an_hour(tmp_path: Path, started: list[int | None]) -> None:
    left(tmp_path)
    log = tmp_path / LOG_NAME
    with log.open("w") as running:
        fcntl.flock(running, fcntl.LOCK_EX)
        roller(tmp_path).start_for_left_files()
        assert started == [], "another process is about to start it"
        running.write("started")
        running.flush()
        age(log, 3000.0)
        roller(tmp_path).start_for_left_files()
        assert started == []
        age(log, 4000.0)
        roller(tmp_path).start_for_left_files()
        assert len(started) == 1, "a forked process has kept the lock"


def test_compaction_is_started_when_its_log_cannot_be_written(
    tmp_path: Path, started: list[int | None]
) -> None:
    left(tmp_path)
    (tmp_path / LOG_NAME).mkdir()
    roller(tmp_path).start_for_left_files()
    assert started == [subprocess.DEVNULL]
    with files_that_end_at(0):
        (tmp_path / LOG_NAME).rmdir()
        for _ in range(3):
            roller(tmp_path).start_for_left_files()
    assert len(started) == 2, "one for the folder, although its disk is full"


def test_log_of_another_user_is_replaced_by_the_owner_of_the_folder(
    tmp_path: Path, started: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    left(tmp_path)
    log = tmp_path / LOG_NAME
    log.write_text("started by root\n")
    real = os.open

    def refused(path: Path, flags: int, mode: int = 0o777) -> int:
        if path == log and log.exists() and not flags & os.O_EXCL and log.read_text() == "started by root\n":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", refused)
    for _ in range(3):
        roller(tmp_path).start_for_left_files()
    assert len(started) == 1
    assert log.read_text() == f"started by process {os.getpid()}\n"


def test_messages_of_a_compaction_for_others_are_in_its_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "a.journal"
    bad.write_bytes(b"nonsense")
    age(bad, ROLL + 60)
    one = roller(tmp_path)
    one.start_for_left_files()
    assert one.process is not None
    assert one.process.wait(PATIENCE) == 0
    first, second = (tmp_path / LOG_NAME).read_text().splitlines()
    assert first == f"started by process {os.getpid()}"
    assert "a.journal is not a journal" in second
    assert bad.with_suffix(".unreadable").exists()
    assert capfd.readouterr() == ("", ""), "who waits for the end of a short process's output must not wait for it"


def test_running_compaction_is_not_started_again(tmp_path: Path, started: list[int | None]) -> None:
    one = roller(tmp_path)
    one.start()
    one.start()
    assert started == [None, None]
    assert one.started > 0
    assert one.process is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one.process, "poll", lambda: None)
        one.start()
        left(tmp_path)
        one.start_for_left_files()
    roller(tmp_path, to_parquet=False).start()
    assert started == [None, None]


def test_compaction_that_cannot_be_started_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    complaints: list[str] = []
    one = Roller(JournalSettings(str(tmp_path)), complaints.append)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    one.start()
    assert "journals are not converted to Parquet: " in caplog.text
    assert "No such file or directory" in caplog.text
    monkeypatch.setattr(sys, "executable", "")
    one.start()
    assert [each.partition(":")[0] for each in complaints] == ["journals are not converted to Parquet"]
    assert one.process is None
