"""Database URLs as users write them."""

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
        ("", "cannot be read"),
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
