"""``pubsub-db topics``."""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from pubsub_lib.cli.context import reading
from pubsub_lib.cli.formatting import hexadecimal
from pubsub_lib.cli.output import List


class Topics(List):
    """List the topics: number of objects, position of the head, and digest of each."""

    example = "topics -f json"
    columns = ("topic", "objects", "head", "digest")

    nothing = "nothing was ever written to this store"

    def take_action(self, parsed_args: argparse.Namespace) -> Iterable[Sequence[Any]]:
        """All topics that were ever written, including empty ones."""
        with reading(self) as store:
            heads = store.topics()
        return [
            (topic, head.count, head.point.position, hexadecimal(head.digest)) for topic, head in sorted(heads.items())
        ]
