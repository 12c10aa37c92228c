"""A replica for asyncio programs: a thin layer over the threaded one.

Receiving, applying and syncing stay on the replica's own threads. They notify the event loop by
``call_soon_threadsafe``, once for any number of changes, and only while a coroutine waits. This module does not poll,
and never blocks the loop: a call that has to wait for a lock, or that reads many objects, runs on a thread.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar, overload

from pubsub_lib.arguments import check_timeout, is_coroutine_function
from pubsub_lib.constructor_checks import check_settings
from pubsub_lib.core.events import Event
from pubsub_lib.core.history_change import HistoryChange
from pubsub_lib.core.index import Extract
from pubsub_lib.core.objects import Object
from pubsub_lib.core.table import Table
from pubsub_lib.errors import ClosedError, NotStarted, UsageError, WaitTimeout
from pubsub_lib.replica.futures import shielded, submitted
from pubsub_lib.replica.handlers import Handle
from pubsub_lib.replica.inspection_routes import Contents
from pubsub_lib.replica.notifier import Notifier
from pubsub_lib.replica.readback import Committed, check_position, pause_after
from pubsub_lib.replica.replica import OnError, Order, Replica
from pubsub_lib.replica.status import Status
from pubsub_lib.settings import Settings
from pubsub_lib.threads.daemon_calls import DaemonCalls

T = TypeVar("T")
P = ParamSpec("P")

THREADS: Final = 4
"""Number of threads of a replica for calls that may wait for a lock or the driver, and as many for the database."""
CLOSED: Final = "this replica is closed; make a new one"
NOT_STARTED: Final = "this replica was not started; use `async with`, or await start() first"

Running = Coroutine[Any, Any, object]
AsyncHandler = Callable[[Event], Running]
"""A coroutine function. Its exception makes the change fail, as a plain handler's exception does."""

Inbox = asyncio.Queue[tuple[Event, "asyncio.Future[None]"] | None]
"""Holds at most one change, and None at the end."""


class AsyncHandle:
    """A handler that was registered by :meth:`AsyncReplica.on`."""

    def __init__(self, handle: Handle, owner: "AsyncReplica", removed: asyncio.Event) -> None:
        self._handle, self._owner, self._removed = handle, owner, removed

    async def remove(self) -> None:
        """Stop this handler: no call starts after this, a running one goes on. Idempotent. Completed if cancelled."""
        self._removed.set()
        await self._owner._complete(self._handle.remove)


