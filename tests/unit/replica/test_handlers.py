"""Handlers' threads: independent of each other, removable from any thread, and waits for them without polling."""

import functools
import logging
import threading
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest
from _patience import longest
from _processes import poll

from pubsub_lib.core.events import Event
from pubsub_lib.core.handler_queue import HandlerPolicy, Selector, selector
from pubsub_lib.errors import ClosedError, TransportError, UsageError, WaitTimeout
from pubsub_lib.latency import BOUNDS, NO_LATENCIES, Latencies
from pubsub_lib.replica import handlers as module
from pubsub_lib.replica.handlers import Handle, Handlers

LONG = longest(120.0)
"""Seconds; far longer than the waits of these tests, unless something fails."""


def event(key: str, version: int, table: str = "port") -> Event:
    return Event(table, key, "a", "create", version, None, None, b"%d" % version, version)


@pytest.fixture
def handlers() -> Iterator[Handlers]:
    made = Handlers(HandlerPolicy(tries=3, backoff=0.001, max_backoff=0.002))
    yield made
    assert made.close(LONG)


def test_each_handler_is_called_for_its_selected_events_in_order(handlers: Handlers) -> None:
    ports: list[str] = []
    routers: list[str] = []
    handlers.add(selector("port", None, None), lambda e: ports.append(e.key), [event("first", 1)])
    handlers.add(selector("router", None, None), lambda e: routers.append(e.key))
    handlers.push([event("p1", 2), event("r1", 3, "router"), event("p2", 4)])
    handlers.wait_handled(4, LONG)
    assert (ports, routers) == (["first", "p1", "p2"], ["r1"])
    assert handlers.counters().handled == 4
    assert handlers.counters().waiting == 0


def test_handlers_run_off_the_pushing_thread(handlers: Handlers) -> None:
    threads: list[threading.Thread] = []
    handlers.add(Selector(), lambda e: threads.append(threading.current_thread()))
    handlers.push([event("x", 1)])
    handlers.wait_handled(None, LONG)
    assert threads[0] is not threading.current_thread()
    assert threads[0].daemon


def test_a_handler_that_blocks_does_not_stop_others(handlers: Handlers) -> None:
    release, entered = threading.Event(), threading.Event()
    got: list[str] = []

    def block(e: Event) -> None:
        entered.set()
        assert release.wait(LONG)

    blocked = handlers.add(Selector(key="slow"), block)
    handlers.add(Selector(key="quick"), lambda e: got.append(e.key))
    handlers.push([event("slow", 1), event("quick", 2)])
    assert entered.wait(LONG)
    handlers.push([event("quick", 3)])
    with pytest.raises(WaitTimeout, match="block did not handle the events up to position 3 in time"):
        handlers.wait_handled(3, 0.05)
    assert blocked.counters().handled == 0
    assert poll(lambda: got == ["quick", "quick"], LONG)
    release.set()
    handlers.wait_handled(3, LONG)
    assert got == ["quick", "quick"]


