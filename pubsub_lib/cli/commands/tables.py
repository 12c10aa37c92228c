"""``pubsub-db tables``."""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from pubsub_lib.cli.context import reading
from pubsub_lib.cli.output import List


class Tables(List):
    """List the tables and how many objects each holds."""

    example = "tables --sort-column objects --sort-descending"
    columns = ("table", "objects")

    nothing = "the store holds no objects"

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Sequence[Any]]:
        """Count in the database."""
        with reading(self) as store:
            return store.inspect.tables().items()
