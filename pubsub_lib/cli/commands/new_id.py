"""``pubsub-db new-id``."""

import argparse
from collections.abc import Iterable
from typing import Any

from pubsub_lib.cli.context import settings_of, shown
from pubsub_lib.cli.output import Show
from pubsub_lib.cli.prompts import add_yes, confirm
from pubsub_lib.store import administration


class NewId(Show):
    """Give the store a new id. Run it once on each copy of a database, before the copy's programs start.

    A copy has the id of the original, so replicas and services cannot distinguish the publishers of the two.
    """

    example = "new-id --yes"
    columns = ("before", "after")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """``--yes``."""
        add_yes(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Any]:
        """Objects and history stay. Raises SchemaError, StoreError."""
        settings = settings_of(self)
        confirm(parsed_args, f"give {shown(settings)} a new store id")
        before, after = administration.new_id(settings.store_url, settings=settings.store)
        return before, after
