"""``pubsub-db ls``."""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from pubsub_lib.cli.context import reading
from pubsub_lib.cli.output import List
from pubsub_lib.cli.prompts import check_names


class Ls(List):
    """List the keys of a table, with topic and version."""

    nothing = "the table holds no objects"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The table and the topic."""
        parser = super().get_parser(prog_name)
        parser.add_argument("table", metavar="TABLE")
        parser.add_argument("--topic", metavar="TOPIC", help="only objects on this topic")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """One consistent reading, sorted by key."""
        check_names(parsed_args)
        table = parsed_args.table
        with reading(self) as store:
            found = store.objects(table=table, topic=parsed_args.topic)
            rows = [(each.key, each.topic, each.version) for each in found]
        self.nothing = f"the table {table!r} holds no objects"
        return ("key", "topic", "version"), sorted(rows)
