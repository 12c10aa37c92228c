"""A part of a run without a record that could be read makes the end of the run unknown."""

from pathlib import Path

import pytest

from pubsub_lib.audit.ingest.input import gather
from pubsub_lib.audit.ingest.run_ends import ReadPart, ends_before, run_and_part
from pubsub_lib.journal.compaction import compact
from pubsub_lib.journal.entries import MAGIC
from pubsub_lib.journal.writer import Journal
from tests.unit.journal.builders import envelope, settings


@pytest.mark.parametrize(
    ("stem", "expected"), [("r-000012", ("r", 12)), ("r-a-000001", ("r-a", 1)), ("r", ("r", 0)), ("r-12", ("r-12", 0))]
)
def test_run_and_part_are_in_the_name(stem: str, expected: tuple[str, int]) -> None:
    assert run_and_part(stem) == expected


def test_end_is_the_last_record_before_the_part() -> None:
    read = [ReadPart("a", 1, 7), ReadPart("a", 2, 9), ReadPart("a", 4, 20), ReadPart("b", 1, 3), ReadPart("c", 0, 5)]
    assert ends_before([("a", 3), ("c", 2), ("d", 1), ("b", 1)], read) == [("a", 9), ("c", 5)]
    assert ends_before([("a", 5), ("a", 6)], read) == [("a", 20)]


def parts(folder: Path) -> tuple[str, Path]:
    """A run with two parts, and the second one's path."""
    one = Journal(settings(folder, roll_bytes=1), "replica", "r")
    one.messages(("applied",), envelope(7, 8))
    one._run().maintain()  # 4 records, then the next part begins
    one.messages(("applied",), envelope(9))
    one.close()
    _, second = sorted(folder.iterdir())
    return one.run, second


def header_of(content: bytes) -> bytes:
    """The begin of a file up to its first record."""
    begin = len(MAGIC)
    return content[: begin + 8 + int.from_bytes(content[begin : begin + 4], "little")]


@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize("rest", [b"half", bytes(100)])
def test_torn_file_without_a_record_ends_the_part_before(tmp_path: Path, rolled: bool, rest: bytes) -> None:
    folder = tmp_path / "journals"
    run, second = parts(folder)
    second.write_bytes(header_of(second.read_bytes()) + rest)
    if rolled:
        compact(folder)
        second = second.with_suffix(".parquet")
    found = gather({"d": [folder]}, tmp_path / "scratch")
    (problem,) = found.problems
    assert problem.startswith(f"{second} ")
    assert "0 whole records were read" in problem
    assert found.torn == {"d": [(run, 4)]}


@pytest.mark.parametrize("suffix", [".journal", ".parquet", ".unreadable"])
def test_file_that_cannot_be_read_ends_the_part_before(tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "journals"
    run, second = parts(folder)
    second.unlink()
    second.with_suffix(suffix).write_bytes(b"nonsense")
    found = gather({"d": [folder]}, tmp_path / "scratch")
    assert len(found.problems) == 1
    assert found.torn == {"d": [(run, 4)]}


def test_file_that_another_folder_has_whole_ends_nothing(tmp_path: Path) -> None:
    folder, other = tmp_path / "journals", tmp_path / "other"
    _, second = parts(folder)
    other.mkdir()
    (other / second.name).write_bytes(b"nonsense")
    found = gather({"d": [folder, other]}, tmp_path / "scratch")
    assert len(found.problems) == 1
    assert found.torn == {}


def test_run_of_which_no_record_was_read_is_only_named(tmp_path: Path) -> None:
    folder = tmp_path / "journals"
    _, second = parts(folder)
    second.with_name(second.name.replace("2.", "1.")).write_bytes(b"nonsense")
    second.unlink()
    found = gather({"d": [folder]}, tmp_path / "scratch")
    assert len(found.problems) == 2
    assert found.torn == {}
