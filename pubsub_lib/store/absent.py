"""Objects that a transaction found absent and does not create, so that no row and no primary key guards them.

A row that exists is locked from its check until the COMMIT. For an absent one there is nothing to lock: READ COMMITTED
has no locks on gaps. So another writer may create it after the check. Every writer writes its objects while it holds
the counter. Therefore these objects are looked up once more when the counter is locked, and then stay absent until the
COMMIT. SQLite needs none of this, because it has one writer at a time.

The look-up takes no lock: another writer may have locked the object and wait for the counter. In a session on MariaDB
or MySQL it locks, and a deadlock may end one of the two.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

from pubsub_lib.errors import StoreBusy
from pubsub_lib.store.verbs import Effect, Identity, Operation, Stored, read_changed

Absent = Mapping[Identity, bool]
"""Objects, and whether the transaction read them. Otherwise it deleted them with ``missing_ok``."""
NONE: Final[Absent] = MappingProxyType({})


def of(
    operations: Iterable[Operation],
    reads: Mapping[Identity, int],
    stored: Mapping[Identity, Stored],
    effects: Iterable[Effect],
) -> dict[Identity, bool]:
    """The absent objects of one recorded transaction. ``stored``: those of its objects that exist."""
    deleted = {(each.table, each.key) for each in operations if each.verb == "delete"}
    # An effect on an absent object creates it, and fails when another writer did so.
    guarded = {(each.table, each.key) for each in effects}
    return {each: each in reads for each in (deleted | reads.keys()) - stored.keys() - guarded}


def by_table(missing: Absent) -> dict[str, Sequence[str]]:
    """The keys by table, in the order in which every writer locks them."""
    keys: dict[str, list[str]] = {}
    for table, key in missing:
        keys.setdefault(table, []).append(key)
    return {table: sorted(keys[table], key=str.encode) for table in sorted(keys)}


def check(missing: Absent, found: Iterable[Sequence[Sequence[Any]]]) -> None:
    """Refuse objects that were found after all: rows that begin with table and key. Raises ReadChanged for one that the
    transaction read, and StoreBusy for another one: the next attempt deletes it. The transaction is to be rolled back.
    """
    exist = {(row[0], row[1]) for row in chain.from_iterable(found)}
    for identity, is_read in missing.items():
        if identity in exist and is_read:
            raise read_changed(identity)
    if exist:
        table, key = min(exist)
        raise StoreBusy(f"another writer created {table} {key!r} at the same moment; try again")
