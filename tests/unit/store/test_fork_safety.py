"""Forks while threads use the store: the child inherits no held lock, and no callback."""

import faulthandler
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, event, exc

from pubsub_lib.store import Store, StoreSettings
from pubsub_lib.store.fork_safety import ForkGate, GatedPool
from tests.unit.store.conftest import Opener


def put(store: Store, key: str, value: object = 1) -> None:
    with store.transaction() as tx:
        tx.set("t", key, value)


def child(work: Callable[[], object], seconds: int = 120) -> int:
    """Run ``work`` in a forked child: 0 when ``work`` returned. A hanging child is killed, with a traceback."""
    pid = os.fork()
    if pid == 0:
        faulthandler.register(signal.SIGALRM, file=2, chain=True)
        signal.alarm(seconds)
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.quick_variants("postgresql")
def test_children_of_a_busy_parent_write_and_read(open_store: Opener) -> None:
    # A fork waits at most the lock timeout, so the timeout must be enough for three busy threads on a busy machine.
    patient = StoreSettings(lock_timeout=60.0)
    store, other = open_store(settings=patient), open_store(settings=patient)
    stop = threading.Event()

    def busy(work: Callable[[int], object]) -> threading.Thread:
        def run() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                work(number)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    put(store, "parent")
    threads = [
        busy(lambda number: put(store, "parent", number)),
        busy(lambda _: store.topics()),
        busy(lambda number: put(other, "other", number)),
    ]
    try:
        for number in range(12):

            def work(number: int = number) -> None:
                put(store, f"child {number}", store.get("t", "parent"))
                put(other, f"other child {number}", len(other.topics()))

            assert child(work) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert len(list(store.objects())) == 2 + 2 * 12


