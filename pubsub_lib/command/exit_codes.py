"""The exit codes of all three commands. They are stable: scripts depend on them (docs/cli.md).

``pubsub-audit`` gives verdicts as a sum of the bits 1 to 32 (:mod:`pubsub_lib.audit.report.summary`), so its codes 1 to
63 are verdicts. Its usage error is :data:`AUDIT_USAGE`; the codes from 70 on are the same as elsewhere.
"""

from typing import Final

from pubsub_lib.errors import ConditionFailed, NotSubscribedError, PubSubError, StoreError, TransportError, WaitTimeout

OK: Final = 0
NEGATIVE: Final = 1
"""Negative result: not found, exists already, another version, a difference, or the user answered "no"."""
USAGE: Final = 2
"""The command line, the INI file, the URL or a value is invalid. Nothing was done."""
UNREACHABLE: Final = 3
"""A publisher, a service or a replica could not be reached, or did not answer in time."""
STORE: Final = 4
"""The database cannot be used: unreachable, read-only, full, locked, or its tables are missing or other ones."""
FILE: Final = 5
"""A file or the output cannot be read or written, or the file holds a broken line."""
AUDIT_USAGE: Final = 64
"""The command line or the INI file of ``pubsub-audit`` is wrong (``EX_USAGE``)."""
INTERNAL_ERROR: Final = 70
"""An internal error: a fault of the program itself (``EX_SOFTWARE``)."""
INTERRUPTED: Final = 130
"""Ctrl-C (128 + SIGINT)."""
CLOSED_PIPE: Final = 141
"""The reader of the output closed it (128 + SIGPIPE), as ``head`` does."""
TERMINATED: Final = 143
"""SIGTERM (128 + SIGTERM)."""


class FileError(PubSubError):
    """A file of the user cannot be read or written, or its content is invalid."""


class Declined(PubSubError):
    """The user answered "no"."""


_CODES: Final[tuple[tuple[type[PubSubError], int], ...]] = (
    (FileError, FILE),
    (Declined, NEGATIVE),
    (ConditionFailed, NEGATIVE),  # before StoreError, which is its base class
    (StoreError, STORE),
    (TransportError, UNREACHABLE),
    (WaitTimeout, UNREACHABLE),
    (NotSubscribedError, NEGATIVE),
    (PubSubError, USAGE),
)


def code_of(error: PubSubError) -> int:
    """The exit code for an error that ended a command."""
    return next(code for kind, code in _CODES if isinstance(error, kind))
