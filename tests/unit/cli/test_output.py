"""The formats: a value is structured where the format has structure, and the same JSON text elsewhere."""

import csv
import io

import pytest
import yaml

from tests.unit.cli.world import World, fill

TEXT = '{"chassis":"höst-8","switch":"s1"}'


@pytest.fixture
def filled(small: World) -> World:
    with small.open() as store:
        fill(store)
    return small


def test_one_thing_in_csv_value_and_yaml(filled: World) -> None:
    names, row = csv.reader(io.StringIO(filled.run("get", "lport", "p2", "-f", "csv").out))
    assert dict(zip(names, row, strict=True))["value"] == TEXT
    assert filled.run("get", "lport", "p2", "-f", "value", "-c", "value").out == f"{TEXT}\n"
    shown = yaml.safe_load(filled.run("get", "lport", "p2", "-f", "yaml").out)
    assert shown["value"] == {"chassis": "höst-8", "switch": "s1"}


def test_rows_in_csv_value_and_yaml(filled: World) -> None:
    assert filled.run("ls", "lport", "-f", "csv", "-c", "key").out == '"key"\n"p1"\n"p2"\n'
    assert filled.run("ls", "lport", "-f", "value", "-c", "key").out == "p1\np2\n"
    assert [each["key"] for each in yaml.safe_load(filled.run("ls", "lport", "-f", "yaml").out)] == ["p1", "p2"]


@pytest.mark.parametrize(("form", "shown"), [("csv", '"table","objects"\n'), ("value", ""), ("yaml", "[]\n")])
def test_no_rows(form: str, shown: str, small: World) -> None:
    said = small.run("tables", "-f", form)
    assert (said.code, said.out, said.err) == (0, shown, "")


def test_rows_in_another_order(filled: World) -> None:
    said = filled.run("ls", "lport", "-f", "value", "-c", "key", "--sort-column", "key", "--sort-descending")
    assert said.out == "p2\np1\n"


def test_an_unknown_column_is_named(filled: World) -> None:
    filled.run("ls", "lport", "-c", "colour").failed(2, "colour", "version")
