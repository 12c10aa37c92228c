"""``pubsub-audit show``: its options, and its output."""

import argparse
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from pubsub_lib.audit.arguments import PROGRAM
from pubsub_lib.audit.option_types import moment, positive
from pubsub_lib.audit.report.summary import INCOMPLETE
from pubsub_lib.audit.show.files import JournalFile, journal_files
from pubsub_lib.audit.show.lines import json_line, summary, table_line, title
from pubsub_lib.audit.show.selection import Selection
from pubsub_lib.audit.show.source import Source
from pubsub_lib.command import entry
from pubsub_lib.command.exit_codes import CLOSED_PIPE, OK
from pubsub_lib.journal.rows import Row
from pubsub_lib.logs import printable

NAME = "show"
HELP = "print the records of journals"


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the arguments of the command, without those that all commands have."""
    command.add_argument(
        "journals", nargs="+", type=Path, metavar="JOURNAL", help="files of journals, or their folders"
    )
    command.add_argument("--topic", metavar="TOPIC", help="records of this topic")
    command.add_argument("--table", metavar="TABLE", help="records with an object of this table")
    command.add_argument("--key", metavar="KEY", help="records with an object that has this key")
    command.add_argument(
        "--kind", action="append", default=[], metavar="KIND", help="records of this kind, such as data; repeatable"
    )
    command.add_argument(
        "--from",
        dest="since",
        type=moment,
        metavar="TIME",
        help="records since this time, as 2026-11-26T09:30:00 (UTC)",
    )
    command.add_argument("--to", dest="until", type=moment, metavar="TIME", help="records before this time")
    number = command.add_mutually_exclusive_group()
    number.add_argument("--limit", type=positive, metavar="N", help="show the first N records, and end")
    number.add_argument("--tail", type=positive, metavar="N", help="show the last N records")


def run(options: argparse.Namespace) -> int:
    """Print the records; 32 when a file, or a part of one, could not be read. Blocks while it reads the files."""
    selection = Selection(
        options.topic, options.table, options.key, frozenset(options.kind), options.since, options.until
    )
    output = Output(selection, as_json=options.format == "json")
    files, problems = journal_files(options.journals)
    try:
        for each in problems:
            output.problem(each)
        chosen: Iterable[tuple[Source, Row]] = output.chosen(files)
        if options.limit:
            chosen = islice(chosen, options.limit)
        if options.tail:
            chosen = deque(chosen, options.tail)
        for source, row in chosen:
            output.row(source, row)
        output.end()
    except BrokenPipeError:
        return CLOSED_PIPE
    except OSError as error:  # the files' own errors are problems
        entry.report_error(PROGRAM, f"the output cannot be written ({error.strerror or error}); free disk space")
        return INCOMPLETE
    return INCOMPLETE if output.incomplete else OK


class Output:
    """Prints records to stdout and problems to stderr. All methods raise OSError when stdout cannot be written."""

    def __init__(self, selection: Selection, *, as_json: bool) -> None:
        self.incomplete = False
        """Whether there was a problem."""
        self._selection = selection
        self._json = as_json
        self._read = 0
        self._shown = 0
        self._last: Source | None = None
        self._empty: list[Source] = []

    def chosen(self, files: Iterable[JournalFile]) -> Iterator[tuple[Source, Row]]:
        """The selected records of the files. The problems of a file are printed behind its last record."""
        for file in files:
            source = Source(file)
            for row in source.records():
                self._read += 1
                if self._selection.has(row):
                    yield source, row
            for each in source.problems:
                self.problem(each)

    def row(self, source: Source, row: Row) -> None:
        """Print a record; before the first one of a file, its summary."""
        self._shown += 1
        if self._json:
            self._print(json_line(source, row))
            return
        if source is not self._last:
            self._print(summary(source))
            if self._last is None:
                self._print(title())
            self._last = source
        self._print(table_line(row, self._selection.changes(row)))

    def problem(self, sentence: str) -> None:
        """Print one sentence, behind the records that were printed before."""
        self.incomplete = True
        sys.stdout.flush()
        entry.report_error(PROGRAM, printable(sentence))

    def end(self) -> None:
        """Write all output. A sentence reports that nothing was found."""
        sys.stdout.flush()
        if not self._shown and (self._read or not self.incomplete):
            entry.report_error(PROGRAM, f"no record is selected, of {self._read} that were read")

    def _print(self, line: str) -> None:
        print(line)  # noqa: T201
