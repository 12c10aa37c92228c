"""A record that is in two files counts once; files that disagree about a record are reported."""

import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsub_lib.audit.ingest.input import gather
from pubsub_lib.audit.ingest.overlaps import Numbered, ranges_of, without_overlaps
from pubsub_lib.journal.parquet_metadata import SCHEMA_KEY
from pubsub_lib.journal.reading import read
from pubsub_lib.journal.rows import SCHEMA, ChangeRow, Row, arrow_schema, as_dict, from_dict


def row(number: int, run: str = "a", wall: int = 0, before: int | None = None) -> Row:
    change = ChangeRow("t", "k", number, "set", 1, 1, before)
    return Row(
        side="replica", name="r", host="h", run=run, number=number, kind="data", wall=wall or number, mono=number,
        changes=(change,),
    )  # fmt: skip


def write(folder: Path, files: Mapping[str, Sequence[Row]], group: int = 1 << 20) -> list[Path]:
    folder.mkdir(exist_ok=True)
    schema = arrow_schema().with_metadata({SCHEMA_KEY: str(SCHEMA).encode()})
    for name, rows in files.items():
        table = pa.Table.from_pylist([as_dict(each) for each in rows], schema=schema)
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=group)
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
