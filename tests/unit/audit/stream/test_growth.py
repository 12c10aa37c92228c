"""Only growth delays a file: neither that it is touched, nor that the same content is written again."""

import os
from pathlib import Path

import pytest

from pubsub_lib.audit.stream.growth import Growth
from pubsub_lib.journal.entries import Entry, beginning, frame
from tests.unit.journal.builders import HEADER

FIRST, SECOND = (frame(Entry(number, 2, 3, "mark")) for number in (1, 2))


class Watch:
    """A growth with a patience of 60 s, and a file that it looks at; the clock is ``now``."""

    def __init__(self, root: Path, name: str = "r-000001.journal") -> None:
        self.root, self.path, self.now, self.times = root, root / name, 0.0, 0
        self.start()

    def start(self) -> None:
        self.growth = Growth(self.root / "memory", 60.0, lambda: self.now)

    def quiet(self, content: bytes) -> bool:
        """Whether the file is quiet after it was written with this content."""
        self.times += 1
        self.path.write_bytes(content)
        os.utime(self.path, (1e9 + self.times, 1e9 + self.times))
        return self.growth.is_quiet(self.growth.look(self.path, self.path.stat()))


@pytest.mark.parametrize("name", ["r-000001.journal", "r-000001.parquet"])
def test_file_with_the_same_content_is_quiet_after_the_patience(name: str, tmp_path: Path) -> None:
    watch = Watch(tmp_path, name)
    content = beginning(HEADER) + FIRST
    for watch.now in (0.0, 30.0, 59.0):
        assert not watch.quiet(content)
    watch.now = 61.0
    assert not watch.quiet(content[:-3]), "it is being written again"
    assert watch.quiet(content)
    assert not watch.quiet(content + SECOND), "it grew"
    watch.now = 121.0
    assert watch.quiet(content + SECOND)


def test_file_of_a_constant_size_grows_with_its_records(tmp_path: Path) -> None:
    """A program may reserve the whole size first."""
    watch = Watch(tmp_path)
    begin = beginning(HEADER)
    size = len(begin + FIRST + SECOND)
    for watch.now, content in ((0.0, begin), (40.0, begin + FIRST), (80.0, begin + FIRST + SECOND)):
        assert not watch.quiet(content.ljust(size, b"\0"))
    watch.now = 140.0
    assert watch.quiet(begin + FIRST + SECOND)


def test_file_that_shrank_is_quiet_when_it_is_not_changed_any_more(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    assert not watch.quiet(beginning(HEADER) + FIRST)
    watch.now = 10.0
    assert not watch.quiet(b"nonsense")
    for watch.now, quiet in ((69.0, False), (70.0, True)):
        assert watch.growth.is_quiet(watch.growth.look(watch.path, watch.path.stat())) == quiet


def test_next_follower_knows_since_when_a_file_does_not_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(tmp_path)
    content = beginning(HEADER) + FIRST
    walls = [1e9]
    monkeypatch.setattr("time.time", lambda: walls[-1])
    assert not watch.quiet(content)
    watch.growth.save()
    (kept,) = (path for path in tmp_path.iterdir() if path != watch.path)
    for later, quiet in ((59, False), (60, True)):
        walls.append(1e9 + later)
        watch.now = 5.0  # the clock of another start of the machine
        watch.start()
        assert watch.quiet(content) == quiet
        before = kept.stat()
        watch.growth.save()
        assert kept.stat() == before, "nothing new"
    watch.growth.keep_only(tmp_path, ())
    watch.growth.save()
    assert kept.read_bytes() == b"{}"


def test_damaged_memory_only_costs_the_patience_again(tmp_path: Path) -> None:
    (tmp_path / "memory").write_bytes(b'{"')
    assert not Watch(tmp_path).quiet(beginning(HEADER))
