"""The base classes of the commands: the five formats, JSON values, empty results, exit codes."""

import abc
import argparse
import functools
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, TextIO

from cliff.app import App
from cliff.columns import FormattableColumn
from cliff.command import Command
from cliff.formatters.base import Formatter, ListFormatter, SingleFormatter

from pubsub_lib.cli.formatting import Shown, visible
from pubsub_lib.command import exit_codes
from pubsub_lib.core import values
from pubsub_lib.errors import UsageError
from pubsub_lib.logs import printable_json

_log = logging.getLogger("pubsub_lib.cli")

_FORMATS: Final = ("table", "json", "yaml", "csv", "value")
"""The formats of all commands with a result, in the order of their options in the help."""
_STRUCTURED: Final = ("json", "yaml")
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
        return printable_json(self._data.decode())


class _Command(Command):
    """A command of this package."""

    app: App
    example = ""
    """What a user may type after the program's name. The help ends with it, and a test runs or parses it."""

    def get_epilog(self) -> str:
        """The example. The text of cliff would name the package, for which it reads the metadata of all packages."""
        return f"Example: {self.app.NAME} {self.example}"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """A parser with the command's own options, which so begin its usage."""
        parser = super().get_parser(prog_name)
        self.add_arguments(parser)
        return parser

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's own options and arguments; by default it has none."""


class _Result(_Command):
    """A command with a result that is printed in one of the formats.

    The classes ``Lister`` and ``ShowOne`` of cliff have the same options. They are not used, because their formats and
    help texts can be changed only through private attributes.
    """

    columns: Sequence[str] = ()
    """The names of the result's columns, unless options change them: see ``column_names``."""
    exit_code = exit_codes.OK
    """``take_action`` may set it to NEGATIVE when the result is negative."""
    sortable = False
    """Whether the result has rows that the user may sort."""

    @abc.abstractmethod
    def formatters(self) -> Mapping[str, Formatter]:
        """The formatters by the name of their format."""

    @abc.abstractmethod
    def produce_output(self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Any) -> None:
        """Print the result of ``take_action``. The columns that the user names exist."""

    def column_names(self, parsed_args: argparse.Namespace) -> Sequence[str]:
        """The names of the result's columns for these options. They are known before the command does anything."""
        return self.columns

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Then the options for the format, the columns and the order, worded as in every OpenStack client."""
        parser = super().get_parser(prog_name)
        group = parser.add_argument_group("output formatters", "output formatter options")
        group.add_argument(
            "-f",
            "--format",
            dest="formatter",
            choices=sorted(self.formatters()),
            default="table",
            help="the output format, defaults to table",
        )
        group.add_argument(
            "-c",
            "--column",
            action="append",
            default=[],
            dest="columns",
            metavar="COLUMN",
            help="specify the column(s) to include, can be repeated to show multiple columns",
        )
        for each in self.formatters().values():
            each.add_argument_group(parser)
        if self.sortable:
            group.add_argument(
                "--sort-column",
                action="append",
                default=[],
                dest="sort_columns",
                metavar="SORT_COLUMN",
                help="sort the rows by this column; may be repeated: the first column takes precedence",
            )
            order = group.add_mutually_exclusive_group()
            for name in ("ascending", "descending"):
                order.add_argument(
                    f"--sort-{name}",
                    action="store_const",
                    dest="sort_direction",
                    const=name,
                    help=f"sort the column(s) in {name} order",
                )
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run ``take_action`` and print the result. Returns the exit code.

        Raises UsageError for an unknown column before that: after a write, exit code 2 would be wrong.
        """
        names = self.column_names(parsed_args)
        check_columns([*parsed_args.columns, *(parsed_args.sort_columns if self.sortable else ())], names)
        result: Any = super().run(parsed_args) or ()  # what take_action returned; cliff returns 0 for an empty list
        self.produce_output(parsed_args, names, result)
        return self.exit_code


class List(_Result):
    """A command that lists rows: ``take_action`` returns rows, with a cell for each column.

    Rows are printed in the order given, unless the user asks for another order. Without rows, a table is not printed
    and the text ``nothing`` goes to stderr; the other formats print an empty result.
    """

    sortable = True
    nothing = "there is nothing to show"

    def formatters(self) -> Mapping[str, ListFormatter]:
        """The formatters of rows."""
        return list_formatters()

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Iterable[Sequence[Any]]
    ) -> None:
        """Print the rows, or log that there are none. Cells behind the last column are not printed."""
        form, terminal = parsed_args.formatter, self.app.stdout.isatty()
        rows = iter(data)
        first = next(rows, None)
        if first is None and form == "table":
            _log.info("%s", self.nothing)
            return
        found = chain(() if first is None else (first,), rows)
        shown: Iterable[list[Any]] = (_shown(row, form, terminal) for row in found)
        if self.sortable and parsed_args.sort_columns:
            descending = parsed_args.sort_direction == "descending"
            shown = _in_order(list(shown), column_names, parsed_args.sort_columns, descending)
        chosen = _chosen(parsed_args.columns, column_names)
        cells = ([row[at] for at in chosen] for row in shown)
        self.formatters()[form].emit_list([column_names[at] for at in chosen], cells, self.app.stdout, parsed_args)


