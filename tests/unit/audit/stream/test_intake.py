"""The intake takes each complete file once. An unreadable file is reported once and does not stop the others."""

import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pubsub_lib.audit.ingest.run_ends import run_and_part
from pubsub_lib.audit.stream.intake import Intake, Look
from pubsub_lib.audit.stream.spool import folder_of, taken_of
from pubsub_lib.journal.compaction import compact, write_parquet
from pubsub_lib.journal.parquet_metadata import SCHEMA_KEY
from pubsub_lib.journal.writer import Journal
from tests.unit.journal.builders import envelope, files_that_end_at, settings
from tests.unit.journal.test_seal import unsealed


class Place:
    """A folder of journals and its intake; the clock is ``now``, which the test sets."""

    def __init__(self, root: Path) -> None:
        self.folder, self.spool, self.now = root / "journals", root / "spool", 0.0
        self.folder.mkdir(exist_ok=True)
        self.again()

    def again(self) -> None:
        """Start a new intake, whose clock goes on."""
        self.intake = Intake({"net 1/ä": [self.folder]}, self.spool, 60.0, lambda: self.now)

    def look(self) -> Look:
        return self.intake.look()

    def journal(self) -> Journal:
        one = Journal(settings(self.folder), "replica", "r")
        one.messages(("applied",), envelope(7, 8))
        return one

    def second_part_alone(self) -> str:
        """A run whose first part is missing; its id."""
        one = self.journal()
        one.close()
        compact(self.folder)
        (path,) = self.folder.iterdir()
        path.rename(self.folder / f"{one.run}-000002.parquet")
        return one.run

    def taken(self) -> list[str]:
        return sorted({taken_of(path.stem)[0] for path in (self.spool / folder_of("net 1/ä")).iterdir()})

    def numbers(self) -> list[int]:
        """The numbers of the records of all files in the spool."""
        files = (self.spool / folder_of("net 1/ä")).iterdir()
        return sorted(number for path in files for number in pq.read_table(path)["number"].to_pylist())


def old(path: Path) -> None:
    """Make a file one that no program is copying."""
    os.utime(path, (1.0, 1.0))


def live_journal(folder: Path) -> tuple[str, bytes, bytes]:
    """The name of an append file with five records, its bytes, and the bytes when it had three: it has no close."""
    one = Journal(settings(folder), "replica", "r")
    one.messages(("applied",), envelope(7, 8))
    (path,) = folder.iterdir()
    shorter = path.read_bytes()
    one.messages(("applied",), envelope(9, 10))
    longer = path.read_bytes()
    one.close()
    path.unlink()
    return path.stem, longer, shorter


def test_intake_waits_for_a_journal_that_is_being_written(tmp_path: Path) -> None:
    place = Place(tmp_path)
    one = place.journal()
    look = place.look()
    assert (look.arrived, place.taken(), look.problems) == (0, [], [])
    coming = look.coming["net 1/ä"][one.run]
    assert coming.open == {1}
    assert coming.begun is not None
    assert (coming.begun.side, coming.begun.name) == ("replica", "r")
    assert coming.begun.wall
    one.close()
    look = place.look()
    assert (look.arrived, place.taken(), look.coming["net 1/ä"]) == (1, [f"{one.run}-000001"], {})


