"""Delete many objects in transactions of bounded size."""

from itertools import islice

import msgspec

from pubsub_lib.store import Store

BATCH = 1000
"""Objects of one transaction: others who write wait for no longer than that takes."""


class Removed(msgspec.Struct):
    """How far it came."""

    objects: int = 0
    transactions: int = 0
    position: int | None = None
    """Of the last change."""


def remove(store: Store, removed: Removed, *, table: str | None = None, topic: str | None = None) -> None:
    """Delete what one reading at the beginning finds; what is written later stays. Raises StoreError.

    ``removed`` is kept up to date, also when it ends in the middle: what was committed stays deleted.
    """
    found = store.objects(table=table, topic=topic)
    while part := list(islice(found, BATCH)):
        with store.transaction() as tx:
            for each in part:
                tx.delete(each.table, each.key, missing_ok=True)  # somebody else may have been quicker
        if tx.commit is not None:
            removed.objects += sum(change.value is None for link in tx.commit.links for change in link.changes)
            removed.transactions += 1
            removed.position = tx.commit.point.position
