"""Error mapping: exceptions of SQLAlchemy and the drivers become this library's exceptions, here only."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import exc

from pubsub_lib.errors import (
    ConfigError,
    PubSubError,
    SchemaError,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)

# PostgreSQL: SQLSTATE (or its class of two characters).
_POSTGRESQL: Final[dict[str, type[PubSubError]]] = {
    "40": StoreBusy,  # serialization failure, deadlock
    "40003": StoreUnavailable,  # statement_completion_unknown: in doubt, unlike its class
    "55P03": StoreBusy,  # lock_timeout
    "25006": StoreReadOnly,
    "53100": StoreFull,
    "53": StoreUnavailable,  # too many connections, out of memory
    "08": StoreUnavailable,
    "57": StoreUnavailable,  # shutdown, statement_timeout
    "58": StoreUnavailable,
    "25P03": StoreUnavailable,  # idle_in_transaction_session_timeout
    "25P04": StoreUnavailable,
    "28": ConfigError,
    "3D000": ConfigError,
    "42501": ConfigError,
    "42": SchemaError,
    "23": StoreBusy,  # two writers created the same row
}
# MariaDB and MySQL: error number.
_MYSQL: Final[dict[int, type[PubSubError]]] = {
    1205: StoreBusy,
    1213: StoreBusy,
    1062: StoreBusy,
    3572: StoreBusy,
    1020: StoreBusy,  # MariaDB: the row changed since it was read (snapshot isolation)
    1290: StoreReadOnly,
    1792: StoreReadOnly,
    1836: StoreReadOnly,
    1036: StoreReadOnly,
    1021: StoreFull,
    1114: StoreFull,
    3: StoreFull,
    1041: StoreFull,
    1044: ConfigError,
    1045: ConfigError,
    1049: ConfigError,
    1142: ConfigError,
    1698: ConfigError,
    1054: SchemaError,
    1146: SchemaError,
    1153: StoreError,
}
# Too many connections: 1040 of all users, 1203 and 1226 of this one; 1047: a Galera node that is not ready; 1053: a
# shutdown; 1317, 1969 and 3024: timed out; 1927 and 4031: killed. 2000 to 2999 are the client's own.
_MYSQL_UNAVAILABLE: Final = frozenset({0, 1040, 1047, 1053, 1203, 1226, 1317, 1927, 1969, 3024, 4031})
_SQLITE: Final[dict[int, type[PubSubError]]] = {
    sqlite3.SQLITE_BUSY: StoreBusy,
    sqlite3.SQLITE_LOCKED: StoreBusy,
    sqlite3.SQLITE_CONSTRAINT: StoreBusy,
    sqlite3.SQLITE_READONLY: StoreReadOnly,
    sqlite3.SQLITE_FULL: StoreFull,
    sqlite3.SQLITE_CANTOPEN: StoreUnavailable,
    sqlite3.SQLITE_IOERR: StoreUnavailable,
    sqlite3.SQLITE_PERM: StoreUnavailable,
    sqlite3.SQLITE_NOTADB: SchemaError,
    sqlite3.SQLITE_CORRUPT: StoreError,
}
# psycopg has no SQLSTATE for errors before a session exists: only the server's English text identifies them.
_CONNECT_WORDS: Final = {
    "authentication failed": ConfigError,
    "does not exist": ConfigError,
    "no password supplied": ConfigError,
    "no pg_hba.conf entry": ConfigError,
}
_ADVICE: Final[dict[type[PubSubError], str]] = {
    StoreBusy: "others hold the locks or connections that it needs; try again",
    StoreUnavailable: "the database is unreachable or does not answer in time; see whether it runs",
    StoreReadOnly: "the database refuses writes; use the primary, with a user and a disk that may write",
    StoreFull: "the database has no room left; free disk space first (trimming needs some, too), then trim",
    SchemaError: "its tables are not those of this library; see the URL, or run pubsub-db migrate",
    ConfigError: "the database refuses this URL; see its user, password, rights and database name",
    StoreError: "see the database's log",
}
_TLS_WORDS: Final = (
    "certificate verify failed",
    "server certificate for",  # it does not match the host's name
    "does not support SSL",
    "SSL is required",
    "root certificate file",  # it does not exist
)
"""Parts of the texts with which libpq and pymysql report that TLS does not begin."""
_TLS_ADVICE: Final = (
    "the server is not verified; see the TLS options of the URL, the name in the server's certificate and "
    "docs/security.md"
)
_FILE_ADVICE: Final = "the file cannot be opened; see its path, and the rights on it and on its folder"
# For a file the advice "see whether it runs" makes no sense. Keys are primary result codes.
_SQLITE_ADVICE: Final[dict[int, str]] = {
    sqlite3.SQLITE_CANTOPEN: _FILE_ADVICE,
    sqlite3.SQLITE_PERM: _FILE_ADVICE,
    sqlite3.SQLITE_READONLY: "SQLite may not write to the file or its folder, which reading can need, too; see the "
    "rights on both, and mode in the URL",
    # A full disk can be the reason. Not mapped to StoreFull: that means "not committed", and this COMMIT may be in.
    sqlite3.SQLITE_IOERR: "the disk does not read or write the file; see whether it has room, and the system's log",
    sqlite3.SQLITE_NOTADB: "the file is not a SQLite database; correct the URL, or restore the file from a backup",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore it from a backup",
}
FOREIGN: Final = (exc.SQLAlchemyError, sqlite3.Error, OSError)
"""The exceptions of SQLAlchemy and of the drivers that are translated."""
DEFINITE: Final = (StoreBusy, StoreFull, StoreReadOnly)
"""Errors at COMMIT after which the transaction is certainly not committed. After any other error it may be."""


def is_refused(error: BaseException) -> bool:
    """Whether a transaction whose COMMIT, or whose last writes, raised this error is certainly not committed."""
    kind = kind_of(error)
    original = error.orig if isinstance(error, exc.DBAPIError) else None
    answered = getattr(original, "sqlstate", None) if type(original).__module__.startswith("psycopg") else None
    # A server that answers with an error ends the transaction, unless it cannot go on itself.
    return kind in DEFINITE or (answered is not None and kind is not StoreUnavailable)


def kind_of(error: BaseException) -> type[PubSubError]:
    """This library's exception class for an error of SQLAlchemy or of a driver."""
    if isinstance(error, exc.TimeoutError):
        return StoreBusy  # the pool
    original = error.orig if isinstance(error, exc.DBAPIError) and error.orig is not None else error
    if isinstance(error, exc.DBAPIError) and error.connection_invalidated:
        return StoreUnavailable
    if isinstance(original, sqlite3.Error):
        return _SQLITE.get(_primary_code(original), StoreError)
    module = type(original).__module__.partition(".")[0]
    # PyMySQL's errors have an sqlstate, too, but only their number is exact.
    state = getattr(original, "sqlstate", None) if module == "psycopg" else None
    if isinstance(state, str):
        return _POSTGRESQL.get(state) or _POSTGRESQL.get(state[:2]) or StoreError
    if module == "psycopg":
        for words, kind in _CONNECT_WORDS.items():
            if words in str(original):
                return kind
        # Also its subclasses: ConnectionTimeout is the error of a server that does not answer.
        is_operational = any(each.__name__ == "OperationalError" for each in type(original).__mro__)
        return StoreUnavailable if is_operational else StoreError
    number = original.args[0] if module == "pymysql" and original.args else None
    if isinstance(number, int):
        known = _MYSQL.get(number)
        if known is not None:
            return known
        return StoreUnavailable if number in _MYSQL_UNAVAILABLE or 2000 <= number < 3000 else StoreError
    if module == "pymysql":
        return StoreUnavailable  # InterfaceError without a number: the connection is gone
    if isinstance(error, OSError):
        return StoreUnavailable
    return StoreError


