"""The temporary files of all tests are in memory only where they fit, and are removed at the end."""

import os
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import _scratch
import pytest


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder in place of the file system in memory, with room."""
    folder = tmp_path / "memory"
    folder.mkdir()
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(_scratch, "MEMORY", folder)
    monkeypatch.setattr(_scratch, "has_room", lambda asked: asked == folder)
    return folder


def test_temporary_files_are_in_memory_until_the_end(memory: Path) -> None:
    with _scratch.temporary_files() as variables:
        folder = Path(variables["TMPDIR"])
        assert folder.parent == memory
        assert stat.S_IMODE(folder.stat().st_mode) == 0o755, "private servers run as another user"
        (folder / "file").write_text("text")
    assert list(memory.iterdir()) == []


def test_interrupted_tests_leave_no_files_in_memory(memory: Path) -> None:
    with pytest.raises(KeyboardInterrupt), _scratch.temporary_files():
        raise KeyboardInterrupt
    assert list(memory.iterdir()) == []


def test_files_of_killed_tests_are_removed_by_the_next_ones(memory: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for name in (f"t{ended.pid}", f"t{os.getpid()}", "t1", "taken", "t5x"):
        (memory / name).mkdir()
        (memory / name / "file").write_text("text")
    with _scratch.temporary_files():
        assert {each.name for each in memory.iterdir()} == {f"t{os.getpid()}", "t1", "taken", "t5x"}
        assert list((memory / f"t{os.getpid()}").iterdir()) == []


def test_given_folder_is_used(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/somewhere")
    with _scratch.temporary_files() as variables:
        assert variables == {}


def test_too_little_memory_is_not_used(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_scratch, "has_room", lambda folder: False)
    with _scratch.temporary_files() as variables:
        assert variables == {}
    assert list(memory.iterdir()) == []


def test_room_is_that_of_the_folder_and_of_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_scratch, "FILES", 1)
    monkeypatch.setattr(_scratch, "PROGRAMS", 1)
    assert _scratch.has_room(tmp_path)
    assert not _scratch.has_room(tmp_path / "absent")
    monkeypatch.setattr(_scratch, "available_memory", lambda: 1)
    assert not _scratch.has_room(tmp_path)
    monkeypatch.setattr(_scratch, "available_memory", lambda: 2**61)
    assert _scratch.has_room(tmp_path)
    monkeypatch.setattr(_scratch, "FILES", 2**60)
    assert not _scratch.has_room(tmp_path)


def test_folder_whose_programs_cannot_be_run_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_NOEXEC | os.ST_NODEV))
    assert not _scratch.has_room(tmp_path)


def test_available_memory_is_read_in_bytes_and_limited_by_the_container(tmp_path: Path) -> None:
    table = tmp_path / "meminfo"
    assert _scratch.available_memory(table, tmp_path) == 0
    table.write_text("MemTotal:       24683656 kB\nMemFree:         20000000 kB\nMemAvailable:   22000000 kB\n")
    assert _scratch.available_memory(table, tmp_path) == 22_000_000 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    assert _scratch.available_memory(table, tmp_path) == 22_000_000 * 1024
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert _scratch.available_memory(table, tmp_path) == 4000
    assert _scratch.available_memory() > 0


def test_files_of_failed_tests_are_kept_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / "memory"
    (folder / "pytest-of-user" / "test_it0").mkdir(parents=True)
    assert _scratch.keep_failed(folder) is None
    (folder / "pytest-of-user" / "test_it0" / "service.log").write_text("why")
    (folder / "pytest-of-user" / "last").symlink_to(folder / "pytest-of-user" / "gone")
    monkeypatch.chdir(folder / "pytest-of-user")  # the path of a socket has at most 107 bytes
    with socket.socket(socket.AF_UNIX) as left:
        left.bind("socket")
    kept = _scratch.keep_failed(folder)
    assert kept is not None
    assert (kept / "pytest-of-user" / "test_it0" / "service.log").read_text() == "why"
    assert not (kept / "pytest-of-user" / "socket").exists()
