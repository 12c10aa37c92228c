"""Append files on a real disk, also a full one."""

import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pubsub_lib.journal.appending import AppendFile, being_written, claim
from tests.unit.journal.builders import files_that_end_at


@pytest.fixture
def limited() -> Iterator[int]:
    with files_that_end_at(1000):
        yield 1000


def test_failed_append_leaves_no_part_of_a_frame(tmp_path: Path, limited: int) -> None:
    file = AppendFile(tmp_path / "f", b"begin")
    file.append(b"x" * 900)
    with pytest.raises(OSError, match="File too large"):
        file.append(b"y" * 200)
    assert (tmp_path / "f").read_bytes() == b"begin" + b"x" * 900
    file.append(b"z")
    assert file.size == 906 == (tmp_path / "f").stat().st_size
    file.close()


def test_file_without_header_is_removed(tmp_path: Path, limited: int) -> None:
    with pytest.raises(OSError, match="File too large"):
        AppendFile(tmp_path / "f", b"x" * (limited + 1))
    assert list(tmp_path.iterdir()) == []


def test_interrupted_append_leaves_no_half_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(fd: int, parts: tuple[bytes, ...]) -> int:
        os.write(fd, b"".join(parts)[:2])
        raise KeyboardInterrupt

    file = AppendFile(tmp_path / "f", b"begin")
    with monkeypatch.context() as patched:
        patched.setattr(os, "writev", half)
        with pytest.raises(KeyboardInterrupt):
            file.append(b"lost")
    file.append(b"next")
    file.close()
    assert (tmp_path / "f").read_bytes() == b"beginnext"


def test_file_removed_before_its_lock_is_created_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, lock, before = tmp_path / "f", fcntl.flock, ["renamed", "removed"]

    def late(fd: int, how: int) -> None:
        if before:
            if before.pop() == "renamed":
                path.rename(tmp_path / "f.unreadable")
            else:
                path.unlink()
        lock(fd, how)

    monkeypatch.setattr(fcntl, "flock", late)
    file = AppendFile(path, b"begin")
    file.append(b"next")
    file.close()
    assert path.read_bytes() == b"beginnext"
    assert (tmp_path / "f.unreadable").read_bytes() == b""


def test_replaced_file_is_not_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, lock = tmp_path / "f", fcntl.flock
    path.touch()

    def late(fd: int, how: int) -> None:
        lock(fd, how)
        path.rename(tmp_path / "old")
        path.touch()

    monkeypatch.setattr(fcntl, "flock", late)
    assert claim(path) is None


def test_file_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    AppendFile(tmp_path / "f", b"").close()
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o600


def test_file_is_locked_until_it_is_closed(tmp_path: Path) -> None:
    file = AppendFile(tmp_path / "f", b"")
    assert claim(tmp_path / "f") is None
    file.close()
    file.close()
    fd = claim(tmp_path / "f")
    assert fd is not None
    assert claim(tmp_path / "f") is None  # one writer at a time
    os.close(fd)


def test_missing_file_is_not_claimed(tmp_path: Path) -> None:
    assert claim(tmp_path / "f") is None


def test_file_is_being_written_until_its_writer_closes_it(tmp_path: Path) -> None:
    file = AppendFile(tmp_path / "a.journal", b"begin")
    assert being_written(file.path)
    file.close()
    assert not being_written(file.path)
    file.path.unlink()
    with pytest.raises(FileNotFoundError):
        being_written(file.path)


def test_file_system_without_locks_has_no_known_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.journal").touch()

    def refused(_fd: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    assert not being_written(tmp_path / "a.journal")
