"""Unreadable files are reported in one sentence that names the file and the remedy."""

import errno
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pubsub_lib.errors import JournalError
from pubsub_lib.journal.compaction import compact
from pubsub_lib.journal.parquet_metadata import SCHEMA_KEY
from pubsub_lib.journal.reading import check_parquet, find, read
from pubsub_lib.journal.rows import arrow_schema
from tests.unit.journal.test_compaction import finished


@pytest.fixture
def rolled(tmp_path: Path) -> Path:
    finished(tmp_path)
    compact(tmp_path)
    (path,) = find([tmp_path]).parquet
    check_parquet(path)
    return path


def refused(path: Path) -> str:
    with pytest.raises(JournalError) as first:
        check_parquet(path)
    with pytest.raises(JournalError) as second:
        list(read(path))
    assert str(first.value) == str(second.value)
    return str(first.value)


def test_truncated_parquet_file_is_rejected(rolled: Path) -> None:
    rolled.write_bytes(rolled.read_bytes()[:-20])
    assert refused(rolled) == f"{rolled} is not a complete Parquet file; remove it or copy it again"


def test_deleted_parquet_file_is_reported(rolled: Path) -> None:
    rolled.unlink()
    with pytest.raises(FileNotFoundError):
        check_parquet(rolled)
    with pytest.raises(JournalError, match="was deleted"):
        list(read(rolled))


def test_unreadable_parquet_file_raises_the_systems_error(rolled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, **_how: bool) -> None:
        raise PermissionError(errno.EACCES, f"Failed to open local file '{path}'. Detail: [errno 13]")

    monkeypatch.setattr(pq, "ParquetFile", refuse)  # the user of the tests may have all rights
    with pytest.raises(PermissionError) as raised:
        check_parquet(rolled)
    assert (raised.value.strerror, raised.value.filename) == ("Permission denied", str(rolled))
    with pytest.raises(JournalError, match=r"cannot be read .Permission denied.; correct its rights or its disk"):
        list(read(rolled))


def test_deleted_append_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="No such file"):
        list(read(tmp_path / "gone.journal"))


def test_foreign_parquet_file_is_rejected(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    assert "is not a journal" in refused(tmp_path / "a.parquet")


@pytest.mark.parametrize(("version", "sentence"), [("3", "has the schema version 3, this program reads up to 2")])
def test_newer_schema_is_rejected(tmp_path: Path, version: str, sentence: str) -> None:
    schema = arrow_schema().with_metadata({SCHEMA_KEY: version.encode()})
    pq.write_table(pa.Table.from_pylist([], schema=schema), tmp_path / "a.parquet")
    assert sentence in refused(tmp_path / "a.parquet")


def test_parquet_file_with_other_columns_is_rejected(tmp_path: Path) -> None:
    schema = pa.schema([("side", pa.string())], metadata={SCHEMA_KEY: b"1"})
    pq.write_table(pa.Table.from_pylist([], schema=schema), tmp_path / "a.parquet")
    assert "does not have the columns" in refused(tmp_path / "a.parquet")


def test_damaged_page_is_reported_while_reading(rolled: Path) -> None:
    data = bytearray(rolled.read_bytes())
    data[100:400] = b"\xff" * 300
    rolled.write_bytes(data)
    with pytest.raises(JournalError, match="is damaged"):
        list(read(rolled))


def test_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"cannot be read .No such file or directory.; name one that exists"):
        find([tmp_path / "gone"])
