"""What a shell can complete: read from the parsers."""

import argparse

import pytest

from pubsub_lib.cli.app import PubsubDb
from pubsub_lib.cli.completion import Option, arguments_of, commands_of, groups
from tests.unit.cli.world import World


@pytest.mark.parametrize(
    ("arguments", "keywords", "expected"),
    [
        (["-y", "--yes"], {"action": "store_true", "help": "No. Twice."}, Option(["-y", "--yes"], "", "No")),
        (["table"], {"metavar": "TABLE"}, Option([], "tables", "")),
        (["--table"], {"default": "t", "help": "one (default: %(default)s)"}, Option(["--table"], "tables", "one")),
        (["topics"], {"metavar": "TOPIC", "nargs": "*"}, Option([], "topics", "")),
        (["--output"], {"metavar": "FILE"}, Option(["--output"], "files", "")),
        (["key"], {"metavar": "KEY"}, Option([], "nothing", "")),
        (["--form"], {"choices": ("csv", "json"), "help": "(%(default)s)"}, Option(["--form"], "csv|json", "")),
    ],
)  # fmt: skip
def test_argument_of_a_parser(arguments: list[str], keywords: dict[str, object], expected: Option) -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(*arguments, **keywords)  # type: ignore[arg-type]
    parser.add_argument("--hidden", help=argparse.SUPPRESS)
    ((found, _),) = arguments_of(parser)
    assert found == expected


def test_commands_with_their_arguments() -> None:
    commands = {each.name: each for each in commands_of(PubsubDb())}
    assert commands["ls"].arguments == ["tables"]
    assert not commands["ls"].repeated
    values = {name: each.value for each in commands["ls"].options for name in each.names}
    assert {name: values[name] for name in ("--topic", "--prefix", "--limit", "--values")} == {
        "--topic": "topics", "--prefix": "nothing", "--limit": "nothing", "--values": "",
    }  # fmt: skip
    assert commands["ls"].help == "List the keys of a table, with topic and version"
    assert (commands["rm"].arguments, commands["rm"].repeated) == (["tables", "nothing"], True)
    assert (commands["help"].arguments, commands["help"].repeated) == (["commands"], True)
    assert {first for first, members in groups([*commands.values()]).items() if len(members) > 1} == {"clients"}


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_script_of_each_shell_is_printed(shell: str, small: World) -> None:
    done = small.run("complete", "--shell", shell)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"# Completion of pubsub-db for {shell}")
    assert "--config-file" in done.out
    assert ("compopt" in done.out) == (shell != "fish")


def test_unknown_shell_is_a_usage_error(small: World) -> None:
    done = small.run("complete", "--shell", "tcsh")
    assert (done.code, done.out) == (2, "")
    assert "invalid choice: 'tcsh'" in done.err
