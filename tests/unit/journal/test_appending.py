"""Append files on a real disk, also a full one."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pubsub_lib.journal.appending import AppendFile, claim
from tests.unit.journal.builders import files_that_end_at


@pytest.fixture
def limited() -> Iterator[int]:
    with files_that_end_at(1000):
        yield 1000


def test_what_does_not_fit_leaves_nothing_of_itself(tmp_path: Path, limited: int) -> None:
    file = AppendFile(tmp_path / "f", b"begin")
    file.append(b"x" * 900)
    with pytest.raises(OSError, match="File too large"):
        file.append(b"y" * 200)
    assert (tmp_path / "f").read_bytes() == b"begin" + b"x" * 900
    file.append(b"z")
    assert file.size == 906 == (tmp_path / "f").stat().st_size
    file.close()


def test_a_file_that_cannot_begin_is_not_left_behind(tmp_path: Path, limited: int) -> None:
    with pytest.raises(OSError, match="File too large"):
        AppendFile(tmp_path / "f", b"x" * (limited + 1))
    assert list(tmp_path.iterdir()) == []


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    AppendFile(tmp_path / "f", b"").close()
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o600


def test_it_is_locked_until_it_is_closed(tmp_path: Path) -> None:
    file = AppendFile(tmp_path / "f", b"")
    assert claim(tmp_path / "f") is None
    file.close()
    file.close()
    fd = claim(tmp_path / "f")
    assert fd is not None
    assert claim(tmp_path / "f") is None  # one at a time
    os.close(fd)


def test_a_file_that_is_gone_cannot_be_claimed(tmp_path: Path) -> None:
    assert claim(tmp_path / "f") is None
