"""``pubsub-db migrate``."""

import argparse
from collections.abc import Iterable
from typing import Any

from pubsub_lib.cli.context import settings_of
from pubsub_lib.cli.output import Show
from pubsub_lib.store import administration, migrate


class Migrate(Show):
    """Migrate the tables of an older version to this version. Stop all writers before."""

    example = "migrate --config-file /etc/pubsub_lib/pubsub_lib.conf"
    columns = ("before", "after")

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Any]:
        """Changes nothing when the tables are of this version. Raises SchemaError."""
        settings = settings_of(self)
        before = administration.revision(settings.store_url, settings=settings.store)
        migrate(settings.store_url, settings=settings.store)
        after = administration.revision(settings.store_url, settings=settings.store)
        return before, after
