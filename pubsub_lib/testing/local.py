"""A store and its replicas for tests of programs that use this library: without servers, threads and real waits.

::

    def test_a_port_is_programmed():
        with Local() as local:
            switch = FakeSwitch()
            Controller(local.replica(["tenant-1"]), switch)         # the production code
            with local.store.transaction() as tx:
                tx.set("lport", "p1", {"switch": "s1"}, topic="tenant-1")
            local.flush()                                           # committed = applied and handled
            assert switch.ports == {"p1"}

Store, changelog, codec, tracker, cache, and the queues of the handlers are those of production. The differences: the
database is a SQLite file, in memory where the system offers that; messages are passed directly instead of sent; and the
clock moves only while a thread waits (:mod:`.local_time`). So handlers run inside ``flush`` and the waiting methods, in
the calling thread, and each run of a test does the same, with or without faults (``loss``).
"""

import os
import random
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from pubsub_lib.arguments import check_timeout
from pubsub_lib.core.handler_queue import HandlerPolicy
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, Heads
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.core.table import Declared, TableTypes
from pubsub_lib.core.timing import Timing
from pubsub_lib.errors import WaitTimeout
from pubsub_lib.fault_injection import PERFECT, Loss
from pubsub_lib.replica.replica import Replica
from pubsub_lib.settings import Settings
from pubsub_lib.store import Store
from pubsub_lib.testing.local_time import LocalScheduler, LocalTime
from pubsub_lib.testing.local_wire import LocalSubscriber, LocalWire

PATIENCE: Final = 600.0
"""Seconds of the local clock after which a wait without a timeout ends, usually because of an error in the test."""
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - only for private folders
"""Linux's in-memory file system, for the temporary folder."""


class LocalReplica(Replica):
    """A :class:`~pubsub_lib.Replica` without threads, for the code under test. Made by :meth:`Local.replica`.

    It works only inside :meth:`Local.flush`, :meth:`Local.advance` and its own ``wait_…`` methods. These move the local
    clock, so that a timeout of an hour takes no time; without a timeout they end after ``PATIENCE``.
    """

    def __init__(self, time: LocalTime, subscriber: LocalSubscriber, settings: Settings, **given: Any) -> None:
        self._time = time
        self.subscriber = subscriber
        """For ``set_loss``, and for the counters of received and lost messages."""
        super().__init__(settings, subscriber=subscriber, **given)

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    def run(self, now: float) -> bool:
        """Let every handler handle one change, if one is ready; return whether any did."""
        return self._handlers.run_ready()

    def next_time(self) -> float:
        """The time of the next retry of a handler."""
        at = self._handlers.next_time()
        return float("inf") if at is None else at

    def start(self) -> None:
        """See :meth:`.Replica.start`."""
        super().start()
        self._time.add(self)

    def close(self) -> None:
        """See :meth:`.Replica.close`."""
        self._time.remove(self)
        super().close()

    def lacks(self, heads: Heads) -> str:
        """Return what this replica must still apply or handle to reach these heads of the store; "" for nothing."""
        lacking = self._engine.read(self._not_applied, heads)
        waiting = 0 if lacking else self._handlers.counters().waiting
        return f"its handlers have {waiting} changes to handle" if waiting else lacking

    def _not_applied(self, state: ReplicaState, heads: Heads) -> str:
        if self._engine.failure is not None:
            raise self._engine.failure
        tracker, why = state.tracker, self._engine.sync_failures.why()
        if tracker.topics and not tracker.synced:
            return f"it is not synced{why}"
        for topic in tracker.topics:
            head = heads.store if topic == ALL else heads.topics[topic].point if topic in heads.topics else None
            known = tracker.chain(topic).known
            if head is not None and (known is None or known.position < head.position):
                return f"it knows {topic or 'everything'!r} up to {known}, not to {head}{why}"
        return ""

    def refuse_handlers(self, what: str) -> None:
        """Raises UsageError in a handler of this replica."""
        self._handlers.refuse_handlers(what)

    @property
    def given_up(self) -> int:
        """The number of changes that handlers gave up so far."""
        return self._handlers.counters().parked

    def raised(self) -> list[tuple[str, BaseException]]:
        """(handler's name and object, error) of every change that handlers gave up, oldest first."""
        return [
            (f"{name} on {parked.event.action} of {parked.event.table} {parked.event.key!r}", parked.error)
            for name, parked in self._handlers.parked()
        ]

    def _make_scheduler(self) -> LocalScheduler:
        return LocalScheduler(self._time)

    def _deadline(self, timeout: float | None) -> float:
        check_timeout(timeout)
        return self._time.now() + (PATIENCE if timeout is None else timeout)


