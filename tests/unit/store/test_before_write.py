"""Hooks before a write: they get the merged object, may replace its value, and may reject the whole transaction."""

import threading
from typing import Any

import msgspec
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import Session

from pubsub_lib.errors import InvalidValueError
from pubsub_lib.store import ProposedWrite, Store
from tests.e2e.store_checks import assert_consistent
from tests.unit.store.conftest import Opener

Seen = tuple[str, str, str, str, str | None, Any, Any]


def noted(into: list[Seen]) -> Any:
    def note(write: ProposedWrite) -> None:
        into.append((write.action, write.table, write.key, write.topic, write.old_topic, write.old, write.new))

    return note


def test_hook_gets_merged_objects_but_no_unchanged_ones(store: Store) -> None:
    seen: list[Seen] = []
    with store.transaction() as tx:
        tx.set("t", "a", {"x": 1, "y": 1}, topic="p")
        tx.set("t", "gone", 1, topic="p")
        tx.set("t", "same", 1, topic="p")
    store.before_write(noted(seen))
    with store.transaction() as tx:
        tx.create("t", "new", [1], topic="p")
        tx.update("t", "a", {"y": 2}, topic="q")
        tx.update("t", "a", {"z": 3})
        tx.delete("t", "gone")
        tx.set("t", "same", 1)
        tx.delete("t", "never", missing_ok=True)
    assert seen == [
        ("create", "t", "new", "p", None, None, [1]),
        ("set", "t", "a", "q", "p", {"x": 1, "y": 1}, {"x": 1, "y": 2, "z": 3}),
        ("delete", "t", "gone", "p", "p", 1, None),
    ]
    assert_consistent(store)


def test_write_that_restores_a_damaged_row_is_kept_with_hooks_of_any_table(database_url: str, store: Store) -> None:
    with store.transaction() as tx:
        tx.set("t", "k", {"a": 1}, topic="x")
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE pubsub_objects SET value = :value"), {"value": b'{"a":2}'})
    engine.dispose()
    store.before_write(lambda write: None, table="other")
    store.before_write(lambda write: write.new, table="t")
    with store.transaction() as tx:
        tx.set("t", "k", {"a": 2})
    assert tx.commit is not None
    store.repair("x")
    assert store.get("t", "k") == {"a": 2}
    assert_consistent(store)


def test_hook_that_raises_refuses_the_whole_transaction(store: Store) -> None:
    class OurRule(Exception):
        pass

    def refuse(write: ProposedWrite) -> None:
        if write.key == "bad":
            raise OurRule(f"{write!r} {write.old_version}")

    with store.transaction() as tx:
        tx.set("t", "good", 0, topic="p")
    head = store.read_heads([]).store
    remove = store.before_write(refuse)
    with pytest.raises(OurRule, match=r"ProposedWrite\('create', 't', 'bad', topic='p'\) 0"), store.transaction() as tx:
        tx.set("t", "good", 1)
        tx.set("t", "bad", 1, topic="p")
    assert store.read_heads([]).store == head
    assert (store.get("t", "good"), store.get("t", "bad")) == (0, None)
    remove()
    remove()
    with store.transaction() as tx:  # no lock is left, and the hook is removed
        tx.set("t", "bad", 1, topic="p")
    assert_consistent(store)


def test_hook_replaces_written_and_published_value(store: Store) -> None:
    published: list[bytes | None] = []
    store.on_commit(lambda links: published.extend(change.value for link in links for change in link.changes))
    store.before_write(lambda write: {**write.new, "stamp": write.old_version}, table="t")
    store.before_write(lambda write: None if write.action == "delete" else {**write.new, "second": True}, table="t")
    with store.transaction() as tx:
        tx.create("t", "a", {"x": 1}, topic="p")
        tx.create("other", "a", {"x": 1}, topic="p")
    assert store.get("t", "a") == {"x": 1, "stamp": 0, "second": True}
    assert store.get("other", "a") == {"x": 1}
    assert b'{"second":true,"stamp":0,"x":1}' in published
    with pytest.raises(TypeError), store.transaction() as tx:
        tx.delete("t", "a")  # the first hook does not check the action: None has no members
    assert store.get("t", "a") is not None
    assert_consistent(store)


def test_hook_that_restores_the_stored_value_writes_nothing(store: Store) -> None:
    with store.transaction() as tx:
        tx.set("t", "a", 1, topic="p")
    head = store.read_heads([]).store
    store.before_write(lambda write: write.old)
    with store.transaction() as tx:
        tx.set("t", "a", 2)
    assert tx.commit is None
    assert store.read_heads([]).store == head


