"""Objects that a transaction found absent: another writer creates them between its reading and its commit."""

import contextlib
from collections.abc import Callable

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from pubsub_lib.errors import StoreBusy, UsageError, VersionMismatch
from pubsub_lib.store import Store, absent, statements, verbs, writer
from pubsub_lib.store.group_commit import Attempt
from pubsub_lib.store.transaction import Transaction
from pubsub_lib.store.verbs import Operation, Stored
from pubsub_lib.store.writer import Work
from tests.e2e.store_checks import assert_consistent
from tests.unit.store.conftest import Opener
from tests.unit.store.test_group_commit import put, together
from tests.unit.store.test_writer import IMPATIENT, Trips
from tests.unit.store.test_writer import trips as trips  # a fixture

Meanwhile = Callable[..., list[str]]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Lets ``other`` create the object "absent" when the next transaction (after ``skipped`` ones) has locked its
    objects, and not the counter. Returns the list of the result.
    """

    def arrange(other: Store, skipped: int = 0) -> list[str]:
        results: list[str] = []
        left = [None] * skipped

        def hit(failpoint: str) -> None:
            if failpoint != "writer.after_lock" or results:
                return
            if left:
                left.pop()
                return
            results.append("running")
            try:
                with other.transaction() as tx:
                    tx.create("t", "absent", 1)
                results[:] = ["committed"]
            except StoreBusy:
                results[:] = ["busy"]

        monkeypatch.setattr(writer, "armed", True)
        monkeypatch.setattr(writer, "hit", hit)
        return results

    return arrange


def decide(tx: Transaction) -> None:
    """A transaction whose write is right only while there is no object "absent"."""
    if tx.get("t", "absent") is None:
        tx.set("t", "decided", 1)


def test_isolation_read_of_an_absent_object_is_guarded(open_store: Opener, meanwhile: Meanwhile) -> None:
    store, other = open_store(), open_store(settings=IMPATIENT)
    results = meanwhile(other)
    if store._writers.dialect.name == "sqlite":
        with store.transaction() as tx:
            decide(tx)
        assert results == ["busy"]
    else:
        with pytest.raises(VersionMismatch, match="'absent' was changed by another writer"), store.transaction() as tx:
            decide(tx)
        assert results == ["committed"]
    assert (store.get("t", "decided") is None) == (results == ["committed"])
    assert assert_consistent(store) == 1


def test_isolation_write_is_run_again_after_a_read_object_was_created(
    open_store: Opener, meanwhile: Meanwhile
) -> None:
    store, other = open_store(), open_store(settings=IMPATIENT)
    results = meanwhile(other)
    store.write(decide)
    assert (store.get("t", "decided") is None) == (results == ["committed"])


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_isolation_read_of_an_absent_object_is_guarded_in_a_session(
    level: str, store: Store, database_url: str, meanwhile: Meanwhile
) -> None:
    """At every isolation. The program that commits once more after the error does not break the history."""
    engine = create_engine(database_url)
    if engine.dialect.name != "sqlite":  # which has one isolation
        engine = engine.execution_options(isolation_level=level)
    with Store(database_url, settings=IMPATIENT) as other, Session(engine) as session:
        results = meanwhile(other)
        recorder = store.session(session)
        decide(recorder)
        if engine.dialect.name != "sqlite" and level == "READ COMMITTED":
            for kind in (VersionMismatch, UsageError):
                with pytest.raises(kind):
                    session.commit()
            recorder.close()
            session.commit()
        else:
            with contextlib.suppress(StoreBusy):  # of the isolation itself
                session.commit()
    engine.dispose()
    assert (store.get("t", "decided") is None) == (results == ["committed"])
    assert assert_consistent(store) == 1


def test_isolation_deleted_object_is_gone_also_when_it_was_created_meanwhile(
    open_store: Opener, meanwhile: Meanwhile
) -> None:
    """The delete comes after the create in the history, so it removes the object."""
    store, other = open_store(), open_store(settings=IMPATIENT)
    results = meanwhile(other)
    with store.transaction() as tx:
        tx.delete("t", "absent", missing_ok=True)
        tx.set("t", "decided", 1)
    assert results == [("busy" if store._writers.dialect.name == "sqlite" else "committed")]
    assert {each.key for each in store.objects()} == {"decided"}
    assert_consistent(store)


def test_read_object_that_was_created_meanwhile_fails_its_own_work_of_a_group(
    open_store: Opener, meanwhile: Meanwhile
) -> None:
    store, other = open_store(), open_store(settings=IMPATIENT)
    results = meanwhile(other, skipped=1)

    def reader() -> None:
        with store.transaction() as tx:
            decide(tx)

    _, *others = together(store, put(store, "a"), reader, put(store, "b"), put(store, "c"))
    committed = store._writers.dialect.name != "sqlite"
    assert results == ["committed" if committed else "busy"]
    errors = [type(each.exception()) for each in others]
    assert errors == [verbs.ReadChanged if committed else type(None), type(None), type(None)]
    assert {each.key for each in store.objects(topic="x")} == {"a", "b", "c"}
    assert_consistent(store)


def test_service_that_commits_reports_the_read_object_that_was_created_meanwhile(
    open_store: Opener, meanwhile: Meanwhile
) -> None:
    store, other = open_store(), open_store(settings=IMPATIENT)
    announced: list[object] = []
    results = meanwhile(other)
    work = Work((Operation("set", "t", "decided", b"1"),), {("t", "absent"): 0}, 7, "")
    (attempt,) = store.commit_group([work], announced.extend)
    if results == ["committed"]:
        assert isinstance(attempt.error, VersionMismatch)
        assert attempt == Attempt(error=attempt.error)
        assert announced == []
    else:
        assert store._writers.dialect.name == "sqlite"
    assert assert_consistent(store) == 1


def size(store: Store, trips: Trips, do: Callable[[Transaction], None]) -> tuple[int, int]:
    """How many round trips on PostgreSQL, and how many statements, a transaction takes."""
    with store.transaction() as tx:
        do(tx)
        trips.clear()
    return len(trips), sum(map(len, trips))


def test_only_a_guarded_absent_read_costs_one_statement_and_no_round_trip(store: Store, trips: Trips) -> None:
    with store.transaction() as tx:
        tx.set("t", "there", 1)

    def plain(tx: Transaction) -> None:
        tx.set("t", "a", 1)

    def reads_what_exists(tx: Transaction) -> None:
        tx.get("t", "there")
        tx.get("t", "a")
        tx.set("t", "a", 2)

    def creates_what_it_missed(tx: Transaction) -> None:
        """Its row's primary key guards the read."""
        assert tx.get("t", "b") is None
        tx.create("t", "b", 1)

    usual = size(store, trips, plain)
    assert size(store, trips, reads_what_exists) == usual
    assert size(store, trips, creates_what_it_missed) == usual
    extra = store._writers.dialect.name != "sqlite"
    found = size(store, trips, decide)
    if store._writers.dialect.name == "postgresql":
        assert found == (usual[0], usual[1] + 1)
    else:
        assert found[1] == usual[1] + extra


