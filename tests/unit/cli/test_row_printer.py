"""Rows printed one by one, in each format: the output equals that of cliff for all rows."""

import argparse
import csv
import io
import json
from typing import Any

import pytest
import yaml
from rich.cells import cell_len

from pubsub_lib.cli.output import Json, list_formatters
from pubsub_lib.cli.row_printer import Column, RowPrinter
from pubsub_lib.errors import UsageError

FORMATTERS = list_formatters()
COLUMNS = (
    Column("position", "pos", width=5, right=True),
    Column("topic", weight=1),
    Column("uuid", width=4, hidden=True),
    Column("value", weight=2),
)
ROWS = [
    (1, "a, b", "u1", Json('{"x":[1,"ö"]}'.encode())),
    (22, 'q"uote', "u2", Json(b"null")),
    (3, "", "u3", Json(b'"y"')),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(formatter: str, *columns: str, out: io.StringIO | None = None) -> str:
    parser = argparse.ArgumentParser()
    FORMATTERS[formatter].add_argument_group(parser)
    options = parser.parse_args([])
    options.formatter, options.columns = formatter, list(columns)
    out = out or io.StringIO()
    lines = RowPrinter(COLUMNS, out, options, FORMATTERS[formatter])
    for row in ROWS:
        lines.row(row, [each.shown(False) if isinstance(each, Json) else str(each) for each in row])
    return out.getvalue()


def plain(*, structured: bool) -> list[list[Any]]:
    return [[each.shown(structured) if isinstance(each, Json) else each for each in row] for row in ROWS]


def test_json_prints_one_object_per_line() -> None:
    found = [json.loads(line) for line in printed("json").splitlines()]
    assert [list(each.values()) for each in found] == plain(structured=True)
    assert list(found[0]) == ["position", "topic", "uuid", "value"]


def test_csv_prints_the_column_names_once() -> None:
    read = list(csv.reader(io.StringIO(printed("csv"))))
    assert read[0] == ["position", "topic", "uuid", "value"]
    assert read[1:] == [[str(each) for each in row] for row in plain(structured=False)]


def test_yaml_is_one_list() -> None:
    assert [list(each.values()) for each in yaml.safe_load(printed("yaml"))] == plain(structured=True)


def test_value_format_prints_a_line_per_row_and_selects_columns() -> None:
    assert printed("value", "Position", "uuid") == "1 u1\n22 u2\n3 u3\n"


def test_a_table_without_a_terminal_cuts_nothing() -> None:
    lines = printed("table").splitlines()
    assert [line.split() for line in lines] == [
        ["pos", "topic", "value"],
        ["1", "a,", "b", '{"x":[1,"ö"]}'],
        ["22", 'q"uote', "null"],
        ["3", '"y"'],
    ]
    assert {line.index(word) for line, word in zip(lines, ("value", "{", "null", '"y"'), strict=True)} == {25}
    assert printed("table", "uuid").split() == ["uuid", "u1", "u2", "u3"]


@pytest.mark.parametrize("width", [24, 80, 200])
def test_table_fits_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = printed("table", out=Terminal()).splitlines()
    assert all(len(line) <= width for line in lines)
    assert ("…" in lines[1]) is (width == 24)
    assert len({line.index(word) for line, word in zip(lines, ("value", "{", "null", '"y"'), strict=True)}) == 1


def test_error_for_an_unknown_column_lists_the_columns() -> None:
    for form in FORMATTERS:
        for columns in (["nope"], ["topic", "nope"]):
            with pytest.raises(UsageError, match="no column 'nope'; name one of position, topic, uuid, value"):
                printed(form, *columns)


def test_wide_characters_take_two_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = Terminal()
    options = argparse.Namespace(columns=[], formatter="table")
    lines = RowPrinter(COLUMNS, out, options, FORMATTERS["table"])
    for topic in ("東京都港区虎ノ門一丁目", "é東", "ascii"):
        lines.row((1, topic, "u", Json(b"7")), ["1", topic, "u", "7"])
    names, *rows = out.getvalue().splitlines()
    assert "…" in rows[0]
    before = [cell_len(line[: line.rindex(word)]) for line, word in ((names, "value"), *((row, "7") for row in rows))]
    assert len(set(before)) == 1, out.getvalue()


def test_row_printer_never_cuts_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = Terminal()
    options = argparse.Namespace(columns=[], formatter="table")
    lines = RowPrinter(COLUMNS, out, options, FORMATTERS["table"])
    lines.row((123_456_789, "t", "u", Json(b"7")), ["123456789", "t", "u", "7"])
    assert out.getvalue().splitlines()[1].split() == ["123456789", "t", "7"]
