"""The exit codes of ``pubsub-db``. They are stable: scripts decide by them (docs/cli.md)."""

from typing import Final

from pubsub_lib.errors import ConditionFailed, NotSubscribedError, PubSubError, StoreError, TransportError, WaitTimeout

OK: Final = 0
NOT_SO: Final = 1
"""What was asked for is not so: not found, exists already, another version, a difference, an answer of "no"."""
USAGE: Final = 2
"""The command line, the INI file, the URL or a value is wrong. Nothing was done."""
UNREACHABLE: Final = 3
"""A publisher, a service or a replica could not be reached, or did not answer in time."""
STORE: Final = 4
"""The database cannot be used: unreachable, read-only, full, locked, or its tables are missing or other ones."""
FILE: Final = 5
"""A file or the output cannot be read or written, or the file holds a broken line."""
BROKEN: Final = 70
"""A fault of the program itself (``EX_SOFTWARE``)."""
INTERRUPTED: Final = 130
"""Ctrl-C (128 + SIGINT)."""
CLOSED_PIPE: Final = 141
"""Whoever read the output went away (128 + SIGPIPE), as ``head`` does."""
TERMINATED: Final = 143
"""SIGTERM (128 + SIGTERM)."""


class FileError(PubSubError):
    """A file of the user cannot be read or written, or holds what cannot be understood."""


class Declined(PubSubError):
    """The user answered "no"."""


_CODES: Final[tuple[tuple[type[PubSubError], int], ...]] = (
    (FileError, FILE),
    (Declined, NOT_SO),
    (ConditionFailed, NOT_SO),  # before StoreError, of which it is one
    (StoreError, STORE),
    (TransportError, UNREACHABLE),
    (WaitTimeout, UNREACHABLE),
    (NotSubscribedError, NOT_SO),
    (PubSubError, USAGE),
)


def code_of(error: PubSubError) -> int:
    """The exit code for an error that ended a command."""
    return next(code for kind, code in _CODES if isinstance(error, kind))
