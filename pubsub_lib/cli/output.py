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
"""The formats that show the structure of a value; in the other formats a value is one JSON text."""


class Json:
    """A value as the store holds it (canonical JSON): structured in json and yaml, the same text everywhere else."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def shown(self, structured: bool) -> Any:
        """The value for a formatter."""
        return values.decode(self._data) if structured else self._data.decode()

    def visible(self) -> str:
        """The text, with control characters escaped."""
        return visible_json(self._data.decode())


class List(Lister):
    """A command that lists rows: ``take_action`` returns (column names, rows).

    Rows are printed in the order given, unless the user asks for another order. Without rows, a table is not printed
    and the text ``nothing`` goes to stderr; the other formats print an empty result.
    """

    exit_code = exit_codes.OK
    """``take_action`` may set it to NEGATIVE when the result is negative."""
    nothing = "there is nothing to show"

    def _load_formatter_plugins(self) -> "ExtensionManager[ListFormatter]":
        return _formatters(csv=CSVLister())

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The options of cliff; the help of ``--sort-column`` is replaced."""
        parser = super().get_parser(prog_name)
        for option in parser._actions:
            if option.dest == "sort_columns":
                option.help = "sort the rows by this column; may be repeated: the first column takes precedence"
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Print the rows. Returns the exit code."""
        return super().run(parsed_args) or self.exit_code

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Iterable[Sequence[Any]]
    ) -> int:
        """Print the rows, or log that there are none. Raises UsageError for an unknown column."""
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
    """A command that shows one item: ``take_action`` returns (names, values)."""

    exit_code = exit_codes.OK
    """``take_action`` may set it to NEGATIVE when the result is negative."""

    def _load_formatter_plugins(self) -> "ExtensionManager[SingleFormatter]":
        return _formatters(csv=_CsvOne())

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Print the item. Returns the exit code."""
        return super().run(parsed_args) or self.exit_code

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Sequence[Any]) -> int:
        """Print the item. Raises UsageError for an unknown column."""
        check_columns(parsed_args.columns, column_names)
        shown = _shown(data, parsed_args.formatter, self.app.stdout.isatty())
        return super().produce_output(parsed_args, column_names, shown)


class Act(Command):
    """A command that prints by itself, or nothing: ``take_action`` returns its exit code, or None for 0."""

    app: App


class _CsvOne(SingleFormatter):
    """One item as CSV: its names and its values, in two lines."""

    def __init__(self) -> None:
        self._lister = CSVLister()

    def add_argument_group(self, parser: argparse.ArgumentParser) -> None:
        self._lister.add_argument_group(parser)

    def emit_one(
        self, column_names: Sequence[str], data: Sequence[Any], stdout: TextIO, parsed_args: argparse.Namespace
    ) -> None:
        self._lister.emit_list(column_names, [data], stdout, parsed_args)


def check_columns(wanted: Sequence[str], names: Sequence[str]) -> None:
    """Raises UsageError for an unknown column. cliff would ignore it for sorting, and omit it from the output."""
    known = {name.lower().replace(" ", "_") for name in names}
    for each in wanted:
        if each.lower().strip().replace(" ", "_") not in known:
            raise UsageError(f"there is no column {each!r}; name one of {', '.join(names)}")


def plain(value: Any, formatter: str, *, terminal: bool) -> Any:
    """One value for a formatter. ``terminal``: the output is a terminal.

    A table is for people, so control characters and line ends are escaped in it. value and csv are for programs and
    keep every byte, unless they are shown on a terminal. json and yaml escape by themselves.
    """
    structured = formatter in _STRUCTURED
    people = formatter == "table" or (terminal and not structured)
    if isinstance(value, Json):
        return value.visible() if people else value.shown(structured)
    return visible(value) if people and isinstance(value, str) else value


def _shown(row: Sequence[Any], formatter: str, terminal: bool) -> list[Any]:
    return [plain(each, formatter, terminal=terminal) for each in row]


def _formatters(csv: Any) -> "ExtensionManager[Any]":
    """The same five formatters for all commands. With entry points a single item would have no csv, and every command
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
