"""The temporary files of all tests are in memory only where they fit, and are removed at the end."""

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import _scratch
import pytest


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder in place of the file system in memory, with room."""
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(_scratch, "MEMORY", tmp_path)
    monkeypatch.setattr(_scratch, "ROOM", 1)
    monkeypatch.setattr(_scratch, "has_room", lambda folder: folder == tmp_path)
    return tmp_path


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


def test_given_folder_is_used(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/somewhere")
    with _scratch.temporary_files() as variables:
        assert variables == {}


def test_too_little_memory_is_not_used(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_scratch, "has_room", lambda folder: False)
    with _scratch.temporary_files() as variables:
        assert variables == {}
    assert list(memory.iterdir()) == []


def test_room_is_the_less_of_folder_and_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _scratch.has_room(tmp_path, 1)
    assert not _scratch.has_room(tmp_path, 2**60)
    assert not _scratch.has_room(tmp_path / "absent", 1)
    monkeypatch.setattr(_scratch, "available_memory", lambda: 1000)
    assert _scratch.has_room(tmp_path, 1000)
    assert not _scratch.has_room(tmp_path, 1001)


def test_folder_whose_programs_cannot_be_run_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_NOEXEC | os.ST_NODEV))
    assert not _scratch.has_room(tmp_path, 1)


def test_available_memory_is_read_in_bytes(tmp_path: Path) -> None:
    table = tmp_path / "meminfo"
    assert _scratch.available_memory(table) == 0
    table.write_text("MemTotal:       24683656 kB\nMemFree:         20000000 kB\nMemAvailable:   22000000 kB\n")
    assert _scratch.available_memory(table) == 22_000_000 * 1024
    assert _scratch.available_memory() > 0
