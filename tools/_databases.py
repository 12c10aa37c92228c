"""The database of a tool by name or URL: SQLite, a private server, or an empty database of the user."""

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

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


@contextmanager
def database(chosen: str, folder: Path) -> Iterator[str]:
    """The URL of an empty database of this kind, on a private server if necessary. Raises ConfigError, StoreError."""
    if chosen == "sqlite":
        yield f"sqlite:///{folder / 'database.sqlite'}"
    elif chosen in SERVERS:
        with SERVERS[chosen]() as server:
            yield server.create_database()
    else:
        yield chosen
