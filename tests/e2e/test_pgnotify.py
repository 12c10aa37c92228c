"""The driver that listens to PostgreSQL, with a publisher service that does not run, that is killed, and that returns;
and with a killed server.

A program with ``open_publisher`` notifies by itself. A ``Worker`` hands over to the service, and without one replicas
read its commits at their next poll. Where polls are an hour apart, only a notification can bring a change.
"""

import logging
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _processes import poll
from _servers import PrivateServer

from pubsub_lib import Publisher, Store
from pubsub_lib.errors import StoreUnavailable
from pubsub_lib.publisher.opening import open_publisher
from tests.e2e.service_host import LONG, Host, Watched, done, order, write

pytestmark = pytest.mark.postgresql

HOUR = 3600.0
SOON = 0.2
"""Seconds between two polls, where a test waits for one."""


def host_of(folder: Path, database: str, name: str = "api-1") -> Host:
    """A host whose replicas read nothing for an hour, unless they are notified or ``polls_soon``."""
    slow: dict[str, Any] = {"max_idle_time": HOUR, "poll_interval": HOUR, "verify_interval": HOUR}
    host = Host(folder, database, name, pub_sub_driver="pgnotify_pubsub_driver", **slow)
    group = "".join(f"{option} = {HOUR}\n" for option in ("listening", "fastest", "slowest"))
    host.change("[publisher_service]\n", f"[pubsub_pgnotify]\n{group}[publisher_service]\n")
    return host


def polls_soon(host: Host) -> None:
    host.change(f"listening = {HOUR}", f"listening = {SOON}")


@pytest.fixture
def host(tmp_path: Path, postgres_url: str) -> Iterator[Host]:
    """A host with a database in PostgreSQL; nothing runs on it yet."""
    host = host_of(tmp_path, postgres_url)
    yield host
    host.close()


def must_come(watched: Watched, store: Store) -> None:
    """Check that the replica comes to equal the database.

    To wait for a position would take an hour: a topic without a change reaches it at the next hello reply.
    """
    assert poll(lambda: not watched.differs(store), LONG), watched.replica.status()
    watched.must_equal(store)


def notifications(watched: Watched) -> int:
    return watched.replica.status().driver["notifications"]


def commit(store: Store, number: int) -> None:
    """Commit transactions in this process."""
    for _ in range(number):
        step = store.unique_id("step")
        with store.transaction() as tx:
            tx.set("item", f"k{step % 3}", step, topic=f"t{step % 2}")


def test_programs_that_publish_themselves_need_no_service(host: Host, store: Store) -> None:
    with open_publisher(host.settings, store) as publisher, Watched(host.settings) as watched:
        assert isinstance(publisher, Publisher)
        assert poll(lambda: watched.replica.status().driver["connections"] >= 1, LONG), "it does not listen"
        for _ in range(5):
            commit(store, 1)
            must_come(watched, store)
        assert poll(lambda: notifications(watched) >= 5, LONG), watched.replica.status()
        assert store.directory.live() == []


@pytest.mark.long
def test_killed_service_changes_nothing_for_programs_that_publish_themselves(
    host: Host, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.INFO, "pubsub_lib"),
        open_publisher(host.settings, store),
        Watched(host.settings) as watched,
    ):
        service = host.service()
        commit(store, 3)
        must_come(watched, store)
        service.kill()
        assert service.wait(LONG) == -signal.SIGKILL
        before = notifications(watched)
        commit(store, 3)
        must_come(watched, store)
        assert notifications(watched) > before
        host.service()
        commit(store, 3)
        must_come(watched, store)
    assert not [each for each in caplog.messages if "no longer listening" in each]


def test_replica_without_a_service_has_fresh_proofs_and_does_not_count_as_polling(host: Host, store: Store) -> None:
    """It requests hello replies of the database: 20 of them take longer than the three after which they are stale."""
    host.change(f"max_idle_time = {HOUR}", "max_idle_time = 0.2\nreading_age = 0.1\nround_trip = 0.1")
    with Watched(host.settings) as watched:
        assert store.directory.live() == []
        before = watched.replica.status().driver["received"]

        def is_fresh() -> bool:
            status = watched.replica.status()
            return status.driver["received"] > before + 20 and not status.polling

        assert poll(is_fresh, LONG), watched.replica.status()


