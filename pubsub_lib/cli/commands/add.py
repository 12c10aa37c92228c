"""``pubsub-db add``."""

import argparse
from collections.abc import Iterable
from typing import Any

from pubsub_lib.cli import prompts, write_result
from pubsub_lib.cli.context import settings_of, writing
from pubsub_lib.cli.output import Show
from pubsub_lib.errors import AlreadyExists


class Add(Show):
    """Create an object and publish the change."""

    example = 'add lport p1 \'{"switch": "s1"}\' --topic tenant-1'
    columns = write_result.COLUMNS

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The object, its value and topic."""
        parser.add_argument("table", metavar="TABLE")
        parser.add_argument("key", metavar="KEY")
        parser.add_argument("value", metavar="VALUE", help="JSON; - reads JSON from the standard input")
        parser.add_argument(
            "--topic", metavar="TOPIC", help="the topic of the object (default: the store's default topic)"
        )
        parser.add_argument("--replace", action="store_true", help="replace the whole value when the object exists")

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Any]:
        """One transaction. Raises AlreadyExists."""
        table, key = parsed_args.table, parsed_args.key
        settings = settings_of(self)
        value = prompts.value(parsed_args.value, settings.limits)
        with writing(self, settings) as opened:
            try:
                with opened.store.transaction() as tx:
                    (tx.set if parsed_args.replace else tx.create)(table, key, value, topic=parsed_args.topic)
            except AlreadyExists as error:
                raise AlreadyExists(
                    f"the object {key!r} exists already in the table {table!r}; give --replace, or use pubsub-db update"
                ) from error
            return write_result.outcome(opened.store, table, key, tx.commit)