class Show(_Result):
    """A command that shows one item: ``take_action`` returns the value of each column."""

    def formatters(self) -> Mapping[str, SingleFormatter]:
        """The formatters of one item."""
        return single_formatters()

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Iterable[Any]) -> None:
        """Print the item."""
        form = parsed_args.formatter
        shown = _shown(data, form, self.app.stdout.isatty())
        chosen = _chosen(parsed_args.columns, column_names)
        names, values = [column_names[at] for at in chosen], [shown[at] for at in chosen]
        self.formatters()[form].emit_one(names, values, self.app.stdout, parsed_args)


class Act(_Command):
    """A command that prints by itself, or nothing: ``take_action`` returns its exit code, or None for 0."""


class _CsvOne(SingleFormatter):
    """One item as CSV: its names and its values, in two lines."""

    def __init__(self, of_rows: ListFormatter) -> None:
        self._of_rows = of_rows

    def add_argument_group(self, parser: argparse.ArgumentParser) -> None:
        self._of_rows.add_argument_group(parser)

    def emit_one(
        self, column_names: Sequence[str], data: Sequence[Any], stdout: TextIO, parsed_args: argparse.Namespace
    ) -> None:
        self._of_rows.emit_list(column_names, [data], stdout, parsed_args)


@functools.cache
def list_formatters() -> Mapping[str, ListFormatter]:
    """The formatters of rows: those of cliff."""
    return _of_cliff("list")


@functools.cache
def single_formatters() -> Mapping[str, SingleFormatter]:
    """The formatters of one item: those of cliff, which has none for CSV."""
    found = {**_of_cliff("show"), "csv": _CsvOne(list_formatters()["csv"])}
    return {name: found[name] for name in _FORMATS}


def _of_cliff(kind: str) -> dict[str, Any]:
    """The formatters for the commands of a kind, ``list`` or ``show``. Formats of other packages are left out."""
    from stevedore import NamedExtensionManager

    found: NamedExtensionManager[Any] = NamedExtensionManager(
        f"cliff.formatter.{kind}",
        _FORMATS,
        invoke_on_load=True,
        name_order=True,
        on_missing_entrypoints_callback=None,  # "show" has no csv
    )
    return {each.name: each.obj for each in found}


def check_columns(wanted: Sequence[str], names: Sequence[str]) -> None:
    """Raises UsageError for an unknown column."""
    known = {normal(name) for name in names}
    for each in wanted:
        if normal(each) not in known:
            raise UsageError(f"there is no column {each!r}; name one of {', '.join(names)}")


def normal(column: str) -> str:
    """A column's name without the differences that users may make: in case, and of spaces for underscores."""
    return column.strip().lower().replace(" ", "_")


def _chosen(wanted: Sequence[str], names: Sequence[str]) -> list[int]:
    """The places of the columns to show, in the order of the result. Without names in ``wanted``: all columns."""
    known = {normal(each) for each in wanted}
    return [at for at, name in enumerate(names) if not wanted or normal(name) in known]


def _in_order(rows: list[list[Any]], names: Sequence[str], columns: Sequence[str], descending: bool) -> list[list[Any]]:
    """The rows sorted by these columns; those without a value are last, or first in descending order."""
    places = [normal(name) for name in names]
    for column in reversed(columns):
        at = places.index(normal(column))
        try:
            rows = sorted(rows, key=functools.partial(_rank, at), reverse=descending)
        except TypeError:
            _log.warning("the rows are not sorted by the column %r: its values cannot be compared", names[at])
    return rows


def _rank(at: int, row: Sequence[Any]) -> tuple[bool, Any]:
    value = row[at].machine_readable() if isinstance(row[at], FormattableColumn) else row[at]
    absent = value is None or value == ""  # csv and value have no other word for None
    return absent, None if absent else value


def plain(value: Any, formatter: str, *, terminal: bool) -> Any:
    """One value for a formatter. ``terminal``: the output is a terminal.

    A table is for people, so control characters and line ends are escaped in it. value and csv are for programs and
    keep every byte, unless they are shown on a terminal. json and yaml escape by themselves.
    """
    structured = formatter in _STRUCTURED
    people = formatter == "table" or (terminal and not structured)
    if isinstance(value, Json):
        return value.visible() if people else value.shown(structured)
    if isinstance(value, Shown) and formatter in ("csv", "value"):
        value = value.machine_readable()
        value = (
            json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else "" if value is None else value
        )
    return visible(value) if people and isinstance(value, str) else value


def _shown(row: Iterable[Any], formatter: str, terminal: bool) -> list[Any]:
    return [plain(each, formatter, terminal=terminal) for each in row]
