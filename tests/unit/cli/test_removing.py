"""Deleting in portions, while others write."""

import pytest

from pubsub_lib import Store
from pubsub_lib.cli import removing
from pubsub_lib.cli.removing import Removed, remove


def test_in_portions_and_not_what_was_written_since(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removing, "BATCH", 10)
    removed = Removed()
    with Store(sqlite_url) as store:
        with store.transaction() as tx:
            for number in range(25):
                tx.set("t", str(number), number)

        def another(_: object) -> None:
            stop()
            with store.transaction() as late:
                late.set("t", "late", 1)
                late.delete("t", "24", missing_ok=True)

        stop = store.on_commit(another)
        remove(store, removed)
        assert [each.key for each in store.objects()] == ["late"]
        assert removed.transactions == 3
        assert removed.objects in (24, 25)  # the other one may have been quicker with number 24
        assert removed.position == store.read_heads([]).store.position
