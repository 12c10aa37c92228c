"""The commit sequence (rule S1): its order, and concurrent writers."""

import threading
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, text

from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ZERO, Head, Link, Point
from pubsub_lib.errors import InvalidValueError, StoreBusy, StoreError, VersionMismatch
from pubsub_lib.store import Store, StoreSettings, error_mapping, verbs, writer
from pubsub_lib.store.connection_executor import ConnectionExecutor
from pubsub_lib.store.executor import OwnTransaction
from pubsub_lib.store.links import Commit
from pubsub_lib.store.prepared import Call, Rows
from pubsub_lib.store.verbs import Operation
from tests.e2e.store_checks import assert_consistent
from tests.unit.store.conftest import Opener

IMPATIENT = StoreSettings(lock_timeout=0.2, retry_attempts=1)


Trips = list[list[str]]


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> Trips:
    """The SQL of all transactions, in the lists in which it is executed: on PostgreSQL a list is one round trip."""
    seen: Trips = []
    original = OwnTransaction._execute

    def execute(transaction: OwnTransaction, calls: Sequence[Call]) -> list[Rows]:
        seen.append([call.statement.text for call in calls])
        return original(transaction, calls)

    monkeypatch.setattr(OwnTransaction, "_execute", execute)
    return seen


_PLACE = attrgetter("point.position", "topic")


def put(store: Store, *keys: str) -> None:
    with store.transaction() as tx:
        for key in keys:
            tx.set("t", key, key, topic="x")


def test_position_objects_are_locked_before_the_counter_and_written_after_it(store: Store, trips: Trips) -> None:
    put(store, "a", "b")
    statements = [each for trip in trips for each in trip if "pubsub_" in each]
    if store._writers.dialect.name == "postgresql":
        assert trips[0][0].startswith("BEGIN")
        assert trips[-1][-1] == "COMMIT"
    tables = [
        next(name for name in ("objects", "store", "topics", "links") if f"pubsub_{name}" in each)
        for each in statements
    ]
    order = [table for i, table in enumerate(tables) if i == 0 or tables[i - 1] != table]
    returning = store._writers.dialect.name != "mysql"
    counter = ["store", "topics"] if returning else ["store", "topics", "store"]
    assert order == ["objects", *counter, "objects", "topics", "links"]
    if store._writers.dialect.name != "sqlite":
        assert "FOR UPDATE" in statements[0]


def test_round_trips_do_not_grow_with_the_keys(store: Store, trips: Trips) -> None:
    """While the counter is locked, every round trip delays all writers. On PostgreSQL the last one has the COMMIT."""
    put(store, "first")  # of a new topic it is checked whether its row was lost
    trips.clear()
    put(store, "a", "b")
    few = [len(trip) for trip in trips]
    trips.clear()
    put(store, *(f"k{number}" for number in range(60)))
    assert [len(trip) for trip in trips] == few
    assert len(few) == 3


def test_rows_of_several_topics_are_written_as_they_are_announced(store: Store, trips: Trips) -> None:
    """PostgreSQL gets the heads, and the links, of several topics as one text each."""
    announced: list[Link] = []
    store.on_commit(announced.extend)
    for value in ('\\ "ü\u2028\U0001f600', "y" * 5000):
        trips.clear()
        with store.transaction(origin="dienst-ü") as tx:
            for topic in ("a", 'b"\\', "c-\U0001f600"):
                tx.set("t", f"k{topic}", {"n": 2**53, "text": value}, topic=topic)
        if store._writers.dialect.name == "postgresql":
            assert [each.partition("(")[0] for each in trips[-1][1:]] == [
                "INSERT INTO pubsub_topics ",
                "INSERT INTO pubsub_links ",
                "COMMIT",
            ]
            assert all("json_to_recordset" in each for each in trips[-1][:3])
    assert len(announced) == 6
    links, _, whole = store.read_links(ZERO, 100)
    assert (sorted(links, key=_PLACE), whole) == (sorted(announced, key=_PLACE), True)
    assert store.topics() == {link.topic: Head(link.point, link.count, link.digest) for link in announced[3:]}
    for topic in store.topics():
        assert store.recount(topic) == store.topics()[topic]
    assert assert_consistent(store) == 2


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


