"""The formats: a value is structured in structured formats, and the same JSON text in the others."""

import argparse
import csv
import io
import json
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from cliff.lister import Lister

from pubsub_lib.api import Client
from pubsub_lib.cli.app import PubsubDb
from pubsub_lib.cli.commands import COMMANDS, manager
from pubsub_lib.cli.commands.ls import Ls
from pubsub_lib.cli.output import List, Show
from tests.unit.cli.conftest import alone
from tests.unit.cli.world import World, fill
from tests.unit.sync.some_agents import agent, announcement
from tests.unit.sync.test_agents_server import Served

TEXT = '{"chassis":"höst-8","switch":"s1"}'


@pytest.fixture
def filled(small: World) -> World:
    with small.open() as store:
        fill(store)
    return small


def test_one_item_in_csv_value_and_yaml(filled: World) -> None:
    names, row = csv.reader(io.StringIO(filled.run("get", "lport", "p2", "-f", "csv").out))
    assert dict(zip(names, row, strict=True))["value"] == TEXT
    assert filled.run("get", "lport", "p2", "-f", "value", "-c", "value").out == f"{TEXT}\n"
    shown = yaml.safe_load(filled.run("get", "lport", "p2", "-f", "yaml").out)
    assert shown["value"] == {"chassis": "höst-8", "switch": "s1"}


@pytest.mark.parametrize("form", ["csv", "value"])
def test_mappings_and_lists_are_json_text(form: str, filled: World) -> None:
    out = filled.run("status", "--ask", "0", "-f", form, "-c", "topics").out
    cell = next(csv.reader(io.StringIO(out.partition("\n")[2])))[0] if form == "csv" else out
    assert {each["topic"] for each in json.loads(cell)} == {
        each["topic"] for each in json.loads(filled.run("status", "--ask", "0", "-f", "json").out)["topics"]
    }


def test_rows_in_csv_value_and_yaml(filled: World) -> None:
    assert filled.run("ls", "lport", "-f", "csv", "-c", "key").out == '"key"\n"p1"\n"p2"\n'
    assert filled.run("ls", "lport", "-f", "value", "-c", "key").out == "p1\np2\n"
    assert [each["key"] for each in yaml.safe_load(filled.run("ls", "lport", "-f", "yaml").out)] == ["p1", "p2"]


@pytest.mark.parametrize(("form", "shown"), [("csv", '"table","objects"\n'), ("value", ""), ("yaml", "[]\n")])
def test_no_rows(form: str, shown: str, small: World) -> None:
    output = small.run("tables", "-f", form)
    assert (output.code, output.out, output.err) == (0, shown, "")


def test_rows_in_another_order(filled: World) -> None:
    output = filled.run("ls", "lport", "-f", "value", "-c", "key", "--sort-column", "key", "--sort-descending")
    assert output.out == "p2\np1\n"


@pytest.mark.parametrize("option", ["-c", "--sort-column"])
def test_an_unknown_column_is_named(option: str, filled: World) -> None:
    filled.run("ls", "lport", option, "key", option, "colour").failed(2, "colour", "version")


def test_streamed_rows_cannot_be_sorted(small: World) -> None:
    output = small.run("watch", "--seconds", "0.1", "--sort-column", "topic")
    output.failed(2, "cannot be sorted; omit --sort-column")


def test_help_of_sort_column_is_replaced(small: World) -> None:
    assert "ignored" not in small.run("ls", "--help").out


def test_options_of_a_list_are_those_of_cliff() -> None:
    class Listed(Lister):
        def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
            raise NotImplementedError

    app = PubsubDb()
    ours, of_cliff = (kind(app, None).get_parser("x").parse_args for kind in (Ls, Listed))
    own = {"table": "lport", "topic": None, "prefix": "", "limit": None, "values": False}
    assert ours(["lport"]) == argparse.Namespace(**vars(of_cliff([])), **own)


