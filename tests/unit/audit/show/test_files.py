"""Files and folders that are named on the command line, and their order."""

import os
from pathlib import Path

from pubsub_lib.audit.show.files import JournalFile, journal_files

NEW, OLD = "a" * 32, "b" * 32


def made(folder: Path, name: str, changed: int) -> Path:
    path = folder / name
    path.write_bytes(b"")
    os.utime(path, (changed, changed))
    return path


def test_folder_shows_the_oldest_run_first_and_its_parts_in_order(tmp_path: Path) -> None:
    found = [
        made(tmp_path, f"{OLD}-000002.parquet", 9),
        made(tmp_path, f"{OLD}-000003.journal", 12),
        made(tmp_path, f"{OLD}-000010.unreadable", 13),
        made(tmp_path, f"{NEW}-000001.journal", 10),
        made(tmp_path, "copied.journal", 11),
    ]
    made(tmp_path, f".{OLD}-000003.parquet.77", 1)
    made(tmp_path, "notes.txt", 1)
    files, problems = journal_files([tmp_path])
    assert problems == []
    assert [(each.path, each.part, each.parts) for each in files] == [
        (path, part, parts) for path, part, parts in zip(found, (2, 3, 10, 1, 0), (3, 3, 3, 1, 1), strict=True)
    ]


def test_named_files_keep_their_order(tmp_path: Path) -> None:
    later, earlier = made(tmp_path, f"{OLD}-000002.journal", 1), made(tmp_path, f"{OLD}-000001.parquet", 1)
    gone = tmp_path / "gone" / "x.journal"
    files, problems = journal_files([later, gone, earlier])
    assert problems == []
    assert files == [
        JournalFile(later, OLD, 2, 2), JournalFile(gone, "x", 0, 0), JournalFile(earlier, OLD, 1, 2)
    ]  # fmt: skip


def test_part_in_two_forms_counts_once(tmp_path: Path) -> None:
    """While it is being converted."""
    made(tmp_path, f"{OLD}-000001.journal", 1)
    path = made(tmp_path, f"{OLD}-000001.parquet", 1)
    assert journal_files([tmp_path])[0] == [JournalFile(path, OLD, 1, 1)]


def test_folder_without_journals_is_a_problem(tmp_path: Path) -> None:
    assert journal_files([tmp_path]) == ([], [f"no journals in {tmp_path}; name a folder that has them"])
