"""Changes in a program's own SQLAlchemy session (rule S9): its tables and ours commit together, or not at all."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, Integer, String, create_engine, event, select
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from pubsub_lib.core.model import Link
from pubsub_lib.errors import (
    AlreadyExists,
    ClosedError,
    ConfigError,
    HandoffRejectedError,
    StoreBusy,
    UsageError,
    VersionMismatch,
)
from pubsub_lib.store import Store, StoreSettings, schema, writer
from tests.e2e.store_checks import assert_consistent
from tests.unit.store.test_commit import lost


class Base(DeclarativeBase):
    pass


class Port(Base):
    __tablename__ = "users_ports"
    name: Mapped[str] = mapped_column(String(50), primary_key=True)
    number: Mapped[int] = mapped_column(Integer)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = create_engine(database_url)
    Base.metadata.create_all(made)
    yield made
    made.dispose()


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    with Session(engine) as made:
        yield made


def ports(engine: Engine) -> list[str]:
    with Session(engine) as session:
        return sorted(session.scalars(select(Port.name)))


def test_users_transaction_commits_program_and_library_tables_together(
    store: Store, session: Session, engine: Engine
) -> None:
    seen: list[Sequence[Link]] = []
    store.on_commit(seen.append)
    recorder = store.session(session)
    session.add(Port(name="p1", number=1))
    recorder.set("lport", "p1", {"n": 1}, topic="x")
    assert (store.get("lport", "p1"), seen) == (None, [])
    assert recorder.get("lport", "p1") == {"n": 1}
    session.commit()
    assert (store.get("lport", "p1"), ports(engine)) == ({"n": 1}, ["p1"])
    assert recorder.commit is not None
    assert seen == [recorder.commit.links]
    recorder.set("lport", "p1", {"n": 2})
    session.commit()
    assert assert_consistent(store) == 2
    assert len(seen) == 2


def test_users_transaction_takes_counter_after_flush(store: Store, session: Session) -> None:
    statements: list[str] = []
    recorder = store.session(session)
    recorder.set("t", "k", 1)
    session.add(Port(name="p1", number=1))
    assert session.bind is not None

    def note(_c: object, _cursor: object, statement: str, *_rest: object) -> None:
        statements.append(statement)

    event.listen(session.get_bind(), "before_cursor_execute", note)
    session.commit()
    first = next(i for i, each in enumerate(statements) if "pubsub_" in each)
    assert "users_ports" in " ".join(statements[:first])
    assert "users_ports" not in " ".join(statements[first:])


def test_session_commits_verbs_recorded_during_flush(store: Store, session: Session, engine: Engine) -> None:
    recorder = store.session(session)

    @event.listens_for(session, "before_flush")
    def record(session: Session, *_: object) -> None:
        for row in session.new:
            recorder.create("lport", row.name, {"n": row.number})

    session.add(Port(name="p1", number=1))  # nothing is recorded before the commit begins
    session.commit()
    assert (store.get("lport", "p1"), ports(engine)) == ({"n": 1}, ["p1"])
    session.add_all([Port(name="p2", number=2), Port(name="p2", number=3)])
    with pytest.raises(IntegrityError):
        session.commit()
    session.rollback()
    assert (store.get("lport", "p2"), ports(engine)) == (None, ["p1"])
    assert assert_consistent(store) == 1


def test_users_transaction_rollback_drops_the_verbs(store: Store, session: Session, engine: Engine) -> None:
    recorder = store.session(session)
    recorder.set("t", "a", 1)
    session.add(Port(name="p1", number=1))
    session.rollback()
    session.commit()
    recorder.set("t", "b", 1)
    session.close()
    recorder.set("t", "c", 1)
    session.commit()
    assert [each.key for each in store.objects()] == ["c"]
    assert ports(engine) == []


def test_savepoint_rollback_drops_only_its_own_verbs(store: Store, session: Session) -> None:
    recorder = store.session(session)
    recorder.set("t", "before", 1)
    with pytest.raises(ZeroDivisionError), session.begin_nested():
        recorder.set("t", "inside", 1)
        with session.begin_nested():
            recorder.set("t", "deeper", 1)
        raise ZeroDivisionError
    with session.begin_nested():
        recorder.set("t", "kept", 1)
        assert store.read_heads([]).store.position == 0
    assert store.read_heads([]).store.position == 0  # a savepoint's end is not a commit
    recorder.set("t", "after", 1)
    session.commit()
    assert sorted(each.key for each in store.objects()) == ["after", "before", "kept"]
    assert assert_consistent(store) == 1


def test_outer_commit_over_an_open_savepoint_is_rejected(store: Store, session: Session, engine: Engine) -> None:
    """SQLAlchemy would commit it without calling our listener again."""
    recorder = store.session(session)
    with pytest.raises(UsageError, match="savepoint"), session.begin():
        session.add(Port(name="p1", number=1))
        session.begin_nested()
        recorder.set("t", "k", 1)
    assert ports(engine) == []
    assert store.get("t", "k") is None


def test_verbs_that_the_flush_of_an_open_savepoint_records_are_not_dropped(
    store: Store, session: Session, engine: Engine
) -> None:
    """The outer transaction ends the savepoint, whose flush comes after its ``before_commit``."""
    recorder = store.session(session)
    event.listen(session, "before_flush", lambda *_: recorder.set("t", "k", 1))
    with pytest.raises(UsageError, match="savepoint"), session.begin():
        session.begin_nested()
        session.add(Port(name="p1", number=1))
    assert ports(engine) == []
    assert store.get("t", "k") is None


def test_violated_condition_fails_the_sessions_commit(store: Store, session: Session, engine: Engine) -> None:
    with store.transaction() as tx:
        tx.set("t", "k", 1)
    recorder = store.session(session)
    with pytest.raises(AlreadyExists), session.begin():
        session.add(Port(name="p1", number=1))
        recorder.create("t", "k", 2)
    with pytest.raises(VersionMismatch), session.begin():
        recorder.set("t", "k", 2, version=9)
    assert ports(engine) == []
    recorder.set("t", "k", 3, version=1)
    session.commit()
    assert store.get("t", "k") == 3


def test_failing_flush_writes_no_objects(store: Store, session: Session) -> None:
    recorder = store.session(session)
    session.add(Port(name="p1", number=1))
    session.commit()
    session.expunge_all()
    recorder.set("t", "k", 1)
    session.add(Port(name="p1", number=2))
    with pytest.raises(IntegrityError):
        session.commit()
    session.rollback()
    session.commit()
    assert store.get("t", "k") is None
    assert recorder.commit is None


def test_failure_after_the_counter_leaves_no_gap(store: Store, session: Session) -> None:
    recorder = store.session(session)

    def refuse(_session: Session) -> None:
        raise ZeroDivisionError

    event.listen(session, "before_commit", refuse)  # after our listener
    seen: list[object] = []
    store.on_commit(seen.append)
    with pytest.raises(ZeroDivisionError), session.begin():
        recorder.set("t", "k", 1)
    event.remove(session, "before_commit", refuse)
    recorder.set("t", "k", 2)
    session.commit()
    assert len(seen) == 1
    assert assert_consistent(store) == 1


@pytest.mark.parametrize("cause", ["listener", "COMMIT"])
def test_session_closed_after_a_failed_commit_hands_nothing_over(
    cause: str, store: Store, session: Session, engine: Engine
) -> None:
    """``Session.close`` ends the transaction without ``after_rollback``."""
    recorder = store.session(session)
    seen: list[object] = []
    store.on_commit(seen.append)

    def refuse(_: Session) -> None:
        raise ZeroDivisionError

    def lose(connection: Connection) -> None:
        connection.invalidate()
        raise ZeroDivisionError

    failing = (session, "before_commit", refuse) if cause == "listener" else (engine, "commit", lose)
    event.listen(*failing)
    recorder.set("t", "k", 1)
    with pytest.raises(ZeroDivisionError):
        session.commit()
    event.remove(*failing)
    session.close()
    session.add(Port(name="p1", number=1))
    session.commit()
    assert (seen, recorder.commit, store.get("t", "k"), ports(engine)) == ([], None, None, ["p1"])


def test_commit_without_a_change_is_tried_again_after_another_listeners_error(
    store: Store, session: Session, engine: Engine
) -> None:
    recorder = store.session(session)

    def refuse(_session: Session) -> None:
        raise ZeroDivisionError

    event.listen(session, "before_commit", refuse)  # after our listener
    recorder.delete("t", "k", missing_ok=True)
    session.add(Port(name="p1", number=1))
    with pytest.raises(ZeroDivisionError):
        session.commit()
    event.remove(session, "before_commit", refuse)
    session.commit()
    assert ports(engine) == ["p1"]
    assert recorder.commit is None


def test_commit_tried_again_after_another_listeners_error_executes_the_verbs_once(
    store: Store, session: Session
) -> None:
    recorder = store.session(session)
    seen: list[Sequence[Link]] = []
    store.on_commit(seen.append)

    def refuse(_session: Session) -> None:
        raise ZeroDivisionError

    event.listen(session, "before_commit", refuse)  # after our listener
    recorder.create("t", "k", 1)
    with pytest.raises(ZeroDivisionError):
        session.commit()
    event.remove(session, "before_commit", refuse)
    session.commit()
    assert recorder.commit is not None
    assert seen == [recorder.commit.links]
    assert assert_consistent(store) == 1


def test_commit_tried_again_without_a_rollback_is_refused(
    store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counter has moved, and would be committed without a link."""
    recorder = store.session(session)
    failing = [True]

    def fail(name: str) -> None:
        if name == "writer.after_counter" and failing:
            failing.pop()
            raise ZeroDivisionError

    monkeypatch.setattr(writer, "armed", True)
    monkeypatch.setattr(writer, "hit", fail)
    recorder.set("t", "k", 1)
    with pytest.raises(ZeroDivisionError):
        session.commit()
    with pytest.raises(UsageError, match=r"call session\.rollback"):
        session.commit()
    session.rollback()
    recorder.set("t", "k", 1)
    session.commit()
    assert assert_consistent(store) == 1


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("when", ["before_commit", "before_flush"])
def test_verbs_recorded_too_late_for_a_commit_fail_it(
    when: str, before: bool, store: Store, session: Session, engine: Engine
) -> None:
    recorder = store.session(session)

    def add(session: Session) -> None:
        session.add(Port(name="p2", number=2))  # after our listener: SQLAlchemy flushes once more

    def record(session: Session, *_: object) -> None:
        if when == "before_commit" or any(row.name == "p2" for row in session.new):
            recorder.set("t", "late", 1)

    event.listen(session, "before_commit", add)
    event.listen(session, when, record)
    if before:
        recorder.set("t", "early", 1)
    session.add(Port(name="p1", number=1))
    with pytest.raises(UsageError, match="already executed"):
        session.commit()
    session.rollback()
    assert (list(store.objects()), ports(engine)) == ([], [])
    event.remove(session, when, record)
    recorder.set("t", "k", 1)
    session.commit()
    assert [each.key for each in store.objects()] == ["k"]


