"""The table of commands: complete, sorted, and every one describes itself."""

import re
from pathlib import Path

import pytest
from cliff.command import Command

from pubsub_lib.cli.commands import COMMANDS, manager
from pubsub_lib.cli.output import Act
from tests.unit.cli.world import ROOT, World


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_be_had_and_says_what_it_does(name: str, small: World) -> None:
    kind, found, rest = manager().find_command([name, "--option"])
    assert issubclass(kind, Command)
    assert (found, rest) == (name, ["--option"])
    said = small.run(name, "--help")
    assert said.code == 0
    assert said.out.startswith(f"usage: pubsub-db {name} ")
    assert said.err == ""


def test_the_table_is_sorted() -> None:
    assert list(COMMANDS) == sorted(COMMANDS)


def test_every_command_is_described_and_nothing_else() -> None:
    described = re.findall(r"^### `([a-z-]+)", Path(ROOT / "docs/cli.md").read_text(), re.MULTILINE)
    assert sorted(described) == sorted([*COMMANDS, "complete", "help"])


def test_the_commands_without_a_format_are_those_that_the_page_names() -> None:
    page = (ROOT / "docs/cli.md").read_text()
    named = re.search(r"Not for (`.*`): they have no result to format", page)
    assert named is not None
    without = {name for name in COMMANDS if issubclass(manager().find_command([name])[0], Act)}
    assert set(re.findall("`([a-z]+)`", named[1])) == without | {"complete", "help"}