def test_hook_value_for_deleted_object_is_rejected(store: Store) -> None:
    with store.transaction() as tx:
        tx.set("t", "a", 1, topic="p")
    store.before_write(lambda write: 5)
    with pytest.raises(InvalidValueError, match="'a', which is deleted"), store.transaction() as tx:
        tx.delete("t", "a")
    assert store.get("t", "a") == 1


def test_hook_of_typed_table_gets_and_returns_the_type(open_store: Opener) -> None:
    class Port(msgspec.Struct):
        name: str
        number: int = 0

    store = open_store(tables={"port": Port})
    seen: list[Any] = []

    def number(write: ProposedWrite) -> Port:
        seen.append(write.new)
        return Port(write.new.name, 7)

    remove = store.before_write(number, table="port")
    with store.transaction() as tx:
        tx.create("port", "a", {"name": "eth0"}, topic="p")
    assert seen == [Port("eth0")]
    assert store.get("port", "a") == Port("eth0", 7)
    remove()
    store.before_write(lambda write: {"name": 5})
    with pytest.raises(InvalidValueError, match="does not fit Port"), store.transaction() as tx:
        tx.update("port", "a", {"name": "eth1"})
    assert store.get("port", "a") == Port("eth0", 7)
    with pytest.raises(InvalidValueError, match="is not declared"):
        store.before_write(number, table="prot")


def test_hook_value_over_limit_is_rejected(store: Store) -> None:
    store.before_write(lambda write: "x" * (store.limits.max_value_bytes + 1))
    with pytest.raises(InvalidValueError, match="bytes"), store.transaction() as tx:
        tx.create("t", "a", 1)
    assert store.get("t", "a") is None


def test_hook_runs_while_the_object_is_locked(store: Store) -> None:
    """The object that the hook read is the one that is replaced: writers that count in a hook lose no increment."""
    store.before_write(lambda write: {"n": (write.old or {"n": 0})["n"] + 1}, table="t")
    with store.transaction() as tx:
        tx.create("t", "counter", {}, topic="p")

    def count() -> None:
        for number in range(10):
            with store.transaction() as tx:
                tx.set("t", "counter", {"wanted": number})

    threads = [threading.Thread(target=count) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert store.get("t", "counter") == {"n": 31}
    assert_consistent(store)


def test_hook_in_session_can_refuse_the_commit(store: Store, database_url: str) -> None:
    seen: list[Seen] = []
    remove = store.before_write(noted(seen))
    engine = create_engine(database_url)
    with Session(engine) as session:
        changes = store.session(session)
        changes.set("t", "a", 1, topic="p")
        session.commit()
        assert seen == [("create", "t", "a", "p", None, None, 1)]
        remove()

        def refuse(write: ProposedWrite) -> None:
            raise InvalidValueError("not today")

        store.before_write(refuse)
        changes.set("t", "a", 2)
        with pytest.raises(InvalidValueError, match="not today"):
            session.commit()
        session.rollback()
    engine.dispose()
    assert store.get("t", "a") == 1
    assert_consistent(store)


@pytest.mark.parametrize("in_session", [False, True])
@pytest.mark.parametrize("missing", [True, False])
def test_hook_raises_its_own_error_of_another_database_to_the_writer(
    missing: bool, in_session: bool, store: Store, database_url: str
) -> None:
    """Also one that would be transient, or another class of error, in the store's own database."""
    calls: list[str] = []
    other = create_engine("sqlite:////nonexistent/inventory.db" if missing else "sqlite://")

    def ask(write: ProposedWrite) -> None:
        calls.append(write.key)
        with other.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE owners (name TEXT NOT NULL)")
            connection.exec_driver_sql("INSERT INTO owners VALUES (NULL)")

    store.before_write(ask)
    engine = create_engine(database_url)
    with Session(engine) as session, pytest.raises(OperationalError if missing else IntegrityError):
        if in_session:
            store.session(session).set("t", "a", 1)
            session.commit()
        with store.transaction() as tx:
            tx.set("t", "a", 1)
    engine.dispose()
    other.dispose()
    assert (calls, store.get("t", "a")) == (["a"], None)


def test_transaction_without_effect_runs_no_hook(store: Store) -> None:
    store.before_write(lambda write: pytest.fail("nothing changes"))
    with store.transaction() as tx:
        tx.delete("t", "a", missing_ok=True)
    assert tx.commit is None
