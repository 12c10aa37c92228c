"""The file of a SQLite database, which can be missing, mistyped, or replaced by another file of the same name.

Connections never create the file (:func:`create` does, on purpose), and a pooled connection is not used again once
the name leads to another file: otherwise a restored backup (``os.replace``) would never be detected.
"""

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from sqlalchemy import URL, Engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DisconnectionError

from pubsub_lib.errors import StoreUnavailable

_TRIES: Final = 10
"""Maximum number of attempts to open a file that is replaced while it is being opened."""

Identity = tuple[int, int]


class FileConnection(sqlite3.Connection):
    """A connection that remembers which file it opened."""

    identity: Identity = (0, 0)


def path_of(url: URL) -> Path:
    """The absolute path of the database's file, also for a URI (``file:net.db``)."""
    name = url.database or ""
    if name.startswith("file:"):
        name = unquote(name[5:].partition("?")[0].partition("#")[0])
        if name.startswith("//"):
            name = "/" + name[2:].partition("/")[2]
    return Path(name).absolute()  # not resolved: a symbolic link may be changed to another file


def may_create(url: URL) -> bool:
    """Whether :func:`create` creates a missing file: not when the URL names a ``mode``."""
    return "mode" not in url.query


def create(url: URL) -> None:
    """Create an empty file, for its owner only, if none exists. Raises OSError. SQLite gives its -wal and -shm the same
    permissions.

    A file that exists is not opened: closing it would release all locks that SQLite holds on it in this process
    (https://sqlite.org/howtocorrupt.html, section 2.2). Another process would then take itself for the last one that
    uses the database, and remove the write-ahead log under the connections of this process.
    """
    if may_create(url):
        with contextlib.suppress(FileExistsError):
            # The real path, because O_EXCL would take a link to a missing file for an existing file.
            os.close(os.open(os.path.realpath(path_of(url)), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def watch(engine: Engine) -> None:
    """Let this engine open only an existing file, and return only connections to the current file."""
    path = path_of(engine.url)
    name = str(path)

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: object, _record: object, args: list[Any], options: dict[str, Any]) -> FileConnection:
        if not options.get("uri"):
            args, options = [path.as_uri() + "?mode=rw"], {**options, "uri": True}
        elif "mode=" not in args[0]:
            args = [args[0] + ("&" if "?" in args[0] else "?") + "mode=rw"]
        for _ in range(_TRIES):
            before = _identity(name)
            connection = sqlite3.connect(*args, **options, factory=FileConnection)
            if _identity(name) == before:
                connection.identity = before
                return connection
            connection.close()
        raise StoreUnavailable(f"the SQLite file {path} is replaced again and again; try again once it stays")

    @event.listens_for(engine, "checkout")
    def _checkout(connection: DBAPIConnection, _record: object, _proxy: object) -> None:
        # The old file cannot be mistaken for the new one: its inode number is not reused while we hold it open.
        if isinstance(connection, FileConnection) and connection.identity != _identity(name):
            raise DisconnectionError(f"the SQLite file {path} was replaced")


def _identity(name: str) -> Identity:
    try:
        status = os.stat(name)  # noqa: PTH116 - Path.stat takes twice as long, and every transaction waits for it
    except FileNotFoundError:
        raise StoreUnavailable(
            f"the SQLite file {name} does not exist; correct the URL, or create it by pubsub-db init"
        ) from None
    return status.st_dev, status.st_ino
