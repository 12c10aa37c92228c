"""Testing whether a folder can be written does not change it, while other processes may use it."""

import errno
from pathlib import Path

import pytest

from pubsub_lib.service import writing
from pubsub_lib.service.writing import reason_of, try_making, try_writing


def tree(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*"))


def test_created_folders_are_removed_and_others_kept(tmp_path: Path) -> None:
    (tmp_path / "is" / "other").mkdir(parents=True)
    try_making(tmp_path / "is" / "a" / "b")
    try_making(tmp_path / "is")
    assert tree(tmp_path) == ["is", "is/other"]


def test_folders_created_before_a_failure_are_removed(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File name too long") as refused:
        try_making(tmp_path / "a" / "b" / ("n" * 300))
    assert refused.value.errno == errno.ENAMETOOLONG
    assert tree(tmp_path) == []


def test_folder_with_another_processs_file_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "try_writing", lambda folder: (folder / "theirs").touch())
    try_making(tmp_path / "a" / "b")
    assert tree(tmp_path) == ["a", "a/b", "a/b/theirs"]


def test_folder_removed_by_another_process_is_not_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "try_writing", lambda folder: folder.rmdir())
    try_making(tmp_path / "a" / "b")
    assert tree(tmp_path) == []


def test_dangling_link_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "missing")
    with pytest.raises(NotADirectoryError) as refused:
        try_making(tmp_path / "link" / "below")
    assert reason_of(refused.value) == f"Not a directory: '{tmp_path}/link'"
    assert tree(tmp_path) == ["link"]


def test_reason_names_the_folder_and_not_the_temporary_file() -> None:
    with pytest.raises(OSError, match="No such file") as refused:
        try_writing(Path("/proc"))
    assert reason_of(refused.value) == "No such file or directory: '/proc'"
    assert reason_of(OSError("no number")) == "no number"
