"""The asyncio replica over real drivers: changes, waits, cancelled calls, and that the event loop is never blocked."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from queue import SimpleQueue
from typing import Any

import msgspec
import pytest
from _patience import longest
from _processes import free_port, poll

from pubsub_lib import Event, Publisher, Settings, Store, Table
from pubsub_lib.core.handler_queue import HandlerPolicy
from pubsub_lib.core.model import Point
from pubsub_lib.errors import ClosedError, DriverError, InvalidValueError, NotStarted, UsageError, WaitTimeout
from pubsub_lib.replica.asyncio_replica import THREADS, AsyncReplica
from tests.unit.replica.test_replica import TABLES, write_in_the_wrong_order
from tests.unit.world import busy, settings

LONG = longest(120.0)
DRIVERS = ("memory", "zmq_pubsub_driver", "db_polling_pubsub_driver")


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run in a new loop. An exception of a task that is not awaited fails the test."""
    unhandled: list[dict[str, Any]] = []
    with asyncio.Runner(debug=True) as runner:
        runner.get_loop().set_exception_handler(lambda loop, context: unhandled.append(context))
        runner.run(asyncio.wait_for(main, 3 * LONG))
        gc.collect()
    assert unhandled == []


def configured(url: str, driver: str = "memory", **changes: Any) -> Settings:
    if driver == "memory":
        return settings(url, **changes)
    address = f"tcp://127.0.0.1:{free_port()}"
    more: dict[str, Any] = {"driver_options": {}}
    if driver == "zmq_pubsub_driver":
        more |= {"addresses": (address,), "bind_address": address}
    return settings(url, driver=driver, **more, **changes)


class World:
    def __init__(self, config: Settings, store: Store, replica: AsyncReplica) -> None:
        self.config = config
        self.store = store
        self.replica = replica

    def write(self, key: str, value: object, topic: str = "t") -> Any:
        """Write one object in a transaction; return its commit."""
        with self.store.transaction() as tx:
            tx.set("a", key, value, topic=topic)
        return tx.commit

    async def write_and_wait(self, key: str, value: object) -> None:
        commit = await asyncio.to_thread(self.write, key, value)
        await self.replica.wait_handled(commit, LONG)


@asynccontextmanager
async def world(config: Settings, topics: Sequence[str] = ("t",), **given: Any) -> AsyncIterator[World]:
    with Store(config.store_url) as store:
        publisher = Publisher(config, store) if config.driver != "db_polling_pubsub_driver" else None
        if publisher is not None:
            publisher.start()
        try:
            async with AsyncReplica(config, topics, **given) as replica:
                yield World(config, store, replica)
        finally:
            if publisher is not None:
                await asyncio.to_thread(publisher.close)


class Recorder:
    """A coroutine handler that records its changes."""

    def __init__(self, react: Callable[[Event], Awaitable[object]] | None = None) -> None:
        self.changes: list[Event] = []
        self._react = react

    async def handle(self, change: Event) -> None:
        self.changes.append(change)
        if self._react is not None:
            await self._react(change)

    @property
    def brief(self) -> list[tuple[str, str, Any]]:
        return [(change.action, change.key, change.new) for change in self.changes]


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_coroutine_gets_existing_objects_and_changes_in_the_loop(sqlite_url: str, driver: str) -> None:
    async def main() -> None:
        loop_thread = threading.get_ident()
        threads: list[int] = []

        async def note(change: Event) -> None:
            threads.append(threading.get_ident())
            await asyncio.sleep(0)

        async with world(configured(sqlite_url, driver)) as w:
            w.write("1", "one")
            recorder = Recorder(note)
            await w.replica.wait_synced(LONG)
            await w.replica.on("a", recorder.handle)
            await w.write_and_wait("1", "uno")
            assert recorder.brief[0][:2] == ("create", "1")
            assert recorder.brief[-1][2] == "uno"
            assert set(threads) == {loop_thread}
            assert await w.replica.get("a", "1") == "uno"
            assert await w.replica.iterate("a") == [("1", "uno")]
            record = await w.replica.record("a", "1")
            assert [record] == await w.replica.records("a", topic="t")
            assert await w.replica.staleness() < LONG
            assert (await w.replica.status()).synced

    run(main())