@pytest.mark.postgresql
def test_look_up_uses_the_index_while_statistics_lag(postgres_url: str) -> None:
    """It is made while the counter is locked. During a bulk load PostgreSQL knows an older size of the table."""
    with Store(postgres_url) as store:
        with store.transaction() as tx:
            for number in range(2000):
                tx.set("t", f"k{number}", number)
        find = statements.of(store._writers.dialect).find_objects(2)
        values = {"table": "t", "key": '["k1", "absent"]'}
        with store._writers.connect() as connection:
            plan = "\n".join(connection.exec_driver_sql(f"EXPLAIN {find.text}", values).scalars())
            assert connection.exec_driver_sql(find.text, values).all() == [("t", "k1")]
    assert "Index Cond: ((table_name = 't'::text COLLATE \"C\") AND (object_key" in plan


def test_objects_of_a_transaction_that_nothing_else_guards() -> None:
    there = Stored("t", "there", "x", 1, b"1")
    operations = [
        Operation("delete", "t", "there"),
        Operation("delete", "t", "gone", missing_ok=True),
        Operation("delete", "t", "again", missing_ok=True),
        Operation("set", "t", "again", b"1"),
        Operation("set", "t", "set", b"1"),
    ]
    stored = {there.ident: there}
    effects = verbs.fold(operations, stored, lambda _table, _value: b"")
    reads = {("t", "there"): 1, ("t", "read"): 0, ("t", "set"): 0, ("a", "read"): 0, ("t", "ä"): 0}
    missing = absent.of(operations, reads, stored, effects)
    assert missing == {("t", "gone"): False, ("t", "read"): True, ("a", "read"): True, ("t", "ä"): True}
    assert absent.by_table(missing) == {"a": ["read"], "t": ["gone", "read", "ä"]}


def test_found_object_is_reported_by_what_the_transaction_did() -> None:
    missing = {("t", "deleted"): False, ("t", "read"): True}
    absent.check(missing, [[], ()])
    with pytest.raises(StoreBusy, match="another writer created t 'deleted' at the same moment"):
        absent.check(missing, [[("t", "deleted")]])
    with pytest.raises(verbs.ReadChanged, match="t 'read' was changed by another writer"):
        absent.check(missing, [[("t", "deleted")], [("t", "read", "x", 5)]])
