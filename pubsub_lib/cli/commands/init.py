"""``pubsub-db init``."""

import argparse
from collections.abc import Iterable
from typing import Any

from pubsub_lib.cli.context import settings_of, shown
from pubsub_lib.cli.output import Show
from pubsub_lib.store import Store, administration


class Init(Show):
    """Create the tables in an empty database (and the file, for SQLite)."""

    example = "init --database sqlite:///net.db"
    columns = ("database", "schema", "created")

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Any]:
        """Changes nothing when the tables exist. Raises SchemaError for foreign, older or newer tables."""
        settings = settings_of(self)
        before = administration.revision(settings.store_url, settings=settings.store)
        Store(settings).close()
        after = administration.revision(settings.store_url, settings=settings.store)
        return shown(settings), after, before is None
