"""``pubsub-db dropall``."""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from pubsub_lib.cli.bulk_delete import Removed, remove
from pubsub_lib.cli.context import shown, writing
from pubsub_lib.cli.output import Show
from pubsub_lib.cli.prompts import add_yes, confirm
from pubsub_lib.errors import ConditionFailed
from pubsub_lib.store import administration


class Dropall(Show):
    """Delete all objects, publish the changes, and drop this library's tables."""

    example = "dropall --yes"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """``--force`` and ``--yes``."""
        parser.add_argument("--force", action="store_true", help="drop them even when a publisher service is running")
        add_yes(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Delete the objects first, so that replicas are notified, then the tables.

        Raises ConditionFailed for a live service.
        """
        removed = Removed()
        with writing(self, bulk=True) as opened:
            live = opened.store.directory.live()
            if live and not parsed_args.force:
                raise ConditionFailed(f"the service {live[0].service!r} uses these tables; stop it, or give --force")
            confirm(parsed_args, f"delete all objects, the changelog and all tables of {shown(opened.settings)}")
            remove(opened.store, removed)
            settings = opened.settings
        dropped = administration.drop(settings.store_url, settings=settings.store)
        return ("deleted", "tables"), (removed.objects, len(dropped))
