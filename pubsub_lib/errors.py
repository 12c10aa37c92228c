"""Every error that this library raises on purpose.

::

    PubSubError
    ├── UsageError                the caller asked for something that cannot be
    │   ├── ConfigError           an option, a settings value or a URL is wrong
    │   ├── DriverError           a driver is unknown, not installed, or lacks a capability
    │   ├── InvalidValueError     a table, key, topic or value breaks a limit or its type
    │   ├── NotSubscribedError    a topic, table or index that this replica does not hold
    │   ├── NotStarted            the object was not started yet
    │   └── ClosedError           the object was closed
    ├── PeerError                 somebody sent what cannot be understood
    │   ├── FrameError            one frame: truncated, oversized, foreign, or of another major version
    │   └── JournalError          a journal's file is garbage, cut off, or of a newer schema
    ├── TransportError            a driver could not send or receive
    │   └── HandoffRejectedError  committed, but the publisher service takes nothing now, as a writer asked to know
    ├── WaitTimeout               a wait ended before what it waited for
    └── StoreError                the database
        ├── StoreUnavailable      unreachable, gone, or not answering in time
        ├── StoreReadOnly         it refuses writes
        ├── StoreFull             no room left on its disk
        ├── StoreBusy             locked by others beyond every retry
        ├── OutcomeUnknown        whether a transaction is in cannot be told: COMMIT's answer was lost, or it is too old
        ├── HistoryChanged        a transaction that was committed is not in the store's history any more
        ├── SchemaError           tables missing, newer than this library, or somebody else's
        └── ConditionFailed       a verb's condition was violated; nothing was written
            ├── AlreadyExists
            ├── NotFound
            └── VersionMismatch

Foreign exceptions (SQLAlchemy's, ZeroMQ's, msgspec's) are translated where they enter, with the original as
``__cause__``. Messages are one sentence that names the thing, the value and the way out.
"""

from typing import Any


class PubSubError(Exception):
    """Root of all errors of this library."""


class UsageError(PubSubError):
    """The caller asked for something that cannot be; trying again changes nothing."""


class ConfigError(UsageError):
    """An option, a settings value or a URL is wrong."""


class DriverError(UsageError):
    """A driver is unknown, its extra is not installed, or it lacks a capability that is needed."""


class InvalidValueError(UsageError):
    """A table, key, topic or value breaks a limit or does not fit its declared type."""


class NotSubscribedError(UsageError):
    """A topic, table or index was named that this replica does not hold."""


class NotStarted(UsageError):
    """The object was not started yet, so it has nothing to answer with. Call ``start()`` first, or use ``with``."""


class ClosedError(UsageError):
    """The object was closed before, or while, this was called."""


class PeerError(PubSubError):
    """Somebody else sent what cannot be understood. Counted and dropped; never reaches a controller."""


class FrameError(PeerError):
    """One frame is truncated, oversized, foreign, or of another major wire version.

    ``reason`` is a short stable word for counters: ``truncated``, ``oversized``, ``version``, ``foreign``.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason

    def __reduce__(self) -> tuple[type["FrameError"], tuple[str, str]]:
        # Exceptions are unpickled from ``args`` alone, so a worker process could not hand this one over.
        return FrameError, (str(self), self.reason)


class JournalError(PeerError):
    """A journal's file, or a folder of them, cannot be read: garbage, cut off, vanished, or of a newer schema."""


class TransportError(PubSubError):
    """A driver could not send or receive."""


class HandoffRejectedError(TransportError):
    """The transaction **is committed**, but could not be handed to the host's publisher service: the buffer to it is
    full, and the writer had asked to be told (``when_full = raise``). Replicas read it from the database later.
    """


class WaitTimeout(PubSubError, TimeoutError):
    """A ``wait_…`` call ended by its timeout. What it waited for may still come."""


class StoreError(PubSubError):
    """The database could not do what it was asked."""


class StoreUnavailable(StoreError):
    """The database is unreachable, went away, or does not answer in time."""


class StoreReadOnly(StoreError):
    """The database refuses writes (a standby, a read-only file or mount)."""


class StoreFull(StoreError):
    """The database has no room left."""


class StoreBusy(StoreError):
    """Others held a lock, or deadlocks went on, beyond every bounded retry."""


class OutcomeUnknown(StoreError):
    """Nobody can tell whether a transaction is in: the connection was lost during COMMIT and the store could not be
    asked how it ended; or, from ``Replica.wait_for``, the changelog was trimmed behind it.

    ``nonce`` identifies the transaction: ``Store.committed(nonce)`` tells later whether it is in.
    """

    def __init__(self, message: str, nonce: int) -> None:
        super().__init__(message)
        self.nonce = nonce

    def __reduce__(self) -> tuple[type["OutcomeUnknown"], tuple[str, int]]:
        return OutcomeUnknown, (str(self), self.nonce)  # see FrameError


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
    """The tables are missing, newer than this library, or belong to somebody else."""


class ConditionFailed(StoreError):
    """A verb's condition was violated. The whole transaction wrote nothing."""


class AlreadyExists(ConditionFailed):
    """``create`` of an object that exists."""


class NotFound(ConditionFailed):
    """``update`` or ``delete`` of an object that does not exist."""


class VersionMismatch(ConditionFailed):
    """Compare-and-set: the object's version is not the expected one."""
