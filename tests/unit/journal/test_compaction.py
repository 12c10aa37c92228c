"""Compaction: the same records as Parquet, by atomic rename; and the retention."""

import contextlib
import errno
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from pubsub_lib.core.envelope import Message
from pubsub_lib.core.model import Point, Record
from pubsub_lib.errors import JournalError
from pubsub_lib.journal import compaction
from pubsub_lib.journal.compaction import Compacted, compact
from pubsub_lib.journal.entries import Entry, beginning, frame
from pubsub_lib.journal.parquet_metadata import is_cut
from pubsub_lib.journal.reading import find, read
from pubsub_lib.journal.rows import COLUMNS
from pubsub_lib.journal.writer import Journal
from tests.unit.journal.builders import HEADER, envelope, link, settings


def finished(folder: Path, records: int = 5) -> Path:
    journal = Journal(settings(folder), "service", "s")
    for position in range(7, 7 + records):
        journal.messages(("sent",), envelope(position, position + 1))
    journal.close()
    (path,) = [each for each in find([folder]).append if each.name.startswith(journal.run)]
    return path


def test_parquet_contains_the_same_rows(tmp_path: Path) -> None:
    path = finished(tmp_path)
    before = list(read(path))
    assert compact(tmp_path).rolled == 1
    (rolled,) = find([tmp_path]).parquet
    assert rolled.stem == path.stem
    assert list(read(rolled)) == before
    assert sorted(tmp_path.iterdir()) == [rolled]


def test_many_rows_are_written_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_SLICE", 3)
    path = finished(tmp_path, 20)
    before = list(read(path))
    compact(tmp_path)
    (rolled,) = find([tmp_path]).parquet
    assert list(read(rolled)) == before


def test_records_of_objects_can_be_in_row_groups_of_their_own(tmp_path: Path) -> None:
    journal = Journal(settings(tmp_path), "replica", "r")
    records = [Record("lport", key, 1, b"1") for key in ("a", "b")]
    for number in range(3):
        journal.listing(number, "t", Point(9, 8), records)
    journal.close()
    (path,) = find([tmp_path]).append
    before = list(read(path))
    compaction.write_parquet(path, tmp_path / "apart.parquet", objects_apart=True)
    assert sorted(read(tmp_path / "apart.parquet"), key=lambda row: row.number) == before
    about = pq.read_metadata(tmp_path / "apart.parquet")
    kinds = [about.row_group(number).column(COLUMNS.index("kind")).statistics for number in range(2)]
    assert (about.num_row_groups, kinds[0].min, kinds[0].max, kinds[0].num_values) == (2, "object", "object", 6)
    assert kinds[1].min != "object"


def poisoned(folder: Path, name: str, **fields: object) -> Path:
    """A journal with a link as a version without bounds at the border noted it."""
    bad = msgspec.structs.replace(link(8), **fields)
    entry = Entry(1, 2, 3, "data", ("applied",), messages=[Message(bad)])
    path = folder / f"{name}.journal"
    path.write_bytes(beginning(HEADER) + frame(entry))
    return path


@pytest.mark.parametrize("written_at", [float("inf"), float("nan"), 1e300, -1e15])
def test_file_that_cannot_be_converted_is_set_aside_and_the_next_ones_are_converted(
    tmp_path: Path, written_at: float, caplog: pytest.LogCaptureFixture
) -> None:
    path = poisoned(tmp_path, "0", written_at=written_at)  # sorted before the good one
    good = finished(tmp_path)
    before = list(read(good))
    if not math.isfinite(written_at):  # the others fit in a row, but in no column
        with pytest.raises(JournalError, match=r"0.journal has an entry that cannot be converted \("):
            list(read(path))
    done = compact(tmp_path)
    assert (done.rolled, done.unreadable) == (1, 1)
    assert "0.journal has an entry that cannot be converted (" in caplog.text
    found = find([tmp_path])
    assert list(found.set_aside) == [tmp_path / "0.unreadable"]
    assert list(read(found.parquet[0])) == before
    assert compact(tmp_path) == Compacted()


@pytest.mark.parametrize("wall", [2**63, 2**64 - 1])
def test_number_beyond_64_bits_signed_sets_its_file_aside(tmp_path: Path, wall: int) -> None:
    path = tmp_path / "0.journal"
    path.write_bytes(beginning(HEADER) + frame(Entry(1, wall, 3, "mark")))
    assert compact(tmp_path).unreadable == 1


