"""Two servers with the same port, and two users of one server."""

from collections.abc import Iterator
from pathlib import Path

import _processes
import pytest
from _servers import PrivateMariaDB, PrivatePostgres, PrivateServer

from pubsub_lib.errors import StoreUnavailable

of_each_kind = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(PrivatePostgres, id="postgresql", marks=pytest.mark.postgresql),
        pytest.param(PrivateMariaDB, id="mariadb", marks=pytest.mark.mariadb),
    ],
)


@of_each_kind
def test_a_port_taken_meanwhile_is_replaced(
    kind: type[PrivateServer], postgres_server: PrivateServer, mariadb_server: PrivateServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    taken = postgres_server.port if kind is PrivatePostgres else mariadb_server.port
    free = _processes.free_port()
    ports: Iterator[int] = iter([taken, free])
    monkeypatch.setattr(_processes, "free_port", lambda: next(ports))
    with kind() as server:
        assert server.port == free


@of_each_kind
def test_attached_server_has_its_own_databases_and_leaves_the_server_running(
    kind: type[PrivateServer], postgres_server: PrivateServer, mariadb_server: PrivateServer
) -> None:  # fmt: skip
    running = postgres_server if kind is PrivatePostgres else mariadb_server
    one, other = kind(), kind()
    for each in (one, other):
        each.attach(running.port)
    urls = [one.url, other.url, one.create_database(), other.create_database()]
    assert len({running.url, *urls}) == 5
    one.stop()
    for url in urls:
        other.drop_database(url)


@pytest.mark.postgresql
def test_server_killed_while_it_made_its_lock_file_starts_again() -> None:
    """PostgreSQL refuses an empty lock file. A port that is taken kills a server within its first milliseconds."""
    with PrivatePostgres() as server:
        [shown] = server._execute("SHOW data_directory")
        server.kill()
        (Path(shown) / "postmaster.pid").write_bytes(b"")
        server.restart()
        assert server._execute("SELECT 1") == ["1"]


def test_restart_before_start_is_an_error() -> None:
    with pytest.raises(StoreUnavailable, match=r"never started; call start\(\)"):
        PrivatePostgres().restart()
