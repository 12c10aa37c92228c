"""Handlers' threads: one per handler, so that a handler that blocks or raises stops neither the others nor the sync."""

import threading
import time
from collections.abc import Callable, Sequence

import msgspec

from pubsub_lib.arguments import is_coroutine_function
from pubsub_lib.core.events import Event
from pubsub_lib.core.full_sync_order import in_order
from pubsub_lib.core.handler_queue import HandlerPolicy, HandlerQueue, Parked, Selector
from pubsub_lib.core.history_change import HistoryChange, is_barrier, of_event
from pubsub_lib.errors import ClosedError, UsageError, WaitTimeout, described
from pubsub_lib.failpoints import armed, hit
from pubsub_lib.latency import NO_LATENCIES, Latencies, LatencyHistogram
from pubsub_lib.logs import fields, logger
from pubsub_lib.threads.start import start_thread

_log = logger(__name__)

LOG_INTERVAL = 10.0
"""Minimum seconds between two log lines of one kind, retried or parked; a line has the number of those left out."""

Handler = Callable[[Event], object]
"""A controller's callback. The returned value is ignored; an exception makes the event fail."""

HistoryHandler = Callable[[HistoryChange], object]
"""A controller's callback for a change of the store's history."""


class HandlerCounters(msgspec.Struct, frozen=True):
    """Counts of events since the start, by outcome, and of waiting events. ``lag``: wait of the oldest, in seconds.
    ``commit_to_handled``: the time from the commit until a handler returned; only with ``replica_metrics_port``.
    """

    handled: int = 0
    failed: int = 0
    retried: int = 0
    parked: int = 0
    conflated: int = 0
    waiting: int = 0
    lag: float = 0.0
    commit_to_handled: Latencies = NO_LATENCIES


