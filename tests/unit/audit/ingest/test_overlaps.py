"""A record that is in two files counts once; files that disagree about a record are reported."""

import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsub_lib.audit.ingest.input import gather
from pubsub_lib.audit.ingest.overlaps import Numbered, ranges_of, without_overlaps
from pubsub_lib.audit.ingest.removals import without_damaged
from pubsub_lib.journal.parquet_metadata import RECORDS_KEY, SCHEMA_KEY
from pubsub_lib.journal.reading import read
from pubsub_lib.journal.rows import SCHEMA, ChangeRow, Row, arrow_schema, as_dict, from_dict
from pubsub_lib.journal.seal import CHECKSUM_KEY, UNSEALED, seal

ABOUT = {SCHEMA_KEY: b"1"}
"""Of a file from before there were checksums."""


def row(number: int, run: str = "a", wall: int = 0, before: int | None = None) -> Row:
    change = ChangeRow("t", "k", number, "set", 1, 1, before)
    return Row(
        side="replica", name="r", host="h", run=run, number=number, kind="data", wall=wall or number, mono=number,
        changes=(change,),
    )  # fmt: skip


def write(folder: Path, files: Mapping[str, Sequence[Row]], group: int = 1 << 20) -> list[Path]:
    folder.mkdir(exist_ok=True)
    for name, rows in files.items():
        about = {SCHEMA_KEY: str(SCHEMA).encode(), RECORDS_KEY: str(len(rows)).encode(), CHECKSUM_KEY: UNSEALED}
        table = pa.Table.from_pylist([as_dict(each) for each in rows], schema=arrow_schema().with_metadata(about))
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=group)
        seal(folder / f"{name}.parquet")
    return sorted(folder.iterdir())


def once(paths: Sequence[Path], scratch: Path) -> tuple[list[list[Row]], list[str]]:
    numbered = [Numbered(path, path.stem, ranges_of(path, pq.read_metadata(path))) for path in paths]
    kept, problems = without_overlaps(numbered, scratch)
    return [list(read(path)) if path.parent != scratch else rows_of(path) for path in kept], problems


def rows_of(path: Path) -> list[Row]:
    """The rows of a file that is only for Spark: it has no metadata."""
    return [from_dict(each) for each in pq.ParquetFile(path).read().to_pylist()]


def numbers(files: Sequence[Sequence[Row]]) -> list[list[int]]:
    return [[each.number for each in rows] for rows in files]


def test_files_that_do_not_share_numbers_stay_as_they_are(tmp_path: Path) -> None:
    """Also where their ranges interleave, and with the same numbers of other runs."""
    paths = write(
        tmp_path / "in",
        {"1": [row(1), row(3)], "2": [row(2), row(4)], "3": [row(1, "b"), row(1, "c")], "4": [row(2, "b")], "5": []},
    )
    numbered = [Numbered(path, path.stem, ranges_of(path, pq.read_metadata(path))) for path in paths]
    assert [each.ranges for each in numbered] == [
        {"a": (1, 3)}, {"a": (2, 4)}, {"b": (1, 1), "c": (1, 1)}, {"b": (2, 2)}, {}
    ]  # fmt: skip
    assert without_overlaps(numbered, tmp_path / "scratch") == (paths, [])
    assert not (tmp_path / "scratch").exists()


def test_equal_records_count_once(tmp_path: Path) -> None:
    paths = write(
        tmp_path / "in",
        {"1": [row(1), row(2), row(3)], "2": [row(2, before=1), row(3, before=2), row(4, before=3)], "3": [row(3)]},
        group=2,
    )
    found, problems = once(paths, tmp_path / "scratch")
    assert problems == []
    assert numbers(found) == [[1, 2, 3], [4]]
    assert found[0] == [row(1), row(2), row(3)]
    assert found[1] == [row(4, before=3)]


def test_records_about_which_files_disagree_are_not_used(tmp_path: Path) -> None:
    files = {"1": [row(1), row(2), row(3)], "2": [row(2, wall=9), row(3), row(4)], "3": [row(2), row(1, "b")]}
    paths = write(tmp_path / "in", files)
    found, problems = once(paths, tmp_path / "scratch")
    assert numbers(found) == [[1, 3], [4], [1]]
    (problem,) = problems
    assert problem == (
        "1 and 2 have different records with the same numbers of the run a (1, the first is number 2); none of these "
        "records is used; remove the invalid file"
    )


