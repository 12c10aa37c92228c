"""The facts about an append file stay in the metadata of its Parquet form."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pubsub_lib.journal.compaction import compact
from pubsub_lib.journal.parquet_metadata import SCHEMA_KEY, TORN_KEY, as_damaged, is_cut, torn_problem
from tests.unit.journal.test_compaction import finished


def rolled(path: Path) -> pq.FileMetaData:
    compact(path.parent)
    return pq.read_metadata(path.with_suffix(".parquet"))


def test_whole_file_has_no_torn_bytes(tmp_path: Path) -> None:
    about = rolled(finished(tmp_path))
    assert about.metadata[SCHEMA_KEY] == b"1"
    assert not is_cut(about.metadata)
    assert torn_problem("f", about.metadata, about.num_rows) == ""
    assert torn_problem("f", None, 0) == ""


def test_cut_file_is_reported_with_its_number_of_records(tmp_path: Path) -> None:
    path = finished(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    about = rolled(path)
    kind, _, size = about.metadata[TORN_KEY].decode().partition(" ")
    assert kind == "cut"
    assert is_cut(about.metadata)
    assert torn_problem("f", about.metadata, about.num_rows) == (
        f"f ends in the middle of a record: {about.num_rows} whole records were read, and the last {size} bytes were "
        "not; its writer was killed or its disk was full, or the file is an incomplete copy: then copy it again"
    )


@pytest.mark.parametrize("share", [0.4, 0.99])
def test_damaged_file_is_reported_with_its_number_of_records(tmp_path: Path, share: float) -> None:
    path = finished(tmp_path, 30)
    whole = bytearray(path.read_bytes())
    whole[int(len(whole) * share)] ^= 1
    path.write_bytes(whole)
    about = rolled(path)
    assert not is_cut(about.metadata)
    assert torn_problem("f", about.metadata, about.num_rows).startswith(
        f"f was damaged after it was written: {about.num_rows} whole records were read, and the last "
    )


def test_single_record_has_the_singular() -> None:
    assert "1 whole record was read" in torn_problem("f", {TORN_KEY: b"damaged 7"}, 1)


def test_cut_that_is_damage_keeps_its_size() -> None:
    damaged = as_damaged({SCHEMA_KEY: b"1", TORN_KEY: b"cut 7"})
    assert damaged == {SCHEMA_KEY: b"1", TORN_KEY: b"damaged 7"}
    assert not is_cut(damaged)
