"""``pubsub-db clean``."""

import argparse
from collections.abc import Iterable
from typing import Any

from pubsub_lib.cli.bulk_delete import Removed, remove
from pubsub_lib.cli.context import writing
from pubsub_lib.cli.output import Show
from pubsub_lib.cli.prompts import add_yes, check_names, confirm
from pubsub_lib.errors import OutcomeUnknown, PubSubError
from pubsub_lib.store import Store


class Clean(Show):
    """Delete all objects, or the objects of a table or a topic, and publish the changes."""

    example = "clean --table lport --topic tenant-1"
    columns = ("deleted", "transactions", "position")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The table and the topic."""
        parser.add_argument("--table", metavar="TABLE", help="only objects of this table")
        parser.add_argument("--topic", metavar="TOPIC", help="only objects on this topic")
        add_yes(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Any]:
        """Transactions of bounded size."""
        table, topic = parsed_args.table, parsed_args.topic
        check_names(parsed_args)
        removed = Removed()
        with writing(self, bulk=True) as opened:
            confirm(parsed_args, f"delete {_what(opened.store, table, topic)}")
            try:
                remove(opened.store, removed, table=table, topic=topic)
            except BaseException as error:
                self.app.LOG.warning("%s", _so_far(removed, error))
                raise
        return removed.objects, removed.transactions, removed.position


def _so_far(removed: Removed, error: BaseException) -> str:
    if isinstance(error, OutcomeUnknown) or not isinstance(error, PubSubError):
        # The error, or Ctrl-C, may have come after the COMMIT.
        return f"at least {removed.objects} objects are deleted, and perhaps those of one more transaction"
    if not removed.objects:
        return "no object was deleted"
    return (
        f"{removed.objects} objects are deleted, up to position {removed.position}; "
        "run the command again to delete the others"
    )


def _what(store: Store, table: str | None, topic: str | None) -> str:
    heads = store.topics()
    if table is not None and topic is not None:
        number = sum(1 for _ in store.objects(table=table, topic=topic))
        return f"all objects of the table {table!r} on the topic {topic!r} ({number})"
    if table is not None:
        return f"all objects of the table {table!r} ({store.inspect.tables().get(table, 0)})"
    if topic is not None:
        return f"all objects on the topic {topic!r} ({heads[topic].count if topic in heads else 0})"
    return f"all {sum(each.count for each in heads.values())} objects of all tables"