def test_an_object_whose_call_is_a_coroutine_is_awaited(sqlite_url: str) -> None:
    class Called(Recorder):
        async def __call__(self, change: Event) -> None:
            await self.handle(change)

    async def main() -> None:
        async with world(configured(sqlite_url)) as w:
            await w.replica.wait_synced(LONG)
            called = Called()
            await w.replica.on("a", called)
            await w.write_and_wait("1", 1)
            assert called.brief == [("create", "1", 1)]

    run(main())


@pytest.mark.parametrize("driver", DRIVERS)
def test_an_iterated_change_is_handled_when_the_next_one_is_requested(sqlite_url: str, driver: str) -> None:
    async def main() -> None:
        async with world(configured(sqlite_url, driver)) as w:
            w.write("0", 0)
            await w.replica.wait_synced(LONG)
            seen = []
            async for change in w.replica.changes("a"):
                seen.append((change.action, change.key))
                with pytest.raises(UsageError, match="would wait for itself"):
                    await w.replica.wait_handled(1)
                if len(seen) == 3:
                    break
                commit = await asyncio.to_thread(w.write, str(len(seen)), 1)
                with pytest.raises(WaitTimeout):
                    await asyncio.create_task(w.replica.wait_handled(commit, 0.05))
            assert seen == [("create", "0"), ("create", "1"), ("create", "2")]
            gc.collect()  # the generator and its handler are removed
            while w.replica.threaded._handlers._handles:
                await asyncio.sleep(0.01)
            await w.write_and_wait("3", 3)

    run(main())


def test_a_slow_coroutine_gets_the_latest_change_and_its_queue_is_bounded(sqlite_url: str) -> None:
    async def main() -> None:
        gate = asyncio.Event()
        recorder = Recorder(lambda change: gate.wait())
        async with world(configured(sqlite_url, handling=HandlerPolicy(queue_limit=2))) as w:
            await w.replica.wait_synced(LONG)
            await w.replica.on("a", recorder.handle)
            for number in range(10):
                commit = await asyncio.to_thread(w.write, str(number % 3), number)
            await w.replica.wait_for(commit, LONG)
            while not recorder.changes:  # the thread of the handlers may be late
                await asyncio.sleep(0.01)
            assert len(recorder.changes) == 1, "one at a time"
            assert w.replica.threaded._handlers.counters().waiting <= 2 + 3
            gate.set()
            await w.replica.wait_handled(commit, LONG)
            assert {key: value for _, key, value in recorder.brief} == {"0": 9, "1": 7, "2": 8}
            assert len(recorder.changes) < 10

    run(main())


def test_a_coroutine_that_raises_is_retried_and_parked(sqlite_url: str) -> None:
    async def main() -> None:
        async def broken(change: Event) -> None:
            if change.key == "bad":
                raise RuntimeError("no")

        recorder = Recorder(broken)
        async with world(configured(sqlite_url)) as w:
            await w.replica.wait_synced(LONG)
            await w.replica.on("a", recorder.handle)
            await w.write_and_wait("bad", 1)
            await w.write_and_wait("good", 2)
            assert [key for _, key, _ in recorder.brief] == ["bad", "bad", "bad", "good"]
            assert (await w.replica.status()).handlers.parked == 1

    run(main())


def test_the_loop_is_not_blocked_while_the_replica_is_busy(sqlite_url: str) -> None:
    async def main() -> None:
        async with world(configured(sqlite_url)) as w:
            await w.write_and_wait("1", 1)
            with busy(w.replica.threaded):
                calls = [
                    asyncio.create_task(call)
                    for call in (
                        w.replica.get("a", "1"),
                        w.replica.staleness(),
                        w.replica.wait_for(1, LONG),
                        w.replica.status(),
                    )
                ]
                await asyncio.sleep(0.05)
                assert not any(call.done() for call in calls)
                with pytest.raises(TimeoutError):  # a waiting call can be cancelled
                    await asyncio.wait_for(w.replica.wait_synced(LONG), 0.05)
            assert (await asyncio.gather(*calls))[0] == 1

    run(main())


def test_waits_end_by_success_timeout_cancellation_and_close(sqlite_url: str) -> None:
    async def main() -> None:
        async with world(configured(sqlite_url)) as w:
            await w.replica.wait_synced(LONG)
            waiting = asyncio.create_task(w.replica.wait_for(1))
            given_up = asyncio.create_task(w.replica.wait_for(99))
            left = asyncio.create_task(w.replica.wait_for(99))
            with pytest.raises(WaitTimeout, match="timed out waiting for position 99"):
                await w.replica.wait_for(99, 0.05)
            await asyncio.to_thread(w.write, "1", 1)
            await asyncio.wait_for(waiting, LONG)
            before = set(threading.enumerate())
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
            more = set(threading.enumerate()) - before
            assert not [each for each in more if not each.name.startswith("pubsub-aio")], "those of the pool may begin"
        with pytest.raises(ClosedError):
            await left
        for call in (
            w.replica.get("a", "1"),
            w.replica.wait_for(1),
            w.replica.on("a", print),
            w.replica.subscribe("x"),
        ):
            with pytest.raises(ClosedError):
                await call
        await w.replica.close()

    run(main())