@pytest.mark.parametrize("form", ["table", "value", "csv", "json", "yaml"])
def test_rows_whose_values_cannot_be_compared_are_shown_unsorted(form: str, filled: World) -> None:
    plain = filled.run("dump", "--table", "lport", "-f", form)
    output = filled.run("dump", "--table", "lport", "-f", form, "--sort-column", "value")
    assert (output.code, sorted(output.out)) == (0, sorted(plain.out))
    warned = "the rows are not sorted by the column 'value': its values cannot be compared"
    assert (warned in output.err) is (form in ("json", "yaml"))


def test_rows_sorted_by_two_columns_with_missing_values() -> None:
    parsed_args = argparse.Namespace(
        formatter="value", columns=["a", "B c"], sort_columns=["B C", "a"], sort_direction="ascending"
    )
    out = io.StringIO()
    rows = [(1, "-", None), (3, "-", "x"), (2, "-", "x"), (0, "-", "w")]
    Ls(PubsubDb(stdout=out), None).produce_output(parsed_args, ("a", "hidden", "b c"), rows)
    assert out.getvalue() == "0 w\n2 x\n3 x\n1 None\n"


EVIL = "k\x1b[31mRED\x1b]0;title\x07\x1b[2J\n\x9b\u202e"
"""Colours, the window's title, a cleared screen, a line end, C1, and a reversed writing direction."""
VISIBLE = r"k\x1b[31mRED\x1b]0;title\x07\x1b[2J\n\x9b\u202e"
SHOWING: dict[str, tuple[str, ...]] = {
    "agents": ("--url", "URL"),
    "tree": ("--url", "URL"),
    "diff": ("0", "HEAD"),
    "dump": (),
    "get": (EVIL, EVIL),
    "history": (EVIL, EVIL),
    "log": ("--values",),
    "ls": (EVIL,),
    "publishers": (),
    "status": ("--ask", "0"),
    "tables": (),
    "topics": (),
    "clients list": (),
    "clients grant": (EVIL, "--topics", "t\x1b"),
    "clients revoke": (EVIL,),
    "verify": (EVIL,),
    "accept": ("--yes", "--topic", EVIL),
    "add": (EVIL, "another", '{"y": "\x9b"}', "--topic", EVIL),
    "bind": (EVIL, "--table", EVIL, "--host", "h\x1b"),
    "load": ("FILE",),
    "migrate": (),
    "new-id": ("--yes",),
    "send": ("--topic", EVIL, "--value", f'"{EVIL[-2:]}"'),
    "update": (EVIL, "another", '{"x": "\x9b"}'),
    "rm": ("--yes", EVIL, EVIL),
    "clean": ("--yes", "--topic", EVIL),
    "dropall": ("--yes", "--force"),
    "init": (),
}
"""Each command that lists or shows, and its arguments, in an order in which all commands succeed."""
NAMING = (
    "agents", "clients list", "diff", "dump", "get", "history", "log", "ls", "publishers", "status", "tables", "topics",
    "tree",
)  # fmt: skip


