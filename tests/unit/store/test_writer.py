"""The commit sequence (rule S1): its order, and what two writers at once do to each other."""

import threading

import pytest
from sqlalchemy import Connection, event, text

from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import ValueRefused
from pubsub_lib.store import Store, verbs, writer
from pubsub_lib.store.verbs import Operation
from tests.e2e.store_checks import assert_consistent
from tests.unit.store.conftest import Opener


def statements_of(store: Store, *keys: str) -> list[str]:
    """The SQL of one transaction."""
    seen: list[str] = []

    def note(_c: object, _cursor: object, statement: str, *_rest: object) -> None:
        seen.append(" ".join(statement.split()))

    event.listen(store._writers, "before_cursor_execute", note)
    with store.transaction() as tx:
        for key in keys:
            tx.set("t", key, len(seen), topic="x")
    event.remove(store._writers, "before_cursor_execute", note)
    return [each for each in seen if "pubsub_" in each]


def test_position_objects_are_locked_before_the_counter_and_written_after_it(store: Store) -> None:
    statements = statements_of(store, "a", "b")
    if store._writers.dialect.name == "sqlite":
        statements = statements[1:]  # BEGIN IMMEDIATE locked all; the touch of the counter is for users' sessions
    tables = [
        next(name for name in ("objects", "store", "topics", "links") if f"pubsub_{name}" in each)
        for each in statements
    ]
    order = [table for i, table in enumerate(tables) if i == 0 or tables[i - 1] != table]
    assert order == ["objects", "store", "topics", "objects", "topics", "links"]
    if store._writers.dialect.name != "sqlite":
        assert "FOR UPDATE" in statements[0]


def test_round_trips_do_not_grow_with_the_keys(store: Store) -> None:
    """While the counter is held, every round trip holds up all writers."""
    few, many = statements_of(store, "a", "b"), statements_of(store, *(f"k{i}" for i in range(60)))
    assert len(many) == len(few)


def test_keys_are_locked_in_one_order(open_store: Opener) -> None:
    """Two transactions over the same keys, named in opposite orders, never deadlock."""
    stores = [open_store(), open_store()]
    busy: list[int] = []

    def work(store: Store, step: int) -> None:
        for round_ in range(15):
            with store.transaction() as tx:
                for i in range(20)[::step]:
                    tx.set("t", f"k{i}", f"{step} {round_}")
        busy.append(store._writers.pool.checkedout())  # type: ignore[attr-defined]

    threads = [threading.Thread(target=work, args=(store, step)) for store, step in zip(stores, (1, -1), strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert busy == [0, 0]
    assert assert_consistent(stores[0]) == 30


@pytest.mark.parametrize("database", ["postgres_url", "mariadb_url"])
def test_two_creates_of_one_key_end_in_one(database: str, request: pytest.FixtureRequest) -> None:
    """Neither sees the other when it looks; the second one to write is told to try again."""
    with Store(request.getfixturevalue(database)) as store:

        def work(nonce: int, verb: verbs.Verb) -> writer.Work:
            return writer.Work((Operation(verb, "t", "k", b"1"),), {}, nonce, "")

        original = writer._advance

        def overtaken(connection: Connection, by: int, nonce: int) -> object:
            with store._writers.begin() as other:
                writer._advance = original
                assert writer.write(other, work(2, "set"), store._tables.encode, Limits()) is not None
            return original(connection, by, nonce)

        try:
            writer._advance = overtaken  # type: ignore[assignment]
            with store._writers.connect() as connection, pytest.raises(Exception, match=r"(?i)duplicate|same moment"):
                writer.write(connection, work(1, "create"), store._tables.encode, Limits())
        finally:
            writer._advance = original
        assert assert_consistent(store) == 1


def test_a_transaction_over_the_servers_packet_is_refused_before_it_is_sent(mariadb_url: str) -> None:
    with Store(mariadb_url, limits=Limits(max_value_bytes=40_000_000, max_transaction_bytes=40_000_000)) as store:
        with store._readers.connect() as connection:
            packet = connection.execute(text("SELECT @@max_allowed_packet")).scalar_one()
        with pytest.raises(ValueRefused, match="bytes of keys"), store.transaction() as tx:
            tx.set("t", "k", "x" * (packet // 2))
        most = packet // 2 - 65536 - 10
        with store.transaction() as tx:
            tx.set("t", "k", '"' * (most // 2 - 2))  # every character doubles in JSON, and again in SQL
        assert tx.commit is not None
