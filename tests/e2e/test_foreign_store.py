"""Two deployments on one host that share a socket path or an address by mistake (rule 15): production's replicas show
none of staging's objects, and the log names both stores.
"""

import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from _processes import poll

from pubsub_lib import Store
from pubsub_lib.store import administration
from tests.e2e.service_host import LONG, Host, Watched, write

STAGED = 40


class Looks:
    """A thread that looks at a replica again and again. ``wrong``: looks that showed another number of objects."""

    def __init__(self, watched: Watched, expected: int) -> None:
        self.number = self.wrong = 0
        self._watched = watched
        self._expected = expected
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> "Looks":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(LONG)

    def _look(self) -> None:
        while not self._stop.wait(0.005):
            self.number += 1
            self.wrong += len(self._watched.replica.records("item")) != self._expected


@pytest.fixture
def production(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path / "production", f"sqlite:///{tmp_path}/production.db")
    yield host
    host.close()


@pytest.fixture
def staging(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path / "staging", f"sqlite:///{tmp_path}/staging.db", "staging")
    yield host
    host.close()


def ids(*hosts: Host) -> list[str]:
    found = []
    for host in hosts:
        with Store(host.database) as store:
            found.append(store.store_id.hex())
    return found


@pytest.mark.long
def test_rule_15_workers_of_staging_at_productions_socket_change_no_replica(
    production: Host, staging: Host, tmp_path: Path
) -> None:
    staging.change(staging.settings.multiproc_socket, production.settings.multiproc_socket)
    production.service()
    with Watched(production.settings) as watched, Store(production.database) as store:
        worker = staging.worker()
        with Looks(watched, expected=0) as looks:
            write(worker, STAGED)
            assert poll(lambda: production.metric("receiving_total", "foreign_store") >= STAGED, LONG)
            assert poll(lambda: looks.number >= 50, LONG)
        assert looks.wrong == 0
        watched.must_come_to(write(production.worker(), 10), store)
        with Looks(watched, expected=len(watched.replica.records("item"))) as looks:
            write(worker, STAGED)
            assert poll(lambda: production.metric("receiving_total", "foreign_store") >= 2 * STAGED, LONG)
            assert poll(lambda: looks.number >= 50, LONG)
        assert looks.wrong == 0
        watched.must_come_to(store.read_heads([]).store.position, store)
        status = watched.replica.status()
    assert status.dropped["foreign_store"] == 0, "the service drops them"
    lines = [line for line in (tmp_path / "production" / "stderr").read_text().splitlines() if "another store" in line]
    assert len(lines) == 1
    theirs, own = ids(staging, production)
    assert "the service 'staging' with the UUID" in lines[0]
    assert f"(id {theirs}, the store of this service has {own})" in lines[0]
    assert production.metric("links_total", "handed") >= 10


def test_rule_15_replica_with_the_address_of_staging_shows_only_its_own_store(
    production: Host, staging: Host, caplog: pytest.LogCaptureFixture
) -> None:
    for host in (production, staging):
        host.service()
    addresses = (*production.settings.addresses, production.settings.bind_address, staging.settings.bind_address)
    settings = msgspec.structs.replace(production.settings, addresses=addresses)
    with Watched(settings) as watched, Store(production.database) as store:
        assert poll(lambda: watched.replica.status().dropped["foreign_store"] > 0, LONG), "staging's hellos arrive"
        before = watched.replica.status().dropped["foreign_store"]
        with Looks(watched, expected=0) as looks:
            write(staging.worker(), STAGED)
            assert poll(lambda: watched.replica.status().dropped["foreign_store"] >= before + STAGED, LONG)
            assert poll(lambda: looks.number >= 50, LONG)
        assert looks.wrong == 0
        watched.must_come_to(write(production.worker(), 10), store)
        status = watched.replica.status()
    theirs, own = ids(staging, production)
    assert status.store_id == own
    lines = [text for record in caplog.records if "another store" in (text := record.getMessage())]
    assert len(lines) == 1
    assert "the publisher 'staging' with the UUID" in lines[0]
    assert f"(id {theirs}, the store of this replica has {own})" in lines[0]
    assert status.counters.history_changes == 0


@pytest.mark.long
def test_running_programs_follow_a_store_that_is_dropped_and_created_again(production: Host) -> None:
    production.service()
    worker = production.worker()
    with Watched(production.settings) as watched:
        watched.replica.wait_for(write(worker, 5), LONG)
        (before,) = ids(production)
        administration.drop(production.database)
        with Store(production.database) as store:
            write(worker, 10)
            assert poll(lambda: not watched.differs(store), LONG)
            assert watched.replica.status().store_id == store.store_id.hex() != before
            assert watched.replica.status().counters.history_changes > 0
            handed = production.metric("links_total", "handed")
            applied = watched.replica.status().counters.applied
            assert poll(lambda: bool(write(worker, 5)) and production.metric("links_total", "handed") > handed, LONG)
            assert poll(lambda: watched.replica.status().counters.applied > applied, LONG)
            assert poll(lambda: not watched.differs(store), LONG)
            assert poll(production.is_ready, LONG)
