"""``role = standby``: a service on a real standby of PostgreSQL answers first syncs, and nothing older is believed."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from _processes import poll
from _servers import PrivatePostgres, postgres_binaries
from _standby import PrivateStandby

from pubsub_lib import Settings, Store
from pubsub_lib.store import url
from tests.conftest import IN_CI
from tests.e2e.service_host import LONG, Host, Watched, write
from tests.e2e.warm_start import Running

QUICK: dict[str, Any] = {"max_idle_time": 1.0, "reading_age": 0.3, "round_trip": 0.5, "sync_backoff": 0.1}
TOPICS = ("t0", "t1")

pytestmark = [pytest.mark.postgresql]


class World:
    """A primary with an origin service, and a standby with a service of its own."""

    def __init__(self, folder: Path, primary: PrivatePostgres, standby: PrivateStandby) -> None:
        self.server = standby
        self.origin = Host(folder / "api-1", primary.url, "api-1", **QUICK)
        self.standby = Host(folder / "standby-1", standby.url, "standby-1", role="standby", **QUICK)
        for each in (self.origin, self.standby):
            each.change("[publisher_service]\n", "[publisher_service]\nserve_syncs = true\n")

    def below(self, *servers: Host, **changes: float) -> Settings:
        """The settings of a replica without the database, which reads at these servers."""
        own = self.origin.settings
        urls = ", ".join(f"http://127.0.0.1:{each.metrics_port}" for each in servers)
        timing = msgspec.structs.replace(own.timing, **changes)
        return msgspec.structs.replace(
            own, store_url="", sync_url=urls, addresses=(own.bind_address,), timing=timing, service_name=""
        )

    def begun(self) -> tuple[Running, int]:
        """Start everything. Returns a worker, and the position of what it wrote, which the standby has, too."""
        self.origin.service()
        self.standby.service()
        worker = self.origin.worker()
        position = write(worker, 20)
        assert poll(lambda: self.reaches(position), LONG)
        return worker, position

    def answered(self, host: Host) -> float:
        """Syncs that this server has answered."""
        return host.metric("sync_channel_total", "answered")

    def reaches(self, position: int) -> bool:
        """Whether the standby has this position."""
        return self.standby.metric("standby", "position") >= position

    def replay(self, verb: str) -> None:
        """Pause or resume what the standby does with the primary's log."""
        with psycopg.connect(url.parse(self.server.url).set(drivername="postgresql").render_as_string(False)) as to:
            to.execute(f"SELECT pg_wal_replay_{verb}()")

    def close(self) -> None:
        self.origin.close()
        self.standby.close()


@pytest.fixture(scope="module")
def primary() -> Iterator[PrivatePostgres]:
    if not (postgres_binaries() / "pg_basebackup").exists():
        why = "pg_basebackup is missing, which copies a server for a standby"
        pytest.fail(why) if IN_CI else pytest.skip(why)
    with PrivatePostgres() as server:
        yield server


@pytest.fixture
def world(primary: PrivatePostgres, tmp_path: Path) -> Iterator[World]:
    with Store(primary.url):
        pass  # the tables
    with PrivateStandby(primary, primary.port) as standby:
        made = World(tmp_path, primary, standby)
        yield made
        made.close()


@pytest.fixture
def store(world: World) -> Iterator[Store]:
    with Store(world.origin.database) as store:
        yield store


def test_first_sync_comes_from_the_standby_and_changes_from_the_origin(world: World, store: Store) -> None:
    worker, position = world.begun()
    with Watched(world.below(world.standby, world.origin)) as watched:
        watched.must_come_to(position, store)
        assert world.answered(world.standby) >= 1
        assert world.answered(world.origin) == 0
        watched.must_come_to(write(worker, 10), store)
    directory = {each.service for each in store.directory.live()}
    assert "standby-1" not in directory, "a standby cannot be written, so the service has no entry"
    assert poll(lambda: {each.service for each in store.directory.live()} == {"api-1"}, LONG), "a lease has ended"


@pytest.mark.long
def test_lagging_standby_costs_a_delta_and_contradicts_nothing(world: World, store: Store) -> None:
    worker, position = world.begun()
    world.replay("pause")
    position = write(worker, 20)
    assert not world.reaches(position)
    both = world.below(world.standby, world.origin)
    alone = world.below(world.standby, verify_interval=1.0, sync_backoff=0.1)
    with Watched(both) as watched:  # the objects of the standby, and then the links that it does not have
        watched.must_come_to(position, store)
        assert world.answered(world.standby) >= 1
        assert world.answered(world.origin) >= 1
    world.replay("resume")
    assert poll(lambda: world.reaches(position), LONG)
    with Watched(alone) as watched:  # it verifies with a server that falls behind
        world.replay("pause")
        position = write(worker, 10)
        watched.must_come_to(position, store)
        asked = partial(world.standby.metric, "sync_channel_total", "refused")
        before = asked()
        assert poll(lambda: asked() >= before + 3, LONG)
        watched.must_equal(store)
        assert watched.replica.status().counters.contradicted == 0
        world.replay("resume")


def test_standby_service_reports_a_database_that_ends_and_returns(world: World) -> None:
    process = world.standby.service()
    where = f"http://127.0.0.1:{world.standby.metrics_port}"
    with urllib.request.urlopen(f"{where}/status", timeout=LONG) as answer:
        assert "standby" in answer.read().decode()
    world.server.kill()

    def problem() -> str:
        try:
            urllib.request.urlopen(f"{where}/ready", timeout=LONG).close()
        except urllib.error.HTTPError as error:
            return error.read().decode()
        return ""

    assert poll(lambda: "the standby database is not being read" in problem(), LONG)
    world.server.restart()
    assert poll(world.standby.is_ready, LONG)
    process.terminate()
    assert process.wait(LONG) == 0


def test_origin_refuses_the_standby_and_names_the_role(world: World, tmp_path: Path) -> None:
    origin = Host(tmp_path / "wrong", world.server.url, "api-2")
    code, words = origin.refused()
    origin.close()
    assert code == 4
    assert "role = standby" in words