def test_a_handler_that_raises_is_retried_parked_counted_and_logged(
    handlers: Handlers, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[str] = []

    def picky(e: Event) -> None:
        tried.append(e.key)
        if e.key == "bad":
            raise SystemExit("even this")

    with caplog.at_level(logging.ERROR):
        handle = handlers.add(Selector(), picky)
        handlers.push([event("bad", 1), event("good", 2)])
        handlers.wait_handled(2, LONG)
    assert sorted(tried) == ["bad", "bad", "bad", "good"]
    counters = handle.counters()
    assert (counters.handled, counters.failed, counters.retried, counters.parked) == (1, 3, 2, 1)
    [(name, parked)] = handlers.parked()
    assert name == handle.name
    assert parked.event.key == "bad"
    assert isinstance(parked.error, SystemExit)
    handlers.push([event("bad", 3)])
    handlers.wait_handled(3, LONG)
    assert handle.counters().parked == 2
    handlers.close(LONG)  # the last lines are written
    # one line of each kind, the others are counted: a handler that always fails must not fill the disk
    assert [record.getMessage().partition("(version 1) ")[2] for record in caplog.records] == [
        "and will be retried; 0 earlier failures were not logged",
        "and will not be retried until the object changes; 1 earlier failures were not logged",
    ]
    assert "'bad'" in caplog.records[0].getMessage()
    fields = {name: value for name, value in vars(caplog.records[0]).items() if name.startswith("pubsub_")}
    assert fields == {
        "pubsub_handler": handle.name,
        "pubsub_table": "port",
        "pubsub_key": "bad",
        "pubsub_topic": parked.event.topic,
        "pubsub_version": 1,
        "pubsub_action": parked.event.action,
        "pubsub_parked": False,
        "pubsub_error": "SystemExit",
    }


def test_a_handler_is_retried_and_parked_although_its_log_line_is_lost(
    handlers: Handlers, lost_lines: list[logging.LogRecord]
) -> None:
    def fail(e: Event) -> None:
        raise ValueError("no")

    def refuse(record: logging.LogRecord) -> bool:
        raise ZeroDivisionError

    log = logging.getLogger(module.__name__)
    log.addFilter(refuse)
    try:
        handle = handlers.add(Selector(), fail)
        handlers.push([event("x", 1), event("y", 2)])
        handlers.wait_handled(2, 10.0)
    finally:
        log.removeFilter(refuse)
    assert handle.counters().parked == 2
    assert lost_lines
    lost_lines.clear()


def test_a_failing_handler_is_logged_again_after_the_interval_with_the_number_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [100.0]
    handlers = Handlers(HandlerPolicy(tries=1), clock=lambda: now[0])

    def fail(e: Event) -> None:
        raise ValueError("no")

    handlers.add(Selector(), fail)
    with caplog.at_level(logging.ERROR):
        for version, now[0] in ((1, 100.0), (2, 101.0), (3, 102.0), (4, 120.0)):
            handlers.push([event("x", version)])
            # the line is written after the answer, before the next event is taken
            handlers.wait_handled(None, LONG)
        handlers.close(LONG)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert "2 earlier failures were not logged" in lines[1]


def test_without_threads_events_wait_for_run_ready() -> None:
    now = [100.0]
    handlers = Handlers(HandlerPolicy(tries=2, backoff=1.0), clock=lambda: now[0], threaded=False)
    called: list[str] = []
    failures = iter([ValueError("not now")])

    def picky(e: Event) -> None:
        called.append(e.key)
        assert handlers.in_handler()
        error = next(failures, None)
        if error is not None:
            raise error

    handle = handlers.add(Selector(), picky)
    assert (handlers.next_time(), handlers.run_ready()) == (None, False)
    handlers.push([event("x", 1), event("y", 2)])
    assert (called, handlers.next_time()) == ([], -float("inf"))
    later = handlers.handled_later(2)
    assert (handlers.run_ready(), handlers.run_ready(), handlers.run_ready()) == (True, True, False)
    assert (called, handlers.next_time(), later()) == (["x", "y"], 101.0, False)
    assert handlers.handled_later(0)()
    now[0] = 101.0
    assert (handlers.run_ready(), called, later()) == (True, ["x", "y", "x"], True)
    assert not handlers.in_handler()
    handle.remove()
    assert handlers.counters().handled == 2
    handlers.close()
    with pytest.raises(ClosedError):
        later()


def test_watchers_are_called_when_an_event_was_handled(handlers: Handlers) -> None:
    go_on, notified = threading.Event(), threading.Semaphore(0)
    handlers.add(Selector(), lambda e: go_on.wait(LONG))
    handlers.push([event("x", 1)])
    later = handlers.handled_later(1)
    handlers.watchers = (notified.release,)
    assert not later()
    go_on.set()
    while not later():
        assert notified.acquire(timeout=LONG)


def test_initial_done_after_all_initial_events_were_handled(handlers: Handlers) -> None:
    release = threading.Event()
    handlers.add(Selector(), lambda e: release.wait(LONG), [event("x", 1), event("y", 2)])
    before = handlers.initial_done
    with pytest.raises(WaitTimeout, match="initial events"):
        handlers.wait_initial(0.02)
    release.set()
    handlers.wait_initial(LONG)
    assert (before, handlers.initial_done) == (False, True)
    handlers.push([event("z", 3)], initial=True)
    handlers.wait_initial(LONG)


def test_initial_done_after_initial_events_were_parked(handlers: Handlers) -> None:
    def fail(e: Event) -> None:
        raise ValueError("no")

    handlers.add(Selector(), fail, [event("x", 1)])
    handlers.wait_initial(LONG)
    assert handlers.initial_done


def test_waits_inside_a_handler_are_refused(handlers: Handlers) -> None:
    errors: list[BaseException] = []

    def wait(e: Event) -> None:
        for call in (handlers.wait_handled, handlers.wait_initial):
            try:
                call()
            except UsageError as error:
                errors.append(error)

    handlers.add(Selector(), wait)
    handlers.push([event("x", 1)])
    handlers.wait_handled(1, LONG)
    assert len(errors) == 2
    assert "by a handler" in str(errors[0])


def test_in_handler_is_true_from_the_first_call(handlers: Handlers, monkeypatch: pytest.MonkeyPatch) -> None:
    inside: list[bool] = []
    called = threading.Event()
    start = Handle.start

    def start_and_let_it_run_first(handle: Handle) -> None:
        start(handle)
        assert called.wait(LONG)

    def note(e: Event) -> None:
        inside.append(handlers.in_handler())
        called.set()

    monkeypatch.setattr(Handle, "start", start_and_let_it_run_first)
    handlers.add(Selector(), note, [event("x", 1)])
    assert inside == [True]


def test_a_handler_whose_thread_cannot_start_is_not_kept(handlers: Handlers, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[Callable[[], bool]] = []

    def refuse(thread: threading.Thread) -> None:
        waits.append(handlers.handled_later())
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(TransportError, match="new thread; raise the limits"):
        handlers.add(Selector(), lambda e: None, [event("x", 1)])
    assert not handlers.listening()
    assert waits[0](), "the waits for it have ended"


def test_remove_from_outside_and_by_the_handler_itself(handlers: Handlers) -> None:
    got: list[int | None] = []
    outside = handlers.add(Selector(), lambda e: None)

    def once(e: Event) -> None:
        got.append(e.version)
        inside.remove()

    inside = handlers.add(Selector(), once)
    handlers.push([event("x", 1), event("y", 2)])
    handlers.wait_handled(2, LONG)
    outside.remove()
    outside.remove()
    handlers.push([event("z", 3)])
    handlers.wait_handled(3, LONG)
    assert got == [1]
    assert outside.counters().handled == 2
    assert inside.join(LONG)
    # The sums include removed handlers: 2 of ``outside``, and 1 of ``inside``, which was running then.
    assert handlers.counters().handled == 3


def test_close_by_a_handler_itself() -> None:
    handlers = Handlers()
    closed = threading.Event()

    def close(e: Event) -> None:
        assert handlers.close(LONG)
        closed.set()

    handle = handlers.add(Selector(), close)
    handlers.push([event("x", 1), event("y", 2)])
    assert closed.wait(LONG)
    assert handle.join(LONG)
    assert handlers.close(LONG)


def test_close_ends_waits_refuses_new_handlers_and_reports_running_calls() -> None:
    handlers = Handlers()
    release, entered = threading.Event(), threading.Event()

    def block(e: Event) -> None:
        entered.set()
        release.wait(LONG)

    handlers.add(Selector(), block)
    handlers.push([event("x", 1), event("y", 2)])
    assert entered.wait(LONG)
    ended: list[BaseException] = []
    waiting = threading.Event()

    def wait() -> None:
        waiting.set()
        try:
            handlers.wait_handled(2, LONG)
        except ClosedError as error:
            ended.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert waiting.wait(LONG)
    assert not handlers.close(0.01)
    waiter.join(LONG)
    assert len(ended) == 1
    handlers.push([event("z", 3)])
    with pytest.raises(ClosedError):
        handlers.add(Selector(), lambda e: None)
    with pytest.raises(ClosedError):
        handlers.wait_handled(1, LONG)
    release.set()
    assert handlers.close(LONG)


def test_coroutine_functions_and_other_objects_are_refused_as_handlers(handlers: Handlers) -> None:
    async def coroutine(e: Event) -> None: ...

    class AsyncCall:
        async def __call__(self, e: Event) -> None: ...

    for waiting in (coroutine, functools.partial(coroutine), AsyncCall()):
        with pytest.raises(UsageError, match="coroutine"):
            handlers.add(Selector(), waiting)
    with pytest.raises(UsageError, match="is not callable"):
        handlers.add(Selector(), 5)  # type: ignore[arg-type]


def test_a_slow_handler_gets_the_latest_change_and_its_queue_is_bounded() -> None:
    handlers = Handlers(HandlerPolicy(queue_limit=2))
    release, entered = threading.Event(), threading.Event()
    got: list[int | None] = []

    def slow(e: Event) -> None:
        entered.set()
        assert release.wait(LONG)
        got.append(e.version)

    handle = handlers.add(Selector(), slow)
    handlers.push([event("x", 1)])
    assert entered.wait(LONG)
    handlers.push([event("x", version) for version in range(2, 1000)])
    assert handle.counters().waiting == 2
    release.set()
    handlers.wait_handled(999, LONG)
    assert got == [1, 2, 999]
    assert handle.counters().conflated == 996
    assert handlers.close(LONG)


def test_many_threads_push_and_add_and_remove_at_once(handlers: Handlers) -> None:
    """A handler that is registered all the time gets the versions of each key in order."""
    got: dict[str, list[int]] = {}
    handlers.add(Selector(), lambda e: got.setdefault(e.key, []).append(e.version or 0))

    def work(name: str) -> None:
        for version in range(1, 201):
            other = handlers.add(Selector(key=name), lambda e: None) if version % 50 == 0 else None
            handlers.push([event(name, version)])
            if other is not None:
                other.remove()

    threads = [threading.Thread(target=work, args=(f"k{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    handlers.wait_handled(None, LONG)
    assert got == {f"k{number}": list(range(1, 201)) for number in range(4)}


def test_successful_call_counts_the_time_since_the_commit_of_its_change(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 2.0**30
    monkeypatch.setattr(time, "time", lambda: now)
    failing = iter([True, False, True, True, True])

    def fail(e: Event) -> None:
        if e.key != "good" and next(failing):
            raise ValueError("not now")

    handlers = Handlers(HandlerPolicy(tries=3, backoff=0.001, max_backoff=0.002), measured=True)
    try:
        first = handlers.add(Selector(), lambda e: None, [event("first", 1)])  # not of a link: without a time
        handlers.add(Selector(), fail)
        retried, parked, good = (
            msgspec.structs.replace(event(key, version), written_at=at)
            for key, version, at in (("retried", 2, now - 4.0), ("parked", 3, now - 60.0), ("good", 4, now + 2.0))
        )
        for each in (retried, parked, good):
            handlers.push([each])
            handlers.wait_handled(None, LONG)
        assert filled(first.counters().commit_to_handled) == {0: 1, BOUNDS.index(5.0): 1, BOUNDS.index(60.0): 1}
        first.remove()
        taken = handlers.counters().commit_to_handled
        assert filled(taken) == {0: 2, BOUNDS.index(5.0): 2, BOUNDS.index(60.0): 1}
        assert (taken.total, taken.negative) == (68.0, 2)
        assert handlers.counters().handled == 6
    finally:
        assert handlers.close(LONG)


def filled(taken: Latencies) -> dict[int, int]:
    """The buckets that are not empty."""
    return {place: number for place, number in enumerate(taken.counts) if number}


def test_no_time_is_counted_without_metrics(handlers: Handlers) -> None:
    handlers.add(Selector(), lambda e: None)
    handlers.push([msgspec.structs.replace(event("x", 1), written_at=1.0)])
    handlers.wait_handled(None, LONG)
    assert handlers.counters().handled == 1
    assert handlers.counters().commit_to_handled == NO_LATENCIES