def test_wait_for_none_returns_at_once(sqlite_url: str) -> None:
    async def main() -> None:
        async with world(configured(sqlite_url)) as w:
            w.write("1", 1)
            nothing = w.write("1", 1)
            assert nothing is None
            await w.replica.wait_for(nothing, LONG)
            await w.replica.wait_handled(nothing, LONG)
        for call in (w.replica.wait_for, w.replica.wait_handled):
            with pytest.raises(ClosedError):
                await call(nothing)

    run(main())


def test_close_cancels_coroutines_and_ends_iterations(sqlite_url: str) -> None:
    async def main() -> None:
        cancelled = asyncio.Event()

        async def for_ever(change: Event) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        recorder = Recorder(for_ever)
        seen: list[str] = []

        async def iterate(replica: AsyncReplica) -> None:
            async for change in replica.changes("a"):
                seen.append(change.key)  # noqa: PERF401 - it never ends by itself

        async with world(configured(sqlite_url)) as w:
            await w.replica.wait_synced(LONG)
            await w.replica.on("a", recorder.handle)
            iterating = asyncio.create_task(iterate(w.replica))
            await asyncio.to_thread(w.write, "1", 1)
            while not (recorder.changes and seen):
                await asyncio.sleep(0.01)
            await w.replica.close()
            left = [thread.name for thread in threading.enumerate() if "-handler-" in thread.name]
            assert left == [], "the running coroutine was cancelled, so its thread ended"
        assert cancelled.is_set()
        await asyncio.wait_for(iterating, LONG)
        assert seen == ["1"]

    run(main())


def test_a_coroutine_handler_may_wait_for_its_own_write_and_close_the_replica(sqlite_url: str) -> None:
    async def main() -> None:
        done = asyncio.Event()

        async def answer(change: Event) -> None:
            commit = await asyncio.to_thread(w.write, "answer", 1)
            await w.replica.wait_for(commit, LONG)
            with pytest.raises(UsageError, match="would wait for itself"):
                await w.replica.wait_handled(commit)
            with pytest.raises(UsageError, match="would wait for itself"):
                await w.replica.wait_synced()
            await w.replica.close()
            done.set()

        async with world(configured(sqlite_url)) as w:
            await w.replica.wait_synced(LONG)
            await w.replica.on("a", answer, key="question")
            await asyncio.to_thread(w.write, "question", 1)
            await asyncio.wait_for(done.wait(), LONG)

    run(main())


def test_a_task_that_a_handler_started_may_wait_for_the_handlers(sqlite_url: str) -> None:
    async def main() -> None:
        async with world(configured(sqlite_url)) as w:
            await w.replica.wait_synced(LONG)
            waiting: list[asyncio.Task[None]] = []

            async def begin(change: Event) -> None:
                waiting.append(asyncio.create_task(w.replica.wait_handled(1, LONG)))
                await asyncio.sleep(0)  # so that it waits while this handler runs

            await w.replica.on("a", begin)
            await w.write_and_wait("1", 1)
            await waiting[0]

    run(main())


