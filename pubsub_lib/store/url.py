"""Converts a database URL as users write it to a URL that names the driver that this library uses."""

import importlib
from typing import Final

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from pubsub_lib.errors import ConfigError
from pubsub_lib.exposure import is_loopback_host
from pubsub_lib.logs import logger
from pubsub_lib.masking import HIDDEN, is_secret, masked

_log = logger(__name__)

_DRIVERS: Final = {
    "sqlite": ("sqlite+pysqlite", "sqlite3", "sqlite"),
    "postgresql": ("postgresql+psycopg", "psycopg", "postgresql"),
    "postgres": ("postgresql+psycopg", "psycopg", "postgresql"),
    "mysql": ("mysql+pymysql", "pymysql", "mariadb"),
    "mariadb": ("mysql+pymysql", "pymysql", "mariadb"),
}

_MYSQL_TLS: Final = {"ssl_ca", "ssl_capath", "ssl_cert", "ssl_key", "ssl_cipher", "ssl_check_hostname"}
"""The options that SQLAlchemy gives to pymysql together. With any other one pymysql ignores these."""


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


def warn_of_unverified_server(text: str) -> None:
    """Log :func:`unverified_server`, if there is anything to log. Raises ConfigError for an invalid URL."""
    sentence = unverified_server(parse(text))
    if sentence:
        _log.warning("%s", sentence)


def unverified_server(url: URL) -> str:
    """A warning, without passwords, for a parsed URL that lets another host pose as the database: its server is on
    another host, and the URL does not let the driver verify the server's certificate and name. "" for any other URL.
    """
    verified, remedy = {
        "postgresql": (_postgresql_verifies, "sslmode=verify-full&sslrootcert=FILE"),
        "mysql": (_mysql_verifies, "ssl_ca=FILE, and no other option of TLS but ssl_cert and ssl_key"),
    }.get(url.get_backend_name(), (None, ""))
    remote = [each for each in _hosts(url) if not each.startswith(("/", "@")) and not is_loopback_host(each)]
    if verified is None or not remote or verified(url):
        return ""
    return (
        f"the certificate of the database server {', '.join(remote)} is not verified, so another host can pose as the "
        f"server; append {remedy} to the query of store_url (docs/security.md)"
    )


def _hosts(url: URL) -> list[str]:
    """The hosts, addresses and sockets of this URL; none: the driver's default, which is on this host."""
    query = url.normalized_query
    if query.get("unix_socket"):
        return []
    given = query.get("hostaddr") or query.get("host") or ((url.host,) if url.host else ())
    return [_without_port(each) for several in given for each in several.split(",") if each]


def _without_port(host: str) -> str:
    name, _, port = host.rpartition(":")
    return name.strip("[]") if port.isdigit() and (":" not in name or name.endswith("]")) else host.strip("[]")


def _postgresql_verifies(url: URL) -> bool:
    query = url.normalized_query
    modes = query.get("sslmode", ())
    return set(modes) == {"verify-full"} or (not modes and query.get("sslrootcert") == ("system",))


def _mysql_verifies(url: URL) -> bool:
    query = url.normalized_query
    names = {name for name in query if name.startswith("ssl_")}
    checks_name = all(each.lower() in ("true", "yes", "on", "1") for each in query.get("ssl_check_hostname", ()))
    return bool(names & {"ssl_ca", "ssl_capath"}) and names <= _MYSQL_TLS and checks_name


def _made(text: str) -> URL:
    if not text:
        raise ConfigError("this program needs the database, but store_url is missing; give its URL (sqlite:///net.db)")
    try:
        return make_url(text)
    except (ArgumentError, ValueError) as error:
        # The text may hold a password: it is not repeated.
        raise ConfigError(
            "the database URL cannot be read; write it like sqlite:///net.db or postgresql://user@host/name"
        ) from error
