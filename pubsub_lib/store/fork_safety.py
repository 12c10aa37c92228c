"""Forks with SQLite: at a fork no thread may be inside SQLite, and no connection may be open.

SQLite keeps its locks on files in tables of the process. A fork copies these tables, with the locks that other threads
hold at that moment, and no thread of the child would ever release those. Therefore a fork waits until every store's
connections are returned, closes them, and keeps the gates shut until it is done; both processes open new connections.
"""

import logging
import os
import threading
import weakref
from collections import Counter
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, cast

from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection, QueuePool

if TYPE_CHECKING:
    from sqlalchemy.pool.base import _ConnectionRecord

from pubsub_lib.logs import logger

_log = logger(__name__)

_TRIES: Final = 2
"""Connections that are tried for one transaction, as SQLAlchemy does."""


class ForkGate:
    """The gate to one store's connections. Threads enter and leave; a fork shuts the gate. Safe from any thread.

    A fork by a thread that is inside the gate cannot wait for that thread: it does not wait at all, and the child may
    find the database locked. A fork waits for other threads at most ``maximum`` seconds, and logs when it gives up.
    """

    def __init__(self, maximum: float) -> None:
        self._maximum = maximum
        self._changed = threading.Condition()
        self._inside: Counter[int] = Counter()
        self._shut = False
        self._pools: weakref.WeakSet[GatedPool] = weakref.WeakSet()
        with _lock:
            _gates.add(self)

    def add(self, pool: "GatedPool") -> None:
        """Close this pool's connections before a fork."""
        self._pools.add(pool)

    def enter(self) -> int:
        """Wait while a fork is going on; returns the argument for :meth:`leave`."""
        me = threading.get_ident()
        with self._changed:
            if self._shut:
                # A thread that is inside already must proceed, or the fork would wait for it until the timeout.
                self._changed.wait_for(lambda: not self._shut or self._inside[me] > 0)
            self._inside[me] += 1
        return me

    def leave(self, who: int) -> None:
        """The thread ``who`` has one connection less."""
        with self._changed:
            self._inside[who] -= 1
            if self._inside[who] <= 0:
                del self._inside[who]
            if self._shut:  # only a fork waits
                self._changed.notify_all()

    def shut(self) -> None:
        """Before a fork: let no thread enter, wait until all have left, and close the connections in the pools."""
        with self._changed:
            if self._inside[threading.get_ident()] > 0:
                return
            self._shut = True
            empty = self._changed.wait_for(lambda: not +self._inside, self._maximum)
        if not empty:
            _log.warning(
                "a fork did not wait longer than %s s for a thread that uses SQLite: the child may find the database "
                "locked for ever; fork before such work begins, or use the start method spawn",
                self._maximum,
            )
            return
        for pool in list(self._pools):
            pool.dispose()

    def open(self) -> None:
        """After a fork, in the parent."""
        with self._changed:
            self._shut = False
            self._changed.notify_all()

    def open_in_child(self) -> None:
        """After a fork, in the child: only this thread exists, and locks of the other threads were never released."""
        me = threading.get_ident()
        self._changed = threading.Condition()
        self._inside = Counter({me: self._inside[me]})
        self._shut = False


class GatedPool(QueuePool):
    """A pool whose connections are opened, used and closed behind a gate, if it has one.

    Besides :meth:`connect`, which SQLAlchemy uses, it lends connections without the wrapper around each of them and the
    rollback at its return, which take as long as a short statement.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._gate: ForkGate | None = None
        self._holders: dict[int, int] = {}

    def join(self, gate: ForkGate) -> None:
        """Use this gate from now on; before the first connection."""
        self._gate = gate
        gate.add(self)

    def recreate(self) -> "GatedPool":
        """An empty pool behind the same gate."""
        fresh = super().recreate()
        assert isinstance(fresh, GatedPool)
        if self._gate is not None:
            fresh.join(self._gate)
        return fresh

    def connect(self) -> PoolProxiedConnection:
        """A connection; waits while a fork is going on."""
        if self._gate is None:
            return super().connect()
        who = self._gate.enter()
        try:
            connection = super().connect()
        except BaseException:
            self._gate.leave(who)
            raise
        self._holders[id(connection._connection_record)] = who
        return connection

    def lend(self) -> ConnectionPoolEntry:
        """A connection, of which the caller must end each transaction, or which it must invalidate; and which it must
        give to :meth:`take_back`. Waits and raises as :meth:`connect`.
        """
        who = None if self._gate is None else self._gate.enter()
        try:
            entry = cast("_ConnectionRecord", self._do_get())
        except BaseException:
            if who is not None and self._gate is not None:
                self._gate.leave(who)
            raise
        if who is not None:
            self._holders[id(entry)] = who
        try:
            self._check(entry)
        except BaseException as error:
            entry._checkin_failed(error, _fairy_was_created=False)
            raise
        return entry

    def take_back(self, entry: ConnectionPoolEntry) -> None:
        """The end of :meth:`lend`."""
        cast("_ConnectionRecord", entry).checkin(_fairy_was_created=False)

    def _check(self, entry: "_ConnectionRecord") -> None:
        """Open the connection if it is not open, and call the listeners of the event ``checkout``."""
        connection = entry.get_connection()
        if not self.dispatch.checkout:
            return
        for left in reversed(range(_TRIES)):
            try:
                self.dispatch.checkout(connection, entry, None)
            except DisconnectionError as error:
                entry.invalidate(error)
                if not left:
                    raise
                connection = entry.get_connection()
            else:
                return

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        # Removed first: once the connection is back in the pool, another thread may enter itself there.
        who = self._holders.pop(id(record), None)
        try:
            super()._do_return_conn(record)
        finally:
            if who is not None and self._gate is not None:
                self._gate.leave(who)


pool_log: Final = logging.getLogger(f"{GatedPool.__module__}.{GatedPool.__qualname__}")
"""The logger that SQLAlchemy uses for our pool. SQLAlchemy sets this level for its own pools, but not by our name."""
if pool_log.level == logging.NOTSET:
    pool_log.setLevel(logging.WARNING)

_lock = threading.RLock()
_gates: weakref.WeakSet[ForkGate] = weakref.WeakSet()
"""Global, because a process has one list of fork handlers, and no handler can be removed."""


def adoption() -> AbstractContextManager[bool]:
    """Held by the thread of a forked child that gives a store new connections. A child begins with it released. The
    parent's connections are kept, untouched: a lock of theirs may be held for ever, by a thread that is not here.
    """
    return _lock


def _before() -> None:
    _lock.acquire()
    for gate in list(_gates):
        gate.shut()


def _after_in_parent() -> None:
    for gate in list(_gates):
        gate.open()
    _lock.release()


def _after_in_child() -> None:
    for gate in list(_gates):
        gate.open_in_child()
    _lock.release()


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
