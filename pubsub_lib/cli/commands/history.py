"""``pubsub-db history``."""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from pubsub_lib.cli.context import reading
from pubsub_lib.cli.formatting import moment, transaction
from pubsub_lib.cli.output import Json, List
from pubsub_lib.cli.prompts import check_names
from pubsub_lib.errors import NotFound
from pubsub_lib.store.inspection import Version


class History(List):
    """List the versions of one object that the changelog still has, oldest first.

    The whole changelog is searched: a million links take some seconds.
    """

    example = "history lport p1"
    columns = ("version", "action", "topic", "transaction", "written", "origin", "value")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The object's table and key."""
        parser.add_argument("table", metavar="TABLE")
        parser.add_argument("key", metavar="KEY")

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Sequence[Any]]:
        """Raises NotFound when neither the changelog nor the store has the object."""
        table, key = parsed_args.table, parsed_args.key
        check_names(parsed_args)
        with reading(self) as store:
            # By version: when an object moves, one transaction holds two of its changes, in links sorted by topic.
            found = sorted(store.inspect.versions(table, key), key=lambda each: each.change.version)
            now = None if found else store.get_record(table, key)
        if not found and now is None:
            raise NotFound(f"the store has no object {key!r} in the table {table!r}, and the changelog has none either")
        if now is not None:
            self.nothing = f"the object was last written at position {now.version}, which the changelog has trimmed"
        return map(_row, found)


def _row(each: Version) -> tuple[Any, ...]:
    change, link = each.change, each.link
    value = Json(b"null" if change.value is None else change.value)
    written = moment(link.written_at)
    return change.version, change.action, link.topic, transaction(link), written, link.origin, value
