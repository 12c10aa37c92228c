"""Database URLs as users write them."""

import logging
import ssl
from pathlib import Path

import pytest

from pubsub_lib.errors import ConfigError
from pubsub_lib.store import url


@pytest.mark.parametrize(
    ("text", "driver"),
    [
        ("sqlite:///net.db", "sqlite+pysqlite"),
        ("postgresql://u@h/d", "postgresql+psycopg"),
        ("postgres://u@h/d", "postgresql+psycopg"),
        ("postgresql+psycopg://u@h/d", "postgresql+psycopg"),
        ("mysql://u@h/d", "mysql+pymysql"),
        ("mariadb://u@h/d", "mysql+pymysql"),
        ("mariadb+pymysql://u@h/d?charset=utf8mb4", "mysql+pymysql"),
    ],
)
def test_parse_completes_the_driver(text: str, driver: str) -> None:
    parsed = url.parse(text)
    assert parsed.drivername == driver
    assert driver != "mysql+pymysql" or parsed.query["charset"] == "utf8mb4"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "this program needs the database, but store_url is missing"),
        ("net.db", "cannot be read"),
        ("mssql://h/d", "'mssql'"),
        ("postgresql+asyncpg://h/d", "'asyncpg'"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("sqlite:///file:x?mode=memory&uri=true", "in memory"),
        ("mysql://h", "no database"),
    ],
)
def test_parse_rejects_invalid_urls(text: str, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        url.parse(text)


def test_parse_names_the_extra_of_a_missing_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"pubsub-lib\[postgresql\]"):
        url.parse("postgresql://h/d")


def test_shown_hides_the_password() -> None:
    with pytest.raises(ConfigError) as caught:
        url.parse("mysql://u:secret@h")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["password", "passwd", "sslpassword", "PassWord", "oauth_client_secret"])
def test_shown_hides_a_password_in_the_query(name: str) -> None:
    given = f"postgresql://u:s3cret@h/d?{name}=s3cret&{name}=s3cret&sslmode=require"
    for each in (given, url.parse(given)):
        text = url.shown(each)
        assert "s3cret" not in text
        assert f"{name}=hidden" in text
        assert "sslmode=require" in text
    with pytest.raises(ConfigError) as caught:
        url.shown(":s3cret")
    assert "s3cret" not in str(caught.value)


CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBdDCCARugAwIBAgIUaS0MukhA7V2qE+45t8A1YAKr/pYwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjUxNzQyMjZaGA8yMTI2MTEwMTE3NDIy
NlowDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABKgm
aup3ZoLSAZHc3V+zUeAXeHuukE4a+/33krO9Edeplv9VryFXbYsT+r/J6TaZ43Gm
14wn4EpwPEpwhQUT4JyjUzBRMB0GA1UdDgQWBBTTluo9HcbvBgQjrBgAU8LUbVZr
MjAfBgNVHSMEGDAWgBTTluo9HcbvBgQjrBgAU8LUbVZrMjAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0cAMEQCIEbBbnPZ5ergil999+YY5X5x5okGF1MHt9v+
BE/D0PdzAiACOvJMza0ASd0Vov2rLhNnhXrIe2wNAOifqVxhvXP/2A==
-----END CERTIFICATE-----
"""
"""Of an authority that signs nothing."""
VERIFIED = (
    "sqlite:///net.db",
    "postgresql://u@/net",
    "postgresql:///net?host=/run/postgresql",
    "postgresql:///net?host=@abstract",
    "postgresql://u@localhost/net",
    "postgresql://u@127.0.0.2:5433/net",
    "postgresql://u@[::1]/net",
    "postgresql:///net?host=127.0.0.1:5432&host=[::1]:5433",
    "postgresql://u@db/net?hostaddr=127.0.0.1",
    "postgresql://u@db/net?sslmode=verify-full",
    "postgresql://u@db/net?sslmode=verify-full&sslrootcert=/etc/ssl/db.pem",
    "postgresql://u@db/net?sslrootcert=system",
    "mysql://u@/net",
    "mariadb://u@localhost/net",
    "mariadb://u@db/net?unix_socket=/run/mysqld/mysqld.sock",
    "mariadb://u@db/net?ssl_ca=/etc/ssl/db.pem",
    "mariadb://u@db/net?ssl_capath=/etc/ssl/certs&ssl_check_hostname=true",
)
UNVERIFIED = (
    ("postgresql://u:tOpSeCrEt@db/net", "db"),
    ("postgresql://u:tOpSeCrEt@10.0.0.7:5433/net", "10.0.0.7"),
    ("postgresql://u:tOpSeCrEt@[2001:db8::1]/net", "2001:db8::1"),
    ("postgresql://u:tOpSeCrEt@db/net?sslmode=prefer", "db"),
    ("postgresql://u:tOpSeCrEt@db/net?sslmode=require&sslrootcert=/etc/ssl/db.pem", "db"),
    ("postgresql://u:tOpSeCrEt@db/net?sslmode=verify-ca", "db"),
    ("postgresql://u:tOpSeCrEt@db/net?sslmode=verify-full&sslmode=disable", "db"),
    ("postgresql:///net?host=127.0.0.1:5432&host=db2:5432&password=tOpSeCrEt", "db2"),
    ("postgresql:///net?host=127.0.0.1,db2&password=tOpSeCrEt", "db2"),
    ("postgresql://localhost/net?hostaddr=10.0.0.7&password=tOpSeCrEt", "10.0.0.7"),
    ("mariadb://u:tOpSeCrEt@db/net", "db"),
    ("mariadb://u:tOpSeCrEt@db/net?ssl_ca=/etc/ssl/db.pem&ssl_check_hostname=false", "db"),
    ("mariadb://u:tOpSeCrEt@db/net?ssl_verify_cert=true&ssl_verify_identity=true", "db"),
    ("mariadb://u:tOpSeCrEt@db/net?ssl_ca=/etc/ssl/db.pem&ssl_verify_cert=true&ssl_verify_identity=true", "db"),
    ("mariadb://u:tOpSeCrEt@db/net?ssl_ca=/etc/ssl/db.pem&ssl_disabled=false", "db"),
)


@pytest.mark.parametrize("text", VERIFIED)
def test_local_or_verified_server_gives_no_warning(text: str) -> None:
    assert url.unverified_server(url.parse(text)) == ""


@pytest.mark.parametrize(("text", "host"), UNVERIFIED)
def test_warning_names_the_unverified_server_and_no_password(
    text: str, host: str, caplog: pytest.LogCaptureFixture
) -> None:
    sentence = url.unverified_server(url.parse(text))
    assert f"the database server {host} " in sentence
    assert ("sslmode=verify-full" if text.startswith("postgresql") else "ssl_ca=") in sentence
    with caplog.at_level(logging.WARNING):
        url.warn_of_unverified_server(text)
    assert caplog.messages == [sentence]
    assert "tOpSeCrEt" not in sentence


@pytest.mark.parametrize(
    ("query", "verified"),
    [
        ("ssl_ca={ca}", True),
        ("ssl_ca={ca}&ssl_check_hostname=false", False),
        ("ssl_ca={ca}&ssl_verify_cert=true&ssl_verify_identity=true", False),
        ("ssl_verify_cert=true&ssl_verify_identity=true", False),
        ("", False),
    ],
)
def test_pymysql_verifies_certificate_and_name_exactly_without_a_warning(
    query: str, verified: bool, tmp_path: Path
) -> None:
    """SQLAlchemy passes ``ssl_ca`` in a dict, which pymysql replaces when another option of TLS is set: then it uses
    the system's authorities, and does not compare the name.
    """
    pymysql = pytest.importorskip("pymysql")
    ca = tmp_path / "ca.pem"
    ca.write_text(CERTIFICATE)
    parsed = url.parse(f"mariadb://u@db/net?{query.format(ca=ca)}")
    _, options = parsed.get_dialect()().create_connect_args(parsed)
    context = pymysql.connections.Connection(**options, defer_connect=True).ctx
    assert (context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname) == verified
    assert (not url.unverified_server(parsed)) == verified
