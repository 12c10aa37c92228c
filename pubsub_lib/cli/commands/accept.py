"""``pubsub-db accept``."""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from pubsub_lib.cli.context import writing
from pubsub_lib.cli.output import Show
from pubsub_lib.cli.prompts import add_yes, check_names, confirm
from pubsub_lib.core.model import EMPTY
from pubsub_lib.errors import NotFound

COLUMNS = ("topic", "objects", "repaired", "rewritten", "deleted", "position")


class Accept(Show):
    """Take the rows of a topic as they stand for right, set its head anew, and publish it.

    The way out when rows or the head were altered behind the library's back and the changelog does not tell what was
    there. What it does tell is repaired first. What was lost stays lost.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Which topic."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--topic", metavar="TOPIC", required=True, help="whose rows and head do not fit")
        add_yes(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Short transactions. Raises NotFound, StoreError."""
        check_names(parsed_args)
        topic = parsed_args.topic
        with writing(self) as opened:
            found = opened.store.inspect.verify(topic)
            if found.stored == EMPTY == found.counted:
                raise NotFound(f"nothing was ever written to the topic {topic!r}; see pubsub-db topics")
            if found.right:
                self.app.LOG.info("the rows of %s fit its head; nothing was changed", topic)
                return COLUMNS, (topic, found.counted.count, 0, 0, 0, None)
            confirm(
                parsed_args,
                f"take the {found.counted.count} objects of the topic {topic!r} as they stand for right "
                f"({found.damages} are damaged, and the head tells of {found.stored.count})",
            )
            done = opened.store.accept(topic)
        return COLUMNS, (topic, done.objects, done.repaired, done.rewritten, done.deleted, done.position)
