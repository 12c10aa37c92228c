"""``pubsub-db get``."""

import argparse
from collections.abc import Iterable
from typing import Any

from pubsub_lib.cli.context import reading
from pubsub_lib.cli.output import Json, Show
from pubsub_lib.errors import NotFound


class Get(Show):
    """Show one object: its topic, version and value."""

    example = "get lport p1 -f json"
    columns = ("table", "key", "topic", "version", "value")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The object's table and key."""
        parser.add_argument("table", metavar="TABLE")
        parser.add_argument("key", metavar="KEY")

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Any]:
        """Read the object. Raises NotFound."""
        table, key = parsed_args.table, parsed_args.key
        with reading(self) as store:
            found = store.get_record(table, key)
        if found is None:
            raise NotFound(f"there is no object {key!r} in the table {table!r}; see pubsub-db ls {table}")
        return found.table, found.key, found.topic, found.version, Json(found.value)