def test_file_in_use_is_not_compacted(tmp_path: Path) -> None:
    journal = Journal(settings(tmp_path), "service", "s")
    assert compact(tmp_path).rolled == 0
    journal.close()
    assert compact(tmp_path).rolled == 1


def test_file_of_a_killed_writer_is_compacted_up_to_its_torn_tail(tmp_path: Path) -> None:
    path = finished(tmp_path)
    before = list(read(path))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 3)
    compact(tmp_path)
    (rolled,) = find([tmp_path]).parquet
    assert list(read(rolled)) == before[:-1]
    assert is_cut(pq.read_metadata(rolled).metadata)


def test_both_forms_count_once(tmp_path: Path) -> None:
    """The state after a kill between the rename and the removal."""
    path = finished(tmp_path)
    kept = path.read_bytes()
    compact(tmp_path)
    path.write_bytes(kept)
    found = find([tmp_path])
    assert (len(found.parquet), len(found.append)) == (1, 0)


def test_invalid_file_is_renamed_and_other_files_are_compacted(tmp_path: Path) -> None:
    (tmp_path / "a.journal").write_bytes(b"nonsense")
    finished(tmp_path)
    done = compact(tmp_path)
    assert (done.rolled, done.unreadable) == (1, 1)
    assert (tmp_path / "a.unreadable").read_bytes() == b"nonsense"


def test_failed_compaction_is_logged_and_other_files_and_retention_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stuck = finished(tmp_path).rename(tmp_path / "0.journal")
    (tmp_path / ".0.parquet.1").mkdir()  # blocks the temporary file
    finished(tmp_path)
    old = tmp_path / "old.parquet"
    old.touch()
    os.utime(old, (0, 0))
    for rolled in (1, 0):
        assert compact(tmp_path, keep_seconds=3600) == compaction.Compacted(rolled=rolled, removed=rolled)
    assert stuck.exists()
    sentence = f"{stuck} is not converted to Parquet (Is a directory), retrying; free space or correct its rights"
    assert [record.getMessage() for record in caplog.records] == [sentence, sentence]


def test_retention_frees_a_full_disk_before_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished(tmp_path)
    old, write = tmp_path / "old.parquet", compaction.write_parquet
    old.touch()
    os.utime(old, (0, 0))

    def needs_room(source: Path, target: Path) -> None:
        if old.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(source, target)

    monkeypatch.setattr(compaction, "write_parquet", needs_room)
    assert compact(tmp_path, keep_seconds=3600) == compaction.Compacted(rolled=1, removed=1)


def test_failed_removal_is_logged_and_other_files_are_removed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "oldest.parquet").mkdir()
    (tmp_path / "old.parquet").touch()
    for each in ("oldest", "old"):
        os.utime(tmp_path / f"{each}.parquet", (0, 0))
    assert compact(tmp_path, keep_seconds=3600) == compaction.Compacted(removed=1)
    assert [each.name for each in tmp_path.iterdir()] == ["oldest.parquet"]
    assert "oldest.parquet is old and cannot be removed (Is a directory); correct its rights" in caplog.text


