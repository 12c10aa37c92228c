"""One changed bit anywhere in a sealed file is found, and a sealed file is still a Parquet file."""

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pubsub_lib.errors import JournalError
from pubsub_lib.journal.compaction import compact
from pubsub_lib.journal.parquet_metadata import RECORDS_KEY
from pubsub_lib.journal.reading import check_parquet, read
from pubsub_lib.journal.rows import Row
from pubsub_lib.journal.seal import CHECKSUM_KEY, UNSEALED, check_seal, seal
from tests.unit.journal.test_compaction import finished


@pytest.fixture
def rolled(tmp_path: Path) -> Path:
    path = finished(tmp_path, 40)
    compact(tmp_path)
    return path.with_suffix(".parquet")


def test_rolled_file_has_its_checksum_its_number_of_records_and_checksums_of_pages(rolled: Path) -> None:
    about = pq.read_metadata(rolled)
    assert about.metadata[RECORDS_KEY] == str(about.num_rows).encode() == b"82"
    assert about.metadata[CHECKSUM_KEY] != UNSEALED
    assert check_seal(rolled) == "right"
    assert pq.read_table(rolled, page_checksum_verification=True).num_rows == 82


def test_checksum_is_that_of_the_content_alone(tmp_path: Path, rolled: Path) -> None:
    """Also in a copy under another name, and sealing again changes nothing."""
    copy = tmp_path / "copy"
    copy.write_bytes(rolled.read_bytes().replace(pq.read_metadata(rolled).metadata[CHECKSUM_KEY], UNSEALED))
    assert check_seal(copy) == "wrong"
    seal(copy)
    assert copy.read_bytes() == rolled.read_bytes()


def test_file_of_an_earlier_version_has_no_checksum_and_is_read(tmp_path: Path, rolled: Path) -> None:
    old = tmp_path / "old.parquet"
    unsealed(rolled, old)
    assert check_seal(old) == "none"
    check_parquet(old)
    assert list(read(old)) == list(read(rolled))
    with pytest.raises(ValueError, match="has no key"):
        seal(old)


def test_small_and_foreign_files_have_no_checksum(tmp_path: Path) -> None:
    for content in (b"", b"PAR1", b"\xff\xff\xff\xffPAR1", CHECKSUM_KEY * 3):
        (tmp_path / "f").write_bytes(content)
        assert check_seal(tmp_path / "f") == "none"


def test_file_that_lost_only_its_checksum_is_damaged(rolled: Path) -> None:
    rolled.write_bytes(rolled.read_bytes().replace(CHECKSUM_KEY, CHECKSUM_KEY[:-1] + b"2"))
    with pytest.raises(JournalError, match=r"is damaged \(its checksum is missing\); remove it or copy it again"):
        check_parquet(rolled)


def test_changed_bit_is_without_effect_or_the_file_is_reported(rolled: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    whole = rolled.read_bytes()
    before = list(read(rolled))
    reported = 0
    for bit in rng.sample(range(8 * len(whole)), 60):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        rolled.write_bytes(changed)
        found = rows_or_error(rolled)
        if isinstance(found, str):
            assert found.startswith(str(rolled))
            reported += 1
        else:
            assert found == before, bit
    assert reported == 60, "the checksum covers every bit"


def rows_or_error(path: Path) -> list[Row] | str:
    try:
        check_parquet(path)
        return list(read(path))
    except JournalError as error:
        return str(error)


def unsealed(path: Path, target: Path) -> None:
    """Write the file as earlier versions did: without any checksum."""
    table = pq.read_table(path)
    kept = {key: value for key, value in table.schema.metadata.items() if key not in (RECORDS_KEY, CHECKSUM_KEY)}
    pq.write_table(table.replace_schema_metadata(kept), target, compression="zstd")
