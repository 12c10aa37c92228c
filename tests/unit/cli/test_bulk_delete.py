"""Deleting in batches while other processes write."""

import json
from typing import Any

import pytest
from sqlalchemy import QueuePool

from pubsub_lib import Store
from pubsub_lib.cli import bulk_delete
from pubsub_lib.cli.bulk_delete import Removed, remove
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import MAX_KEY_BYTES


def filled(url: str, limits: Limits = Limits()) -> Store:  # noqa: B008 - frozen
    """25 objects, and the store to delete them with."""
    with Store(url) as store, store.transaction() as tx:
        for number in range(25):
            tx.set("t", str(number), number, topic="a")
    return Store(url, limits=limits)


def contents(store: Store) -> dict[str, tuple[str, Any]]:
    return {each.key: (each.topic, json.loads(each.value)) for each in store.objects()}


@pytest.mark.parametrize("read", [1, 10])
@pytest.mark.parametrize("after", [1, 2])
def test_remove_works_in_batches_and_keeps_later_writes(
    read: int, after: int, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_delete, "BATCH", 10)
    monkeypatch.setattr(bulk_delete, "_READ", read)
    removed, commits = Removed(), []
    with filled(sqlite_url) as store, Store(sqlite_url) as other:

        def another(_: object) -> None:
            commits.append(1)
            if len(commits) != after:
                return
            left = sorted(contents(other), key=int)
            with other.transaction() as late:
                late.set("t", "late", 1, topic="a")
                late.set("t", left[0], "new")
                late.set("t", left[1], "moved", topic="b")
                late.delete("t", left[2])
            with other.transaction() as late:
                late.create("t", left[2], "again", topic="a")
                late.delete("t", left[3])
            expected.update({"late": ("a", 1), left[0]: ("a", "new"), left[1]: ("b", "moved"), left[2]: ("a", "again")})

        expected: dict[str, tuple[str, Any]] = {}
        store.on_commit(another)
        remove(store, removed, topic="a")
        assert contents(store) == expected
        assert removed.objects == 25 - 4  # the other store wrote four objects first
        assert removed.position == store.read_heads([]).store.position


def test_no_reading_is_open_while_something_is_deleted(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_delete, "BATCH", 10)
    removed, reading = Removed(), []
    with filled(sqlite_url) as store:
        readers = store._readers.pool
        assert isinstance(readers, QueuePool)
        store.on_commit(lambda _: reading.append(readers.checkedout()))
        remove(store, removed)
        assert (removed.objects, reading) == (25, [0, 0, 0])


@pytest.mark.parametrize("limits", [Limits(max_transaction_changes=7), Limits(max_transaction_bytes=7 * MAX_KEY_BYTES)])
def test_batches_fit_a_transaction(limits: Limits, sqlite_url: str) -> None:
    removed = Removed()
    with filled(sqlite_url, limits) as store:
        remove(store, removed)
        assert (removed.objects, removed.transactions, contents(store)) == (25, 4, {})
