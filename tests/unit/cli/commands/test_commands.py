"""The table of commands is complete and sorted, and every command has help."""

import argparse
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from cliff.command import Command

from pubsub_lib.cli.app import PubsubDb
from pubsub_lib.cli.commands import COMMANDS, OF_PROGRAM, manager
from pubsub_lib.cli.completion import arguments_of
from pubsub_lib.cli.output import Act, List, Show
from tests.unit.cli.world import ROOT, World

RUN = (
    "add", "get", "ls", "dump", "tables", "topics", "status", "publishers", "bind", "update", "history", "log",
    "export", "load", "send", "clients list", "complete", "help", "rm", "clean",
)  # fmt: skip
"""Commands whose examples succeed one after the other in a store with few objects. The others need a running replica, a
terminal or another database, or delete everything."""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_found_and_has_help(name: str, small: World) -> None:
    kind, found, rest = manager().find_command([name, "--option"])
    assert issubclass(kind, Command)
    assert (found, rest) == (name, ["--option"])
    output = small.run(name, "--help")
    assert output.code == 0
    assert output.out.startswith(f"usage: pubsub-db {name} ")
    assert output.err == ""


@pytest.mark.parametrize(("name", "sentence"), [(name, each[1]) for name, each in (COMMANDS | OF_PROGRAM).items()])
def test_list_of_commands_has_the_first_sentence_of_each_help(name: str, sentence: str) -> None:
    kind, _, _ = manager().find_command(name.split())
    assert (kind.__doc__ or "").split("\n")[0].removesuffix(".") == sentence


def test_the_table_is_sorted() -> None:
    assert list(COMMANDS) == sorted(COMMANDS)


def example_of(name: str) -> list[str]:
    """The words of a command's example, as a shell splits them."""
    kind, _, _ = manager().find_command(name.split())
    assert issubclass(kind, List | Show | Act)
    return shlex.split(kind.example)


@pytest.mark.parametrize("name", COMMANDS | OF_PROGRAM)
def test_example_of_every_command_is_in_its_help_and_can_be_parsed(name: str, small: World) -> None:
    app = PubsubDb()
    app.options, words = app.parser.parse_known_args(example_of(name))
    kind, found, rest = app.command_manager.find_command(words)
    assert found == name
    command = kind(app, app.options, cmd_name=found)
    command.get_parser(name).parse_args(rest)
    shown = small.run("help", *name.split()).out
    assert shlex.split(" ".join(shown.rpartition("Example: pubsub-db ")[2].split())) == example_of(name)


def test_examples_succeed(small: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.jsonl").write_text('{"table": "lport", "key": "p3", "value": {"switch": "s1"}}\n')
    for name in RUN:
        confirmed = ["--yes"] if name in ("rm", "clean") else []
        output = small.run(*example_of(name), *confirmed)
        assert output.code == 0, (name, output)


class Plain(List):
    """A list without options of its own."""

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Any]:
        raise NotImplementedError


@pytest.mark.parametrize("name", COMMANDS)
def test_usage_begins_with_the_options_of_the_command(name: str) -> None:
    app = PubsubDb()
    kind, _, _ = app.command_manager.find_command(name.split())
    flags = [option.names[0] for option, _ in arguments_of(kind(app, app.options).get_parser(name)) if option.names]
    if issubclass(kind, Act):
        assert "-f" not in flags
        return
    of_output = [option.names[0] for option, _ in arguments_of(Plain(app, app.options).get_parser(name))]
    first = flags.index("-f")
    assert flags[0] == "-h"
    assert set(flags[1:first]).isdisjoint(of_output)
    assert set(flags[first:]) <= set(of_output)


def test_docs_describe_exactly_the_commands() -> None:
    described = re.findall(r"^### `([a-z-]+(?: [a-z][a-z-]*)*)", Path(ROOT / "docs/cli.md").read_text(), re.MULTILINE)
    assert sorted(described) == sorted([*COMMANDS, "complete", "help"])


def test_docs_list_the_commands_without_a_format() -> None:
    page = " ".join((ROOT / "docs/cli.md").read_text().split())
    named = re.search(r"Not for (`[^:]*`): they have no result to format", page)
    assert named is not None
    without = {name for name in COMMANDS if issubclass(manager().find_command([name])[0], Act)}
    assert set(re.findall("`([a-z ]+)`", named[1])) == without | {"complete", "help"}
