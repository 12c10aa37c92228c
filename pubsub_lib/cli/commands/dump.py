"""``pubsub-db dump``."""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from pubsub_lib.cli.context import reading
from pubsub_lib.cli.output import Json, List
from pubsub_lib.cli.prompts import check_names


class Dump(List):
    """Show all objects with their values (for many objects use export)."""

    example = "dump --table lport -f yaml"
    columns = ("table", "key", "topic", "version", "value")

    nothing = "there are no such objects"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The table and the topic."""
        parser.add_argument("--table", metavar="TABLE", help="only objects of this table")
        parser.add_argument("--topic", metavar="TOPIC", help="only objects on this topic")

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Sequence[Any]]:
        """One consistent reading, sorted by table and key."""
        check_names(parsed_args)
        with reading(self) as store:
            found = sorted(store.objects(table=parsed_args.table, topic=parsed_args.topic), key=_place)
        return ((each.table, each.key, each.topic, each.version, Json(each.value)) for each in found)


def _place(item: Any) -> tuple[str, str]:
    return item.table, item.key