def test_files_without_a_checksum_are_taken_and_named_once(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for _ in range(3):
        place.journal().close()
    compact(place.folder)
    first, second, _ = sorted(place.folder.iterdir())
    unsealed(first, first)
    unsealed(second, second)
    for path in (first, second):
        old(path)
    look = place.look()
    assert len(place.taken()) == 3
    (problem,) = look.problems
    assert problem.startswith(f"2 files have no checksum (first: {first}), as those from before 2026-11-26, so it is ")
    assert place.look().problems == []


def test_file_of_a_version_with_checksums_that_has_none_is_not_taken(tmp_path: Path) -> None:
    place = Place(tmp_path)
    one = place.journal()
    one.close()
    compact(place.folder)
    (path,) = place.folder.iterdir()
    pq.write_table(pq.read_table(path).replace_schema_metadata({SCHEMA_KEY: b"2"}), path)
    old(path)
    look = place.look()
    assert look.problems == [f"{path} is damaged (its checksum is missing); remove it or copy it again"]
    assert look.given_up == {"net 1/ä": frozenset({(one.run, 1)})}


def test_intake_takes_a_file_once_in_either_form(tmp_path: Path) -> None:
    place = Place(tmp_path)
    one = place.journal()
    one.close()
    assert place.look().arrived == 1
    compact(place.folder)
    assert place.look().arrived == 0
    two = place.journal()
    two.close()
    compact(place.folder)
    assert place.look().arrived == 1
    for path in place.folder.iterdir():
        path.unlink()  # retention
    assert place.look().problems == []
    assert place.taken() == sorted(f"{each.run}-000001" for each in (one, two))
    assert pq.read_table(place.spool / folder_of("net 1/ä") / f"{two.run}-000001.parquet").num_rows == 4


def test_intake_forgets_the_files_that_retention_has_removed(tmp_path: Path) -> None:
    """A follower that runs for months must not grow with each file."""
    place = Place(tmp_path)
    place.journal().close()
    (place.folder / "x-000001.journal").write_bytes(b"nonsense")
    for path in place.folder.iterdir():
        old(path)
    assert len(place.look().problems) == 1
    for path in place.folder.iterdir():
        path.unlink()
    place.look()
    assert (place.intake._done, place.intake._bad, place.intake._refused) == ({}, {}, {})


def test_unreadable_file_is_reported_once_and_read_when_it_is_complete(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.journal().close()
    compact(place.folder)
    (whole,) = place.folder.iterdir()
    content = whole.read_bytes()
    whole.write_bytes(content[:-9])
    (place.folder / "x-000001.journal").write_bytes(b"nonsense")
    for path in place.folder.iterdir():
        old(path)
    problems = [each.replace(str(place.folder), "…") for each in place.look().problems]
    assert problems == [
        f"…/{whole.name} is not a complete Parquet file; remove it or copy it again",
        "x-000001.journal is not a journal; remove it from the journals' folder",
    ]
    assert place.look().problems == []
    whole.write_bytes(content)
    assert place.look().arrived == 1


def test_invalid_append_file_counts_as_lost_until_it_is_valid(tmp_path: Path) -> None:
    """No process writes it: waiting for it would keep all windows open."""
    place = Place(tmp_path)
    one = place.journal()
    one.close()
    (path,) = place.folder.iterdir()
    content = path.read_bytes()
    path.write_bytes(b"nonsense")
    (place.folder / "notes.journal").write_bytes(b"not a journal")
    for each in place.folder.iterdir():
        old(each)
    for _ in range(2):
        look = place.look()
        assert look.coming["net 1/ä"] == {}
        assert look.given_up["net 1/ä"] == {(one.run, 1), ("notes", 0)}
    path.write_bytes(content)
    look = place.look()
    assert look.arrived == 1
    assert look.given_up["net 1/ä"] == {("notes", 0)}


def test_invalid_last_part_is_waited_for_and_then_lost(tmp_path: Path) -> None:
    """It may be in the middle of being copied. An old file does not change any more."""
    place = Place(tmp_path)
    one = place.journal()
    one.close()
    compact(place.folder)
    (first,) = place.folder.iterdir()
    content = first.read_bytes()
    second, notes = place.folder / f"{one.run}-000002.parquet", place.folder / "notes.parquet"
    for path in (second, notes):
        path.write_bytes(content[:-9])
    for place.now in (0.0, 59.0):
        look = place.look()
        assert look.given_up["net 1/ä"] == frozenset()
        assert {run: each.open for run, each in look.coming["net 1/ä"].items()} == {one.run: {2}, "notes": {0}}
        assert not look.problems
        assert look.young == (second, notes)
    place.now = 60.0
    for problems in (2, 0):
        look = place.look()
        assert not look.coming["net 1/ä"]
        assert not look.young
        assert len(look.problems) == problems
        assert look.given_up["net 1/ä"] == {(one.run, 2)}
    second.write_bytes(content)
    look = place.look()
    assert (look.arrived, look.coming["net 1/ä"], look.given_up["net 1/ä"]) == (1, {}, frozenset())


def test_invalid_part_that_is_old_is_lost_at_once(tmp_path: Path) -> None:
    place = Place(tmp_path)
    path = place.folder / "r-000002.parquet"
    path.write_bytes(b"nonsense")
    old(path)
    look = place.look()
    assert not look.coming["net 1/ä"]
    assert look.given_up["net 1/ä"] == {("r", 2)}


@pytest.mark.parametrize("form", [".journal", ".parquet"])
def test_full_disk_of_the_spool_is_reported_once_and_retried(
    form: str, tmp_path: Path
) -> None:
    """The file is retried without a time limit although it never changes: its records are not lost."""
    place = Place(tmp_path)
    one = place.journal()
    one.close()
    if form == ".parquet":
        compact(place.folder)
    (first,) = place.folder.iterdir()
    shutil.copy(first, place.folder / f"{one.run}-000002{form}")
    with files_that_end_at(1000):
        look = place.look()
        for path, problem in zip(sorted(place.folder.iterdir()), look.problems, strict=True):
            assert problem.startswith(f"{path} cannot be copied to {place.spool} (")
            assert problem.endswith("File too large); free disk space, or check permissions")
        for place.now in (30.0, 90.0):
            look = place.look()
            assert (look.arrived, look.problems) == (0, [])
            assert look.coming["net 1/ä"][one.run].open == {1, 2}
            assert look.given_up["net 1/ä"] == frozenset()
    look = place.look()
    assert (look.arrived, look.problems, look.coming["net 1/ä"]) == (2, [], {})
    assert place.taken() == [f"{one.run}-000001", f"{one.run}-000002"]


def test_file_without_permissions_is_reported_once_and_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path)
    place.journal().close()
    compact(place.folder)
    (path,) = place.folder.iterdir()
    with monkeypatch.context() as patched:
        patched.setattr(pq, "ParquetFile", refused(errno.EACCES))  # the user of the tests may be root
        assert place.look().problems == [
            f"{path} cannot be read (Permission denied); correct its rights or its disk",
        ]
        assert place.look().problems == []
    assert place.look().arrived == 1


def refused(number: int) -> Callable[..., None]:
    def refuse(*_: object, **_how: object) -> None:
        raise OSError(number, f"Failed. Detail: [errno {number}]")

    return refuse


def test_newer_schema_is_reported(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.journal().close()
    compact(place.folder)
    (whole,) = place.folder.iterdir()
    newer = pq.read_table(whole).replace_schema_metadata({b"pubsub_lib.journal.schema": b"9"})
    whole.unlink()
    pq.write_table(newer, whole)
    old(whole)
    (problem,) = place.look().problems
    assert "has the schema version 9, this program reads up to 2" in problem
    assert place.taken() == []


def test_deleted_folder_is_reported_and_read_when_it_exists_again(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.folder.rmdir()
    (problem,) = place.look().problems
    assert problem == f"the journals' folder {place.folder} cannot be read (No such file or directory); restore it"
    place.folder.mkdir()
    place.journal().close()
    assert place.look().arrived == 1


def test_missing_part_counts_as_lost_after_the_patience(tmp_path: Path) -> None:
    place = Place(tmp_path)
    run = place.second_part_alone()
    assert place.look().given_up["net 1/ä"] == frozenset()
    place.now = 60.0
    look = place.look()
    assert look.given_up["net 1/ä"] == {(run, 1)}
    assert look.problems == [f"part 1 of the run {run} is missing; its records count as lost"]
    assert place.look().problems == []


def test_missing_part_counts_as_lost_for_followers_of_one_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    run = place.second_part_alone()
    place.look()
    place.intake.save()
    later = time.time() + 61
    monkeypatch.setattr("pubsub_lib.audit.stream.missing_parts.time.time", lambda: later)
    place.again()
    assert place.look().given_up["net 1/ä"] == {(run, 1)}


@pytest.mark.parametrize("age", [59, 61])
def test_empty_file_is_lost_when_no_process_can_be_about_to_write_it(tmp_path: Path, age: int) -> None:
    place = Place(tmp_path)
    one = place.journal()
    one.close()
    path = place.folder / f"{one.run}-000002.journal"
    path.touch()
    os.utime(path, (time.time() - age,) * 2)
    look = place.look()
    if age < 60:
        assert (look.given_up["net 1/ä"], look.problems) == (frozenset(), [])
        assert look.coming["net 1/ä"][one.run].open == {2}
    else:
        assert look.given_up["net 1/ä"] == {(one.run, 2)}
        assert look.problems == [f"{path} is empty, as after a power loss; its records count as lost"]
        assert look.coming["net 1/ä"] == {}


@pytest.mark.parametrize("suffix", [".journal", ".parquet", ".unreadable"])
def test_file_whose_name_is_no_text_is_refused_with_a_text(tmp_path: Path, suffix: str) -> None:
    place = Place(tmp_path)
    place.journal().close()
    (path,) = place.folder.iterdir()
    if suffix == ".parquet":
        compact(place.folder)
        (path,) = place.folder.iterdir()
    named = path.rename(place.folder / (os.fsdecode(b"\xff-000001") + suffix))
    found = list(place.look().problems)
    place.intake.save()
    old(named)
    found += place.look().problems
    assert found
    for problem in found:
        assert "\\udcff-000001" in problem
        problem.encode()
    place.intake.save()
    assert place.taken() == []


def test_missing_parts_are_reported_in_ranges(tmp_path: Path) -> None:
    """Otherwise a long run whose begin was deleted by retention would cause thousands of problems."""
    place = Place(tmp_path)
    one = place.journal()
    one.close()
    (path,) = place.folder.iterdir()
    for part in (5, 2000):
        shutil.copy(path, place.folder / f"{one.run}-{part:06d}.journal")
    path.unlink()
    place.look()
    place.now = 60.0
    look = place.look()
    assert len(look.given_up["net 1/ä"]) == 1998
    assert look.problems == [
        f"parts 1 to 4 of the run {one.run} are missing; their records count as lost",
        f"parts 6 to 1999 of the run {one.run} are missing; their records count as lost",
    ]


@pytest.mark.quick_variants(1)
@pytest.mark.parametrize("form", [".journal", ".parquet"])
def test_file_that_is_being_copied_is_waited_for(form: str, tmp_path: Path) -> None:
    """However long that takes: it is neither invalid, nor cut, nor read in part."""
    place = Place(tmp_path)
    one = place.journal()
    one.close()
    if form == ".parquet":
        compact(place.folder)
    (path,) = place.folder.iterdir()
    content = path.read_bytes()
    for size in range(1, len(content)):
        path.write_bytes(content[:size])
        place.now += 59.0
        look = place.look()
        assert (look.arrived, look.problems, look.given_up["net 1/ä"]) == (0, [], frozenset())
        assert look.coming["net 1/ä"][one.run].open == {1}
    path.write_bytes(content)
    look = place.look()
    assert (look.arrived, look.problems, look.coming["net 1/ä"]) == (1, [], {})
    assert place.numbers() == [1, 2, 3, 4]


def test_append_file_that_no_program_copies_is_taken_after_the_patience(tmp_path: Path) -> None:
    """Its writer was killed."""
    place = Place(tmp_path)
    stem, content, _ = live_journal(place.folder)
    path = place.folder / f"{stem}.journal"
    path.write_bytes(b"nonsense")
    assert place.look().young == (path,)
    path.write_bytes(content[:-2])
    for place.now in (0.0, 59.0):
        assert place.look().young == (), "as one that is being written: it has a run, whose windows wait"
        assert place.look().coming["net 1/ä"].keys() == {run_and_part(stem)[0]}
    place.now = 60.0
    look = place.look()
    assert (look.arrived, look.coming["net 1/ä"]) == (1, {})
    assert place.numbers() == [1, 2, 3]


def test_records_that_a_copy_gets_later_are_read_once(tmp_path: Path) -> None:
    """By a program that appends, by one that renames a longer file, and by the Parquet form; also after a restart."""
    stem, longer, shorter = live_journal(tmp_path)
    (tmp_path / f"{stem}.journal").write_bytes(longer)
    write_parquet(tmp_path / f"{stem}.journal", tmp_path / "whole")
    for restarts in (False, True):
        for third in (".journal", ".parquet"):
            (tmp_path / f"{third}{restarts}").mkdir()
            place = Place(tmp_path / f"{third}{restarts}")
            path = place.folder / f"{stem}.journal"
            for content, numbers in ((shorter, [1, 2, 3]), (shorter + longer[len(shorter) : -2], [1, 2, 3])):
                path.write_bytes(content)
                old(path)
                place.look()
                assert place.numbers() == numbers
                assert (place.look().arrived, place.look().coming["net 1/ä"]) == (0, {})
                place = Place(place.folder.parent) if restarts else place
            beside = place.folder / f".{stem}{third}.Xy12Ab"
            beside.write_bytes(longer if third == ".journal" else (tmp_path / "whole").read_bytes())
            old(beside)
            assert place.look().arrived == 0
            beside.rename(place.folder / f"{stem}{third}")
            assert place.look().arrived == 1
            for _ in range(2):
                assert place.numbers() == [1, 2, 3, 4, 5]
                assert (place.look().arrived, place.look().coming["net 1/ä"]) == (0, {})
                place = Place(place.folder.parent)


def test_copy_that_grows_again_keeps_its_run_open(tmp_path: Path) -> None:
    place = Place(tmp_path)
    stem, longer, shorter = live_journal(place.folder)
    path = place.folder / f"{stem}.journal"
    path.write_bytes(shorter)
    old(path)
    assert (place.look().arrived, place.look().coming["net 1/ä"]) == (1, {})
    path.write_bytes(longer)
    look = place.look()
    assert look.arrived == 0
    assert look.coming["net 1/ä"][run_and_part(stem)[0]].open == {1}
    place.now = 60.0
    assert (place.look().arrived, place.numbers()) == (1, [1, 2, 3, 4, 5])


def test_unchanged_journal_that_is_copied_again_has_nothing_new(tmp_path: Path) -> None:
    """Also after a restart, and while its last records are on their way again."""
    place = Place(tmp_path)
    stem, longer, shorter = live_journal(place.folder)
    path = place.folder / f"{stem}.journal"
    path.write_bytes(longer)
    old(path)
    assert (place.look().arrived, place.look().coming["net 1/ä"]) == (1, {})
    for content in (longer, shorter, longer[:-2], longer):
        path.write_bytes(content)
        assert (place.look().arrived, place.look().coming["net 1/ä"]) == (0, {})
        place = Place(tmp_path)
    assert place.numbers() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("once", [False, True])
def test_journal_that_is_copied_again_and_again_is_taken_after_the_patience(
    once: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``once``: each round is a new process. The run was killed, so its journal has no close."""
    place = Place(tmp_path)
    stem, content, _ = live_journal(place.folder)
    path = place.folder / f"{stem}.journal"
    begin = time.time()
    monkeypatch.setattr(time, "time", lambda: begin + place.now)
    for place.now in (0.0, 30.0, 59.0, 60.0):
        path.write_bytes(content)
        os.utime(path, (begin + place.now, begin + place.now))
        look = place.look()
        assert look.arrived == (place.now == 60.0)
        assert (look.coming["net 1/ä"] == {}) == (place.now == 60.0)
        place.intake.save()
        if once:
            place.again()
    assert place.numbers() == [1, 2, 3, 4, 5]


def test_file_that_is_copied_again_does_not_change_in_the_spool(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.journal().close()
    compact(place.folder)
    (path,) = place.folder.iterdir()
    assert place.look().arrived == 1
    path.write_bytes(path.read_bytes()[:99])  # cp has begun to write the same file again
    assert place.look() == Look(0, {"net 1/ä": {}}, {"net 1/ä": frozenset()}, [])
    assert place.numbers() == [1, 2, 3, 4]


def test_names_of_files_and_folders_are_parsed() -> None:
    assert run_and_part("ab-c-000012") == ("ab-c", 12)
    assert run_and_part("report-20261121") == ("report-20261121", 0)
