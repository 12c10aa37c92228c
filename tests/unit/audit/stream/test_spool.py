"""The spool has each record of a journal file once, in files that never change and survive a power loss."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pubsub_lib.audit.stream.spool import WHOLE, Spool, domain_of, folder_of, taken_of
from pubsub_lib.errors import JournalError
from pubsub_lib.journal.compaction import write_parquet
from pubsub_lib.journal.entries import Entry, beginning, frame
from pubsub_lib.journal.parquet_metadata import torn_problem
from tests.unit.journal.builders import HEADER


def append_file(path: Path, records: int, torn: bytes = b"") -> Path:
    entries = (frame(Entry(number, 2, 3, "mark")) for number in range(1, records + 1))
    path.write_bytes(beginning(HEADER) + b"".join(entries) + torn)
    return path


def numbers(spool: Path) -> dict[str, list[int]]:
    """The numbers of the records of each file."""
    files = (spool / folder_of("d")).iterdir()
    return {path.stem: pq.read_table(path)["number"].to_pylist() for path in files}


def test_longer_append_file_adds_its_new_records(tmp_path: Path) -> None:
    spool, path = Spool(tmp_path / "spool", ["d"]), tmp_path / "a-000001.journal"
    assert spool.taken("d") == {}
    assert spool.put(append_file(path, 0), "d", None) == 0
    assert spool.put(append_file(path, 2, torn=b"\x09"), "d", 0) == 2
    assert spool.put(path, "d", 2) == 2
    assert spool.put(append_file(path, 5), "d", 2) == 5
    assert numbers(tmp_path / "spool") == {"a-000001~0": [], "a-000001~2": [1, 2], "a-000001~5": [3, 4, 5]}
    assert spool.taken("d") == {"a-000001": 5}


def test_parquet_file_adds_the_rest_and_is_the_last(tmp_path: Path) -> None:
    spool, path = Spool(tmp_path / "spool", ["d"]), tmp_path / "a-000001.journal"
    spool.put(append_file(path, 2), "d", None)
    rolled = path.with_suffix(".parquet")
    write_parquet(path, rolled)
    assert spool.put(rolled, "d", 2) == 2, "nothing is new"
    write_parquet(append_file(path, 3, torn=b"\x09"), rolled)
    assert spool.put(rolled, "d", 2) == WHOLE
    assert numbers(tmp_path / "spool") == {"a-000001~2": [1, 2], "a-000001": [3]}
    assert spool.taken("d") == {"a-000001": WHOLE}
    about = pq.read_metadata(tmp_path / "spool" / folder_of("d") / "a-000001.parquet")
    assert "the last 1 bytes were not" in torn_problem("a-000001", about.metadata, about.num_rows)


def test_file_that_is_no_journal_leaves_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", ["d"])
    for name in ("a-000001.journal", "a-000001.parquet"):
        (tmp_path / name).write_bytes(b"nonsense")
        with pytest.raises(JournalError):
            spool.put(tmp_path / name, "d", None)
    assert spool.taken("d") == {}


def test_file_that_changes_while_it_is_copied_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool, path = Spool(tmp_path / "spool", ["d"]), tmp_path / "a-000001.parquet"
    write_parquet(append_file(tmp_path / "a-000001.journal", 2), path)
    content = path.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr("shutil.copyfile", lambda _, target: target.write_bytes(content[:50]))
        with pytest.raises(JournalError, match="changed while it was copied"):
            spool.put(path, "d", None)
    assert spool.taken("d") == {}
    assert spool.put(path, "d", None) == WHOLE


def test_names_of_files_and_folders_are_parsed() -> None:
    assert taken_of("ab-c-000012") == ("ab-c-000012", WHOLE)
    assert taken_of("ab~1-000012~57") == ("ab~1-000012", 57)
    assert domain_of(folder_of("a/b %1=")) == "a/b %1="
    assert domain_of(folder_of("")) == ""