def test_isolation_writer_loses_no_update_committed_between_its_read_and_write(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both merge a field of their own into one object. The second one waits, or fails and writes nothing."""
    store, other = open_store(), open_store(settings=IMPATIENT)
    with store.transaction() as tx:
        tx.create("t", "k", {})
    committed = {"mine": 1}
    reached: list[str] = []

    def meanwhile(failpoint: str) -> None:
        if failpoint != "writer.after_lock" or reached:  # the other writer gets here, too, if the object is not locked
            return
        reached.append(failpoint)
        try:
            with other.transaction() as tx:
                tx.update("t", "k", {"other": 2})
            committed["other"] = 2
        except StoreBusy:
            pass  # it could not lock the object in time, and wrote nothing

    monkeypatch.setattr(writer, "armed", True)
    monkeypatch.setattr(writer, "hit", meanwhile)
    with store.transaction() as tx:
        tx.update("t", "k", {"mine": 1})
    assert reached
    assert store.get("t", "k") == committed
    assert_consistent(store)


@pytest.mark.parametrize("meanwhile", ["create", "change", "delete", "create again"])
def test_verbs_of_a_transaction_with_an_overtaken_read_are_rejected(meanwhile: str, open_store: Opener) -> None:
    store, other = open_store(), open_store()
    if meanwhile != "create":
        with store.transaction() as tx:
            tx.create("t", "read", "before")

    def overtaken() -> None:
        with store.transaction() as tx:
            tx.get("t", "read")
            if meanwhile in ("delete", "create again"):
                with other.transaction() as theirs:
                    theirs.delete("t", "read")
            if meanwhile != "delete":
                with other.transaction() as theirs:
                    theirs.set("t", "read", "before" if meanwhile == "create again" else "after")
            tx.set("t", "decided by it", 1)

    with pytest.raises(VersionMismatch, match="'read' was changed by another writer"):
        overtaken()
    assert store.get("t", "decided by it") is None


def write(connection: Connection, work: writer.Work, store: Store) -> Commit | None:
    executor = ConnectionExecutor(connection)
    (outcome,) = writer.write_together(executor, [work], store._tables.encode, Limits())
    assert outcome.error is None
    return outcome.commit


def ask(store: Store, point: Point) -> bool | None:
    with error_mapping.translated("asking"), store._writers.connect() as connection:
        return writer.is_in(connection, point)


def test_history_is_in_waits_for_a_transaction_that_has_not_ended(open_store: Opener) -> None:
    """Otherwise the transaction would be taken for lost and executed again, and both would commit."""
    store, other = open_store(), open_store(settings=IMPATIENT)
    work = writer.Work((Operation("set", "t", "k", b"1"),), {}, 7, "")
    with store._writers.connect() as connection:
        commit = write(connection, work, store)
        assert commit is not None
        with pytest.raises(StoreBusy):
            ask(other, commit.point)
        with pytest.raises(StoreBusy):
            other.committed(commit.nonce)
        connection.commit()
    assert ask(other, commit.point) is True
    assert other.committed(commit.nonce) is True


@pytest.mark.parametrize("keep", range(8))
def test_history_is_in_finds_every_transaction_in_the_changelog(keep: int, store: Store) -> None:
    topics = [("a",), ("b", "c"), ("a",), ("c",), ("c",), ("a",)]
    points = []
    for number, names in enumerate(topics):
        with store.transaction() as tx:
            for name in names:
                tx.set("t", name, number, topic=name)
        assert tx.commit is not None
        points.append(tx.commit.point)
    store.trim(keep_links=keep)
    left = {link.point for link in store.read_links(ZERO, 100)[0]}
    # The head of a topic is known without the changelog: "b" by the second, "c" by the fifth, "a" by the last one.
    heads = {points[1], points[4], points[5]}
    for point in points:
        known = point in left | heads
        assert ask(store, point) is (True if known else None), (keep, point)
        assert store.committed(point.nonce) is known, (keep, point)
    assert store.committed(12345) is False
    oldest = min((point.position for point in left), default=points[-1].position + 1)
    for position in range(1, points[-1].position + 1):  # also between two points: a transaction takes all positions
        answer = ask(store, Point(position, 12345))
        assert answer in ((False,) if position >= oldest else (False, None)), (keep, position)
    assert ask(store, Point(points[-1].position + 1, 12345)) is False


@pytest.mark.parametrize("database", ["postgres_url", "mariadb_url"])
def test_two_creates_of_one_key_write_one_object(database: str, request: pytest.FixtureRequest) -> None:
    """Neither writer sees the other's object; the second one to write gets an error to retry."""
    with Store(request.getfixturevalue(database)) as store:

        def work(nonce: int, verb: verbs.Verb) -> writer.Work:
            return writer.Work((Operation(verb, "t", "k", b"1"),), {}, nonce, "")

        original = ConnectionExecutor.advance

        def overtaken(executor: ConnectionExecutor, by: int, nonce: int, topics: Sequence[str], *more: Any) -> object:
            with store._writers.begin() as other:
                ConnectionExecutor.advance = original  # type: ignore[method-assign]
                assert write(other, work(2, "set"), store) is not None
            return original(executor, by, nonce, topics, *more)

        try:
            ConnectionExecutor.advance = overtaken  # type: ignore[method-assign,assignment]
            with store._writers.connect() as connection, pytest.raises(Exception, match=r"(?i)duplicate|same moment"):
                write(connection, work(1, "create"), store)
        finally:
            ConnectionExecutor.advance = original  # type: ignore[method-assign]
        assert assert_consistent(store) == 1


def test_transaction_over_the_servers_packet_is_rejected_before_sending(mariadb_url: str) -> None:
    with Store(mariadb_url, limits=Limits(max_value_bytes=40_000_000, max_transaction_bytes=40_000_000)) as store:
        with store._readers.connect() as connection:
            packet = connection.execute(text("SELECT @@max_allowed_packet")).scalar_one()
        with pytest.raises(InvalidValueError, match="bytes of keys"), store.transaction() as tx:
            tx.set("t", "k", "x" * (packet // 2))
        maximum = packet // 2 - 65536 - 10
        with store.transaction() as tx:
            tx.set("t", "k", '"' * (maximum // 2 - 2))  # every character doubles in JSON, and again in SQL
        assert tx.commit is not None


def test_update_of_an_altered_value_is_rejected(database_url: str, store: Store) -> None:
    with store.transaction() as tx:
        tx.set("t", "k", {"a": 1})
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE pubsub_objects SET value = :value"), {"value": b'{"a":7}'})
    engine.dispose()
    damaged = r"'k' of the table 't'.*is damaged: its value does not fit its fingerprint"
    with pytest.raises(StoreError, match=damaged), store.transaction() as tx:
        tx.update("t", "k", {"b": 2})
    with store.transaction() as tx:
        tx.set("t", "k", {"a": 1, "b": 2})
    with store.transaction() as tx:
        tx.update("t", "k", {"b": 3})
    assert store.get("t", "k") == {"a": 1, "b": 3}
    assert_consistent(store)
