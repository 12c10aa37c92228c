"""Folders become files that Spark can read. Each unreadable file becomes one problem and does not stop the rest."""

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from pubsub_lib.audit.ingest import growing, source_file
from pubsub_lib.audit.ingest import input as journals
from pubsub_lib.audit.ingest.input import SCHEMA, gather, load
from pubsub_lib.audit.ingest.removals import without_damaged
from pubsub_lib.audit.ingest.source_file import SourceFile
from pubsub_lib.core.model import Point, Record
from pubsub_lib.journal.compaction import compact
from pubsub_lib.journal.parquet_metadata import SCHEMA_KEY
from pubsub_lib.journal.reading import read
from pubsub_lib.journal.rows import COLUMNS
from pubsub_lib.journal.writer import Journal
from tests.unit.journal.builders import envelope, files_that_end_at, settings
from tests.unit.journal.test_seal import unsealed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def journal(folder: Path) -> str:
    one = Journal(settings(folder), "replica", "r")
    one.messages(("applied",), envelope(7, 8))
    one.listing(1, "t1", Point(8, 6), [Record("lport", "p1", 8, b"1")])
    one.close()
    return one.run


@pytest.mark.long
def test_both_forms_and_all_folders_are_read(tmp_path: Path, spark: "SparkSession") -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    runs = {journal(one)}
    compact(one)
    runs |= {journal(one), journal(two)}
    before = sorted((row for place in (one, two) for path in place.iterdir() for row in read(path)), key=str)
    gathered = gather({"d": [one, two]}, tmp_path / "scratch")
    assert not gathered.problems
    assert len(gathered.files["d"]) == 3
    rows = load(spark, gathered).collect()
    assert {row["run"] for row in rows} == runs
    assert {row["domain"] for row in rows} == {"d"}
    mine = sorted((row.run, row.number, row.kind, row.hash, row.digest, len(row.changes)) for row in before)
    assert sorted((row.run, row.number, row.kind, row.hash, row.digest, len(row.changes)) for row in rows) == mine


def test_the_columns_are_those_of_the_schema(spark: "SparkSession") -> None:
    empty = spark.createDataFrame([], SCHEMA)
    assert tuple(empty.columns) == COLUMNS


