"""What a follower has renamed is on the disk: the content before the rename, the name after it."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pubsub_lib.audit import durable


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The syncs and renames, in order, by paths relative to the test's folder."""
    found: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def name(path: Path) -> str:
        return str(path.relative_to(tmp_path))

    def synced(fd: int) -> None:
        found.append(f"sync {name(Path(f'/proc/self/fd/{fd}').readlink())}")
        fsync(fd)

    def renamed(self: Path, target: Path) -> Path:
        found.append(f"rename {name(self)} {name(target)}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    return found


def test_file_is_synced_before_its_rename_and_its_folder_after_it(tmp_path: Path, steps: list[str]) -> None:
    (tmp_path / "a").write_bytes(b"old")
    durable.write_whole(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert steps == ["sync .a.new", "rename .a.new a", "sync ."]


def test_folder_is_synced_with_all_that_is_in_it(tmp_path: Path, steps: list[str]) -> None:
    (tmp_path / "whole" / "delivery").mkdir(parents=True)
    (tmp_path / "whole" / "delivery" / "part").touch()
    (tmp_path / "windows").mkdir()
    durable.rename(tmp_path / "whole", tmp_path / "windows" / "w")
    assert set(steps[:3]) == {"sync whole", "sync whole/delivery", "sync whole/delivery/part"}
    assert steps[3:] == ["rename whole windows/w", "sync windows"]


def test_new_folder_is_synced_in_its_parent(tmp_path: Path, steps: list[str]) -> None:
    durable.make(tmp_path / "out" / "windows")
    durable.make(tmp_path / "out" / "windows")
    assert (tmp_path / "out" / "windows").is_dir()
    assert steps == ["sync .", "sync out"]


def test_file_that_cannot_be_synced_replaces_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", failing(OSError(errno.EIO, os.strerror(errno.EIO))))
    with pytest.raises(OSError, match="Input/output"):
        durable.write_whole(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"


def failing(error: OSError) -> Callable[[int], None]:
    def fail(_: int) -> None:
        raise error

    return fail
