"""Delete many objects in transactions of bounded size."""

from collections.abc import Sequence
from itertools import islice

import msgspec

from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import MAX_KEY_BYTES
from pubsub_lib.errors import VersionMismatch
from pubsub_lib.store import Store

BATCH = 1000
"""Maximum number of objects of one transaction. It bounds how long other writers wait."""
_READ = 10
"""Batches of one reading. It bounds the memory, and how often objects that were written meanwhile are read again."""


class Removed(msgspec.Struct):
    """The progress of a delete."""

    objects: int = 0
    transactions: int = 0
    position: int | None = None
    """Position of the last change."""


class _Seen(msgspec.Struct, frozen=True, gc=False):
    table: str
    key: str
    version: int


def remove(store: Store, removed: Removed, *, table: str | None = None, topic: str | None = None) -> None:
    """Delete the objects that exist at the beginning and were not written since. Raises StoreError.

    ``removed`` is up to date also when the delete fails: committed deletes are not undone.

    Each reading is short, and none is open during a delete: the database would abort a reading that is idle for that
    long, and could not vacuum the deleted rows.
    """
    begun = store.read_heads([]).store.position
    size = _batch(store.limits)
    while found := _find(store, begun, size * _READ, table, topic):
        for at in range(0, len(found), size):
            _delete(store, found[at : at + size], removed)


def _batch(limits: Limits) -> int:
    """The number of deletes that always fit a transaction."""
    return max(1, min(BATCH, limits.max_transaction_changes, limits.max_transaction_bytes // MAX_KEY_BYTES))


def _find(store: Store, begun: int, maximum: int, table: str | None, topic: str | None) -> list[_Seen]:
    """The first ``maximum`` objects that were not written after the position ``begun``."""
    old = (each for each in store.objects(table=table, topic=topic) if each.version <= begun)
    return [_Seen(each.table, each.key, each.version) for each in islice(old, maximum)]


def _delete(store: Store, part: Sequence[_Seen], removed: Removed) -> None:
    try:
        with store.transaction() as tx:
            for each in part:
                tx.delete(each.table, each.key, version=each.version, missing_ok=True)
    except VersionMismatch:
        return  # another process wrote one of the objects; the next reading omits that one and finds the others again
    if tx.commit is not None:
        removed.objects += sum(change.value is None for link in tx.commit.links for change in link.changes)
        removed.transactions += 1
        removed.position = tx.commit.point.position
