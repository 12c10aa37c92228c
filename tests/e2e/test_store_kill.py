"""Writers and servers killed anywhere: the store stays consistent, and no transaction is applied twice."""

import signal
from functools import partial
from pathlib import Path

import pytest
from _private_server import PrivateServer
from _processes import poll

from pubsub_lib.store import Store, StoreSettings
from tests.e2e.store_checks import assert_consistent, assert_counted, finish, start_reader, start_writer

TOTAL = 6


def has_lines(journal: Path, least: int) -> bool:
    return journal.exists() and journal.read_text().count("\n") >= least


@pytest.mark.quick_variants("postgresql-writer.before_commit", "postgresql-writer.after", "sqlite-writer.after_lock")
@pytest.mark.parametrize(
    ("failpoint", "is_in"),
    [
        ("writer.after_lock=kill@3", False),
        ("writer.after_counter=kill@3", False),
        ("writer.before_commit=kill@3", False),
        ("writer.after_commit=kill@3", True),
    ],
)
def test_killed_writer_leaves_whole_transactions(
    failpoint: str, is_in: bool, database_url: str, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    finish(start_writer(database_url, journal, TOTAL, failpoint), -signal.SIGKILL)
    with Store(database_url) as store:
        step, nonce = map(int, journal.read_text().splitlines()[-1].split())
        assert step == 3
        assert store.committed(nonce) is is_in
        assert_counted(store, 3 if is_in else 2)
        # No writer waits for the killed one: its locks end with it.
        with store.transaction() as tx:
            tx.set("other", "x", 1)
        assert tx.commit is not None
        finish(start_writer(database_url, journal, TOTAL))
        assert store.get("count", "n") == TOTAL
        assert assert_consistent(store) == TOTAL + 1


@pytest.mark.quick_variants(1)
@pytest.mark.parametrize("server_name", ["private_postgres", "private_mariadb"])
def test_writer_continues_after_database_kills(
    server_name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server: PrivateServer = request.getfixturevalue(server_name)
    database, journal, total = server.url, tmp_path / "journal", 100
    writer = start_writer(database, journal, total)
    for lines in (10, 30):  # twice, in the middle of its work
        assert poll(partial(has_lines, journal, lines), 60)
        server.kill()
        server.restart()
    finish(writer)
    with Store(database) as store:
        assert_counted(store, total)


@pytest.mark.quick_variants(1)
@pytest.mark.parametrize("server_name", ["private_postgres", "private_mariadb"])
def test_store_works_after_a_server_restart(server_name: str, request: pytest.FixtureRequest) -> None:
    """Idle pooled connections and readers recover at the next call, too."""
    server: PrivateServer = request.getfixturevalue(server_name)
    with Store(server.url, settings=StoreSettings(retry_attempts=50)) as store:
        with store.transaction() as tx:
            tx.set("t", "k", 1)
        server.kill()
        server.restart()
        assert store.get("t", "k") == 1
        with store.transaction() as tx:
            tx.set("t", "k", 2)
        assert assert_consistent(store) == 2


@pytest.mark.long
@pytest.mark.parametrize("server_name", ["private_postgres", "private_mariadb"])
def test_stopped_writer_does_not_block_others(server_name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """SIGSTOP while it holds the counter: the server ends its transaction after the idle timeout."""
    server: PrivateServer = request.getfixturevalue(server_name)
    settings = StoreSettings(lock_timeout=1.0, retry_attempts=50, retry_max_seconds=60.0)
    journal = tmp_path / "journal"
    writer = start_writer(server.url, journal, TOTAL, "writer.after_counter=stop@2")
    try:
        assert poll(partial(has_lines, journal, 2), 60)
        with Store(server.url, settings=settings) as store:
            with store.transaction() as tx:
                tx.set("other", "x", 1)
            assert tx.commit is not None
    finally:
        writer.send_signal(signal.SIGCONT)
    finish(writer)
    with Store(server.url) as store:
        assert store.get("count", "n") == TOTAL
        assert assert_consistent(store) == TOTAL + 1


@pytest.mark.quick_variants("postgresql")
@pytest.mark.parametrize("failpoint", ["sync.during_snapshot=kill", "sync.during_delta=kill"])
def test_reader_killed_during_a_sync_leaves_no_lock(failpoint: str, database_url: str) -> None:
    with Store(database_url) as store:
        for i in range(3):
            with store.transaction() as tx:
                tx.set("t", f"k{i}", i)
        finish(start_reader(database_url, failpoint), -signal.SIGKILL)
        with store.transaction() as tx:
            tx.set("t", "k0", 9)
        assert store.trim(keep_links=4) == 0
        assert assert_consistent(store) == 4
