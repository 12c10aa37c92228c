"""Places for the database's password outside the INI file, as docs/security.md has them."""

import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from sqlalchemy.dialects.mysql.pymysql import dialect as pymysql_dialect

from pubsub_lib import Settings, Store
from pubsub_lib.errors import PubSubError
from pubsub_lib.store import url

LONG = 120.0
PASSWORD = "se:cret"
ENCRYPTION = {80877103, 80877104}
"""Codes of a PostgreSQL client's requests for TLS and GSSAPI."""


class PasswordServer:
    """Asks a PostgreSQL client for its password, keeps it, and refuses the client."""

    def __init__(self) -> None:
        self.passwords: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(LONG)
        self._listener.close()

    def _run(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            with client, client.makefile("rb") as received:
                client.settimeout(LONG)
                self._ask(client, received)

    def _ask(self, client: socket.socket, received: IO[bytes]) -> None:
        while True:
            length, code = struct.unpack("!ii", received.read(8))
            received.read(length - 8)
            if code not in ENCRYPTION:
                break
            client.sendall(b"N")
        client.sendall(b"R" + struct.pack("!ii", 8, 3))  # a password as it is
        if received.read(1) == b"p":
            (length,) = struct.unpack("!i", received.read(4))
            self.passwords.append(received.read(length - 4).rstrip(b"\0").decode())
        error = b"SFATAL\0C28P01\0Mrefused by the test\0\0"
        client.sendall(b"E" + struct.pack("!i", len(error) + 4) + error)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PasswordServer]:
    for variable in ("PGPASSFILE", "PGPASSWORD", "PGSERVICE", "OS_PUBSUB__STORE_URL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    found = PasswordServer()
    yield found
    found.close()


def refused(database: str) -> str:
    """The error of a store that cannot be opened."""
    with pytest.raises(PubSubError) as caught:
        Store(database, read_only=True).close()
    assert PASSWORD not in str(caught.value)
    return str(caught.value)


def passfile(path: Path, server: PasswordServer, mode: int = 0o600) -> Path:
    path.write_text(f"127.0.0.1:{server.port}:net:pubsub:{PASSWORD.replace(':', chr(92) + ':')}\n")
    path.chmod(mode)
    return path


@pytest.mark.parametrize("way", ["url", "PGPASSFILE", "home", "PGPASSWORD"])
def test_postgresql_password_outside_the_url(
    way: str, server: PasswordServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = f"postgresql://pubsub@127.0.0.1:{server.port}/net"
    file = tmp_path / (".pgpass" if way == "home" else "the passfile")
    if way == "PGPASSWORD":
        monkeypatch.setenv(way, PASSWORD)
    else:
        passfile(file, server)
    if way == "PGPASSFILE":
        monkeypatch.setenv(way, str(file))
    if way == "url":
        database += f"?passfile={file}"
    assert "refused by the test" in refused(database)
    assert server.passwords
    assert {*server.passwords} == {PASSWORD}


def test_passfile_that_others_may_read_is_not_used(server: PasswordServer, tmp_path: Path) -> None:
    """As a credential of systemd, whose mode shows the group's right when the user's is an entry of an ACL."""
    file = passfile(tmp_path / "passfile", server, 0o440)
    assert "no password supplied" in refused(f"postgresql://pubsub@127.0.0.1:{server.port}/net?passfile={file}")
    assert server.passwords == []


def test_environment_variable_has_the_url_with_the_password(
    server: PasswordServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net.conf").write_text("[pubsub]\nstore_url = postgresql://pubsub@127.0.0.1/net\n")
    given = f"postgresql://pubsub:{PASSWORD}@127.0.0.1:{server.port}/net"
    monkeypatch.setenv("OS_PUBSUB__STORE_URL", given)
    refused(Settings.from_file(str(tmp_path / "net.conf")).store_url)
    assert {*server.passwords} == {PASSWORD}


def test_option_file_of_mariadb_has_the_password(tmp_path: Path) -> None:
    pymysql = pytest.importorskip("pymysql")
    file = tmp_path / "password.cnf"
    file.write_text(f"[client]\npassword = {PASSWORD}\n")
    made = url.parse(f"mariadb://pubsub@127.0.0.1/net?read_default_file={file}")
    _, arguments = pymysql_dialect().create_connect_args(made)
    connection = pymysql.Connection(**arguments, defer_connect=True)
    assert (connection.user, connection.password) == ("pubsub", PASSWORD.encode())
