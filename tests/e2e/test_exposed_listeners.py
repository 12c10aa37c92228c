"""A real service with a listener that others can reach, or with a socket's path that names another file."""

import socket
from pathlib import Path

import pytest

from tests.e2e.service_host import Host

BIND = "publisher_bind_address = 127.0.0.1\n"
METRICS = "metrics_address = 127.0.0.1\n"
EXPOSED: dict[str, tuple[str, str, str]] = {
    "a named address": (BIND, BIND.replace("127.0.0.1", "192.0.2.7"), "tcp://192.0.2.7:"),
    "the address of the host": (BIND, BIND.replace("127.0.0.1", "*") + "local_ip = 192.0.2.7\n", "tcp://192.0.2.7:"),
    "metrics": (METRICS, METRICS.replace("127.0.0.1", "0.0.0.0"), "http://0.0.0.0:"),
    "a folder of all users": (BIND, "publisher_transport = ipc\npublisher_bind_address = /tmp/pub.sock\n", "ipc:///tmp/"),
}
"""A line of the configuration, what replaces it, and how the error names the listener."""


def listens(port: int, address: str = "127.0.0.1") -> bool:
    with socket.socket() as client:
        return client.connect_ex((address, port)) == 0


@pytest.mark.parametrize("name", EXPOSED)
def test_service_with_an_exposed_listener_does_not_start_without_insecure(name: str, host: Host) -> None:
    old, new, address = EXPOSED[name]
    text = host.config.read_text()
    assert old in text
    host.config.write_text(text.replace(old, new))
    code, output = host.refused()
    assert code == 2, output
    assert f"others could reach {address}" in output
    assert "and there are no keys" in output
    assert not listens(host.metrics_port)
    assert not listens(int(host.settings.bind_address.rpartition(":")[2]))


@pytest.mark.parametrize("wildcard", ["*", "0.0.0.0", "[::]"])
def test_service_without_insecure_binds_loopback_instead_of_every_interface(
    wildcard: str, host: Host, tmp_path: Path
) -> None:
    port = int(host.settings.bind_address.rpartition(":")[2])
    host.config.write_text(host.config.read_text().replace(BIND, BIND.replace("127.0.0.1", wildcard)))
    host.service()
    assert listens(port)
    assert not listens(port, "127.0.0.2")
    assert f"publisher_bind_address is '{wildcard}' but there are no keys" in (tmp_path / "stderr").read_text()


def test_service_with_insecure_warns_at_each_start(host: Host, tmp_path: Path) -> None:
    host.change(METRICS, METRICS.replace("127.0.0.1", "0.0.0.0"))
    host.change("insecure = false", "insecure = true")
    for number in (1, 2):
        service = host.service()
        lines = (tmp_path / "stderr").read_text().splitlines()
        assert len([each for each in lines if f"others can reach http://0.0.0.0:{host.metrics_port}" in each]) == number
        service.kill()
        service.wait()


@pytest.mark.parametrize("other", ["the database", "another file"])
def test_file_at_the_sockets_path_is_refused_and_kept(other: str, host: Host, tmp_path: Path) -> None:
    folder = tmp_path / "private"
    folder.mkdir(mode=0o700)
    path = folder / "net.db"
    database = Path(host.database.removeprefix("sqlite:///"))
    path.write_bytes(database.read_bytes() if other == "the database" else b"text")
    before = path.read_bytes()
    host.change(f"{tmp_path}/hop/socket", str(path))
    if other == "the database":
        host.change(host.database, f"sqlite:///{path}")
    code, output = host.refused()
    assert code != 0
    assert f"'{path}' exists and is not a socket" in output
    assert path.read_bytes() == before