def test_empty_file_is_removed_only_when_it_is_old(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    path.touch()
    assert compact(tmp_path) == compaction.Compacted()
    assert list(tmp_path.iterdir()) == [path]
    os.utime(path, (0, 0))
    assert compact(tmp_path) == compaction.Compacted()
    assert list(tmp_path.iterdir()) == []


def test_files_of_a_killed_compaction_are_removed_by_the_next(tmp_path: Path) -> None:
    path = finished(tmp_path)
    (tmp_path / f".{path.stem}.parquet.1").write_bytes(b"half")
    busy = Journal(settings(tmp_path), "service", "s")  # claimed by a process that may still write it
    others = tmp_path / f".{busy.run}-000001.parquet.1"
    others.touch()
    compact(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(
        [others.name, f"{busy.run}-000001.journal", f"{path.stem}.parquet"]
    )
    busy.close()


def test_file_removed_by_another_process_meanwhile_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "gone.parquet").symlink_to("nowhere")
    path = tmp_path / "old.parquet"
    path.touch()
    os.utime(path, (0, 0))
    assert compact(tmp_path, keep_seconds=1).removed == 1


def test_retention_removes_the_oldest_files(tmp_path: Path) -> None:
    for age in (100, 300, 200):
        path = finished(tmp_path)
        compact(tmp_path)
        rolled = path.with_suffix(".parquet")
        now = rolled.stat().st_mtime
        os.utime(rolled, (now - age, now - age))
        rolled.rename(tmp_path / f"{age}.parquet")
    assert compact(tmp_path, keep_seconds=250).removed == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == ["100.parquet", "200.parquet"]
    assert compact(tmp_path, keep_bytes=(tmp_path / "100.parquet").stat().st_size).removed == 1
    assert [each.name for each in tmp_path.iterdir()] == ["100.parquet"]


def test_retention_counts_the_age_of_records_and_not_of_their_conversion(tmp_path: Path) -> None:
    now = time.time()
    ages = {"b": 7200, "c": 300, "a": 3600}  # converted in the order of their names
    for name, seconds in ages.items():
        path = finished(tmp_path).rename(tmp_path / f"{name}.journal")
        os.utime(path, (now - seconds, now - seconds))
    assert compact(tmp_path, keep_seconds=5000.0) == Compacted(rolled=3, removed=1)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.parquet", "c.parquet"]
    assert (tmp_path / "a.parquet").stat().st_mtime == pytest.approx(now - 3600, abs=0.001)
    assert compact(tmp_path, keep_bytes=(tmp_path / "c.parquet").stat().st_size).removed == 1
    assert [each.name for each in tmp_path.iterdir()] == ["c.parquet"]


def test_retention_counts_newly_compacted_files(tmp_path: Path) -> None:
    for _ in range(3):
        finished(tmp_path)
    done = compact(tmp_path, keep_bytes=0)
    assert (done.rolled, done.removed) == (3, 3)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [OSError(errno.EIO, os.strerror(errno.EIO)), ImportError("no pyarrow")])
def test_retention_counts_finished_files_that_cannot_be_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    now = time.time()
    live = Journal(settings(tmp_path), "service", "s")
    of_live = tmp_path / f"{live.run}-000001.journal"
    os.utime(of_live, (0, 0))
    (tmp_path / "empty.journal").touch()
    paths = [finished(tmp_path) for _ in range(4)]
    for hours, path in enumerate(paths):
        os.utime(path, (now - hours * 3600, now - hours * 3600))

    def fails(source: Path, target: Path) -> None:
        raise error

    def compacted(**keep: float) -> int:
        with contextlib.suppress(ImportError):
            compact(tmp_path, **keep)  # type: ignore[arg-type]
        return sum(path.exists() for path in paths)

    monkeypatch.setattr(compaction, "write_parquet", fails)
    size = paths[0].stat().st_size
    assert compacted(keep_bytes=4 * size) == 4
    assert compacted(keep_seconds=9000.0) == 3
    assert not paths[3].exists()
    assert compacted(keep_bytes=2 * size) == 2
    assert paths[0].exists()
    assert compacted(keep_bytes=1) == 0
    assert sorted(tmp_path.iterdir()) == sorted([of_live, tmp_path / "empty.journal"])
    live.close()


def test_file_that_another_process_has_claimed_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = finished(tmp_path)
    monkeypatch.setattr(compaction, "claim", lambda path: None)
    assert compact(tmp_path, keep_bytes=1) == Compacted()
    assert path.exists()


def test_command_reports_a_missing_folder_in_one_sentence(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    command = [sys.executable, "-m", "pubsub_lib.journal.compaction", str(gone), "1", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr == (
        f"the journals in {gone} cannot be listed (No such file or directory); correct the folder's rights\n"
    )


@pytest.mark.parametrize("jump", [30_000 * 86_400.0, -30_000 * 86_400.0])
def test_retention_keeps_the_evidence_while_the_clock_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    now = time.time()
    for hours in range(48):
        path = tmp_path / f"{hours}.parquet"
        path.touch()
        os.utime(path, (now - hours * 3600, now - hours * 3600))
    monkeypatch.setattr(time, "time", lambda: now + jump)
    wrong = tmp_path / "wrong.parquet"
    wrong.touch()
    os.utime(wrong, (now + jump, now + jump))
    assert compact(tmp_path, keep_seconds=4 * 86_400).removed == 0
    monkeypatch.setattr(time, "time", lambda: now)
    assert compact(tmp_path, keep_seconds=4 * 86_400).removed == 0


def test_retention_counts_a_day_for_each_longer_time_between_two_files(tmp_path: Path) -> None:
    now = time.time()
    for days in (0, 30, 31, 32):
        path = tmp_path / f"{days}.parquet"
        path.touch()
        os.utime(path, (now - days * 86_400, now - days * 86_400))
    assert compact(tmp_path, keep_seconds=2.5 * 86_400).removed == 1
    assert not (tmp_path / "32.parquet").exists()
