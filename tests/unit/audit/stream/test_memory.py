"""Followers remember what they saw, also of files whose names are not text."""

import os
from pathlib import Path

import pytest

from pubsub_lib.audit.stream.memory import recall, remember


def test_names_of_any_bytes_are_remembered(tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    content = {os.fsdecode(b"/j/\xff-000001.journal"): ((3, 4), 5.5), "/j/ä": ((0, -1), 1.0)}
    remember(path, content)
    assert recall(path, dict[str, tuple[tuple[int, int], float]]) == content


@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff", b"[1]"])
def test_missing_or_damaged_file_has_nothing(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "memory.json"
    if content is not None:
        path.write_bytes(content)
    assert recall(path, dict[str, int]) is None
