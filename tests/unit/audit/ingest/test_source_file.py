"""One file is read in either form, also while its writer or a conversion changes it."""

import fcntl
import os
from pathlib import Path

import pytest

from pubsub_lib.audit.ingest import source_file
from pubsub_lib.audit.ingest.input import gather
from pubsub_lib.core.model import Point, Record
from pubsub_lib.journal.compaction import compact, write_parquet
from pubsub_lib.journal.entries import beginning
from pubsub_lib.journal.writer import Journal
from tests.unit.journal.builders import HEADER, envelope, settings


def journal(folder: Path) -> str:
    one = Journal(settings(folder), "replica", "r")
    one.messages(("applied",), envelope(7, 8))
    one.listing(1, "t1", Point(8, 6), [Record("lport", "p1", 8, b"1")])
    one.close()
    return one.run


def test_facts_are_the_same_in_both_forms(tmp_path: Path) -> None:
    folder = tmp_path / "journals"
    run = journal(folder)
    (path,) = folder.iterdir()
    appended = source_file.source_file(path, tmp_path / "scratch")
    assert appended is not None
    assert appended.readable == tmp_path / "scratch" / f"{path.stem}.parquet"
    compact(folder)
    (rolled,) = folder.iterdir()
    converted = source_file.source_file(rolled, tmp_path / "scratch")
    assert converted is not None
    assert converted.readable == rolled
    for one in (appended, converted):
        assert (dict(one.ranges), one.first, one.records, one.torn) == ({run: (1, 6)}, (run, 1), 6, "")


def test_empty_file_was_just_created(tmp_path: Path) -> None:
    path = tmp_path / "r-000001.journal"
    path.touch()
    assert source_file.source_file(path, tmp_path / "scratch") is None


def test_old_empty_file_is_missing_evidence_behind_the_part_before(tmp_path: Path) -> None:
    folder = tmp_path / "journals"
    run = journal(folder)
    path = folder / f"{run}-000002.journal"
    path.touch()
    os.utime(path, (1.0, 1.0))
    found = gather({"": [folder]}, tmp_path / "scratch")
    assert found.problems == [f"{path} is empty, as after a power loss; its records count as lost"]
    assert found.torn == {"": [(run, 6)]}


@pytest.mark.parametrize("growing", [False, True])
def test_file_without_a_record_is_missing_evidence_unless_it_is_being_written(tmp_path: Path, growing: bool) -> None:
    folder = tmp_path / "journals"
    run = journal(folder)
    path = folder / f"{run}-000002.journal"
    path.write_bytes(beginning(HEADER))
    with path.open("rb") as file:
        if growing:
            fcntl.flock(file, fcntl.LOCK_EX)
        found = gather({"": [folder]}, tmp_path / "scratch")
    if growing:
        assert (found.problems, found.torn) == ([], {})
    else:
        assert found.problems == [f"{path} has no whole record, as after a full disk; its records count as lost"]
        assert found.torn == {"": [(run, 6)]}


def test_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "journals"
    run = journal(folder)
    (path,) = folder.iterdir()
    path.rename(folder / os.fsdecode(b"\xff-000001.journal"))
    found = gather({"": [folder]}, tmp_path / "scratch")
    assert run
    assert found.problems[0] == f"the name of {folder}/\\udcff-000001.journal is not UTF-8; rename it"


def test_deleted_file_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        source_file.source_file(tmp_path / "r-000001.journal", tmp_path / "scratch")


def test_file_that_a_compaction_has_claimed_is_not_taken_for_a_growing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "journals"
    journal(folder)
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes()[:-2])
    answers = [True, False, False]  # before it is read, after that, and before it is read again
    monkeypatch.setattr(source_file, "being_written", lambda _path: answers.pop(0))
    (problem,) = gather({"": [folder]}, tmp_path / "scratch").problems
    assert "ends in the middle of a record" in problem
    assert answers == []


def test_folder_that_changes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append file that is still empty is not reported; a file that is converted meanwhile is read as Parquet."""
    folder = tmp_path / "jour[1]nals"
    journal(folder)
    (folder / "just-begun.journal").touch()

    def rolled_before(source: Path, target: Path, **how: bool) -> None:
        compact(folder)
        write_parquet(source, target, **how)

    monkeypatch.setattr(source_file, "write_parquet", rolled_before)
    gathered = gather({"": [folder]}, tmp_path / "scratch")
    assert not gathered.problems
    assert [path.parent for path in gathered.files[""]] == [folder]
