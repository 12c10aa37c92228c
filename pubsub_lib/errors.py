"""Every error class of this library, and the text of any error.

::

    PubSubError
    ├── UsageError                the call is invalid; a retry fails in the same way
    │   ├── ConfigError           an option, a settings value or a URL is invalid
    │   ├── DriverError           a driver is unknown, not installed, or lacks a capability
    │   ├── InvalidValueError     a table, key, topic or value breaks a limit or its type
    │   ├── NotSubscribedError    a topic, table or index that this replica does not hold
    │   ├── NotStarted            the object was not started yet
    │   └── ClosedError           the object was closed
    ├── PeerError                 received or read data that cannot be decoded
    │   ├── FrameError            one frame: truncated, oversized, foreign, or of another major version
    │   └── JournalError          a journal's file is invalid, truncated, or of a newer schema
    ├── TransportError            a driver could not send or receive
    │   └── HandoffRejectedError  committed, but not handed over: the buffer to the publisher service is full
    ├── WaitTimeout               a wait timed out
    └── StoreError                the database
        ├── StoreUnavailable      unreachable, disconnected, or not answering in time
        ├── StoreReadOnly         the database refuses writes
        ├── StoreFull             no space left on the database's disk
        ├── StoreBusy             locked by others until the last retry
        ├── OutcomeUnknown        unknown whether a transaction is committed: COMMIT's answer was lost, or it is too old
        ├── HistoryChanged        a transaction that was committed is not in the store's history any more
        ├── SchemaError           tables missing, newer than this library, or another program's
        └── ConditionFailed       an operation's condition was not met; nothing was written
            ├── AlreadyExists
            ├── NotFound
            └── VersionMismatch

Exceptions of other libraries (SQLAlchemy, ZeroMQ, msgspec) are translated where they enter, with the original as
``__cause__``. A message is one sentence: what failed, the value, and what to do.
"""

from typing import Any


class PubSubError(Exception):
    """Root of all errors of this library."""


class UsageError(PubSubError):
    """The call is invalid in this state or with these arguments. A retry fails in the same way."""


class ConfigError(UsageError):
    """An option, a settings value or a URL is invalid."""


class DriverError(UsageError):
    """A driver is unknown, its extra is not installed, or it lacks a capability that is needed."""


class InvalidValueError(UsageError):
    """A table, key, topic or value breaks a limit or does not fit its declared type."""


class NotSubscribedError(UsageError):
    """A topic, table or index was named that this replica does not hold."""


class NotStarted(UsageError):
    """The object was not started yet and cannot answer. Call ``start()`` first, or use ``with``."""


class ClosedError(UsageError):
    """The object was closed before, or while, this was called."""


class PeerError(PubSubError):
    """Received or read data cannot be decoded. Such data is counted and dropped; it never reaches a controller."""


class FrameError(PeerError):
    """One frame is truncated, oversized, foreign, or of another major wire version.

    ``reason`` is a short stable word for counters: ``truncated``, ``oversized``, ``version``, ``foreign``.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason

    def __reduce__(self) -> tuple[type["FrameError"], tuple[str, str]]:
        # Exceptions are unpickled from ``args`` alone, so without this a worker process could not return this one.
        return FrameError, (str(self), self.reason)


class JournalError(PeerError):
    """A journal's file, or a folder of them, cannot be read: invalid, truncated, vanished, or of a newer schema."""


class TransportError(PubSubError):
    """A driver could not send or receive."""


class HandoffRejectedError(TransportError):
    """The transaction **is committed**, but was not handed over to the host's publisher service: the buffer to the
    service is full, and the option ``when_full = raise`` is set. Replicas read the changes from the database later.
    """


class WaitTimeout(PubSubError, TimeoutError):
    """A ``wait_…`` call timed out. Its condition may still become true later."""


class StoreError(PubSubError):
    """A database operation failed."""


class StoreUnavailable(StoreError):
    """The database is unreachable, closed the connection, or does not answer in time."""


class StoreReadOnly(StoreError):
    """The database refuses writes (a standby, a read-only file or mount)."""


class StoreFull(StoreError):
    """The database has no disk space left."""


class StoreBusy(StoreError):
    """Other transactions held a lock, or caused deadlocks, until the last retry."""


class OutcomeUnknown(StoreError):
    """It is unknown whether a transaction is committed: the connection was lost during COMMIT, and the store could not
    be queried for the outcome. From ``Replica.wait_for``: the changelog was trimmed beyond the transaction, or the
    replica has no database to query.

    ``nonce`` identifies the transaction, and ``position`` is the one that it would have; None when that is unknown.
    ``Store.committed(nonce, position)`` returns later whether it is committed.
    """

    def __init__(self, message: str, nonce: int, position: int | None = None) -> None:
        super().__init__(message)
        self.nonce = nonce
        self.position = position

    def __reduce__(self) -> tuple[type["OutcomeUnknown"], tuple[str, int, int | None]]:
        return OutcomeUnknown, (str(self), self.nonce, self.position)  # see FrameError


class HistoryChanged(StoreError):
    """A transaction that was committed is not in the store's history any more: the database was restored from a backup,
    failed over to a standby that lagged, or lost commits that it had acknowledged.

    ``point`` is the transaction's :class:`~pubsub_lib.core.model.Point` (its position and nonce).
    """

    def __init__(self, message: str, point: Any) -> None:
        super().__init__(message)
        self.point = point

    def __reduce__(self) -> tuple[type["HistoryChanged"], tuple[str, Any]]:
        return HistoryChanged, (str(self), self.point)  # see FrameError


class SchemaError(StoreError):
    """The tables are missing, newer than this library, or belong to another program."""


class ConditionFailed(StoreError):
    """An operation's condition was not met. The whole transaction wrote nothing."""


class AlreadyExists(ConditionFailed):
    """``create`` of an object that exists."""


class NotFound(ConditionFailed):
    """``update`` or ``delete`` of an object that does not exist."""


class VersionMismatch(ConditionFailed):
    """Compare-and-set: the object's version is not the expected one."""


def described(error: BaseException) -> str:
    """An error's type and message, as in ``"KeyError: 'mac'"``; only the type when the error has no message.

    Does not raise: the message of another program's error is made by a method of that program, which may raise.
    """
    kind = type(error).__name__
    try:
        message = str(error)
        return f"{kind}: {message}" if message else kind
    except BaseException:  # noqa: BLE001 - SystemExit too: the caller is handling an error already
        return kind
