"""``pubsub-db load``."""

import argparse
import logging
from collections.abc import Iterable
from typing import Any

from pubsub_lib.cli.bulk_load import BATCH, Loaded, load, max_lines
from pubsub_lib.cli.context import writing
from pubsub_lib.cli.jsonl import Reader
from pubsub_lib.cli.output import Show
from pubsub_lib.cli.progress import Progress
from pubsub_lib.errors import UsageError

_log = logging.getLogger("pubsub_lib.cli")


class Load(Show):
    """Write the objects of a file of JSON lines, and publish them.

    Each line is an object like {"table": "lport", "key": "p1", "topic": "tenant-1", "value": {...}}; a line with
    "action": "delete" deletes the object. Equal objects are not written, so run an interrupted load again.
    """

    example = "load net.jsonl --batch 500"
    columns = ("lines", "changes", "transactions", "position")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The file, the size of a transaction, and the first line."""
        parser.add_argument("file", metavar="FILE", help="gzip when its name ends in .gz; - is the standard input")
        parser.add_argument(
            "--batch",
            type=int,
            metavar="N",
            help=f"maximum number of lines of one transaction (default: {BATCH}, or fewer by max_transaction_changes)",
        )
        parser.add_argument(
            "--from-line", type=int, default=1, metavar="N", help="skip the lines before this one (default: 1)"
        )

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Any]:
        """Transactions of bounded size. Raises FileError, StoreError."""
        loaded = Loaded()
        with writing(self, bulk=True) as opened:
            maximum = max_lines(opened.settings.limits)
            batch = min(BATCH, maximum) if parsed_args.batch is None else parsed_args.batch
            if not 1 <= batch <= maximum:
                raise UsageError(f"--batch {batch} is not possible; give a number from 1 to {maximum}")
            if parsed_args.from_line < 1:
                raise UsageError(f"--from-line {parsed_args.from_line} is not possible; lines are numbered from 1")
            with (
                Reader(parsed_args.file, opened.settings.limits) as reader,
                Progress("loading", reader.size, quiet=self.app.options.verbose_level == 0) as progress,
            ):
                try:
                    load(
                        opened.store, reader, loaded, batch, parsed_args.from_line,
                        lambda: progress.show(reader.at(), f"{loaded.lines:,} lines"),
                    )  # fmt: skip
                except BaseException:
                    _log.warning("%s", _so_far(loaded))
                    raise
        return loaded.lines, loaded.changes, loaded.transactions, loaded.position


def _so_far(loaded: Loaded) -> str:
    if not loaded.lines:
        return "no line was loaded"
    return (
        f"the lines up to {loaded.line} are committed; run the command again, "
        f"or with --from-line {loaded.line + 1} to skip them"
    )