def translate(error: BaseException, doing: str) -> PubSubError:
    """This library's exception for one of SQLAlchemy or of a driver. ``doing`` names the operation, as a gerund."""
    kind = kind_of(error)
    original = error.orig if isinstance(error, exc.DBAPIError) and error.orig is not None else error
    words = " ".join(str(original).split())[:300]
    if kind is StoreError and getattr(original, "args", (0,))[:1] == (1153,):
        return StoreError(f"{doing} failed: a value is larger than the server's max_allowed_packet; raise it")
    return kind(f"{doing} failed: {_advice(kind, original)} ({words})")


def _advice(kind: type[PubSubError], original: BaseException) -> str:
    advice = _ADVICE.get(kind, _ADVICE[StoreError])
    if isinstance(original, sqlite3.Error):
        return _SQLITE_ADVICE.get(_primary_code(original), advice)
    if isinstance(original, OSError) and original.filename is not None:
        return _FILE_ADVICE
    if any(each in str(original) for each in _TLS_WORDS):
        return _TLS_ADVICE
    return advice


def _primary_code(error: sqlite3.Error) -> int:
    """The code without its detail byte; 0 for an error of Python's module itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Translate exceptions of SQLAlchemy and the drivers that leave this block."""
    try:
        yield
    except FOREIGN as error:
        raise translate(error, doing) from error
