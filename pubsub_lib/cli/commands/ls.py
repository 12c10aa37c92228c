"""``pubsub-db ls``."""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, Final

from pubsub_lib.cli.context import reading
from pubsub_lib.cli.output import Json, List
from pubsub_lib.cli.prompts import check_names
from pubsub_lib.errors import UsageError

MAX_LIMIT: Final = 2**31 - 2
"""One less than the largest integer of a database, because the command asks for one object more than it shows."""


class Ls(List):
    """List the keys of a table, with topic and version."""

    example = "ls lport --prefix tenant-1/ --limit 20 --values"
    columns = ("key", "topic", "version")

    nothing = "the table holds no objects"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The table, and which of its objects."""
        parser.add_argument("table", metavar="TABLE")
        parser.add_argument("--topic", metavar="TOPIC", help="only objects on this topic")
        parser.add_argument("--prefix", metavar="TEXT", default="", help="only keys that begin with this text")
        parser.add_argument("--limit", metavar="N", type=int, help="maximum number of objects (default: all)")
        parser.add_argument("--values", action="store_true", help="also show the values")

    def column_names(self, parsed_args: argparse.Namespace) -> Sequence[str]:
        """With ``--values``, a further one."""
        return (*self.columns, "value") if parsed_args.values else self.columns

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Sequence[Any]]:
        """One consistent reading, sorted by key. Logs when there are more objects."""
        check_names(parsed_args)
        table, topic, prefix, limit = parsed_args.table, parsed_args.topic, parsed_args.prefix, parsed_args.limit
        values = parsed_args.values
        if limit is not None and not 1 <= limit <= MAX_LIMIT:
            raise UsageError(f"--limit {limit} is invalid; give a number from 1 to {MAX_LIMIT}")
        with reading(self) as store:
            # One object more than the limit shows whether there are more.
            maximum = None if limit is None else limit + 1
            found = store.inspect.keys(table, topic=topic, prefix=prefix, maximum=maximum, values=values)
        if limit is not None and len(found) > limit:
            found = found[:limit]
            self.app.LOG.info("there are more objects than %d; give a larger --limit, or a longer --prefix", limit)
        self.nothing = f"the table {table!r} holds no {'such ' if topic is not None or prefix else ''}objects"
        return (
            (each.key, each.topic, each.version, *(() if each.value is None else (Json(each.value),))) for each in found
        )
