"""A SQLite file that is replaced by its backup while replicas run."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from _processes import poll

from pubsub_lib import Publisher, Replica, Settings, Store
from pubsub_lib.core.timing import Timing

SOON = Timing(
    max_idle_time=0.5,
    hello_wait=0.2,
    reading_age=0.4,
    round_trip=0.4,
    message_delay_window=0.2,
    poll_interval=0.3,
    sync_jitter=0.05,
    sync_interval=0.05,
    sync_backoff=0.2,
    max_sync_backoff=0.5,
)
POLLING, MEMORY = "db_polling_pubsub_driver", "memory"


def put(store: Store, value: object) -> None:
    with store.transaction() as tx:
        tx.set("t", "k", value, topic="a")


@contextmanager
def writer(settings: Settings) -> Iterator[Store]:
    """A writer's store, with a publisher where the driver has one."""
    with Store(settings) as store:
        if settings.driver == POLLING:
            yield store
        else:
            with Publisher(settings, store):
                yield store


def sees(replica: Replica, value: object) -> Callable[[], bool]:
    return lambda: bool(replica.get("t", "k") == value)


@pytest.mark.parametrize("driver", [POLLING, MEMORY])
def test_replicas_detect_a_restored_file(driver: str, tmp_path: Path) -> None:
    path, backup = tmp_path / "net.db", tmp_path / "backup.db"
    settings = Settings(store_url=f"sqlite:///{path}", driver=driver, service_name="writer", timing=SOON)
    with writer(settings) as store:
        put(store, "old")
        source, target = sqlite3.connect(path), sqlite3.connect(backup)
        source.backup(target)
        source.close()
        target.close()
        replica = Replica(settings, topics=["a"])
        replica.start()
        put(store, "lost")
        assert poll(sees(replica, "lost"), 20)
    try:
        # As SQLite's manual requires: writers are stopped, and the old file's companion files are removed.
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        backup.replace(path)
        assert poll(sees(replica, "old"), 20), replica.status()
        with writer(settings) as store:
            put(store, "new")
            assert poll(sees(replica, "new"), 20), replica.status()
            # The same number of positions as before, of another history.
            assert store.get("t", "k") == "new"
    finally:
        replica.close()
