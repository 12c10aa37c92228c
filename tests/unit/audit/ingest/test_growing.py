"""The end of a locked file: half a record of its writer is no problem, missing records are one."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from pubsub_lib.audit.ingest import growing
from pubsub_lib.audit.ingest.input import Input, gather
from pubsub_lib.journal.appending import claim
from pubsub_lib.journal.compaction import compact
from pubsub_lib.journal.entries import MAGIC
from pubsub_lib.journal.writer import Journal
from tests.unit.journal.builders import envelope, settings


class Growing:
    """A journal that is being written. ``pauses``: what happens in each pause between two looks."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._scratch = root / "journals", root / "scratch"
        self.journal = Journal(settings(self.folder), "replica", "r")
        self.write()
        (self.path,) = self.folder.iterdir()
        self.pauses: list[Callable[[], object]] = []
        monkeypatch.setattr(growing, "sleep", lambda _: self.pauses.pop(0)() if self.pauses else None)

    def write(self) -> None:
        self.journal.messages(("applied",), envelope(7, 8))

    def damage_length(self, by: int = 1 << 18) -> None:
        """Change the length of the second record, so that it ends beyond the end of the file."""
        data = self.path.read_bytes()
        at = len(MAGIC)
        for _ in range(2):
            at += 8 + int.from_bytes(data[at : at + 4], "little")
        length = int.from_bytes(data[at : at + 4], "little") + by
        with self.path.open("r+b") as file:
            file.seek(at)
            file.write(length.to_bytes(4, "little"))

    def gather(self) -> Input:
        return gather({"": [self.folder]}, self._scratch)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Growing:
    return Growing(tmp_path, monkeypatch)


def test_damaged_length_is_named_although_the_writer_goes_on(place: Growing) -> None:
    """The writer appends records behind it; each look finds more bytes, and no further record."""
    place.damage_length()
    place.pauses += [place.write] * 20
    found = place.gather()
    (problem,) = found.problems
    assert problem.startswith(f"{place.path} was damaged after it was written: 1 whole record was read, and the last ")
    assert found.torn == {"": [(place.journal.run, 1)]}
    assert len(place.pauses) > 10, "a few looks are enough"


def test_damaged_length_is_named_while_the_writer_is_idle(place: Growing) -> None:
    place.damage_length()
    (problem,) = place.gather().problems
    assert problem.startswith(f"{place.path} ends in the middle of a record: 1 whole record was read, and the last ")


def test_damaged_length_that_the_file_has_passed_is_named(place: Growing) -> None:
    """At the next look the record ends inside the file, and its checksum is wrong."""
    place.damage_length(by=8)
    place.pauses += [place.write]
    (problem,) = place.gather().problems
    assert problem.startswith(f"{place.path} was damaged after it was written: 1 whole record was read, and the last ")


def test_impossible_length_is_named_at_the_first_look(place: Growing) -> None:
    place.damage_length(by=1 << 31)
    place.pauses += [place.write]
    (problem,) = place.gather().problems
    assert "was damaged after it was written" in problem
    assert len(place.pauses) == 1, "no second look was needed"


def test_torn_file_that_a_conversion_has_claimed_is_torn(place: Growing) -> None:
    """The successor of a killed process holds the lock while it converts the file."""
    place.journal.close()
    place.path.write_bytes(place.path.read_bytes()[:-2])
    held = claim(place.path)
    assert held is not None
    try:
        found = place.gather()
    finally:
        os.close(held)
    (problem,) = found.problems
    assert problem.startswith(f"{place.path} ends in the middle of a record: 3 whole records were read, and the last ")
    assert found.torn == {"": [(place.journal.run, 3)]}


def test_torn_file_that_is_converted_between_two_looks_is_torn(place: Growing) -> None:
    place.journal.close()
    place.path.write_bytes(place.path.read_bytes()[:-2])
    held = claim(place.path)
    assert held is not None

    def convert() -> None:
        os.close(held)
        compact(place.folder)

    place.pauses += [convert]
    (problem,) = place.gather().problems
    assert problem.startswith(f"{place.path} ends in the middle of a record: 3 whole records were read")


@pytest.mark.parametrize("looks", [1, 2, 4])
def test_record_that_is_completed_between_two_looks_is_no_problem(place: Growing, looks: int) -> None:
    """A large record takes several looks; the file grows with each."""
    content = place.path.read_bytes()
    place.path.write_bytes(content[:-20])
    for look in range(1, looks + 1):
        upto = len(content) - 20 + 20 * look // looks
        place.pauses.append(partial(place.path.write_bytes, content[:upto]))
    found = place.gather()
    assert found.problems == []
    assert found.torn == {}
    assert place.pauses == []


def test_record_that_its_writer_takes_back_is_no_problem(place: Growing) -> None:
    """The disk was full in the middle of the write, and the file was truncated to whole records."""
    whole = place.path.stat().st_size
    with place.path.open("ab") as file:
        file.write(place.path.read_bytes()[len(MAGIC) :][:9])
    place.pauses += [lambda: os.truncate(place.path, whole)]
    assert place.gather().problems == []


def test_file_that_ends_with_a_whole_record_is_looked_at_once(place: Growing) -> None:
    place.pauses += [place.write]
    assert place.gather().problems == []
    assert len(place.pauses) == 1