@pytest.mark.long
def test_commits_of_a_worker_without_a_service_are_found_by_the_next_poll(host: Host, store: Store) -> None:
    polls_soon(host)
    with Watched(host.settings) as watched:
        worker = host.worker()
        assert write(worker, 5) == 5
        must_come(watched, store)
        assert notifications(watched) == 0
        worker.kill()  # with its buffered messages
        assert worker.wait(LONG) == -signal.SIGKILL
        host.service()  # it follows from the head: these commits are never announced
        write(host.worker(), 1)
        must_come(watched, store)
        assert poll(lambda: notifications(watched) >= 1, LONG)


@pytest.mark.long
def test_buffered_messages_of_a_worker_are_announced_when_the_service_starts(host: Host, store: Store) -> None:
    with Watched(host.settings) as watched:
        write(host.worker(), 5)
        assert watched.differs(store)
        host.service()
        must_come(watched, store)
        assert notifications(watched) >= 1


@pytest.mark.quick_variants(1)
@pytest.mark.parametrize(
    "failpoint",
    ["service.before_receive=kill@6", "service.before_send=kill@6", "service.after_send=kill@6"],
)
def test_commits_of_workers_after_a_service_kill_are_found_by_the_next_poll(
    failpoint: str, host: Host, store: Store
) -> None:
    polls_soon(host)
    service = host.service(failpoint)
    with Watched(host.settings) as watched:
        worker = host.worker()
        order(worker, 300)  # until the worker is connected, one message has many commits
        assert service.wait(LONG) == -signal.SIGKILL
        done(worker)
        must_come(watched, store)
        before = notifications(watched)
        host.service()
        write(worker, 1)
        must_come(watched, store)
        assert poll(lambda: notifications(watched) > before, LONG)


@pytest.mark.long
def test_service_announces_what_a_killed_worker_did_not_hand_over(host: Host, store: Store) -> None:
    host.service()
    with Watched(host.settings) as watched:
        worker = host.worker("writer.after_commit=kill@4")
        order(worker, 10)
        assert worker.wait(LONG) == -signal.SIGKILL
        assert store.read_heads(()).store.position == 4
        must_come(watched, store)


@pytest.mark.long
def test_other_service_announces_the_links_of_a_dead_one(tmp_path: Path, host: Host, store: Store) -> None:
    other = host_of(tmp_path / "other", host.database, "api-2")
    try:
        first, _ = host.service(), other.service()
        with Watched(other.settings) as watched:
            worker = host.worker()
            write(worker, 3)
            must_come(watched, store)
            first.kill()
            assert first.wait(LONG) == -signal.SIGKILL
            write(worker, 5)
            worker.kill()  # with its buffered messages
            must_come(watched, store)
    finally:
        other.close()


def test_replica_of_a_killed_server_stays_readable_and_is_notified_again(
    tmp_path: Path, private_postgres: PrivateServer, caplog: pytest.LogCaptureFixture
) -> None:
    host = host_of(tmp_path, private_postgres.create_database())
    host.change(f"fastest = {HOUR}\nslowest = {HOUR}", "fastest = 0.05\nslowest = 0.2\nmax_backoff = 1")
    often = "max_idle_time = 0.5\nreading_age = 0.2\nround_trip = 0.2\nstore_retry_max_seconds = 2"
    host.change(f"max_idle_time = {HOUR}", often)
    with (
        caplog.at_level(logging.INFO, "pubsub_pgnotify"),
        Store(host.settings) as store,
        open_publisher(host.settings, store) as publisher,
        Watched(host.settings) as watched,
    ):
        commit(store, 4)
        must_come(watched, store)
        before, calls = watched.replica.records("item"), sum(map(len, watched.versions.values()))
        private_postgres.kill()
        assert poll(lambda: watched.replica.status().driver["lost_connections"] > 0, LONG)
        assert poll(lambda: watched.replica.staleness() > 3.0, LONG), "no reading proves that nothing was committed"
        assert watched.replica.records("item") == before
        with pytest.raises(StoreUnavailable):
            commit(store, 1)
        private_postgres.restart()
        commit(store, 4)
        must_come(watched, store)
        assert poll(lambda: publisher.counters()["connections"] >= 2, LONG)
        assert poll(lambda: watched.replica.status().driver["connections"] >= 2, LONG)
        notified = notifications(watched)
        commit(store, 1)
        must_come(watched, store)
        assert poll(lambda: notifications(watched) > notified, LONG), "it does not listen again"
        assert poll(lambda: watched.replica.staleness() < 3.0, LONG), watched.replica.status()
        assert sum(map(len, watched.versions.values())) > calls
    lines = [each.getMessage() for each in caplog.records]
    assert [line for line in lines if line.startswith("listening for notifications does not work and is retried")]
    assert "listening for notifications works again" in lines