class Handle:
    """One registered handler. Made by :meth:`Handlers.add`; all methods may be called from any thread."""

    def __init__(
        self,
        owner: "Handlers",
        selector: Selector,
        fn: Handler,
        policy: HandlerPolicy,
        name: str,
        on_history_changed: HistoryHandler | None = None,
    ) -> None:
        self.name = name
        self.selector = selector
        self._owner = owner
        self._fn = fn
        self._on_history_changed = on_history_changed
        self._histories = 0
        self._clock = owner.clock
        self._queue = HandlerQueue(policy)
        self._changed = owner.condition()
        self._gone = False
        self._inside: int | None = None
        """The thread that runs the handler now."""
        self._next_log = {False: -float("inf"), True: -float("inf")}  # the last failure's line must not be left out
        self._not_logged = 0
        self._latencies = LatencyHistogram() if owner.measured else None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True) if owner.threaded else None

    def remove(self) -> None:
        """Stop this handler. No call starts after this method returned, also not for a change that was taken before; a
        running call may still end. Does not block. Idempotent; may be called by the handler itself.
        """
        self._owner.forget(self)
        self.stop()
        if self._thread is None:
            self._owner.ended(self)

    def counters(self) -> HandlerCounters:
        """The counters of this handler. Does not block."""
        with self._changed:
            queue = self._queue
            waiting = len(queue)
            lag = queue.lag(self._clock())
            taken = NO_LATENCIES if self._latencies is None else self._latencies.taken()
            return HandlerCounters(
                queue.handled, queue.failures, queue.retried, queue.parked_count, queue.conflated, waiting, lag, taken
            )

    def parked(self) -> list[Parked]:
        """The events that are not retried until a new event of their object arrives. Does not block."""
        with self._changed:
            return self._queue.parked()

    @property
    def initial_done(self) -> bool:
        """True when every initial event is handled or parked."""
        with self._changed:
            return self._queue.initial_left == 0

    # -- for Handlers --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread, if the handlers are threaded. Raises TransportError when the system cannot start it."""
        if self._thread is not None:
            start_thread(self._thread)

    def run_ready(self) -> bool:
        """Without threads: handle one event that is ready, in the calling thread. False: none is ready."""
        with self._changed:
            event = None if self._gone or self._inside is not None else self._queue.next(self._clock())
        if event is not None:
            self._handle(event)
        return event is not None

    def next_time(self) -> float | None:
        """When an event is ready, minus infinity for now; None: not before the next event is pushed."""
        with self._changed:
            return None if self._gone else self._queue.next_time()

    def push(self, events: Sequence[Event], *, initial: bool = False, by_sync: int = 0) -> None:
        """Enqueue the events that this handler selects. The first ``by_sync`` events come from a sync, and are enqueued
        in the handler's own order of tables, if it has one.
        """
        now = self._clock()
        select = self.selector.select
        if by_sync and self.selector.order:
            of_sync = [selected for event in events[:by_sync] if (selected := select(event)) is not None]
            events, by_sync = [*in_order(of_sync, self.selector.order), *events[by_sync:]], len(of_sync)
        with self._changed:
            if self._gone:
                return
            for event in events:
                if (selected := select(event)) is not None:
                    self._queue.push(selected, now, initial=initial, by_sync=by_sync > 0)
                by_sync -= 1
            self._changed.notify_all()

    def push_history(self, change: HistoryChange) -> None:
        """Enqueue the notice that the history changed, if this handler has a callback for it."""
        if self._on_history_changed is None or not change.concerns(self.selector.topic):
            return
        with self._changed:
            if not self._gone:
                self._histories += 1
                self._queue.push(change.as_event(self._histories), self._clock())
                self._changed.notify_all()

    def waiter(self, position: int | None) -> Callable[[float | None], bool]:
        """Mark the events that wait now up to a position. The returned function waits, at most ``timeout`` seconds,
        until they are handled or parked, or the handler is removed; False: timed out.
        """
        with self._changed:
            mark = self._queue.mark(position)

        def wait(timeout: float | None) -> bool:
            with self._changed:
                return self._changed.wait_for(lambda: self._gone or self._queue.passed(mark), timeout)

        return wait

    def wait_initial(self, timeout: float | None) -> bool:
        """Wait until every initial event is handled or parked, or the handler is removed; False: timed out."""
        with self._changed:
            return self._changed.wait_for(lambda: self._gone or self._queue.initial_left == 0, timeout)

    def stop(self) -> None:
        """End the thread after the running call; wake all waiting threads."""
        with self._changed:
            self._gone = True
            self._queue.clear()
            self._changed.notify_all()
        self._owner.announce()

    def join(self, timeout: float | None) -> bool:
        """Wait for the thread's end, unless this is that thread. False: it still runs."""
        if self.is_current() or self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def is_current(self) -> bool:
        """True inside this handler."""
        return self._inside == threading.get_ident()

    # -- the thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._gone:
                    now = self._clock()
                    event = self._queue.next(now)
                    if event is not None:
                        break
                    due = self._queue.next_time()
                    self._changed.wait(None if due is None else max(due - now, 0.0))
                else:
                    break
            self._handle(event)
        self._owner.ended(self)

    def _handle(self, event: Event) -> None:
        error: BaseException | None = None
        self._inside = threading.get_ident()
        try:
            if armed:
                hit("replica.in_handler")
            notice = self._on_history_changed
            if notice is not None and not is_barrier(event):
                notice = None
            if self._gone:  # removed since the event was taken
                return
            if notice is not None:
                notice(of_event(event))
            else:
                self._fn(event)
        except BaseException as raised:  # noqa: BLE001 - SystemExit too: a handler must not end its thread
            error = raised
        finally:
            self._inside = None
        self._answer(event, error)
        if self._thread is None and isinstance(error, KeyboardInterrupt):
            raise error  # it is for the calling thread, which is not the handler's own

    def _answer(self, event: Event, error: BaseException | None) -> None:
        now, text = self._clock(), "" if error is None else described(error)
        with self._changed:
            if error is None:
                self._queue.done(now)
                if self._latencies is not None:
                    self._latencies.observe((event,), time.time())
                parked = None
            else:
                parked = self._queue.failed(now, error, text)
            self._changed.notify_all()
        for watcher in self._owner.watchers:
            watcher()
        if error is not None:
            self._log_failure(event, error, parked is not None, now)

    def _log_failure(self, event: Event, error: BaseException, parked: bool, now: float) -> None:
        if now < self._next_log[parked]:
            self._not_logged += 1
            return
        if is_barrier(event):
            what, end = "the notice that the history changed", "not be retried; later changes follow"
        else:
            what = f"{event.action} of {event.table} {event.key!r} (version {event.version})"
            end = "not be retried until the object changes"
        _log.error(
            "handler %s raised %s on %s and will %s; %d earlier failures were not logged",
            self.name, type(error).__name__, what, end if parked else "be retried", self._not_logged,
            exc_info=error,
            extra=fields(
                handler=self.name, table=event.table, key=event.key, topic=event.topic, version=event.version,
                action=event.action, parked=parked, error=type(error).__name__,
            ),
        )  # fmt: skip
        self._next_log[parked] = now + LOG_INTERVAL
        self._not_logged = 0