@pytest.fixture
def hostile(sqlite_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> World:
    """Every name and value is hostile."""
    world = World(sqlite_url, alone(tmp_path, sqlite_url))
    world.capture = capsys
    with world.open() as store:
        with store.transaction(origin=EVIL) as tx:
            tx.set(EVIL, EVIL, {"member": EVIL}, topic=EVIL)
        store.directory.register(EVIL, "u1", f"tcp://{EVIL}:1", 60)
        store.directory.clients.add(Client(EVIL, "k" * 40, frozenset({EVIL})))
    (tmp_path / "lines").write_text(json.dumps({"table": EVIL, "key": EVIL, "value": EVIL, "topic": EVIL}) + "\n")
    return world


@pytest.fixture
def hostile_agents() -> Iterator[str]:
    """The URL of a service that knows hostile agents."""
    served = Served()
    names: dict[str, Any] = {
        "name": EVIL,
        "host": EVIL,
        "parent": EVIL,
        "version": EVIL,
        "topics": (EVIL,),
        "address": EVIL,
    }
    announced = announcement("relay", agent(listens_to=(EVIL,), uuid=EVIL, **names), interval=600.0)
    served.route._registry.receive(announced, served.route._now())
    yield f"http://127.0.0.1:{served.endpoint.port}"
    served.endpoint.close()


def kind_of(name: str) -> Any:
    """The class of a command."""
    return manager().find_command(name.split())[0]


def stored(world: World) -> list[str]:
    """Everything in an SQLite database."""
    connection = sqlite3.connect(world.url.removeprefix("sqlite:///"))
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


def test_every_showing_command_is_covered() -> None:
    wanted = {name for name in COMMANDS if issubclass(kind_of(name), List | Show)}
    assert set(SHOWING) == wanted - {"watch"}  # test_row_printer covers its rows


REFUSED: dict[str, tuple[str, ...]] = {
    **{name: ("-c", "colour", *arguments) for name, arguments in SHOWING.items()},
    "log, followed": ("-c", "colour", "--follow"),
    "publishers, one of them removed": ("-c", "colour", "--forget", EVIL),
    "publishers, one of them removed, in order": ("--sort-column", "colour", "--forget", EVIL),
    "watch": ("-c", "colour"),
}
"""A command, and arguments that name a column which its result does not have."""


@pytest.mark.parametrize("name", REFUSED)
def test_unknown_column_is_refused_before_anything_is_done(name: str, hostile: World, tmp_path: Path) -> None:
    known = {"HEAD": str(hostile.head), "FILE": str(tmp_path / "lines"), "URL": "http://127.0.0.1:1"}
    arguments = [known.get(each, each) for each in REFUSED[name]]
    before = stored(hostile)
    hostile.run(*name.partition(",")[0].split(), *arguments).failed(2, "there is no column 'colour'; name one of ")
    assert stored(hostile) == before


@pytest.mark.quick_variants(1)
@pytest.mark.parametrize("form", ["table", "value", "csv", "json", "yaml"])
def test_stored_control_characters_are_escaped_on_a_terminal(
    form: str, hostile: World, hostile_agents: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"HEAD": str(hostile.head), "FILE": str(tmp_path / "lines"), "URL": hostile_agents}
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for name, arguments in SHOWING.items():
        output = hostile.run(name, "-f", form, *(known.get(each, each) for each in arguments))
        assert output.code == 0, (name, output)
        assert all(each.isprintable() for each in (output.out + output.err).split("\n")), (name, output)
        if form == "table" and name in NAMING:
            assert VISIBLE in output.out, (name, output)


def test_only_tables_escape_control_characters_in_a_pipe(hostile: World) -> None:
    assert hostile.run("ls", EVIL, "-f", "value", "-c", "key").out == EVIL + "\n"
    assert next(csv.reader(io.StringIO(hostile.run("topics", "-f", "csv", "-c", "topic").out.partition("\n")[2]))) == [
        EVIL
    ]
    rows = [line for line in hostile.run("ls", EVIL, "-c", "key").out.split("\n") if line.startswith("|")]
    assert [each.strip("| ") for each in rows] == ["key", VISIBLE]


@pytest.mark.parametrize("begin", ["=", "+", "-", "@"])
def test_csv_keeps_what_a_spreadsheet_would_run(begin: str, small: World) -> None:
    """csv is for programs, which need the stored characters (docs/cli.md warns of spreadsheets)."""
    key = f"{begin}1+cmd|' /C calc'!A0"
    with small.open() as store, store.transaction() as tx:
        tx.set("formulas", key, key, topic="formulas")
    printed = small.run("ls", "formulas", "-f", "csv", "-c", "key").out
    assert [key] in list(csv.reader(io.StringIO(printed)))


def test_json_on_a_terminal_keeps_its_value(hostile: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert json.loads(hostile.run("get", EVIL, EVIL, "-f", "value", "-c", "value").out) == {"member": EVIL}


def test_error_about_a_hostile_name_is_one_escaped_line(hostile: World) -> None:
    hostile.run("export", f"/nowhere/{EVIL}").failed(5, r"/nowhere/k\x1b[31mRED")
