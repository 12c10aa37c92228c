"""The database of a tool by name or URL: SQLite, a private server, or an empty database of the user."""

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from _servers import PrivateMariaDB, PrivatePostgres, PrivateServer

SERVERS: Final[Mapping[str, type[PrivateServer]]] = {"postgresql": PrivatePostgres, "mariadb": PrivateMariaDB}
NAMES: Final = ("sqlite", *SERVERS)
METAVAR: Final = "NAME|URL"
HELP: Final = "sqlite, postgresql or mariadb (private, in a temporary folder), or the URL of an empty database"


def choice(text: str) -> str:
    """An option's type: a name or a URL."""
    if text not in NAMES and "://" not in text:
        raise argparse.ArgumentTypeError(f"{text!r} is neither {', '.join(NAMES[:-1])}, {NAMES[-1]} nor a URL")
    return text


def shown(chosen: str) -> str:
    """The name of the database in a report, where a URL could show a password."""
    return chosen if chosen in NAMES else "by URL"


class Database(NamedTuple):
    """An empty database, and the private server that has it; None: a file, or a database of the user."""

    url: str
    server: PrivateServer | None = None


@contextmanager
def opened(chosen: str, folder: Path) -> Iterator[Database]:
    """An empty database of this kind, on a private server if necessary. Raises ConfigError, StoreError."""
    if chosen == "sqlite":
        yield Database(f"sqlite:///{folder / 'database.sqlite'}")
    elif chosen in SERVERS:
        with SERVERS[chosen]() as server:
            yield Database(server.create_database(), server)
    else:
        yield Database(chosen)


@contextmanager
def database(chosen: str, folder: Path) -> Iterator[str]:
    """As ``opened``, without the server."""
    with opened(chosen, folder) as found:
        yield found.url