def test_verb_recorded_after_the_commit_raises_and_the_commit_is_published(store: Store, session: Session) -> None:
    seen: list[Sequence[Link]] = []
    store.on_commit(seen.append)

    def record(_session: Session) -> None:
        recorder.set("t", "late", 1)

    event.listen(session, "after_commit", record)  # before our listener
    recorder = store.session(session)
    recorder.set("t", "k", 1)
    with pytest.raises(UsageError, match="is committed already"):
        session.commit()
    assert recorder.commit is not None
    assert seen == [recorder.commit.links]
    event.remove(session, "after_commit", record)
    session.close()
    recorder.set("t", "late", 1)
    session.commit()
    assert sorted(each.key for each in store.objects()) == ["k", "late"]


@pytest.mark.parametrize("took_effect", [True, False])
def test_session_commit_without_an_answer_is_looked_up_by_the_recorders_nonce(
    took_effect: bool, store: Store, session: Session, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = store.session(session)
    with session.begin():
        recorder.set("t", "first", 1)
    first, commit = recorder.nonce, engine.dialect.do_commit

    def lose(connection: Any) -> None:
        if took_effect:
            commit(connection)
        raise lost()

    recorder.set("t", "k", 1)
    monkeypatch.setattr(engine.dialect, "do_commit", lose)
    with pytest.raises(OperationalError):
        session.commit()
    monkeypatch.undo()
    session.rollback()
    session.close()
    engine.dispose()
    assert store.committed(recorder.nonce) is took_effect
    assert store.committed(first)
    assert recorder.nonce != first


def test_nonce_read_before_the_session_begins_is_that_of_its_transaction(store: Store, session: Session) -> None:
    recorder = store.session(session)
    nonce = recorder.nonce
    recorder.set("t", "undone", 1)
    session.rollback()
    recorder.set("t", "k", 1)
    session.commit()
    assert store.committed(nonce)


def test_several_sessions_and_stores_interleave(store: Store, engine: Engine) -> None:
    for i in range(4):
        with Session(engine) as session:
            recorder = store.session(session)
            recorder.set("t", "k", i)
            session.commit()
        with store.transaction() as tx:
            tx.set("t", "k", -i - 1)
    assert assert_consistent(store) == 8


@pytest.fixture(params=["sessionmaker", "function"])
def scoped(request: pytest.FixtureRequest, engine: Engine) -> Iterator[scoped_session[Session]]:
    """One session for each thread, by two kinds of factories."""
    made = sessionmaker(engine)
    factory: Any = made if request.param == "sessionmaker" else lambda: made()
    current: scoped_session[Session] = scoped_session(factory)
    yield current
    current.remove()


def test_verbs_of_a_scoped_session_are_not_committed_by_another_session_of_its_factory(
    store: Store, engine: Engine, scoped: scoped_session[Session]
) -> None:
    seen: list[object] = []
    store.on_commit(seen.append)
    recorder = store.session(scoped)
    recorder.set("t", "k", 1)
    with scoped.session_factory() as other:
        other.add(Port(name="p1", number=1))
        other.commit()
    assert (store.get("t", "k"), ports(engine), seen) == (None, ["p1"], [])
    scoped.rollback()
    assert (store.get("t", "k"), recorder.commit) == (None, None)


def test_verbs_of_a_scoped_session_are_not_dropped_by_another_session_of_its_factory(
    store: Store, engine: Engine, scoped: scoped_session[Session]
) -> None:
    recorder = store.session(scoped)
    recorder.set("t", "k", 1)
    with scoped.session_factory() as other:
        other.execute(select(Port))
        other.rollback()
    scoped.commit()
    assert store.get("t", "k") == 1
    recorder.close()
    scoped.add(Port(name="p1", number=1))
    scoped.commit()
    assert (ports(engine), assert_consistent(store)) == (["p1"], 1)


def test_closed_recorder_does_not_affect_the_session(store: Store, session: Session, engine: Engine) -> None:
    recorder = store.session(session)
    recorder.set("t", "k", 1)
    recorder.close()
    recorder.close()
    session.add(Port(name="p1", number=1))
    session.commit()
    assert store.get("t", "k") is None
    assert ports(engine) == ["p1"]
    with pytest.raises(ClosedError):
        recorder.set("t", "k", 1)


def test_session_on_another_database_is_rejected(postgres_url: str) -> None:
    other = create_engine("sqlite://")
    with Store(postgres_url) as store, Session(other) as session:
        recorder = store.session(session)
        recorder.set("t", "k", 1)
        with pytest.raises(ConfigError, match="bind_arguments"):
            session.commit()
    other.dispose()


def test_session_with_an_old_snapshot_keeps_the_chain_intact(store: Store, database_url: str) -> None:
    """The session reads, another writer commits, then the session commits: it fails, or uses the committed state."""
    with store.transaction() as tx:
        tx.set("t", "k", 1)
    level = "SERIALIZABLE" if "sqlite" in database_url else "REPEATABLE READ"
    isolated = create_engine(database_url, isolation_level=level)
    if isolated.dialect.name == "sqlite":
        # By default of the driver a SELECT begins no transaction; with this listener it does, and the snapshot is old.
        event.listen(isolated, "connect", lambda connection, _record: setattr(connection, "isolation_level", None))
        event.listen(isolated, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    with Session(isolated) as session:
        recorder = store.session(session)
        session.execute(select(schema.topics)).all()
        with store.transaction() as tx:
            tx.set("t", "k", 2)
        recorder.set("t", "k", 3)
        try:
            session.commit()
        except StoreBusy:
            session.rollback()
            assert isolated.dialect.name != "mysql"
            recorder.set("t", "k", 3)
            session.commit()
        else:
            assert isolated.dialect.name == "mysql"
    isolated.dispose()
    assert store.get("t", "k") == 3
    assert assert_consistent(store) == 3


def test_isolation_session_loses_no_update_committed_between_its_read_and_write(
    store: Store, session: Session, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session with SQLAlchemy's defaults. With SQLite its first SELECT begins no transaction and locks nothing."""
    with store.transaction() as tx:
        tx.create("t", "k", {})
    committed = {"mine": 1}
    reached: list[str] = []
    with Store(database_url, settings=StoreSettings(lock_timeout=0.2, retry_attempts=1)) as other:

        def meanwhile(failpoint: str) -> None:
            if failpoint != "writer.after_lock" or reached:
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
        recorder = store.session(session)
        recorder.update("t", "k", {"mine": 1})
        session.commit()
    assert reached
    assert store.get("t", "k") == committed
    assert_consistent(store)


@pytest.mark.parametrize("mode", ["conditional_savepoint", "rollback_only", "create_savepoint"])
def test_session_that_joined_an_outer_transaction_does_not_publish(mode: Any, store: Store, engine: Engine) -> None:
    """``session.commit()`` does not commit that transaction, which may be rolled back afterwards."""
    seen: list[object] = []
    store.on_commit(seen.append)
    with engine.connect() as connection:
        connection.begin()
        session = Session(connection, join_transaction_mode=mode)
        recorder = store.session(session)
        session.execute(select(Port))
        session.commit()  # without verbs
        session.add(Port(name="p1", number=1))
        recorder.set("t", "k", 1)
        with pytest.raises(UsageError, match="outer transaction"):
            session.commit()
        session.rollback()
        connection.rollback()
    assert (seen, recorder.commit, store.get("t", "k"), ports(engine)) == ([], None, None, [])
    assert store.read_heads([]).store.position == 0


def test_session_that_controls_only_a_savepoint_of_its_connection_does_not_publish(
    store: Store, engine: Engine
) -> None:
    seen: list[object] = []
    store.on_commit(seen.append)
    with engine.connect() as connection:
        outer = connection.begin()
        connection.begin_nested()
        with Session(connection, join_transaction_mode="control_fully") as session:
            recorder = store.session(session)
            recorder.set("t", "k", 1)
            with pytest.raises(UsageError, match="outer transaction"):
                session.commit()
        outer.rollback()
    assert (seen, recorder.commit, store.get("t", "k")) == ([], None, None)


def test_session_whose_outer_transaction_has_ended_writes_nothing(store: Store, engine: Engine) -> None:
    with engine.connect() as connection:
        outer = connection.begin()
        with Session(connection) as session:
            recorder = store.session(session)
            recorder.set("t", "k", 1)
            session.execute(select(Port))
            outer.commit()
            with pytest.raises(UsageError, match="outer transaction"):
                session.commit()
    assert (recorder.commit, store.get("t", "k")) == (None, None)


@pytest.mark.parametrize("joins", [True, False])
def test_session_that_commits_the_transaction_of_its_connection_publishes(
    joins: bool, store: Store, engine: Engine
) -> None:
    seen: list[object] = []
    store.on_commit(seen.append)
    with engine.connect() as connection:
        if joins:
            connection.begin()
        with Session(connection, join_transaction_mode="control_fully") as session:
            recorder = store.session(session)
            session.add(Port(name="p1", number=1))
            recorder.set("t", "k", 1)
            session.commit()
    assert recorder.commit is not None
    assert (seen, store.get("t", "k"), ports(engine)) == ([recorder.commit.links], 1, ["p1"])
    assert assert_consistent(store) == 1


@pytest.mark.parametrize("by", ["engine", "options", "driver"])
def test_session_in_autocommit_mode_is_refused_and_writes_nothing(by: str, store: Store, database_url: str) -> None:
    """Each statement of the commit sequence would commit alone, without the counter's lock."""
    with store.transaction() as tx:
        tx.set("t", "k", 1)
    head = store.read_heads([]).store
    level: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"}
    of_driver = {"isolation_level": None} if "sqlite" in database_url else {"autocommit": True}
    options: dict[str, Any] = {"engine": level, "driver": {"connect_args": of_driver}}.get(by, {})
    made = create_engine(database_url, **options)
    with Session(made.execution_options(**level) if by == "options" else made) as session:
        recorder = store.session(session)
        recorder.set("t", "k", 2)
        with pytest.raises(ConfigError, match="AUTOCOMMIT"):
            session.commit()
        session.rollback()
        session.commit()
    made.dispose()
    assert (store.read_heads([]).store, store.get("t", "k"), recorder.commit) == (head, 1, None)
    assert assert_consistent(store) == 1


def test_session_with_sqlalchemys_mariadb_dialect_writes_as_any_other(mariadb_url: str) -> None:
    """The store's own engine names the same database mysql."""
    made = create_engine(mariadb_url.replace("mysql+pymysql", "mariadb+pymysql"))
    Base.metadata.create_all(made)
    with Store(mariadb_url) as store, Session(made) as session:
        assert made.dialect.name == "mariadb"
        recorder = store.session(session)
        for number in range(3):
            session.add(Port(name=f"p{number}", number=number))
            recorder.set("t", "ä", {"n": number}, topic="x" if number else "ö")
            recorder.set("t", f"k{number}", number)
            session.commit()
        assert recorder.get("t", "ä") == {"n": 2}
        recorder.delete("t", "k0")
        recorder.set("t", "ä", {"n": 3})
        session.commit()
        with pytest.raises(AlreadyExists), session.begin():
            recorder.create("t", "ä", 1)
        topics = {each.key: each.topic for each in store.objects()}
        assert topics == {"k1": "default", "k2": "default", "ä": "x"}
        assert (store.get("t", "ä"), ports(made)) == ({"n": 3}, ["p0", "p1", "p2"])
        assert assert_consistent(store) == 4
    made.dispose()


def test_full_hop_does_not_fail_the_sessions_commit(store: Store, session: Session, engine: Engine) -> None:
    def full(_links: object) -> None:
        raise HandoffRejectedError("the buffer is full")

    store.on_commit(full)
    recorder = store.session(session)
    recorder.set("t", "k", 1)
    session.add(Port(name="p1", number=1))
    session.commit()
    assert (store.callback_errors, store.get("t", "k"), ports(engine)) == (1, 1, ["p1"])
    assert recorder.commit is not None
