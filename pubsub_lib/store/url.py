"""Converts a database URL as users write it to a URL that names the driver that this library uses."""

import importlib
from typing import Final

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from pubsub_lib.errors import ConfigError
from pubsub_lib.masking import HIDDEN, is_secret, masked

_DRIVERS: Final = {
    "sqlite": ("sqlite+pysqlite", "sqlite3", "sqlite"),
    "postgresql": ("postgresql+psycopg", "psycopg", "postgresql"),
    "postgres": ("postgresql+psycopg", "psycopg", "postgresql"),
    "mysql": ("mysql+pymysql", "pymysql", "mariadb"),
    "mariadb": ("mysql+pymysql", "pymysql", "mariadb"),
}


def shown(url: URL | str) -> str:
    """A URL for display: without passwords, also those in its query. Raises ConfigError for an invalid URL."""
    if isinstance(url, str):
        url = _made(url)
    hidden = {name: HIDDEN for name in url.query if is_secret(name)}
    return masked(url.update_query_dict(hidden).render_as_string())


def parse(text: str) -> URL:
    """Check and complete a URL: sqlite, postgresql (psycopg 3), mysql or mariadb (pymysql).

    Raises ConfigError for an invalid URL, another database or driver, a driver that is not installed (naming the
    extra), and SQLite without a file, which no other process could read.
    """
    url = _made(text)
    if "@" in (url.host or ""):
        # The text after the first @ is parsed as the host's name, and would be shown as such.
        raise ConfigError("the database URL has an @ in its user's name or password; write %40 for it")
    backend, _, driver = url.drivername.partition("+")
    if backend not in _DRIVERS:
        raise ConfigError(f"the database URL names {backend!r}; use sqlite, postgresql, mysql or mariadb")
    full, module, extra = _DRIVERS[backend]
    if driver and driver != full.partition("+")[2]:
        raise ConfigError(f"the database URL names the driver {driver!r}; for {backend} use {full}")
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"{backend} needs the package {module}; install pubsub-lib[{extra}]") from error
    url = url.set(drivername=full)
    if backend == "sqlite":
        if not url.database or ":memory:" in url.database or url.query.get("mode") == "memory":
            raise ConfigError("other processes cannot read a SQLite database in memory; name a file: sqlite:///net.db")
    elif not url.database:
        raise ConfigError(f"the database URL {shown(url)} names no database; append /name")
    elif full.startswith("mysql"):
        url = url.update_query_dict({"charset": "utf8mb4"})
    return url


def _made(text: str) -> URL:
    try:
        return make_url(text)
    except (ArgumentError, ValueError) as error:
        # The text may hold a password: it is not repeated.
        raise ConfigError(
            "the database URL cannot be read; write it like sqlite:///net.db or postgresql://user@host/name"
        ) from error