class Local:
    """A store and its replicas in one test. A context manager, for one thread; but any thread may write to the store.

    ``tables``: types of tables, for the store and the replicas. ``loss``: faults of the link to each replica, with
    random choices from ``seed``. ``timing``, ``handling``, ``limits``: as in :class:`~pubsub_lib.Settings`, with the
    defaults of production, because a wait takes no time here. Blocks for about 20 ms, to create the database.
    """

    def __init__(
        self,
        *,
        tables: Declared | None = None,
        loss: Loss = PERFECT,
        seed: int = 0,
        timing: Timing = Timing(),  # noqa: B008 - frozen, as the next two
        handling: HandlerPolicy = HandlerPolicy(),  # noqa: B008
        limits: Limits = Limits(),  # noqa: B008
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="pubsub-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None))
        with ExitStack() as undo:
            undo.callback(shutil.rmtree, self._folder, ignore_errors=True)
            self._tables = TableTypes(tables).types
            self._loss = loss
            self._rng = random.Random(seed)
            self._time = LocalTime()
            self._replicas: list[LocalReplica] = []
            self._reported: dict[int, int] = {}
            self.settings = Settings(
                store_url=f"sqlite:///{self._folder / 'store.sqlite'}",
                service_name="local",
                timing=timing,
                handling=handling,
                limits=limits,
                paranoid=True,
            )
            """The settings of the replicas. Another program or thread may open ``settings.store_url``, too."""
            self.store = Store(self.settings, tables=tables)
            """A real store, with all functions of production."""
            undo.callback(self.store.close)
            self._wire = LocalWire(self.settings, self.store, self._time, self._rng)
            undo.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the replicas and the store, and remove the database. Idempotent."""
        for replica in self._replicas:
            replica.close()
        self.store.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def now(self) -> float:
        """Seconds of the local clock since the start."""
        return self._time.now()

    def replica(
        self,
        topics: Sequence[str] | None = None,
        *,
        tables: Declared | None = None,
        default_topic: bool = True,
    ) -> LocalReplica:
        """Make and start a replica of these topics (None: of everything). It is closed with this object at the latest.
        ``default_topic``: as in :class:`~pubsub_lib.Replica`.
        """
        replica = LocalReplica(
            self._time,
            LocalSubscriber(self._wire, self._loss, random.Random(self._rng.getrandbits(64))),
            self.settings,
            topics=(ALL,) if topics is None else topics,
            tables=self._tables if tables is None else tables,
            default_topic=default_topic,
            store=self.store,
            rng=random.Random(self._rng.getrandbits(64)),
        )
        self._replicas.append(replica)
        replica.start()
        return replica

    def flush(self) -> None:
        """Return when every replica has applied, and every handler has handled, all committed changes, also those that
        handlers commit meanwhile.

        Raises the exception of a handler that gave a change up (after the tries of ``handling``), once; WaitTimeout,
        with the reason, after ``PATIENCE`` seconds of the local clock; and UsageError inside a handler.
        """
        self._refuse_handlers()
        until = self.now + PATIENCE
        heads = self.store.read_heads([ALL])
        while True:
            lacking = next((what for replica in self._open() if (what := replica.lacks(heads))), "")
            if not lacking:
                latest = self.store.read_heads([ALL])
                if latest.store == heads.store:
                    break
                heads = latest
            elif self.now >= until:
                raise WaitTimeout(f"a replica did not catch up in {PATIENCE} s of the local clock: {lacking}")
            else:
                self._time.step(until - self.now)
        self._raise_handler_errors()

    def advance(self, seconds: float) -> None:
        """Move the local clock by ``seconds``, and do all work that is due meanwhile: hellos, retries, polling."""
        self._refuse_handlers()
        until = self.now + seconds
        while self.now < until:
            self._time.step(until - self.now)

    def set_loss(self, loss: Loss) -> None:
        """Change the faults of every replica's link. ``Loss(drop=1.0)`` cuts the network."""
        self._loss = loss
        for replica in self._open():
            replica.subscriber.set_loss(loss)

    def _open(self) -> list[LocalReplica]:
        return [replica for replica in self._replicas if not replica.closed]

    def _refuse_handlers(self) -> None:
        for replica in self._open():
            replica.refuse_handlers("flush or advance")

    def _raise_handler_errors(self) -> None:
        for number, replica in enumerate(self._replicas):
            raised = replica.raised()
            given_up = replica.given_up
            new = given_up - self._reported.get(number, 0)
            self._reported[number] = given_up
            if new and raised:
                what, error = raised[-min(new, len(raised))]
                error.add_note(
                    f"raised by the handler {what}, after {self.settings.handling.tries} tries; changes given up: {new}"
                )
                raise error