def test_no_coroutine_handler_is_called_after_its_remove(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, removed = threading.Event(), threading.Event()
    posted: SimpleQueue[Any] = SimpleQueue()
    post = asyncio.run_coroutine_threadsafe

    def late(coroutine: Any, loop: asyncio.AbstractEventLoop) -> Any:
        """The handler's thread has taken the change, and goes on after the remove."""
        taken.set()
        assert removed.wait(LONG)
        running = post(coroutine, loop)
        posted.put(running)
        return running

    async def main() -> None:
        async with world(configured(sqlite_url)) as w:
            w.write("1", 1)
            await w.replica.wait_synced(LONG)
            recorder = Recorder()
            monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", late)
            handle = await w.replica.on("a", recorder.handle)
            assert await asyncio.to_thread(taken.wait, LONG)
            await handle.remove()
            removed.set()
            await asyncio.wrap_future(await asyncio.to_thread(posted.get, timeout=LONG))
            assert recorder.brief == []

    run(main())


def test_wait_handled_is_refused_in_the_body_of_every_iteration(sqlite_url: str) -> None:
    async def main() -> None:
        async with world(configured(sqlite_url)) as w:
            w.write("1", 1)
            w.write("2", 1)
            await w.replica.wait_synced(LONG)
            async with aclosing(w.replica.changes("a")) as outer:
                await asyncio.create_task(anext(outer))  # the next one is requested by another task
                async for _ in outer:
                    async with aclosing(w.replica.changes("a")) as inner:
                        async for _ in inner:
                            break
                    with pytest.raises(UsageError, match="would wait for itself"):
                        await w.replica.wait_handled(1, LONG)
                    break
            await w.replica.wait_handled(2, LONG)

    run(main())


def test_a_cancelled_iteration_and_a_removed_handler_get_no_changes(sqlite_url: str) -> None:
    async def main() -> None:
        async with world(configured(sqlite_url)) as w:
            await w.replica.wait_synced(LONG)
            recorder, seen = Recorder(), []

            async def iterate() -> None:
                async for change in w.replica.changes():
                    seen.append(change.key)  # noqa: PERF401 - it never ends by itself

            iterating = asyncio.create_task(iterate())
            handle = await w.replica.on("a", recorder.handle)
            await w.write_and_wait("1", 1)
            while not seen:
                await asyncio.sleep(0.01)
            iterating.cancel()
            with pytest.raises(asyncio.CancelledError):
                await iterating
            await handle.remove()
            await handle.remove()
            assert w.replica.threaded._handlers._handles == ()
            await w.write_and_wait("2", 2)
            assert ([change.key for change in recorder.changes], seen) == (["1"], ["1"])

    run(main())


def test_a_cancelled_on_leaves_no_handler(sqlite_url: str) -> None:
    async def main() -> None:
        async with world(configured(sqlite_url)) as w:
            with busy(w.replica.threaded):  # so that the call cannot end yet
                adding = asyncio.create_task(w.replica.on("a", Recorder().handle))
                await asyncio.sleep(0.05)
                adding.cancel()
                with suppress(asyncio.CancelledError):
                    await adding
            assert await asyncio.to_thread(poll, lambda: not w.replica.threaded._handlers._handles, LONG)

    run(main())


def no_handlers_thread() -> bool:
    return not [thread for thread in threading.enumerate() if "-handler-" in thread.name]


def no_threads_since(before: set[threading.Thread]) -> bool:
    return not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("pubsub")]


def test_an_iteration_cancelled_while_it_starts_leaves_no_handler(sqlite_url: str) -> None:
    async def main() -> None:
        async with world(configured(sqlite_url)) as w:
            w.write("1", 1)
            await w.replica.wait_synced(LONG)
            asking = asyncio.create_task(anext(w.replica.changes("a")))
            await asyncio.sleep(0)
            handlers = w.replica.threaded._handlers
            assert poll(lambda: bool(handlers._handles), LONG), "a thread added it; the blocked loop was not notified"
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert await asyncio.to_thread(poll, no_handlers_thread, LONG)

    run(main())


def test_an_iteration_ended_while_all_threads_are_busy_blocks_no_change(sqlite_url: str) -> None:
    async def main() -> None:
        async with world(configured(sqlite_url)) as w:
            for key in "123":
                w.write(key, 1)
            await w.replica.wait_synced(LONG)
            changes, free = w.replica.changes("a"), threading.Event()
            await anext(changes)
            assert w.replica._pool is not None
            for _ in range(THREADS):
                w.replica._pool.submit(free.wait, LONG)
            leaving = asyncio.create_task(changes.aclose())
            handlers = w.replica.threaded._handlers
            assert await asyncio.to_thread(poll, lambda: handlers.counters().handled == 3, LONG)
            leaving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaving
            free.set()
            assert await asyncio.to_thread(poll, no_handlers_thread, LONG)

    run(main())