class AsyncReplica:
    """A :class:`~pubsub_lib.Replica` for one event loop: ``async with AsyncReplica(settings, topics) as replica``.

    The arguments are those of Replica. All methods must be called in the loop in which the replica was started. They
    raise the same errors as Replica's methods of the same name, and NotStarted before ``start`` (also when a handler or
    index is added), ClosedError after ``close``. Replica's properties are coroutine methods here:
    ``await replica.topics()``. A cancelled call leaves no handler behind, and no thread but that of a running query;
    ``subscribe``, ``unsubscribe`` and a handler's ``remove`` are completed. ``threaded``: the one for other threads.
    """

    def __init__(self, settings: Settings, topics: Sequence[str] | None = None, **given: Any) -> None:
        check_settings(settings)
        self._make: Callable[[], Replica] = partial(Replica, settings, topics, **given)
        self._replica: Replica | None = None
        self._notifier: Notifier | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._queries = DaemonCalls(THREADS, "pubsub-aio-store")
        """For queries of the database, which may hang: no other call may wait for these, nor the process at its end."""
        self._starting: Future[Replica] | None = None
        self._ending: Future[None] | None = None
        self._closing = False
        self._tasks: set[asyncio.Task[Any]] = set()
        """The running coroutine handlers."""
        self._inboxes: set[Inbox] = set()
        self._holding: dict[Inbox, asyncio.Task[Any]] = {}
        """Iterations whose body runs, with the body's task. One task may be in the bodies of several iterations."""

    # -- life ----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
        failure = None if self._replica is None else self._replica._engine.failure
        if error is None and failure is not None:
            raise failure

    @property
    def threaded(self) -> Replica:
        """The Replica that this object uses, for other threads. Its methods may block."""
        if self._replica is None:
            raise ClosedError(CLOSED) if self._closing else NotStarted(NOT_STARTED)
        return self._replica

    async def start(self) -> None:
        """Subscribe, and sync in the background. Raises as Replica and its ``start`` do; ClosedError when it is closed
        before or meanwhile.
        """
        if self._closing:
            raise ClosedError(CLOSED)
        if self._pool is not None:
            raise UsageError("this replica was started already; make a new one for a second run")
        loop = asyncio.get_running_loop()
        pool = self._pool = ThreadPoolExecutor(THREADS, "pubsub-aio")
        notifier = self._notifier = Notifier(loop)

        def begin() -> Replica:
            replica = self._make()
            replica._engine.watch(notifier.notify)
            replica._handlers.watchers = (notifier.notify,)
            replica.start()  # after an error the replica is closed
            return replica

        self._starting = pool.submit(begin)
        try:
            self._replica = await shielded(self._starting)
            if self._closing:
                raise ClosedError("this replica was closed while it started; make a new one")
        except BaseException:
            self._end()  # __aexit__ is not called when __aenter__ raises
            raise

    async def close(self) -> None:
        """Cancel the running coroutine handlers, end the iterators, then do the same as Replica's ``close``.
        Idempotent: a later call waits for the first, and a call during ``start`` waits for ``start``. Called by a
        coroutine handler, it cancels the others and does not wait.
        """
        self._closing = True
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()
        for inbox in self._inboxes:
            inbox.put_nowait(None)
        ending = self._end()
        if ending is not None and asyncio.current_task() not in self._tasks:
            await shielded(ending)

    def _end(self) -> Future[None] | None:
        """Close the started replica on a thread, once, even if the loop ends. None: it was not started."""
        self._closing = True
        if self._ending is None and self._pool is not None and self._starting is not None:
            # A thread of its own, because the threads of the others may all be waiting.
            pools = ThreadPoolExecutor(1, "pubsub-aio-close"), self._pool
            self._ending = submitted(pools, partial(_close_started, self._starting))
            for pool in pools:
                pool.shutdown(wait=False)
        return self._ending

    # -- topics --------------------------------------------------------------------------------------------------

    async def subscribe(self, *topics: str) -> None:
        """As :meth:`.Replica.subscribe`."""
        await self._complete(self.threaded.subscribe, *topics)

    async def unsubscribe(self, topic: str) -> bool:
        """As :meth:`.Replica.unsubscribe`."""
        return await self._complete(self.threaded.unsubscribe, topic)

    async def topics(self) -> tuple[str, ...]:
        """As :attr:`.Replica.topics`; at once, as ``get``."""
        return await self._look(lambda: self.threaded.topics)

    async def publishers(self) -> tuple[str, ...]:
        """As :attr:`.Replica.publishers`."""
        return self.threaded.publishers

    # -- reading -------------------------------------------------------------------------------------------------

    @overload
    async def get(self, table: Table[T], key: str) -> T | None: ...
    @overload
    async def get(self, table: str, key: str) -> Any: ...
    async def get(self, table: str | Table[Any], key: str) -> Any:
        """As :meth:`.Replica.get`; at once, unless a large change is being applied at this moment."""
        return await self._look(lambda: self.threaded.get(table, key))

    @overload
    async def record(self, table: Table[T], key: str) -> Object[T] | None: ...
    @overload
    async def record(self, table: str, key: str) -> Object[Any] | None: ...
    async def record(self, table: str | Table[Any], key: str) -> Object[Any] | None:
        """As :meth:`.Replica.record`; at once, as ``get``."""
        return await self._look(lambda: self.threaded.record(table, key))

    @overload
    async def records(self, table: Table[T], *, topic: str | None = None) -> list[Object[T]]: ...
    @overload
    async def records(self, table: str | None = None, *, topic: str | None = None) -> list[Object[Any]]: ...
    async def records(self, table: str | Table[Any] | None = None, *, topic: str | None = None) -> list[Object[Any]]:
        """As :meth:`.Replica.records`."""
        replica = self.threaded
        if table is None:
            return await self._call(lambda: replica.records(topic=topic))
        return await self._call(lambda: replica.records(table, topic=topic))

    @overload
    async def iterate(
        self, table: Table[T], *, topic: str | None = None, on_error: OnError = "raise"
    ) -> list[tuple[str, T]]: ...
    @overload
    async def iterate(
        self, table: str, *, topic: str | None = None, on_error: OnError = "raise"
    ) -> list[tuple[str, Any]]: ...
    async def iterate(
        self, table: str | Table[Any], *, topic: str | None = None, on_error: OnError = "raise"
    ) -> list[tuple[str, Any]]:
        """(key, value) of all objects of a table, at one moment, decoded: as :meth:`.Replica.iterate`."""
        return await self._call(lambda: list(self.threaded.iterate(table, topic=topic, on_error=on_error)))

    @overload
    async def add_index(self, name: str, table: Table[T], by: Callable[[T], Any] | str) -> None: ...
    @overload
    async def add_index(self, name: str, table: str, by: Extract) -> None: ...
    async def add_index(self, name: str, table: str | Table[Any], by: Extract) -> None:
        """As :meth:`.Replica.add_index`."""
        await self._call(lambda: self.threaded.add_index(name, table, by))

    async def lookup(self, index: str, value: object) -> list[tuple[str, Any]]:
        """As :meth:`.Replica.lookup`."""
        return await self._call(self.threaded.lookup, index, value)

    async def synced(self) -> bool:
        """As :attr:`.Replica.synced`, False also before the start; at once, as ``get``."""
        return False if self._is_new else await self._look(lambda: self.threaded.synced)

    async def staleness(self) -> float:
        """As :meth:`.Replica.staleness`, infinite also before the start; at once, as ``get``."""
        return float("inf") if self._is_new else await self._look(self.threaded.staleness)

    async def contents(self, topic: str) -> Contents:
        """As :meth:`.Replica.contents`."""
        return await self._call(self.threaded.contents, topic)

    async def resync(self, *topics: str) -> None:
        """As :meth:`.Replica.resync`."""
        await self._call(self.threaded.resync, *topics)

    async def status(self) -> Status:
        """As :meth:`.Replica.status`."""
        return await self._call(self.threaded.status)

    # -- handlers ------------------------------------------------------------------------------------------------

    async def on(
        self,
        table: str | Table[Any] | Order | None,
        handler: AsyncHandler | Callable[[Event], object],
        *,
        topic: str | None = None,
        key: str | None = None,
        order: Order = (),
        on_history_changed: Callable[[HistoryChange], object] | None = None,
    ) -> AsyncHandle:
        """As :meth:`.Replica.on`. A coroutine function runs in the event loop, one change at a time. Changes that wait
        meanwhile are bounded and conflated. A plain function runs on a thread.

        A handler that raises, or whose task is cancelled, is called again. ``close`` cancels the running handlers.
        """
        removed = asyncio.Event()
        chosen = self._in_loop(handler, removed) if is_coroutine_function(handler) else handler
        pool = self._open_pool()
        notice = on_history_changed
        if notice is not None and is_coroutine_function(notice):
            notice = self._in_loop(notice, removed)
        given: dict[str, Any] = {"topic": topic, "key": key, "order": order, "on_history_changed": notice}
        adding = pool.submit(partial(self.threaded.on, table, chosen, **given))
        try:
            return AsyncHandle(await shielded(adding), self, removed)
        except asyncio.CancelledError:
            removed.set()
            if not self._closing:  # ``close`` ends every handler, and the pool takes no more work
                pool.submit(_remove_added, adding)
            raise

    async def changes(
        self,
        table: str | Table[Any] | Order | None = None,
        *,
        topic: str | None = None,
        key: str | None = None,
        order: Order = (),
    ) -> AsyncGenerator[Event, None]:
        """Every change, as an async iterator: first the existing objects, as creates. Ends at ``close``. The parameters
        are those of ``on``.

        A change counts as handled when the next one is requested, or the iterator ends. Changes that wait meanwhile are
        bounded and conflated, as for a handler. When the body raises, no change is repeated: start a new iterator.
        """
        inbox: Inbox = asyncio.Queue()
        handle: AsyncHandle | None = None
        over = False

        async def hand_over(event: Event) -> None:
            if over:  # the iteration has ended, and the handler is removed as soon as a thread is free
                return
            taken = asyncio.get_running_loop().create_future()
            inbox.put_nowait((event, taken))
            await taken

        try:
            handle = await self.on(table, hand_over, topic=topic, key=key, order=order)
            self._inboxes.add(inbox)
            while not self._closing and (item := await inbox.get()) is not None:
                event, taken = item
                task = asyncio.current_task()  # at each change: another task may request the next one
                assert task is not None
                self._holding[inbox] = task
                try:
                    yield event
                finally:
                    del self._holding[inbox]
                    _settle(taken)
        finally:
            over = True  # before the inbox is emptied, so that no change is added after that
            self._inboxes.discard(inbox)
            while not inbox.empty():
                left = inbox.get_nowait()
                if left is not None:
                    _settle(left[1])
            if handle is not None and not self._closing:
                await handle.remove()

    def _in_loop(self, handler: Callable[[T], Running], removed: asyncio.Event) -> Callable[[T], None]:
        """The handler as a function for its thread, which waits until the coroutine has ended."""
        loop = asyncio.get_running_loop()

        async def call(event: T) -> None:
            task = asyncio.current_task()
            assert task is not None
            if self._closing or removed.is_set():  # checked here: its thread may have taken the change before
                return
            self._tasks.add(task)
            try:
                await handler(event)
            except asyncio.CancelledError:
                if not self._closing:
                    raise
            finally:
                self._tasks.discard(task)

        def wait(event: T) -> None:
            coroutine = call(event)
            try:
                running = asyncio.run_coroutine_threadsafe(coroutine, loop)
            except RuntimeError:  # the loop was closed before the replica
                coroutine.close()
                raise
            running.result()

        wait.__qualname__ = getattr(handler, "__qualname__", type(handler).__name__)  # for the log
        return wait

    # -- waiting -------------------------------------------------------------------------------------------------

    async def wait_synced(self, timeout: float | None = None) -> None:
        """As :meth:`.Replica.wait_synced`."""
        check_timeout(timeout)
        self._refuse_handlers("wait_synced")
        await self._wait(lambda: _ended(lambda: self.threaded.wait_synced(0.0)), timeout, self.threaded.wait_synced)

    async def wait_for(
        self, position: int | Committed | None, timeout: float | None = None, *, topics: Sequence[str] | None = None
    ) -> None:
        """As :meth:`.Replica.wait_for`: read your own write. None (the commit of a transaction that changed nothing)
        does not wait.
        """
        check_timeout(timeout)
        if position is None:
            self.threaded._check()
            return
        replica, loop = self.threaded, asyncio.get_running_loop()
        readback = replica._readback(position, topics)
        until = None if timeout is None else loop.time() + timeout

        def look(seconds: float) -> None:
            replica._read_back(readback, replica._deadline(seconds))

        while True:
            left = None if until is None else until - loop.time()
            await self._wait(lambda: _ended(lambda: look(0.0)), left, look)
            if readback.question is None:
                return
            self._open_pool()  # raises after close
            if (error := await asyncio.wrap_future(self._queries.submit(readback.ask))) is not None:
                await asyncio.sleep(pause_after(error, None if until is None else until - loop.time()))

    async def wait_handled(
        self, position: int | Committed | None, timeout: float | None = None, *, topics: Sequence[str] | None = None
    ) -> None:
        """As :meth:`.Replica.wait_handled`; UsageError also in a coroutine handler, and in the body of an iteration.
        None does not wait, as in ``wait_for``.
        """
        check_timeout(timeout)
        check_position(position)
        self._refuse_handlers("wait_handled")
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        await self.wait_for(position, timeout, topics=topics)
        if position is None:
            return
        number = position if isinstance(position, int) else position.point.position
        handlers = self.threaded._handlers
        handled = await self._call(handlers.handled_later, number)
        left = None if until is None else until - loop.time()
        await self._wait(handled, left, lambda seconds: handlers.wait_handled(number, seconds))

    async def _wait(self, done: Callable[[], bool], timeout: float | None, fail: Callable[[float], None]) -> None:
        """Wait for ``done``, which is quick; after ``timeout`` seconds call ``fail``, which raises the error."""
        assert self._notifier is not None
        try:
            async with asyncio.timeout(timeout):
                with self._notifier.listening() as notified:
                    while True:
                        notified.clear()
                        if await self._look(done):
                            return
                        await notified.wait()
        except TimeoutError:
            await self._look(fail, 0.0)

    def _refuse_handlers(self, what: str) -> None:
        task = asyncio.current_task()
        if task in self._tasks or task in self._holding.values():
            raise UsageError(
                f"{what} was called by a handler, which would wait for itself; call it in another task, and do not "
                "await that task in the handler"
            )

    # -- calls ---------------------------------------------------------------------------------------------------

    async def _look(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a quick function that needs the replica's lock: here when the lock is free, else on a thread."""
        found = self.threaded._engine.call_if_free(partial(fn, *args, **kwargs))
        return await self._call(fn, *args, **kwargs) if found is None else found[0]

    async def _call(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that may block, on a thread."""
        pool = self._open_pool()
        return await asyncio.get_running_loop().run_in_executor(pool, partial(fn, *args, **kwargs))

    async def _complete(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As ``_call``; the function is also called when the caller is cancelled."""
        return await shielded(self._open_pool().submit(partial(fn, *args, **kwargs)))

    @property
    def _is_new(self) -> bool:
        """Neither started nor closed."""
        return self._replica is None and not self._closing

    def _open_pool(self) -> ThreadPoolExecutor:
        if self._closing:
            raise ClosedError(CLOSED)
        if self._pool is None:
            raise NotStarted(NOT_STARTED)
        return self._pool


def _ended(wait: Callable[[], None]) -> bool:
    """Whether a wait with timeout 0 succeeds."""
    try:
        wait()
    except WaitTimeout:
        return False
    return True


def _settle(taken: "asyncio.Future[None]") -> None:
    if not taken.done():
        taken.set_result(None)


def _close_started(starting: Future[Replica]) -> None:
    """Wait for the end of ``start``, and close the replica."""
    if starting.exception() is None:  # after a failed start the replica is closed already
        starting.result().close()


def _remove_added(adding: Future[Handle]) -> None:
    """Remove a handler whose ``on`` was cancelled."""
    if adding.exception() is None:
        adding.result().remove()