@given(st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_any_overlapping_files_have_each_record_once(seed: int) -> None:
    rng = random.Random(seed)
    whole = {run: [row(number, run) for number in range(1, rng.randrange(2, 12))] for run in ("a", "b")}
    files = {}
    for name in map(str, range(rng.randrange(1, 6))):
        rows = whole[rng.choice("ab")]
        begin = rng.randrange(len(rows))
        files[name] = rows[begin : begin + rng.randrange(8)]
    with tempfile.TemporaryDirectory() as root:
        found, problems = once(write(Path(root) / "in", files, group=3), Path(root) / "scratch")
    assert problems == []
    expected = {(each.run, each.number) for rows in files.values() for each in rows}
    assert sorted((each.run, each.number) for rows in found for each in rows) == sorted(expected)


def test_file_that_another_program_joined_is_gathered_once(tmp_path: Path) -> None:
    """It begins with another record than the files that it repeats, so it is no copy of one of them."""
    folder = tmp_path / "in"
    write(folder, {"1": [row(1), row(2)], "2": [row(3), row(4)], "joined": [row(2), row(3)]})
    gathered = gather({"": [folder]}, tmp_path / "scratch")
    assert gathered.problems == []
    assert [path.name for path in gathered.files[""]] == ["1.parquet", "2.parquet"]
    write(folder, {"joined": [row(2), row(3, wall=8)]})
    gathered = gather({"": [folder]}, tmp_path / "scratch")
    (problem,) = gathered.problems
    assert problem == (
        f"{folder}/2.parquet and {folder}/joined.parquet have different records with the same numbers of the run a (1, "
        "the first is number 3); none of these records is used; remove the invalid file"
    )
    assert numbers([rows_of(path) for path in gathered.files[""]]) == [[1, 2], [4]]


def test_joined_file_of_sealed_ones_is_whole(tmp_path: Path) -> None:
    """The checksum of its source is not its own: after a failure of Spark, each file is checked again."""
    write(tmp_path / "in", {"1": [row(1), row(2)], "2": [row(2), row(3)]})
    gathered = gather({"": [tmp_path / "in"]}, tmp_path / "scratch")
    assert gathered.problems == []
    assert [path.parent.name for path in gathered.files[""]] == ["in", "once"]
    assert without_damaged(gathered) is None


@pytest.mark.parametrize("damage", ["page", "text"])
def test_damaged_file_that_overlaps_is_named_and_the_others_are_read(tmp_path: Path, damage: str) -> None:
    paths = write(tmp_path / "in", {"1": [row(1), row(2)], "2": [row(2), row(3)], "3": [row(1, "b")]})
    if damage == "page":
        group = pq.read_metadata(paths[1]).row_group(0).column(0)
        begin = group.dictionary_page_offset or group.data_page_offset
        content = bytearray(paths[1].read_bytes())
        content[begin + 20 : begin + 60] = bytes(40)
        paths[1].write_bytes(content)
    else:
        table = pq.ParquetFile(paths[1]).read()
        place = table.schema.get_field_index("name")
        text = pa.array([b"\xff"] * 2, pa.binary()).view(pa.string())
        pq.write_table(table.set_column(place, table.schema.field(place), text), paths[1])
    gathered = gather({"": [tmp_path / "in"]}, tmp_path / "scratch")
    assert [path.name for path in gathered.files[""]] == ["1.parquet", "3.parquet"]
    (problem,) = gathered.problems
    assert "2.parquet is damaged (" in problem


def test_record_without_a_run_is_a_problem(tmp_path: Path) -> None:
    paths = write(tmp_path / "in", {"1": [row(1)], "2": [row(1), row(2)]})
    table = pq.ParquetFile(paths[1]).read()
    place = table.schema.get_field_index("run")
    runs = pa.array([None, "a"], pa.string())
    pq.write_table(table.set_column(place, pa.field("run", pa.string()), runs).replace_schema_metadata(ABOUT), paths[1])
    gathered = gather({"": [tmp_path / "in"]}, tmp_path / "scratch")
    assert [path.name for path in gathered.files[""]] == ["1.parquet"]
    assert "2.parquet is damaged (a record has no run or no number)" in gathered.problems[0]
