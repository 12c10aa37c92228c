"""A store of many topics with one object each."""

import time
from collections.abc import Sequence

from pubsub_lib import Store

TABLE = "t"
BATCH = 5000
"""Number of objects of one transaction."""


def names(count: int) -> list[str]:
    """The names of the topics."""
    return [f"topic-{number}" for number in range(count)]


def fill(store: Store, topics: Sequence[str]) -> None:
    """One object in each topic; its key is ``k`` and the topic's number."""
    for start in range(0, len(topics), BATCH):
        with store.transaction() as tx:
            for number, topic in enumerate(topics[start : start + BATCH], start):
                tx.set(TABLE, f"k{number}", number, topic=topic)


def commit(store: Store, topics: Sequence[str], number: int, value: object) -> float:
    """Commit one change of an object of ``fill``. Returns the seconds."""
    which = number % len(topics)
    began = time.monotonic()
    with store.transaction() as tx:
        tx.set(TABLE, f"k{which}", value, topic=topics[which])
    return time.monotonic() - began
