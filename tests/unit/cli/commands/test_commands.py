"""The table of commands is complete and sorted, and every command has help."""

import re
from pathlib import Path

import pytest
from cliff.command import Command

from pubsub_lib.cli.commands import COMMANDS, OF_PROGRAM, manager
from pubsub_lib.cli.output import Act
from tests.unit.cli.world import ROOT, World


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


def test_docs_describe_exactly_the_commands() -> None:
    described = re.findall(r"^### `([a-z-]+(?: [a-z][a-z-]*)*)", Path(ROOT / "docs/cli.md").read_text(), re.MULTILINE)
    assert sorted(described) == sorted([*COMMANDS, "complete", "help"])


def test_docs_list_the_commands_without_a_format() -> None:
    page = " ".join((ROOT / "docs/cli.md").read_text().split())
    named = re.search(r"Not for (`[^:]*`): they have no result to format", page)
    assert named is not None
    without = {name for name in COMMANDS if issubclass(manager().find_command([name])[0], Act)}
    assert set(re.findall("`([a-z ]+)`", named[1])) == without | {"complete", "help"}
