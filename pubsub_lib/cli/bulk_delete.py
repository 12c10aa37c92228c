"""Delete many objects in transactions of bounded size."""

from collections.abc import Sequence
from itertools import islice

import msgspec

from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import MAX_KEY_BYTES
from pubsub_lib.errors import VersionMismatch
from pubsub_lib.store import Store

BATCH = 1000
"""Objects of one transaction, at most: others who write wait for no longer than that takes."""
_READ = 10
"""Batches of one reading. It bounds the memory, and how often what was written meanwhile is read over."""


class Removed(msgspec.Struct):
    """How far it came."""

    objects: int = 0
    transactions: int = 0
    position: int | None = None
    """Of the last change."""


class _Seen(msgspec.Struct, frozen=True, gc=False):
    table: str
    key: str
    version: int


def remove(store: Store, removed: Removed, *, table: str | None = None, topic: str | None = None) -> None:
    """Delete what is there at the beginning and was not written since. Raises StoreError.

    ``removed`` is kept up to date, also when it ends in the middle: what was committed stays deleted.

    The readings are short, and none is open while something is deleted: the database would end one that stands still
    for so long, and could not tidy up behind the deletes.
    """
    begun = store.read_heads([]).store.position
    size = _batch(store.limits)
    while found := _find(store, begun, size * _READ, table, topic):
        for at in range(0, len(found), size):
            _delete(store, found[at : at + size], removed)


def _batch(limits: Limits) -> int:
    """As many deletes as always fit a transaction."""
    return max(1, min(BATCH, limits.max_transaction_changes, limits.max_transaction_bytes // MAX_KEY_BYTES))


def _find(store: Store, begun: int, maximum: int, table: str | None, topic: str | None) -> list[_Seen]:
    """The first objects that are as they were at the position ``begun``."""
    old = (each for each in store.objects(table=table, topic=topic) if each.version <= begun)
    return [_Seen(each.table, each.key, each.version) for each in islice(old, maximum)]


def _delete(store: Store, part: Sequence[_Seen], removed: Removed) -> None:
    try:
        with store.transaction() as tx:
            for each in part:
                tx.delete(each.table, each.key, version=each.version, missing_ok=True)
    except VersionMismatch:
        return  # somebody wrote one of them; the next reading leaves that one out and finds the others again
    if tx.commit is not None:
        removed.objects += sum(change.value is None for link in tx.commit.links for change in link.changes)
        removed.transactions += 1
        removed.position = tx.commit.point.position
