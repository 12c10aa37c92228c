"""A missing part is lost after the patience, also for followers that run for one round at a time."""

import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib.audit.ingest.run_ends import run_and_part
from pubsub_lib.audit.stream.missing_parts import MissingParts, ranges


@given(st.sets(st.integers(0, 30)))
def test_ranges_cover_the_numbers_and_do_not_touch(numbers: set[int]) -> None:
    found = ranges(numbers)
    assert [each for first, last in found for each in range(first, last + 1)] == sorted(numbers)
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(found))


class Watch:
    """Missing parts with a patience of 60 s; the clock is ``now``."""

    def __init__(self, root: Path) -> None:
        self.root, self.now = root, 0.0
        self.problems: list[str] = []
        self.start()

    def start(self) -> None:
        """A new follower, whose clock begins again."""
        self.parts = MissingParts(self.root / "memory", 60.0, lambda: self.now)

    def pass_by(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        """Let this time pass between two followers."""
        later = time.time() + seconds
        monkeypatch.setattr("pubsub_lib.audit.stream.missing_parts.time.time", lambda: later)
        self.start()

    def overdue(self, *stems: str, opened: int = 0) -> set[tuple[str, int]]:
        there = map(run_and_part, stems)
        found = self.parts.overdue("d", there, {"r": {opened}} if opened else {}, set(), self.problems)
        self.parts.save()
        return found


def test_next_follower_goes_on_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(tmp_path)
    assert watch.overdue("r-000002") == set()
    watch.pass_by(monkeypatch, 30)
    assert watch.overdue("r-000002") == set()
    watch.pass_by(monkeypatch, 31)
    assert watch.overdue("r-000002") == {("r", 1)}
    assert watch.problems == ["part 1 of the run r is missing; its records count as lost"]


def test_part_that_came_is_waited_for_again(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    assert watch.overdue("r-000002") == set()
    watch.now = 61.0
    assert watch.overdue("r-000001", "r-000002") == set()
    assert watch.overdue("r-000002") == set()


def test_part_before_one_that_is_being_written_is_missing(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    assert watch.overdue("r-000001", opened=3) == set()
    watch.now = 60.0
    assert watch.overdue("r-000001", opened=3) == {("r", 2)}


def test_times_of_other_domains_are_kept(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    watch.overdue("r-000002")
    assert watch.parts.overdue("e", [("s", 1)], {}, set(), []) == set()
    watch.now = 60.0
    assert watch.overdue("r-000002") == {("r", 1)}
