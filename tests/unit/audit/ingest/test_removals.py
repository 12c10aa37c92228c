"""Files that a journal's maintenance converts, sets aside or removes while an audit reads the folder."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pubsub_lib.audit.ingest import input as journals
from pubsub_lib.audit.ingest.input import Input, gather
from pubsub_lib.audit.ingest.removals import without_damaged, without_removed
from pubsub_lib.audit.ingest.source_file import SourceFile, source_file
from pubsub_lib.journal.compaction import compact
from pubsub_lib.journal.writer import Journal
from tests.unit.audit.ingest.test_input import journal
from tests.unit.journal.builders import envelope, settings


def run_of_three_parts(folder: Path) -> list[Path]:
    """The files of one run that has ended."""
    one = Journal(settings(folder, roll_bytes=1), "replica", "r")
    for position in (7, 8):
        one.messages(("applied",), envelope(position))
        one._run().maintain()
    one.close()
    return sorted(folder.iterdir())


def rolled_run(folder: Path) -> list[Path]:
    """The same as Parquet."""
    run_of_three_parts(folder)
    compact(folder)
    return sorted(folder.iterdir())


def gathered_while(
    folder: Path, monkeypatch: pytest.MonkeyPatch, path: Path, change: Callable[[], object], *more: Path
) -> Input:
    """The input, with a change just before the file is read."""

    def changes(each: Path, scratch: Path) -> SourceFile | None:
        if each == path:
            change()
        return source_file(each, scratch)

    monkeypatch.setattr(journals, "source_file", changes)
    return gather({"": [folder, *more]}, folder.parent / "scratch")


@pytest.mark.parametrize("rolled", [True, False])
def test_file_that_retention_removes_before_it_is_read_counts_as_removed_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rolled: bool
) -> None:
    folder = tmp_path / "journals"
    first, *later = rolled_run(folder) if rolled else run_of_three_parts(folder)
    found = gathered_while(folder, monkeypatch, first, first.unlink)
    assert found.problems == []
    assert [path.stem for path in found.files[""]] == [path.stem for path in later]
    assert found.torn == {}


@pytest.mark.parametrize("rolled", [True, False])
def test_file_that_is_removed_after_a_kept_part_of_its_run_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rolled: bool
) -> None:
    """Retention removes the oldest files first, so something else has removed it."""
    folder = tmp_path / "journals"
    *_, last = rolled_run(folder) if rolled else run_of_three_parts(folder)
    found = gathered_while(folder, monkeypatch, last, last.unlink)
    assert found.problems == [f"{last} cannot be read (it was deleted); check which process deletes journal files"]
    assert [last for _, last in found.torn[""]] == [6], "the end of the run is missing"


def test_file_that_is_set_aside_before_it_is_read_is_missing_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "journals"
    journal(folder)
    (folder / "a.journal").write_bytes(b"nonsense")
    found = gathered_while(folder, monkeypatch, folder / "a.journal", lambda: compact(folder))
    aside = f"{folder}/a.unreadable was set aside: it has no readable records, and they are missing"
    assert found.problems == [aside]
    assert len(found.files[""]) == 1


def test_file_that_is_converted_while_the_folder_is_listed_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scan of a large folder may return neither the old nor the new name of a file that is renamed meanwhile."""
    folder = tmp_path / "journals"
    run = journal(folder)
    scan, scans = Path.iterdir, iter([True])

    def misses(place: Path) -> Iterator[Path]:
        names = list(scan(place))
        if place == folder and next(scans, False):
            compact(folder)
            names = []
        return iter(names)

    monkeypatch.setattr(Path, "iterdir", misses)
    found = gather({"": [folder]}, tmp_path / "scratch")
    assert [path.stem for path in found.files[""]] == [f"{run}-000001"]
    assert found.problems == []


def test_files_that_were_removed_after_their_check_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "journals"
    first, second, third = rolled_run(folder)
    found = gather({"": [folder]}, tmp_path / "scratch")
    assert without_removed(found) is None, "all are there"
    first.unlink()
    left = without_removed(found)
    assert left is not None
    assert (left.files[""], left.problems, left.torn) == ([second, third], [], {})
    third.unlink()
    left = without_removed(left)
    assert left is not None
    assert left.files[""] == [second]
    assert [last for _, last in left.torn[""]] == [6]
    assert left.problems == [f"{third} cannot be read (it was deleted); check which process deletes journal files"]
    size = second.stat().st_size
    assert found.size == size
    second.unlink()
    assert found.size == 0
    assert without_removed(left) is None, "nothing would be left"


def test_parts_in_another_folder_do_not_show_who_removed_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, copies = tmp_path / "journals", tmp_path / "copies"
    first, second, third = rolled_run(folder)
    shutil.copytree(folder, copies)
    first.unlink()
    found = gathered_while(folder, monkeypatch, second, second.unlink, copies)
    assert found.files[""] == [copies / first.name, copies / second.name, third]
    assert (found.problems, found.torn) == ([], {})
    (copies / second.name).unlink()
    found = gathered_while(folder, monkeypatch, third, third.unlink, copies)
    assert found.problems == [], "the copy of the first part is of another folder"


def test_removed_file_beside_one_that_was_damaged_meanwhile_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "journals"
    first, second, third = rolled_run(folder)
    found = gather({"": [folder]}, tmp_path / "scratch")
    first.unlink()
    second.write_bytes(second.read_bytes()[:200])
    left = without_removed(found)
    assert left is not None
    assert left.files[""] == [second, third]
    left = without_damaged(left)
    assert left is not None
    assert left.files[""] == [third]
    assert len(left.problems) == 1
    assert str(second) in left.problems[0]


def test_file_that_is_listed_by_both_names_is_set_aside_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "journals"
    journal(folder)
    (folder / "a.journal").write_bytes(b"nonsense")
    scan, scans = Path.iterdir, iter([True])

    def renames(place: Path) -> Iterator[Path]:
        names = list(scan(place))
        if place == folder and next(scans, False):
            compact(folder)
        return iter(names)

    monkeypatch.setattr(Path, "iterdir", renames)
    found = gather({"": [folder]}, tmp_path / "scratch")
    assert found.problems == [
        f"{folder}/a.unreadable was set aside: it has no readable records, and they are missing"
    ]
