"""The verbs recorded between the begin and the end of a transaction.

The verbs only record. Reading, locking, checking and writing happen together at the end of the block: so locks are held
for as short as possible, and the transaction can be retried after a deadlock without running the user's code twice.
"""

import os
from collections.abc import Callable
from typing import Any, TypeVar, overload

from pubsub_lib.core.limits import check_key, check_name
from pubsub_lib.core.table import Table
from pubsub_lib.errors import ClosedError, InvalidValueError
from pubsub_lib.store import verbs
from pubsub_lib.store.links import Commit
from pubsub_lib.store.tables import Tables
from pubsub_lib.store.verbs import Identity, Operation, Stored
from pubsub_lib.store.writer import Work

T = TypeVar("T")
Read = Callable[[str, str], Stored | None]


def new_nonce() -> int:
    """A random number from 1 to 2**63 - 1, for one transaction. ``secrets.randbelow`` takes twice as long."""
    return int.from_bytes(os.urandom(8), "little") >> 1 or 1


class Transaction:
    """Recorded verbs, for one thread. Values are encoded when a verb is called: later changes to them have no effect.

    Conditions (an object must or must not exist, ``version``) are checked at the end, where AlreadyExists, NotFound or
    VersionMismatch is raised and nothing is written. An invalid argument raises InvalidValueError at once.
    """

    def __init__(self, tables: Tables, read: Read, nonce: int, origin: str) -> None:
        self._tables = tables
        self._read = read
        self._operations: list[Operation] = []
        self._reads: dict[Identity, Stored | None] = {}
        self._origin = origin
        self._open = True
        self.nonce = nonce
        """Identifies the transaction, also before it is committed: ``Store.committed(nonce)``, soon after it."""
        self.commit: Commit | None = None
        """After the block: the commit, or None when nothing changed."""

    def create(self, table: str | Table[Any], key: str, value: object, *, topic: str | None = None) -> None:
        """Write an object that must not exist yet. Without ``topic`` it is on the default topic."""
        name = self._checked(table, key, topic)
        self._operations.append(Operation("create", name, key, self._tables.encode(name, value), topic))

    def update(
        self, table: str | Table[Any], key: str, value: object, *, topic: str | None = None, version: int | None = None
    ) -> None:
        """Merge members into the value of an object that must exist: given ones are replaced, others stay (one level).

        ``version`` must be the current one; ``topic`` moves the object.
        """
        name = self._checked(table, key, topic, version)
        self._operations.append(Operation("update", name, key, self._tables.encode_patch(name, value), topic, version))

    def set(
        self, table: str | Table[Any], key: str, value: object, *, topic: str | None = None, version: int | None = None
    ) -> None:
        """Write the whole value of an object, whether it exists or not.

        ``version`` must be the current one (0: it must not exist). Without ``topic`` an existing object keeps its own.
        Equal bytes on the same topic write and publish nothing.
        """
        name = self._checked(table, key, topic, version)
        self._operations.append(Operation("set", name, key, self._tables.encode(name, value), topic, version))

    def delete(
        self, table: str | Table[Any], key: str, *, version: int | None = None, missing_ok: bool = False
    ) -> None:
        """Remove an object that must exist, unless ``missing_ok``. ``version`` must be the current one."""
        name = self._checked(table, key, None, version)
        self._operations.append(Operation("delete", name, key, None, None, version, missing_ok))

    @overload
    def get(self, table: Table[T], key: str) -> T | None: ...
    @overload
    def get(self, table: str, key: str) -> Any: ...
    def get(self, table: str | Table[Any], key: str) -> Any:
        """The object's value after the verbs recorded so far, or None. Blocks for one query the first time.

        The read is guarded: when another writer changes the object before this transaction is committed, the commit
        raises VersionMismatch and writes nothing (``Store.write`` then runs its function again).
        Raises NotFound, AlreadyExists or VersionMismatch when the verbs recorded so far cannot succeed.
        """
        self._check_open()
        name = self._tables.check(table)
        identity = (name, check_key(key))
        if identity not in self._reads:
            self._reads[identity] = self._read(name, key)
        before = self._reads[identity]
        mine = [operation for operation in self._operations if (operation.table, operation.key) == identity]
        effects = verbs.fold(mine, {identity: before} if before is not None else {}, self._tables.encode)
        value = effects[0].value if effects else (before.value if before is not None else None)
        return None if value is None else self._tables.decode(name, value)

    def _checked(self, table: str | Table[Any], key: str, topic: str | None, version: int | None = None) -> str:
        """Check the arguments of a verb; returns the table's name."""
        self._check_open()
        name = self._tables.check(table)
        check_key(key)
        if topic is not None:
            check_name("topic", topic)
        if version is not None and (type(version) is not int or version < 0):
            raise InvalidValueError(f"the version {version!r} is not a valid position; give an integer from 0")
        return name

    def _check_open(self) -> None:
        if not self._open:
            raise ClosedError("the transaction has ended; begin another one")

    def _end(self, publish: bool = False) -> Work:
        """Close the transaction and return its recorded work. ``publish``: as of :class:`.Work`."""
        self._open = False
        return self._work(publish)

    def _work(self, publish: bool = False) -> Work:
        if not self._reads:
            return Work(tuple(self._operations), {}, self.nonce, self._origin, publish)
        reads = {identity: (0 if stored is None else stored.version) for identity, stored in self._reads.items()}
        return Work(tuple(self._operations), reads, self.nonce, self._origin, publish)
