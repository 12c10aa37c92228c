"""Prints rows one by one as they arrive, in each of the formats: for ``--follow`` and ``watch``."""

import argparse
import io
import json
import shutil
from collections.abc import Sequence
from typing import Any, Final, Self, TextIO

import msgspec
from cliff.formatters.base import ListFormatter

from pubsub_lib.cli.formatting import cut, padded, visible
from pubsub_lib.cli.output import List, check_columns, normal, plain
from pubsub_lib.errors import UsageError
from pubsub_lib.logs import printable_json

_GAP: Final = "  "


class Column(msgspec.Struct, frozen=True):
    """A column: its name, and how a table of lines shows it."""

    name: str
    label: str = ""
    """The title in a table; the name by default."""
    width: int = 0
    """In cells; 0: the column gets a share of the free width, in proportion to its ``weight``."""
    weight: int = 1
    right: bool = False
    hidden: bool = False
    """A table shows the column only when ``-c`` names it."""

    @property
    def title(self) -> str:
        """The title in a table."""
        return self.label or self.name


class RowPrinter:
    """Prints rows. Every row is flushed, so that the reader of a pipe gets it at once. One thread at a time.

    json: one object a line. csv: the names once, then a line for each row. yaml: one growing list. table: columns of
    fixed width that fit the terminal; a text that is too long is cut and ends in …. Without a terminal no text is cut.
    """

    def __init__(
        self, columns: Sequence[Column], out: TextIO, parsed_args: argparse.Namespace, formatter: ListFormatter
    ) -> None:
        """``parsed_args`` and ``formatter``: of a cliff list command. Raises UsageError for unknown columns."""
        check_columns(parsed_args.columns, [column.name for column in columns])
        wanted = [normal(name) for name in parsed_args.columns]
        table = parsed_args.formatter == "table"
        self._chosen = [
            at
            for at, column in enumerate(columns)
            if (column.name in wanted if wanted else not (table and column.hidden))
        ]
        self._columns = [columns[at] for at in self._chosen]
        self._out = out
        self._args = parsed_args
        self._formatter = formatter
        self._begun = False

    @classmethod
    def of(cls, command: List, columns: Sequence[Column], parsed_args: argparse.Namespace) -> Self:
        """A printer for a list command. Raises as the constructor, and UsageError for ``--sort-column``."""
        if parsed_args.sort_columns:
            raise UsageError("rows that are shown as they arrive cannot be sorted; omit --sort-column")
        return cls(columns, command.app.stdout, parsed_args, command.formatters()[parsed_args.formatter])

    def row(self, values: Sequence[Any], shown: Sequence[str]) -> None:
        """Print one row: ``values`` for programs, ``shown`` for people (a table), both with all columns."""
        kind = self._args.formatter
        if kind == "table":
            self._table([shown[at] for at in self._chosen])
        else:
            chosen = [plain(values[at], kind, terminal=self._out.isatty()) for at in self._chosen]
            self._machine(kind, chosen)
        self._begun = True
        self._out.flush()

    def _machine(self, kind: str, values: list[Any]) -> None:
        names = [each.name for each in self._columns]
        if kind == "json":
            line = json.dumps(dict(zip(names, values, strict=True)), ensure_ascii=False)
            self._out.write(printable_json(line) + "\n")
            return
        text = io.StringIO()
        self._formatter.emit_list(names, [values], text, self._args)
        lines = text.getvalue()
        self._out.write(lines.partition("\n")[2] if kind == "csv" and self._begun else lines)

    def _table(self, texts: Sequence[str]) -> None:
        widths = self._widths()
        if not self._begun:
            self._line([each.title for each in self._columns], widths)
        self._line(texts, widths)

    def _widths(self) -> list[int]:
        """Computed for every line, because the terminal may have been resized."""
        total = shutil.get_terminal_size().columns if self._out.isatty() else 0
        fixed = sum(each.width for each in self._columns) + len(_GAP) * (len(self._columns) - 1)
        weights = sum(each.weight for each in self._columns if not each.width)
        left = max(total - fixed, weights * 4) if total else weights * 16
        return [each.width or max(len(each.title), left * each.weight // weights) for each in self._columns]

    def _line(self, texts: Sequence[str], widths: Sequence[int]) -> None:
        cells = []
        narrow = self._out.isatty()
        for column, text, width in zip(self._columns, texts, widths, strict=True):
            # A number is never cut, because it would be another number; the line may be too long instead.
            fit = cut(text, width) if narrow and not column.right else visible(text)
            cells.append(padded(fit, width, right=column.right))
        self._out.write(_GAP.join(cells).rstrip() + "\n")
