"""Databases on SQLite and PostgreSQL, each with and without a service. They start once per session."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from _private_server import PrivateServer

from pubsub_zmq.multiproc.publisher import IpcPublisher
from tests.e2e.service_host import LONG, Host
from tests.unit.cli.world import World, empty

KINDS = [
    pytest.param(("sqlite", False), id="sqlite"),
    pytest.param(("sqlite", True), id="sqlite-served", marks=pytest.mark.long),
    pytest.param(("postgresql", False), id="postgresql", marks=[pytest.mark.postgresql, pytest.mark.long]),
    pytest.param(("postgresql", True), id="postgresql-served", marks=pytest.mark.postgresql),
]

DAY = 86_400.0
Make = Callable[[str, bool], World]


def alone(folder: Path, url: str) -> Path:
    """An INI file without a publisher: replicas poll."""
    config = folder / "net.conf"
    config.write_text(f"[pubsub]\nstore_url = {url}\npoll_interval = 0.1\nsync_interval = 0\nsync_jitter = 0.01\n")
    return config


@pytest.fixture(scope="session")
def make_world(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes the world of a kind at the first call, and returns the same world later."""
    made: dict[tuple[str, bool], World] = {}
    hosts: list[Host] = []

    def url_in(folder: Path, backend: str) -> str:
        if backend == "sqlite":
            return f"sqlite:///{folder / 'net.db'}"
        server: PrivateServer = request.getfixturevalue("postgres_server")
        return server.create_database()  # it ends with the server

    def make(backend: str, served: bool) -> World:
        if (backend, served) not in made:
            folder = tmp_path_factory.mktemp("world")
            url = url_in(folder, backend)
            # The service must not remove directory entries of a test, however long the session lasts.
            host = Host(folder, url, follow_interval=0.25, trim_interval=DAY) if served else None
            world = World(url, alone(folder, url) if host is None else host.config, host)
            world.open().close()  # creates the tables
            if host is not None:
                hosts.append(host)
                # A command that stands still must not look like one that did not hand over, or that has ended.
                host.change("grace = 0.3", "grace = 5")
                host.change("lease = 2", "lease = 60")
                host.change("[pubsub]\n", "[pubsub]\nhello_wait = 60\n")
                host.service()
            made[backend, served] = world
        return made[backend, served]

    yield make
    for host in hosts:
        host.close()


@pytest.fixture(params=KINDS)
def world(
    request: pytest.FixtureRequest,
    make_world: Make,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> World:
    """A store without objects: on SQLite and on PostgreSQL, without a service and with one."""
    found = make_world(*request.param)
    found.capture = capsys
    if found.host is not None:  # a service that stands still must not look like one that takes no messages
        patient = property(lambda publisher: LONG, lambda publisher, given: None)
        monkeypatch.setattr(IpcPublisher, "_linger", patient, raising=False)
    with found.open() as store:
        empty(store)
    return found


@pytest.fixture(params=["sqlite_url", pytest.param("postgres_url", marks=pytest.mark.postgresql)])
def bare(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> World:
    """A separate database for each test, without tables."""
    request.applymarker(pytest.mark.empty_database)
    url = request.getfixturevalue(request.param)
    world = World(url, alone(tmp_path, url))
    world.capture = capsys
    return world


@pytest.fixture
def small(make_world: Make, capsys: pytest.CaptureFixture[str]) -> World:
    """The cheapest world, for tests that do not depend on the database."""
    found = make_world("sqlite", False)
    found.capture = capsys
    with found.open() as store:
        empty(store)
    return found


@pytest.fixture
def fresh(bare: World) -> World:
    """A separate database for each test, with empty tables."""
    bare.open().close()  # creates the tables
    return bare
