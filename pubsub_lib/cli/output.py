"""The base classes of the commands: the five formats, JSON values, empty results, exit codes."""

import argparse
import logging
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import EntryPoint
from itertools import chain
from typing import Any, TextIO

from cliff.app import App
from cliff.command import Command
from cliff.formatters.base import ListFormatter, SingleFormatter
from cliff.formatters.commaseparated import CSVLister
from cliff.formatters.json_format import JSONFormatter
from cliff.formatters.table import TableFormatter
from cliff.formatters.value import ValueFormatter
from cliff.formatters.yaml_format import YAMLFormatter
from cliff.lister import Lister
from cliff.show import ShowOne
from stevedore import ExtensionManager
from stevedore.extension import Extension

from pubsub_lib.cli.formatting import visible, visible_json
from pubsub_lib.command import exit_codes
from pubsub_lib.core import values
from pubsub_lib.errors import UsageError

_log = logging.getLogger("pubsub_lib.cli")

_STRUCTURED = ("json", "yaml")
"""The formats that show the inside of a value; in the others it is one piece of JSON text."""


class Json:
    """A value as the store holds it (canonical JSON): structured in json and yaml, the same text everywhere else."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def shown(self, structured: bool) -> Any:
        """What a formatter is given."""
        return values.decode(self._data) if structured else self._data.decode()

    def visible(self) -> str:
        """The text, with nothing in it that a terminal would obey."""
        return visible_json(self._data.decode())


class List(Lister):
    """A command that lists rows: ``take_action`` returns (column names, rows).

    Rows are printed in the order given, unless the user asks for another one. No rows: ``nothing`` goes to stderr
    for those who read a table, and the other formats print their own emptiness.
    """

    exit_code = exit_codes.OK
    """``take_action`` may set it to NOT_SO when what it shows is bad news."""
    nothing = "there is nothing to show"

    def _load_formatter_plugins(self) -> "ExtensionManager[ListFormatter]":
        return _formatters(csv=CSVLister())

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The options of cliff, of which one is described as it is here."""
        parser = super().get_parser(prog_name)
        for option in parser._actions:
            if option.dest == "sort_columns":
                option.help = "sort the rows by this column; may be repeated: what is named first counts more"
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Print the rows; the exit code."""
        return super().run(parsed_args) or self.exit_code

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Iterable[Sequence[Any]]
    ) -> int:
        """Print the rows, or say that there are none. Raises UsageError for a column that is not there."""
        check_columns([*parsed_args.columns, *parsed_args.sort_columns], column_names)
        terminal = self.app.stdout.isatty()
        rows = iter(data)
        first = next(rows, None)
        if first is None and parsed_args.formatter == "table":
            _log.info("%s", self.nothing)
            return exit_codes.OK
        found: Iterator[Sequence[Any]] = chain(() if first is None else (first,), rows)
        return super().produce_output(
            parsed_args, column_names, (_shown(row, parsed_args.formatter, terminal) for row in found)
        )


class Show(ShowOne):
    """A command that shows one thing: ``take_action`` returns (names, values)."""

    exit_code = exit_codes.OK
    """``take_action`` may set it to NOT_SO when what it shows is bad news."""

    def _load_formatter_plugins(self) -> "ExtensionManager[SingleFormatter]":
        return _formatters(csv=_CsvOne())

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Print the thing; the exit code."""
        return super().run(parsed_args) or self.exit_code

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Sequence[Any]) -> int:
        """Print it. Raises UsageError for a column that is not there."""
        check_columns(parsed_args.columns, column_names)
        shown = _shown(data, parsed_args.formatter, self.app.stdout.isatty())
        return super().produce_output(parsed_args, column_names, shown)


class Act(Command):
    """A command that prints by itself, or nothing: ``take_action`` returns its exit code, or None for 0."""

    app: App


class _CsvOne(SingleFormatter):
    """One thing as CSV: its names and its values, in two lines."""

    def __init__(self) -> None:
        self._lister = CSVLister()

    def add_argument_group(self, parser: argparse.ArgumentParser) -> None:
        self._lister.add_argument_group(parser)

    def emit_one(
        self, column_names: Sequence[str], data: Sequence[Any], stdout: TextIO, parsed_args: argparse.Namespace
    ) -> None:
        self._lister.emit_list(column_names, [data], stdout, parsed_args)


def check_columns(wanted: Sequence[str], names: Sequence[str]) -> None:
    """Raises UsageError for an unknown one. cliff would not sort by it, or leave it out if it knows another."""
    known = {name.lower().replace(" ", "_") for name in names}
    for each in wanted:
        if each.lower().strip().replace(" ", "_") not in known:
            raise UsageError(f"there is no column {each!r}; name one of {', '.join(names)}")


def plain(value: Any, formatter: str, *, terminal: bool) -> Any:
    """What a formatter is given for one value. ``terminal``: somebody looks at it.

    A table is for people, so it never holds what a terminal would obey, nor a line that is none of its rows. value and
    csv are for programs, who want every byte, unless they are shown on a terminal. json and yaml escape by themselves.
    """
    structured = formatter in _STRUCTURED
    people = formatter == "table" or (terminal and not structured)
    if isinstance(value, Json):
        return value.visible() if people else value.shown(structured)
    return visible(value) if people and isinstance(value, str) else value


def _shown(row: Sequence[Any], formatter: str, terminal: bool) -> list[Any]:
    return [plain(each, formatter, terminal=terminal) for each in row]


def _formatters(csv: Any) -> "ExtensionManager[Any]":
    """The same five for all commands. By way of entry points a single thing would have no csv, and every command
    would search the whole environment before it starts."""
    made = {
        "table": TableFormatter(),
        "json": JSONFormatter(),
        "yaml": YAMLFormatter(),
        "csv": csv,
        "value": ValueFormatter(),
    }
    extensions: list[Extension[Any]] = [
        Extension(name, EntryPoint(name, f"{type(each).__module__}:{type(each).__name__}", "cliff"), type(each), each)
        for name, each in made.items()
    ]
    return ExtensionManager.make_test_instance(extensions)