def test_fork_during_the_first_connection_of_another_thread(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    # At its first connection SQLAlchemy learns what the server supports, once for each engine.
    put(open_store(), "parent")
    store = open_store(create=False)
    connecting = threading.Event()
    learn = store._writers.dialect.initialize

    def initialize(connection: Connection) -> None:
        connecting.set()
        time.sleep(0.2)  # work, not synchronisation: long enough for a fork during it
        learn(connection)

    def in_child() -> None:
        put(store, "child")
        assert store._writers.dialect.server_version_info

    monkeypatch.setattr(store._writers.dialect, "initialize", initialize)
    thread = threading.Thread(target=put, args=(store, "thread"))
    thread.start()
    assert connecting.wait(60)
    assert child(in_child) == 0
    thread.join()
    assert len(list(store.objects())) == 3


def test_fork_waits_for_transaction_of_another_thread(sqlite_url: str) -> None:
    with Store(sqlite_url) as store:
        begun = threading.Event()

        def write() -> None:
            with store._writers.connect() as connection:
                connection.exec_driver_sql("SELECT 1")
                begun.set()
                time.sleep(0.2)  # work, not synchronisation: long enough for a fork during it
                connection.commit()

        thread = threading.Thread(target=write)
        thread.start()
        assert begun.wait(60)
        assert child(lambda: put(store, "child")) == 0
        thread.join()
        put(store, "parent")


def test_fork_does_not_wait_for_own_reading_or_a_stuck_thread(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Store(sqlite_url, settings=StoreSettings(lock_timeout=0.2)) as store:
        put(store, "a")
        with store._readers.connect() as connection:
            connection.exec_driver_sql("SELECT 1")
            assert child(lambda: None) == 0
        assert caplog.messages == []
        begun, done = threading.Event(), threading.Event()

        def hold() -> None:
            with store._readers.connect():
                begun.set()
                done.wait(20)

        thread = threading.Thread(target=hold)
        thread.start()
        assert begun.wait(60)
        assert child(lambda: None) == 0
        assert "start method spawn" in caplog.text
        done.set()
        thread.join()
        put(store, "b")
        assert child(lambda: put(store, "c")) == 0
        assert len(list(store.objects())) == 3


def test_child_inherits_no_callbacks(store: Store) -> None:
    seen: list[object] = []
    store.on_commit(lambda links: seen.append(os.getpid()))

    def work() -> None:
        put(store, "a")
        assert seen == []
        store.on_commit(lambda links: seen.append("own"))
        put(store, "b")
        assert seen == ["own"]

    def own_first() -> None:
        store.on_commit(lambda links: seen.append("own"))
        put(store, "c")
        assert seen == ["own"]

    assert child(work) == 0
    assert child(own_first) == 0
    put(store, "d")
    assert seen == [os.getpid()]


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[GatedPool]:
    made = GatedPool(lambda: sqlite3.connect(tmp_path / "a.db"), pool_size=1, max_overflow=0, timeout=0.01)
    made.join(ForkGate(0.01))
    yield made
    made.dispose()


def test_lent_connection_is_used_again(pool: GatedPool) -> None:
    first = pool.lend()
    opened = first.dbapi_connection
    with pytest.raises(exc.TimeoutError):
        pool.lend()
    pool.take_back(first)
    with closing(pool.connect()) as connection:
        assert connection.dbapi_connection is opened


def test_fork_closes_a_lent_connection_only_after_it_was_taken_back(
    pool: GatedPool, caplog: pytest.LogCaptureFixture
) -> None:
    lent = pool.lend()
    opened = lent.dbapi_connection
    forked = threading.Thread(target=lambda: child(lambda: None))
    forked.start()
    forked.join()
    assert "a fork did not wait longer" in caplog.text
    pool.take_back(lent)
    caplog.clear()
    assert child(lambda: None) == 0
    assert caplog.text == ""
    with closing(pool.connect()) as connection:
        assert connection.dbapi_connection is not opened


def test_refused_connection_is_replaced_when_it_is_lent(pool: GatedPool) -> None:
    refused: list[object] = []

    def refuse_first(connection: object, *_: object) -> None:
        if not refused:
            refused.append(connection)
            raise exc.DisconnectionError("refused")

    event.listen(pool, "checkout", refuse_first)
    lent = pool.lend()
    assert lent.dbapi_connection is not None
    assert lent.dbapi_connection is not refused[0]
    pool.take_back(lent)


def test_connection_that_cannot_be_lent_blocks_neither_pool_nor_forks(
    pool: GatedPool, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise exc.DisconnectionError("refused")

    event.listen(pool, "checkout", refuse)
    for _ in range(3):
        with pytest.raises(exc.DisconnectionError):
            pool.lend()
    event.remove(pool, "checkout", refuse)
    assert child(lambda: None) == 0
    assert caplog.text == ""
    pool.take_back(pool.lend())


def test_taking_back_calls_the_listeners_of_the_event_checkin(pool: GatedPool) -> None:
    seen: list[object] = []
    event.listen(pool, "checkin", lambda connection, _: seen.append(connection))
    lent = pool.lend()
    pool.take_back(lent)
    assert seen == [lent.dbapi_connection]


LOGGING = """
import logging, sys
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
name = "pubsub_lib.store.fork_safety.GatedPool"
if sys.argv[2:]:
    logging.getLogger(name).setLevel(sys.argv[2])

from pubsub_lib.store import Store

with Store(sys.argv[1]) as store, store.transaction() as tx:
    tx.set("t", "a", 1)
logging.getLogger(name).warning("Exception during reset")
"""


@pytest.mark.parametrize(("level", "disposals"), [("", False), ("INFO", True)])
def test_pool_logs_only_warnings_unless_the_program_sets_a_level(sqlite_url: str, level: str, disposals: bool) -> None:
    command = [sys.executable, "-c", LOGGING, sqlite_url, *([level] if level else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert ("INFO pubsub_lib.store.fork_safety.GatedPool Pool disposed" in done.stderr) is disposals
    assert "WARNING pubsub_lib.store.fork_safety.GatedPool Exception during reset" in done.stderr