class Handlers:
    """All handlers of a replica. ``clock`` is monotonic, in seconds. ``threaded`` False is for tests: events wait until
    :meth:`run_ready` is called. Waiting methods then wait by ``condition``, which may call it. ``measured``: count the
    time from the commit until each handler returned, by the wall clock.

    :meth:`add` and :meth:`push` are called under one lock of the caller (the replica's), so that a new handler misses
    no event between its initial events and the first pushed one. No method calls back into the caller.
    """

    def __init__(
        self,
        policy: HandlerPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
        name: str = "pubsub",
        *,
        threaded: bool = True,
        condition: Callable[[], threading.Condition] = threading.Condition,
        measured: bool = False,
    ) -> None:
        self.clock = clock
        self.threaded = threaded
        self.condition = condition
        self.measured = measured
        self._policy = policy or HandlerPolicy()
        self._name = name
        self._lock = threading.Lock()
        self.watchers: tuple[Callable[[], None], ...] = ()
        """Called, on handlers' threads, when a change was handled or a handler stopped. They must be quick."""
        self._handles: tuple[Handle, ...] = ()  # replaced, never changed: push needs no lock to read it
        self._leaving: tuple[Handle, ...] = ()
        self._removed = HandlerCounters()
        self._made = 0
        self._closed = False

    def add(
        self,
        selector: Selector,
        fn: Handler,
        initial_events: Sequence[Event] = (),
        on_history_changed: HistoryHandler | None = None,
    ) -> Handle:
        """Register a handler and start its thread; it is called for ``initial_events`` first. Does not block.

        Raises UsageError for a value that is not callable or is a coroutine function (which needs an event loop),
        ClosedError after :meth:`close`, TransportError when the system cannot start a thread.
        """
        if not callable(fn):
            raise UsageError(f"the handler {fn!r} is not callable; give a function of one argument, the change")
        if on_history_changed is not None and not callable(on_history_changed):
            raise UsageError(
                f"on_history_changed={on_history_changed!r} is not callable; give a function of one argument"
            )
        for each in (fn, on_history_changed):
            if each is not None and is_coroutine_function(each):
                raise UsageError(
                    f"the handler {each!r} is a coroutine function, which a Replica cannot await; use an AsyncReplica, "
                    "or give a plain function"
                )
        with self._lock:
            if self._closed:
                raise ClosedError("the handlers are closed; make a new replica")
            self._made += 1
            label = getattr(fn, "__qualname__", type(fn).__name__)
            name = f"{self._name}-handler-{self._made}-{label}"
            handle = Handle(self, selector, fn, self._policy, name, on_history_changed)
            handle.push(initial_events, initial=True, by_sync=len(initial_events))
            others = self._handles
            self._handles = (*others, handle)  # before its thread may call it: in_handler looks for it here
            try:
                handle.start()
            except BaseException:
                self._handles = others
                handle.stop()  # another thread that found it meanwhile must not wait for it
                raise
        return handle

    def push(self, events: Sequence[Event], *, initial: bool = False, by_sync: int = 0) -> None:
        """Enqueue events, in chain order, for every handler that selects them. Does not block on handlers; does nothing
        after :meth:`close`. ``initial``: they are of a topic's first sync (see :attr:`initial_done`). ``by_sync``: the
        number of events, from the first on, that come from a full sync or an unsubscribe.
        """
        if events:
            for handle in self._handles:
                handle.push(events, initial=initial, by_sync=by_sync)

    def push_history(self, change: HistoryChange) -> None:
        """Notify the handlers that have a callback for it that the history changed. The caller pushes the resulting
        changes afterwards. Does not block.
        """
        for handle in self._handles:
            handle.push_history(change)

    def listening(self) -> bool:
        """True when there are handlers for an event that is pushed now. Does not block."""
        return bool(self._handles)

    def run_ready(self) -> bool:
        """Without threads: every handler handles one ready event in this thread. False: none was ready."""
        ran = [handle.run_ready() for handle in self._handles]
        return any(ran)

    def next_time(self) -> float | None:
        """When the next event is ready for any handler, as :meth:`Handle.next_time`."""
        return min((at for at in (handle.next_time() for handle in self._handles) if at is not None), default=None)

    @property
    def initial_done(self) -> bool:
        """True when every handler handled, or parked, all its initial events so far."""
        return all(handle.initial_done for handle in self._handles)

    def wait_initial(self, timeout: float | None = None) -> None:
        """Wait for :attr:`initial_done`. Any thread but a handler's. Raises WaitTimeout, UsageError,
        ClosedError.
        """
        self.refuse_handlers("wait_initial")
        self._wait([(handle, handle.wait_initial) for handle in self._handles], timeout, "its initial events")

    def wait_handled(self, position: int | None = None, timeout: float | None = None) -> None:
        """Wait until every event up to a position that was pushed so far is handled or parked (None: every event).

        Any thread but a handler's, which would wait for itself (UsageError). Blocks up to ``timeout`` seconds (None: no
        limit), then raises WaitTimeout. ClosedError when closed before or meanwhile. Removed handlers do not count.
        """
        self.refuse_handlers("wait_handled")
        what = "every event" if position is None else f"the events up to position {position}"
        self._wait([(handle, handle.waiter(position)) for handle in self._handles], timeout, what)

    def announce(self) -> None:
        """Call the watchers after an event that may end a wait. Called by a handle."""
        for watcher in self.watchers:
            watcher()

    def handled_later(self, position: int | None = None) -> Callable[[], bool]:
        """Mark the events that wait now up to a position (None: all). The returned function does not block; it returns
        whether they are handled or parked, and raises ClosedError when the handlers were closed.
        """
        waits = [handle.waiter(position) for handle in self._handles]

        def done() -> bool:
            handled = all(wait(0.0) for wait in waits)
            if self._closed:
                raise ClosedError("the handlers were closed, waiting events were not handled; make a new replica")
            return handled

        return done

    def counters(self) -> HandlerCounters:
        """The sums over all handlers, removed ones included; ``lag`` is the maximum. Any thread, does not block."""
        with self._lock:
            total, handles = self._removed, (*self._handles, *self._leaving)
        for handle in handles:
            total = _sum(total, handle.counters())
        return total

    def parked(self) -> list[tuple[str, Parked]]:
        """(handler's name, event and error) of all parked events. Any thread, does not block."""
        return [(handle.name, parked) for handle in self._handles for parked in handle.parked()]

    def forget(self, handle: Handle) -> None:
        """Remove a handler; its counters stay in the sums. Idempotent; called by :meth:`Handle.remove`."""
        with self._lock:
            if handle in self._handles:
                self._handles = tuple(other for other in self._handles if other is not handle)
                self._leaving = (*self._leaving, handle)

    def ended(self, handle: Handle) -> None:
        """Add the final counters of a removed handler, whose thread ended. Called by that thread."""
        with self._lock:
            if handle in self._leaving:
                self._leaving = tuple(other for other in self._leaving if other is not handle)
                last = handle.counters()
                self._removed = _sum(self._removed, msgspec.structs.replace(last, waiting=0, lag=0.0))

    def close(self, timeout: float = 2.0) -> bool:
        """Stop every handler; waiting events are dropped. Idempotent, from any thread, a handler's own included.

        Waits up to ``timeout`` seconds for running calls. False: one of them still runs (in a daemon thread, which ends
        with that call).
        """
        with self._lock:
            self._closed = True
            handles = self._handles
        for handle in handles:
            handle.stop()
        end = time.monotonic() + timeout
        ended = [handle.join(max(end - time.monotonic(), 0.0)) for handle in handles]
        return all(ended)

    def in_handler(self) -> bool:
        """True in a handler's own thread. Does not block."""
        return any(handle.is_current() for handle in self._handles)

    def refuse_handlers(self, what: str) -> None:
        """Raises UsageError in a handler's own thread, where ``what`` would wait for itself. Does not block."""
        if self.in_handler():
            raise UsageError(f"{what} was called by a handler, which would wait for itself; call it elsewhere")

    def _wait(
        self, waits: list[tuple[Handle, Callable[[float | None], bool]]], timeout: float | None, what: str
    ) -> None:
        end = None if timeout is None else self.clock() + timeout
        for handle, wait in waits:
            if not wait(None if end is None else max(end - self.clock(), 0.0)):
                waiting = handle.counters().waiting
                raise WaitTimeout(
                    f"handler {handle.name} did not handle {what} in time ({waiting} wait); "
                    "wait longer or make the handler faster"
                )
        if self._closed:
            raise ClosedError("the handlers were closed, waiting events were not handled; make a new replica")


def _sum(one: HandlerCounters, other: HandlerCounters) -> HandlerCounters:
    return HandlerCounters(
        one.handled + other.handled,
        one.failed + other.failed,
        one.retried + other.retried,
        one.parked + other.parked,
        one.conflated + other.conflated,
        one.waiting + other.waiting,
        max(one.lag, other.lag),
        one.commit_to_handled + other.commit_to_handled,
    )
