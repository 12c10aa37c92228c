"""The TLS files of the Redis driver: which authorities count, and files that cannot be used."""

import logging
import socket
from pathlib import Path

import pytest

from pubsub_lib.api import DriverSettings
from pubsub_lib.errors import ConfigError
from pubsub_lib.threads.name_lookup import NameLookup
from pubsub_redis.connection import Link
from pubsub_redis.driver import RedisDriver
from pubsub_redis.opening import made
from pubsub_redis.options import checked
from tests.unit.drivers.certificates import Certificate, certificate, handshakes
from tests.unit.drivers.test_redis_connection import Half


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("tls"), "one")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("tls"), "other")


def connected(shown: Certificate, **files: str) -> socket.socket:
    """The socket of a connection to a server that shows this certificate."""
    with handshakes(shown) as port:
        options, server = checked({"url": f"rediss://127.0.0.1:{port}", **files})
        made_one = made(options, server, NameLookup(server.host, server.port), lambda opened: None)
        connection: socket.socket = made_one._connect()
        return connection


def test_only_the_authorities_of_ca_file_sign_when_it_is_set(
    one: Certificate, other: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected(other, ca_file=str(other.cert)).close()
    monkeypatch.setenv("SSL_CERT_FILE", str(other.cert))  # the system's authorities
    connected(other).close()
    with pytest.raises(OSError, match="certificate verify failed"):
        connected(other, ca_file=str(one.cert))


def test_the_name_in_the_certificate_is_checked(tmp_path: Path) -> None:
    elsewhere = certificate(tmp_path, "elsewhere", "DNS:elsewhere")
    with pytest.raises(OSError, match="certificate verify failed"):
        connected(elsewhere, ca_file=str(elsewhere.cert))


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"ca_file": "/no/such"}, "ca_file = '/no/such'"),
        ({"ca_file": "{key}"}, "ca_file = "),
        ({"cert_file": "/no/such", "key_file": "{key}"}, "cert_file = '/no/such' with key_file = "),
        ({"cert_file": "{cert}", "key_file": "/no/such"}, "with key_file = '/no/such'"),
    ],
)
def test_files_that_cannot_be_used_are_refused_by_both_halves(
    one: Certificate, files: dict[str, str], named: str
) -> None:
    given = {name: path.format(cert=one.cert, key=one.key) for name, path in files.items()}
    for make in (RedisDriver.publisher, RedisDriver.subscriber):
        with pytest.raises(ConfigError, match=rf"{named}.* in \[pubsub_redis\] cannot be used: .*; correct it"):
            make(DriverSettings(options={"url": "rediss://host", **given}))


def test_the_files_are_read_again_for_each_connection(
    one: Certificate, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(one.cert.read_bytes())
    link = Link(*checked({"url": "rediss://host", "ca_file": str(ca)}), logging.getLogger("pubsub_redis.test"))

    ca.unlink()

    def between_attempts(_: float) -> None:
        if ca.exists():
            link.stop()
        else:
            ca.write_bytes(one.cert.read_bytes())

    monkeypatch.setattr(link._stopped, "wait", between_attempts)
    monkeypatch.setattr(link._lookup, "addresses", lambda seconds: [])
    link.run(Half())
    without, renewed = caplog.messages
    assert without.startswith(f"ca_file = {str(ca)!r} in [pubsub_redis] cannot be used: "), without
    assert "the Redis server rediss://host is unavailable" in renewed
    assert link.counts["errors"] == 0