def test_same_file_in_two_folders_counts_once(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    journal(one)
    two.mkdir()
    for path in one.iterdir():
        (two / path.name).write_bytes(path.read_bytes())
    gathered = gather({"": [one, two, one]}, tmp_path / "scratch")
    assert [len(files) for files in gathered.files.values()] == [1]


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("first", ["old", "whole"])
def test_longer_one_of_two_append_files_with_one_name_counts(tmp_path: Path, first: str, torn: bool) -> None:
    """The other one is a backup of the time when the file was being written."""
    whole, old = tmp_path / "whole", tmp_path / "old"
    journal(whole)
    (path,) = whole.iterdir()
    content = path.read_bytes()
    old.mkdir()
    begin = content.index(b"\n") + 1
    ends = [begin]
    while ends[-1] < len(content):
        ends.append(ends[-1] + 8 + int.from_bytes(content[ends[-1] : ends[-1] + 4], "little"))
    assert ends[-1] == len(content)
    (old / path.name).write_bytes(content[: ends[-2] + 5 * torn])
    folders = [old, whole] if first == "old" else [whole, old]
    alone = gather({"": [whole]}, tmp_path / "alone")
    gathered = gather({"": folders}, tmp_path / "scratch")
    assert gathered.problems == []
    assert gathered.torn == {}
    (found,), (expected,) = gathered.files[""], alone.files[""]
    assert pq.ParquetFile(found).read().equals(pq.ParquetFile(expected).read())


@pytest.mark.parametrize("rolled", [False, True])
def test_copy_under_another_name_is_reported_and_ignored(tmp_path: Path, rolled: bool) -> None:
    """Otherwise each of its records would count twice, for example as a message that was applied twice."""
    folder = tmp_path / "journals"
    journal(folder)
    journal(folder)
    if rolled:
        compact(folder)
    first, second = sorted(folder.iterdir())
    copy = folder / f"z copy of {first.name}"
    copy.write_bytes(first.read_bytes())
    gathered = gather({"": [folder], "again": [folder]}, tmp_path / "scratch")
    for files in gathered.files.values():
        assert [path.stem for path in files] == [first.stem, second.stem]
    problem = f"{copy} is a copy of {first} under another name and ignored; remove one of them"
    assert gathered.problems == [problem, problem]


@pytest.mark.parametrize("rolled", [False, True])
def test_renamed_file_is_read_as_before(tmp_path: Path, rolled: bool) -> None:
    """Records name their run themselves."""
    folder = tmp_path / "journals"
    journal(folder)
    if rolled:
        compact(folder)
    (path,) = folder.iterdir()
    before = sorted(read(path), key=lambda row: row.number)
    renamed = path.rename(folder / f"host-2 {path.name}")
    gathered = gather({"": [folder]}, tmp_path / "scratch")
    assert gathered.problems == []
    assert [found.stem for found in gathered.files[""]] == [renamed.stem]
    assert sorted(read(gathered.files[""][0]), key=lambda row: row.number) == before


def test_longer_one_of_a_file_and_its_older_copy_counts(tmp_path: Path) -> None:
    folder = tmp_path / "journals"
    one = Journal(settings(folder), "replica", "r")
    one.messages(("applied",), envelope(7, 8))
    (growing,) = folder.iterdir()
    copy = folder / f"a copy of {growing.name}"
    copy.write_bytes(growing.read_bytes())
    one.messages(("applied",), envelope(9, 10))
    one.close()
    gathered = gather({"": [folder]}, tmp_path / "scratch")
    assert [path.stem for path in gathered.files[""]] == [growing.stem]
    assert gathered.problems == [f"{copy} is a copy of {growing} under another name and ignored; remove one of them"]


def test_finished_file_is_preferred_to_an_older_copy_in_any_folder(tmp_path: Path) -> None:
    older, newer = tmp_path / "older", tmp_path / "newer"
    journal(newer)
    older.mkdir()
    (grows,) = newer.iterdir()
    (older / grows.name).write_bytes(grows.read_bytes()[:-9])
    compact(newer)
    gathered = gather({"": [older, newer]}, tmp_path / "scratch")
    assert [path.parent for path in gathered.files[""]] == [newer]
    assert not gathered.problems


def test_unreadable_files_are_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "journals"
    journal(folder)
    compact(folder)
    (whole,) = folder.iterdir()
    (folder / "a.journal").write_bytes(b"nonsense")
    (folder / "b.parquet").write_bytes(whole.read_bytes()[:-9])
    table = pq.read_table(whole)
    newer = table.replace_schema_metadata({b"pubsub_lib.journal.schema": b"9"})
    pq.write_table(newer, folder / "c.parquet")
    gathered = gather({"": [folder, tmp_path / "gone"]}, tmp_path / "scratch")
    assert gathered.files[""] == [whole]
    problems = sorted(problem.replace(str(folder), "…") for problem in gathered.problems)
    assert len(problems) == 4
    for words in (
        "a.journal is not a journal",
        "…/b.parquet is not a complete Parquet",
        "has the schema version 9",
        "name one that",
    ):
        assert sum(words in each for each in problems) == 1, (words, problems)


def test_file_that_was_set_aside_is_missing_evidence(tmp_path: Path) -> None:
    folder = tmp_path / "journals"
    journal(folder)
    (folder / "a.unreadable").write_bytes(b"nonsense")
    gathered = gather({"": [folder]}, tmp_path / "scratch")
    assert not gathered.empty
    (problem,) = gathered.problems
    assert problem == f"{folder}/a.unreadable was set aside: it has no readable records, and they are missing"


def damage(path: Path) -> None:
    """Flip bits in the middle of a file, where only reading its records finds them."""
    data = bytearray(path.read_bytes())
    for at in range(4, len(data) // 4, 16):
        data[at] ^= 0xFF
    path.write_bytes(data)


def test_file_that_does_not_match_its_checksum_is_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "journals"
    journal(folder)
    journal(folder)
    compact(folder)
    bad, good = sorted(folder.iterdir())
    damage(bad)
    gathered = gather({"": [folder]}, tmp_path / "scratch")
    assert gathered.files[""] == [good]
    problem = f"{bad} is damaged (its checksum does not match its content); remove it or copy it again"
    assert gathered.problems == [problem]


def test_file_with_another_hash_of_a_value_does_not_match_its_checksum(tmp_path: Path) -> None:
    """The hash of the message is as before, so no verdict would show it. The file keeps its metadata."""
    folder = tmp_path / "journals"
    journal(folder)
    compact(folder)
    (path,) = folder.iterdir()
    table = pq.read_table(path)
    rows = table.to_pylist()
    for row in rows:
        for change in row["changes"]:
            change["hash"] ^= 1
    kept = {key: value for key, value in pq.read_metadata(path).metadata.items() if key != b"ARROW:schema"}
    pq.write_table(pa.Table.from_pylist(rows, table.schema).replace_schema_metadata(kept), path)
    gathered = gather({"": [folder]}, tmp_path / "scratch")
    problem = f"{path} is damaged (its checksum does not match its content); remove it or copy it again"
    assert gathered.problems[0] == problem
    assert not gathered.files.get("")


UNSEALED = (
    "{} files have no checksum (first: {}), as those from before 2026-11-26, so it is not known whether their records "
    "were altered; remove them, or copy the original files again"
)


def test_files_without_a_checksum_are_read_and_named(tmp_path: Path) -> None:
    """An altered record in one of them cannot be noticed, so the evidence is incomplete."""
    folder = tmp_path / "journals"
    for _ in range(3):
        journal(folder)
    compact(folder)
    first, second, _ = sorted(folder.iterdir())
    unsealed(first, first)
    unsealed(second, second)
    gathered = gather({"": [folder]}, tmp_path / "scratch")
    assert gathered.files[""] == sorted(folder.iterdir())
    assert gathered.problems == [UNSEALED.format(2, first)]


def test_file_of_a_version_with_checksums_that_has_none_is_missing_evidence(tmp_path: Path) -> None:
    folder = tmp_path / "journals"
    journal(folder)
    compact(folder)
    (path,) = folder.iterdir()
    unsealed(path, path)
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({SCHEMA_KEY: b"2"}), path)
    gathered = gather({"": [folder]}, tmp_path / "scratch")
    assert gathered.problems[0] == f"{path} is damaged (its checksum is missing); remove it or copy it again"
    assert not gathered.files.get("")


def test_damaged_files_without_a_checksum_are_found_when_they_are_read_whole(tmp_path: Path) -> None:
    folder = tmp_path / "journals"
    journal(folder)
    journal(folder)
    compact(folder)
    bad, good = sorted(folder.iterdir())
    unsealed(bad, bad)
    damage(bad)
    gathered = gather({"": [folder]}, tmp_path / "scratch")
    assert gathered.problems == [UNSEALED.format(1, bad)], "the ends of both are right"
    readable = without_damaged(gathered)
    assert readable is not None
    assert readable.files[""] == [good]
    _, problem = readable.problems
    assert problem.startswith(f"{bad} is damaged (")
    assert without_damaged(readable) is None
    good.unlink()
    assert without_damaged(readable) is None, "a deleted file has a reason of its own"


@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize(
    ("damaged", "begin"), [(False, "ends in the middle of a record"), (True, "was damaged after it was written")]
)
def test_torn_file_is_a_problem_in_both_forms(tmp_path: Path, rolled: bool, damaged: bool, begin: str) -> None:
    """Records are missing at its end; in a later run's presence nothing else would show that."""
    folder = tmp_path / "journals"
    journal(folder)
    journal(folder)
    path, _ = sorted(folder.iterdir())
    content = path.read_bytes()
    path.write_bytes(content[:-2] + (b"!!" if damaged else b""))
    if rolled:
        compact(folder)
        path = path.with_suffix(".parquet")
    gathered = gather({"": [folder]}, tmp_path / "scratch")
    assert len(gathered.files[""]) == 2
    (problem,) = gathered.problems
    assert problem.startswith(f"{path} {begin}: 5 whole records were read, and the last ")


def test_cut_end_of_a_file_that_is_being_written_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its writer has written half of a frame, and the rest follows. Damage is a problem."""
    folder = tmp_path / "journals"
    one = Journal(settings(folder), "replica", "r")
    one.messages(("applied",), envelope(7, 8))
    (path,) = folder.iterdir()
    content = path.read_bytes()
    path.write_bytes(content[:-2])
    monkeypatch.setattr(growing, "sleep", lambda _: path.write_bytes(content))
    assert gather({"": [folder]}, tmp_path / "scratch").problems == []
    path.write_bytes(content[:-2] + b"!!")
    (problem,) = gather({"": [folder]}, tmp_path / "scratch").problems
    assert "was damaged after it was written" in problem
    one.close()


def test_page_that_changes_after_the_check_is_not_read(tmp_path: Path, spark: "SparkSession") -> None:
    """Parquet's own checksums find it, in Spark and in the check after Spark has failed."""
    folder = tmp_path / "journals"
    journal(folder)
    compact(folder)
    (path,) = folder.iterdir()
    table = pq.read_table(path)
    how = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(table.replace_schema_metadata({SCHEMA_KEY: b"1"}), path, **how)
    gathered = gather({"": [folder]}, tmp_path / "scratch")
    walls = {row["wall"] for row in load(spark, gathered).collect()}
    about = pq.read_metadata(path).row_group(0).column(COLUMNS.index("wall"))
    data = bytearray(path.read_bytes())
    data[about.data_page_offset + about.total_compressed_size - 2] ^= 1
    path.write_bytes(data)
    assert set(pq.read_table(path)["wall"].to_pylist()) != walls, "only the checksum shows it"
    with pytest.raises((PySparkException, Py4JJavaError), match="CRC"):
        load(spark, gathered).collect()
    readable = without_damaged(gathered)
    assert readable is not None
    assert readable.problems[-1].startswith(f"{path} is damaged (")


def test_full_scratch_folder_is_not_reported_as_a_bad_journal(tmp_path: Path) -> None:
    journal(tmp_path / "journals")
    (path,) = (tmp_path / "journals").iterdir()
    scratch = tmp_path / "scratch"
    with files_that_end_at(100):
        gathered = gather({"": [path.parent]}, scratch)
    assert gathered.problems[0] == (
        f"{path} cannot be converted to Parquet in {scratch / '0'} (File too large); free space or set TMPDIR"
    )


def test_domains_share_one_scan_and_a_folder_may_have_any_name(tmp_path: Path, spark: "SparkSession") -> None:
    folders = {"net 1/ä": tmp_path / "jour[1]n{a}l*s? %41+#ä", "other": tmp_path / "o t h e r", "": tmp_path / "none"}
    runs = {domain: journal(folder) for domain, folder in list(folders.items())[:2]}
    folders[""].mkdir()
    for folder in folders.values():
        compact(folder)
    places = {domain: [folder] for domain, folder in folders.items()}
    # Two domains may name the same folder, also by a link.
    (tmp_path / "link").symlink_to(folders["other"])
    runs["again"], places["again"] = runs["other"], [tmp_path / "none" / ".." / "link"]
    rows = load(spark, gather(places, tmp_path / "scratch"))
    assert len(rows.inputFiles()) == 2
    found = Counter((row["domain"], row["run"]) for row in rows.select("domain", "run").collect())
    assert found == dict.fromkeys(runs.items(), 6)


def test_moment_of_the_listing_is_before_the_first_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that begins while a file is read has no file in the list."""
    one, two = tmp_path / "one", tmp_path / "two"
    journal(one)
    journal(two)
    read_at: list[int] = []

    def slow(path: Path, scratch: Path) -> SourceFile | None:
        read_at.append(time.time_ns() // 1000)
        time.sleep(0.01)
        return source_file.source_file(path, scratch)

    monkeypatch.setattr(journals, "source_file", slow)
    before = time.time_ns() // 1000
    found = gather({"a": [one], "b": [two]}, tmp_path / "scratch")
    assert before <= found.listed["a"].wall <= read_at[0] <= found.listed["b"].wall <= read_at[1]
    assert found.listed["a"].took >= 10_000


def test_empty_folders_give_no_input(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    gathered = gather({"": [tmp_path / "none"]}, tmp_path / "scratch")
    assert gathered.empty
    assert gathered.problems == [f"no journals in {tmp_path / 'none'}; name the folders that have them"]


def test_domain_without_input_is_reported_beside_one_with_input(tmp_path: Path) -> None:
    none, some = tmp_path / "none", tmp_path / "some"
    none.mkdir()
    journal(some)
    gathered = gather({"a": [some], "b": [none, tmp_path / "gone"]}, tmp_path / "scratch")
    assert [len(files) for files in gathered.files.values()] == [1, 0]
    assert len(gathered.problems) == 2
    assert gathered.problems[1] == f"no journals of b in {none}, {tmp_path / 'gone'}; name the folders that have them"


@pytest.mark.parametrize("rolled", [False, True])
def test_truncated_file_is_read_up_to_its_last_record(tmp_path: Path, rolled: bool, spark: "SparkSession") -> None:
    folder = tmp_path / "journals"
    journal(folder)
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes()[:-2])
    if rolled:
        compact(folder)
    rows = load(spark, gather({"": [folder]}, tmp_path / "scratch")).collect()
    assert sorted(row.number for row in rows) == [1, 2, 3, 4, 5]


def test_store_is_read_after_the_journals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a replica lists when it closes must be in the store's listing, which would otherwise be an older one."""
    folder = tmp_path / "journals"
    journal(folder)
    order: list[str] = []

    def read(path: Path, scratch: Path) -> SourceFile | None:
        order.append(path.parent.name)
        return source_file.source_file(path, scratch)

    def store() -> Path:
        order.append("reading the store")
        journal(tmp_path / "store")
        return tmp_path / "store"

    monkeypatch.setattr(journals, "source_file", read)
    gathered = gather({"": [folder]}, tmp_path / "scratch", store)
    assert order == ["journals", "reading the store", "store"]
    assert len(gathered.files[""]) == 2
