"""``pubsub-db accept``."""

import argparse
from collections.abc import Iterable
from typing import Any

from pubsub_lib.cli.context import writing
from pubsub_lib.cli.output import Show
from pubsub_lib.cli.prompts import add_yes, check_names, confirm
from pubsub_lib.core.model import EMPTY
from pubsub_lib.errors import NotFound


class Accept(Show):
    """Accept the rows of a topic as they are: recompute its head and publish it.

    Use it when rows or the head were changed without the library and the changelog does not contain the original
    data, so that it cannot be restored. Data that the changelog contains is repaired first. Lost data stays lost.
    """

    example = "accept --topic tenant-1"
    columns = ("topic", "objects", "repaired", "rewritten", "deleted", "position")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Which topic."""
        parser.add_argument(
            "--topic", metavar="TOPIC", required=True, help="the topic whose rows do not match its head"
        )
        add_yes(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Any]:
        """Short transactions. Raises NotFound, StoreError."""
        check_names(parsed_args)
        topic = parsed_args.topic
        with writing(self) as opened:
            found = opened.store.inspect.verify(topic)
            if found.stored == EMPTY == found.counted:
                raise NotFound(f"nothing was ever written to the topic {topic!r}; see pubsub-db topics")
            if found.right:
                self.app.LOG.info("the rows of the topic %s match its head; nothing was changed", topic)
                return (topic, found.counted.count, 0, 0, 0, None)
            confirm(
                parsed_args,
                f"accept the {found.counted.count} objects of the topic {topic!r} as they are "
                f"({found.damages} are damaged; the head's count is {found.stored.count})",
            )
            done = opened.store.accept(topic)
        return (topic, done.objects, done.repaired, done.rewritten, done.deleted, done.position)