def test_a_start_that_fails_or_is_cancelled_closes_the_replica(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        with pytest.raises(DriverError, match="the driver 'pigeon' is not installed"):
            await AsyncReplica(settings(sqlite_url, driver="pigeon", driver_options={})).start()
        config = configured(sqlite_url)
        begun, go_on = threading.Event(), threading.Event()
        replica = AsyncReplica(config, ["t"])
        with pytest.raises(NotStarted, match="was not started"):
            await replica.get("a", "1")
        make = replica._make

        def slow() -> Any:
            begun.set()
            go_on.wait(LONG)
            return make()

        replica._make = slow
        before = set(threading.enumerate())
        starting = asyncio.create_task(replica.start())
        await asyncio.to_thread(begun.wait, LONG)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        go_on.set()
        await replica.close()  # waits for the start
        assert await asyncio.to_thread(poll, lambda: no_threads_since(before), LONG)

    run(main())


def test_a_close_during_the_start_closes_the_started_replica(sqlite_url: str) -> None:
    async def main() -> None:
        before = set(threading.enumerate())
        replica = AsyncReplica(configured(sqlite_url), ["t"])
        starting = asyncio.create_task(replica.start())
        await asyncio.sleep(0)
        await replica.close()
        with pytest.raises(ClosedError, match="closed while it started"):
            await starting
        assert replica.threaded._closed
        assert await asyncio.to_thread(poll, lambda: no_threads_since(before), LONG)
        never_started = AsyncReplica(configured(sqlite_url), ["t"])
        await never_started.close()
        with pytest.raises(ClosedError, match="is closed"):
            await never_started.start()

    run(main())


def test_a_later_close_waits_for_the_first(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with world(configured(sqlite_url)) as w:
            go_on = threading.Event()
            close = w.replica.threaded.close

            def slow() -> None:
                go_on.wait(LONG)
                close()

            monkeypatch.setattr(w.replica.threaded, "close", slow)
            first, second = (asyncio.create_task(w.replica.close()) for _ in range(2))
            await asyncio.wait({first, second}, timeout=0.05)
            assert (first.done(), second.done()) == (False, False)
            first.cancel()
            go_on.set()
            await second
            assert w.replica.threaded._closed

    run(main())


def test_a_later_exception_of_a_cancelled_on_is_not_reported(sqlite_url: str) -> None:
    gate = threading.Event()

    def refuses(*_: Any, **__: Any) -> None:
        assert gate.wait(LONG)
        raise ClosedError("the handlers are closed")

    async def main() -> None:
        async with world(configured(sqlite_url)) as w:
            w.replica.threaded.on = refuses  # type: ignore[assignment]
            adding = asyncio.create_task(w.replica.on("a", Recorder().handle))
            await asyncio.sleep(0)
            adding.cancel()
            with pytest.raises(asyncio.CancelledError):
                await adding
            gate.set()

    run(main())


def test_a_cancelled_on_during_close_raises_only_cancelled_error(sqlite_url: str) -> None:
    async def main() -> None:
        async with world(configured(sqlite_url)) as w:
            with busy(w.replica.threaded):  # so that neither call can end yet
                adding = asyncio.create_task(w.replica.on("a", Recorder().handle))
                await asyncio.sleep(0)
                closing = asyncio.create_task(w.replica.close())
                await asyncio.sleep(0)
                adding.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await adding
            await closing
            assert await asyncio.to_thread(poll, no_handlers_thread, LONG)

    run(main())


def test_a_failed_consistency_check_is_raised_at_the_end(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pubsub_lib.replica.consistency_check.differences", lambda *_: ["a '1' is 2 and should be 1"])

    async def main() -> None:
        with pytest.raises(Exception, match="differs from the store: a '1'"):
            async with world(configured(sqlite_url)) as w:
                with suppress(Exception):
                    await w.replica.wait_synced(LONG)
                    await w.replica.wait_for(99, LONG)

    run(main())


def test_indexes_topics_and_types(sqlite_url: str) -> None:
    class Port(msgspec.Struct):
        switch: str

    async def main() -> None:
        config = configured(sqlite_url)
        with Store(config.store_url, tables={"lport": Port}) as store:
            async with AsyncReplica(config, ["t"], tables={"lport": Port}) as replica:
                await replica.add_index("by switch", "lport", "switch")
                await replica.subscribe("u")
                with store.transaction() as tx:
                    tx.set("lport", "p1", Port("s1"), topic="u")
                assert tx.commit is not None
                await replica.wait_for(tx.commit, LONG)
                assert await replica.lookup("by switch", "s1") == [("p1", Port("s1"))]
                await replica.unsubscribe("u")
                assert await replica.get("lport", "p1") is None

    run(main())


def test_iterate_raises_for_or_skips_an_unreadable_object(sqlite_url: str) -> None:
    class Port(msgspec.Struct):
        zone: str

    ports = Table("a", Port)

    async def main() -> None:
        async with world(configured(sqlite_url), tables=[ports]) as w:
            w.write("old", {"mac": "AA"})
            commit = w.write("new", {"zone": "z1"})
            await w.replica.wait_for(commit, LONG)
            with pytest.raises(InvalidValueError, match="a 'old' cannot be decoded"):
                await w.replica.iterate(ports)
            assert await w.replica.iterate(ports, on_error="skip") == [("new", Port("z1"))]

    run(main())


def test_on_with_an_order_delivers_in_the_order_of_tables(sqlite_url: str) -> None:
    async def main() -> None:
        async with world(configured(sqlite_url), ["a", "b"]) as w:
            write_in_the_wrong_order(w.store)
            await w.replica.wait_for(6, LONG)
            recorder = Recorder()
            await w.replica.on(TABLES, recorder.handle, order=TABLES)
            await w.replica.wait_handled(6, LONG)
            assert [change.table for change in recorder.changes] == ["lswitch", "lswitch", "lport", "lport"]

    run(main())


def test_changes_with_an_order_delivers_in_the_order_of_tables(sqlite_url: str) -> None:
    async def main() -> None:
        async with world(configured(sqlite_url), ["a", "b"]) as w:
            write_in_the_wrong_order(w.store)
            await w.replica.wait_for(6, LONG)
            async with aclosing(w.replica.changes(TABLES, order=TABLES)) as changes:
                tables = [(await anext(changes)).table for _ in range(4)]
            assert tables == ["lswitch", "lswitch", "lport", "lport"]

    run(main())


def test_default_topic_false_leaves_objects_without_a_topic_out(sqlite_url: str) -> None:
    async def main() -> None:
        config = configured(sqlite_url)
        with Store(config) as store:
            with store.transaction() as tx:
                tx.set("chassis", "c1", 1)
            alone_given = {"default_topic": False}
            async with AsyncReplica(config, ["t"]) as replica, AsyncReplica(config, ["t"], **alone_given) as alone:
                await replica.wait_synced(LONG)
                await alone.wait_synced(LONG)
                assert await replica.get("chassis", "c1") == 1
                assert await alone.get("chassis", "c1") is None

    run(main())


def test_calls_that_need_no_database_do_not_wait_for_one_that_hangs(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        answers, asked = threading.Event(), threading.Semaphore(0)

        def hang(store: Store, topic: str, points: Sequence[Point]) -> list[bool | None]:
            asked.release()
            assert answers.wait(LONG)
            return [True] * len(points)

        monkeypatch.setattr(Store, "holds", hang)
        async with world(configured(sqlite_url), ["t", "u"]) as w:
            commit = await asyncio.to_thread(w.write, "1", 1)
            waits = [asyncio.create_task(w.replica.wait_for(commit, topics=["u"])) for _ in range(2 * THREADS)]
            try:
                for _ in range(THREADS):
                    assert await asyncio.to_thread(asked.acquire, timeout=LONG)
                threads = [each for each in threading.enumerate() if each.name.startswith("pubsub-aio-store")]
                assert [each.daemon for each in threads] == [True] * THREADS, "the process can end"
                async with asyncio.timeout(LONG):
                    await w.replica.wait_for(commit)
                    assert "t" in (await w.replica.status()).chains
                    assert len(await w.replica.records("a")) == 1
                    await w.replica.subscribe("v")
                    await w.replica.on("a", Recorder().handle)
                    await w.replica.close()
            finally:
                answers.set()
            ended = await asyncio.gather(*waits, return_exceptions=True)
            assert {type(each) for each in ended} == {ClosedError}

    run(main())


def test_cancelled_subscribe_and_unsubscribe_are_completed(sqlite_url: str) -> None:
    async def main() -> None:
        async with world(configured(sqlite_url), ["t", "u"], default_topic=False) as w:
            free = threading.Event()
            assert w.replica._pool is not None
            for _ in range(THREADS):
                w.replica._pool.submit(free.wait, LONG)
            calls = [asyncio.create_task(call) for call in (w.replica.unsubscribe("u"), w.replica.subscribe("v"))]
            await asyncio.sleep(0)
            for call in calls:
                call.cancel()
            done = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(each) for each in done} == {asyncio.CancelledError}
            free.set()
            assert await asyncio.to_thread(poll, lambda: set(w.replica.threaded.topics) == {"t", "v"}, LONG)

    run(main())
