"""Tables as CSV: formulas are escaped, times are readable, and only some rows are in memory."""

import csv
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from pubsub_lib.audit.report.csv_tables import escaped, lines, write_csv

FORMULAS = ("=1+1", "+1", "-1", "@SUM(1)", "\t=1", "\r1", "\n1", "  =1", "＝1")
PLAIN = ("", "a=1", "1-1", "é", "a\nb", 'a "b"', "'quoted", "; , |")
WALL = 1_790_000_000_123_456


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as opened:
        return list(csv.DictReader(opened))


def parquet(file: Path, columns: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), file)


def test_only_texts_that_a_spreadsheet_would_run_are_escaped() -> None:
    assert [escaped(each) for each in FORMULAS] == [f"'{each}" for each in FORMULAS]
    assert [escaped(each) for each in PLAIN] == list(PLAIN)
    assert lines([["=1", -5, None, True], ["a", 0, 1.5, "x,y"]]) == '\'=1,-5,,True\na,0,1.5,"x,y"\n'


def test_tables_are_written_with_escaped_texts_and_unchanged_numbers(tmp_path: Path) -> None:
    texts = [*FORMULAS, *PLAIN, None]
    parquet(tmp_path / "t" / "part-0.parquet", {"key": texts, "behind": [-5] * len(texts)})
    write_csv(tmp_path / "t", tmp_path / "t.csv", ["behind", "key"])
    found = rows(tmp_path / "t.csv")
    assert [each["key"] for each in found] == [*(f"'{each}" for each in FORMULAS), *PLAIN, ""]
    assert {each["behind"] for each in found} == {"-5"}
    assert (tmp_path / "t.csv").read_text().startswith("behind,key\n")


def test_times_are_text_in_utc_unless_they_are_outside_of_the_calendar(tmp_path: Path) -> None:
    walls = pa.array([WALL, None, 0, -1, 2**62, 253_402_300_799_999_999], pa.int64())
    parquet(tmp_path / "t" / "part-0.parquet", {"p": walls, "took": walls})
    write_csv(tmp_path / "t", tmp_path / "t.csv", ["p", "took"])
    shown = [each["p"] for each in rows(tmp_path / "t.csv")]
    assert shown == [
        "2026-09-21 14:13:20.123456", "", "0", "-1", str(2**62), "9999-12-31 23:59:59.999999"
    ]  # fmt: skip
    assert rows(tmp_path / "t.csv")[0]["took"] == str(WALL)


def test_files_of_a_table_and_the_columns_of_its_folders_are_together(tmp_path: Path) -> None:
    for number, verdict in enumerate(("late", "=lost", "lost")):
        parquet(
            tmp_path / "t" / f"verdict={verdict.replace('=', '%3D')}" / "part-0.parquet",
            {"sequence": [number, number]},
        )
    (tmp_path / "t" / "_SUCCESS").touch()
    write_csv(tmp_path / "t", tmp_path / "t.csv", ["verdict", "sequence"])
    assert [tuple(each.values()) for each in rows(tmp_path / "t.csv")] == [
        ("'=lost", "1"), ("'=lost", "1"), ("late", "0"), ("late", "0"), ("lost", "2"), ("lost", "2"),
    ]  # fmt: skip


def test_empty_table_has_its_header(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    write_csv(tmp_path / "t", tmp_path / "t.csv", ["domain", "key"])
    assert (tmp_path / "t.csv").read_text() == "domain,key\n"


def test_only_a_bounded_number_of_rows_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    given = pa_csv.write_csv

    def counting(table: pa.Table, *more: Any) -> None:
        sizes.append(len(table))
        given(table, *more)

    monkeypatch.setattr(pa_csv, "write_csv", counting)
    parquet(tmp_path / "t" / "part-0.parquet", {"key": [str(number) for number in range(100_000)]})
    write_csv(tmp_path / "t", tmp_path / "t.csv", ["key"])
    assert len(sizes) == 7
    assert max(sizes) == 16_384
    assert [each["key"] for each in rows(tmp_path / "t.csv")] == [str(number) for number in range(100_000)]
