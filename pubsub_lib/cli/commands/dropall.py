"""``pubsub-db dropall``."""

import argparse
from collections.abc import Iterable
from typing import Any

from pubsub_lib.cli.context import settings_of, shown
from pubsub_lib.cli.output import Show
from pubsub_lib.cli.prompts import add_yes, confirm
from pubsub_lib.errors import ConditionFailed
from pubsub_lib.settings import Settings
from pubsub_lib.store import Store, administration


class Dropall(Show):
    """Drop this library's tables and all objects without publishing that.

    A replica keeps its objects until the tables exist again and it syncs.
    """

    example = "dropall --yes"
    columns = ("deleted", "tables")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """``--force`` and ``--yes``."""
        parser.add_argument(
            "--force", action="store_true", help="drop them even with objects, or while a publisher service is running"
        )
        add_yes(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Any]:
        """Raises ConditionFailed for objects and for a live service, SchemaError, StoreError."""
        settings = settings_of(self)
        objects = _objects(settings, force=parsed_args.force)
        confirm(parsed_args, f"drop {objects} objects, the changelog and all tables of {shown(settings)}")
        objects = _objects(settings, force=parsed_args.force)  # they may have changed during the prompt
        dropped = administration.drop(settings.store_url, settings=settings.store)
        return objects, len(dropped)


def _objects(settings: Settings, *, force: bool) -> int:
    """The number of objects in the primary database. Raises ConditionFailed for any without ``force``, and for a live
    service: nothing can publish deletes any more when the changelog is gone.
    """
    with Store(settings, create=False) as store:
        objects = sum(head.count for head in store.topics().values())
        if objects and not force:
            raise ConditionFailed(
                f"the replicas would keep the {objects} objects: delete these first with pubsub-db clean, and wait "
                "until the replicas have received that; or give --force"
            )
        live = store.directory.live()
        if live and not force:
            raise ConditionFailed(f"the service {live[0].service!r} uses these tables; stop it, or give --force")
    return objects
