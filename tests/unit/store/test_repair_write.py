"""A planned repair never undoes later writes, and is never applied twice."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import update

from pubsub_lib.store import Store, repair, repair_plan, schema
from tests.e2e.store_checks import assert_consistent
from tests.unit.store.conftest import Opener
from tests.unit.store.test_repair import contents, fill, harm, head, lost, suspects, value


def between(monkeypatch: pytest.MonkeyPatch, *happens: Callable[[], object]) -> None:
    """Call the first function between the first plan and its writing, the next one after the second plan, and so on."""
    planned = repair_plan.plan
    left = list(happens)

    def plan(*given: Any) -> repair_plan.Plan:
        made = planned(*given)
        if left:
            left.pop(0)()
        return made

    monkeypatch.setattr(repair_plan, "plan", plan)


def set_and_delete(store: Store) -> None:
    with store.transaction() as tx:
        tx.set("port", "k7", {"n": "new"}, topic="t")
    with store.transaction() as tx:
        tx.delete("port", "k7")


def test_repair_does_not_restore_a_lost_object_that_was_deleted_after_the_plan(
    open_store: Opener, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is absent in the plan and absent again at the write: only the changelog proves that this is right."""
    store, other = open_store(), open_store()
    fill(store)
    harm(database_url, lost)
    between(monkeypatch, lambda: set_and_delete(other))
    repaired = store.repair("t")
    assert store.get("port", "k7") is None, "the deleted object was restored"
    assert (repaired.overtaken, repaired.repaired, repaired.left) == (1, 1, False), "the head was repaired then"
    assert store.unfit(["t"]) == []
    assert_consistent(store)


def test_repair_does_not_restore_a_lost_object_that_was_moved_after_the_plan(
    open_store: Opener, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = open_store(), open_store()
    fill(store)
    harm(database_url, lost)

    def move() -> None:
        with other.transaction() as tx:
            tx.set("port", "k7", {"n": "moved"}, topic="other")

    between(monkeypatch, move)
    repaired = store.repair("t")
    assert (repaired.overtaken, repaired.repaired, repaired.left) == (1, 1, False), "the head was repaired then"
    record = store.get_record("port", "k7")
    assert record is not None
    assert record.topic == "other"
    assert store.unfit(["t", "other"]) == []


def test_repair_does_not_undo_a_second_write_of_a_lost_object(
    open_store: Opener, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = open_store(), open_store()
    fill(store)
    harm(database_url, lost)

    def set_delete_and_set() -> None:
        set_and_delete(other)
        with other.transaction() as tx:
            tx.set("port", "k7", {"n": "newest"}, topic="t")

    between(monkeypatch, set_delete_and_set)
    assert not store.repair("t").left
    assert store.get("port", "k7") == {"n": "newest"}
    assert store.unfit(["t"]) == []


def test_repair_of_a_head_is_not_applied_twice(
    open_store: Opener, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = open_store(), open_store()
    fill(store)
    right = store.topics()
    harm(database_url, head)
    planned = repair_plan.plan

    def both(*given: Any) -> repair_plan.Plan:
        made = planned(*given)
        monkeypatch.setattr(repair_plan, "plan", planned)
        other.repair("t")
        return made

    monkeypatch.setattr(repair_plan, "plan", both)
    repaired = store.repair("t")
    assert store.topics() == right, "the head was moved twice"
    assert (repaired.overtaken, repaired.repaired, repaired.left) == (1, 0, False)


def test_repair_of_a_head_succeeds_while_the_topic_is_written(
    open_store: Opener, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = open_store(), open_store()
    fill(store)
    harm(database_url, head)

    def write() -> None:
        with other.transaction() as tx:
            tx.set("port", "k9", {"n": "meanwhile"}, topic="t")

    between(monkeypatch, write)
    repaired = store.repair("t")
    assert (repaired.repaired, repaired.overtaken, repaired.left) == (1, 0, False)
    assert store.unfit(["t"]) == []
    assert store.recount("t") == store.topics()["t"]


def test_repair_writes_nothing_when_the_history_changed_after_the_plan(
    open_store: Opener, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like a restored backup at the same position: another nonce."""
    store = open_store()
    fill(store)
    harm(database_url, value)
    found = [each.ident for each in suspects(store)]
    before = contents(store)

    def restore() -> None:
        harm(
            database_url,
            lambda connection: connection.execute(update(schema.store).values(nonce=schema.store.c.nonce + 1)),
        )

    between(monkeypatch, *[restore] * repair.PLANS)
    repaired = store.repair("t", found)
    assert (repaired.repaired, repaired.overtaken, repaired.left) == (0, repair.PLANS, True)
    assert contents(store) == before


def test_repair_plans_again_when_the_changelog_was_trimmed_after_the_plan(
    open_store: Opener, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the writes since the plan are unknown."""
    store, other = open_store(), open_store()
    fill(store)
    harm(database_url, lost)

    def write_and_trim() -> None:
        set_and_delete(other)
        other.trim(keep_links=1)

    between(monkeypatch, write_and_trim)
    assert store.repair("t").repaired == 0
    assert store.get("port", "k7") is None, "the deleted object was restored"
