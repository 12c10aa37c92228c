"""``pubsub-db complete``: what a shell can complete, read from the parsers of all commands."""

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from cliff.app import App

from pubsub_lib.cli.output import Act
from pubsub_lib.command import exit_codes

TABLES: Final = "tables"
TOPICS: Final = "topics"
FILES: Final = "files"
COMMANDS: Final = "commands"
NOTHING: Final = "nothing"
"""A value that no list of names contains, for example a key."""
_KINDS: Final = {"TABLE": TABLES, "TOPIC": TOPICS, "COMMAND": COMMANDS, "FILE": FILES, "PATH": FILES, "DIR": FILES}
"""What a parser's metavar stands for."""


class Option(msgspec.Struct, frozen=True):
    """One option of a command."""

    names: Sequence[str]
    value: str
    """"" without a value; else a kind, or the allowed words with ``|`` between them."""
    help: str


class Command(msgspec.Struct, frozen=True):
    """One command. The name of a command in a group has two words."""

    name: str
    help: str
    options: Sequence[Option]
    arguments: Sequence[str]
    """The kind of each positional argument."""
    repeated: bool
    """Whether the last argument may be repeated."""


class Complete(Act):
    """Print a script that completes commands, options, tables and topics in a shell."""

    example = "complete --shell fish"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The shell."""
        parser.add_argument("--shell", choices=("bash", "fish", "zsh"), default="bash", help="(default: %(default)s)")

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Print it. All commands are imported."""
        from pubsub_lib.cli import completion_scripts

        written = completion_scripts.SCRIPTS[parsed_args.shell](options_of(self.app), commands_of(self.app))
        self.app.stdout.write(written)
        return exit_codes.OK


def options_of(app: App) -> list[Option]:
    """The options of the program itself."""
    return [option for option, _ in arguments_of(app.parser)]


def commands_of(app: App) -> list[Command]:
    """All commands, sorted."""
    found = []
    for name, _ in sorted(app.command_manager):
        kind, _, _ = app.command_manager.find_command(name.split())
        parser = kind(app, app.options).get_parser(name)
        options, arguments, repeated = [], [], False
        for option, action in arguments_of(parser):
            if option.names:
                options.append(option)
            else:
                arguments.append(option.value)
                repeated = action.nargs in ("*", "+")
        found.append(Command(name, _first_sentence(parser.description or ""), options, arguments, repeated))
    return found


def groups(commands: Sequence[Command]) -> Mapping[str, Sequence[Command]]:
    """The commands by their first word; those without a group alone."""
    found: dict[str, list[Command]] = {}
    for each in commands:
        found.setdefault(each.name.split()[0], []).append(each)
    return found


def arguments_of(parser: argparse.ArgumentParser) -> Iterator[tuple[Option, argparse.Action]]:
    """The options and arguments of a parser that its help shows."""
    found: list[argparse.Action] = []

    class Recorder(argparse.HelpFormatter):
        def add_usage(
            self,
            usage: str | None,
            actions: Iterable[argparse.Action],
            groups: Iterable[Any],
            prefix: str | None = None,
        ) -> None:
            found.extend(actions)

    parser.formatter_class = Recorder  # a parser names its actions to its formatter only
    parser.format_usage()
    for action in found:
        if action.help != argparse.SUPPRESS:
            yield Option(action.option_strings, _value_of(action), _first_sentence(action.help or "")), action


def _value_of(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if action.choices is not None:
        return "|".join(map(str, action.choices))
    if "--table" in action.option_strings:
        return TABLES
    return _KINDS.get(str(action.metavar), NOTHING)


def _first_sentence(text: str) -> str:
    """For a list of descriptions; "" for a text that only names a default."""
    sentence = " ".join(text.split()).partition(". ")[0].partition(" (")[0].rstrip(".")
    return "" if sentence.startswith(("(", "%")) else sentence
