"""Two servers with the same port."""

from collections.abc import Iterator

import _processes
import pytest
from _servers import PrivateMariaDB, PrivatePostgres, PrivateServer

from pubsub_lib.errors import StoreUnavailable


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(PrivatePostgres, id="postgresql", marks=pytest.mark.postgresql),
        pytest.param(PrivateMariaDB, id="mariadb", marks=pytest.mark.mariadb),
    ],
)
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


def test_restart_before_start_is_an_error() -> None:
    with pytest.raises(StoreUnavailable, match=r"never started; call start\(\)"):
        PrivatePostgres().restart()
