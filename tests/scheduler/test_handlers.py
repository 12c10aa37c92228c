"""Handlers' threads: each change once and in order, no call after ``remove`` and ``close``, every wait ends."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from pubsub_lib.core.events import Event
from pubsub_lib.core.handler_queue import HandlerPolicy, Selector
from pubsub_lib.errors import ClosedError
from pubsub_lib.failpoints import Armed, armed
from pubsub_lib.replica.handlers import Handle, Handlers
from tests.scheduler.explore import World, explore

EVERYTHING = Selector(None, None, None)


def event(version: int, key: str = "k") -> Event:
    """The change of one object to a version."""
    return Event("port", key, "t", "set", version, None, None, b"%d" % version, version)


class Owner:
    """The owner of handlers: a lock, and an object that changes under it, as in a replica."""

    def __init__(self, world: World, policy: HandlerPolicy | None = None) -> None:
        self.world = world
        self.lock = world.threading.RLock()
        self.version = 0
        condition = cast("Callable[[], Any]", world.threading.Condition)
        self.handlers = Handlers(policy or HandlerPolicy(), lambda: world.now, condition=condition)

    def change(self) -> None:
        with self.lock:
            self.version += 1
            self.handlers.push([event(self.version)])

    def on(self, fn: Callable[[Event], object]) -> Handle:
        with self.lock:
            return self.handlers.add(EVERYTHING, fn, [event(self.version)] if self.version else [])


class Recorder:
    """A handler that checks its events."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.versions: list[int] = []
        self.may_be_called = True

    def __call__(self, change: Event) -> None:
        version = change.version or 0
        self.world.check(self.may_be_called, f"called with version {version} after the end")
        self.world.check(not self.versions or version > self.versions[-1], f"{version} came after {self.versions}")
        self.versions.append(version)
        self.world.sleep(0.0)

    @property
    def latest(self) -> int:
        return self.versions[-1] if self.versions else 0


def test_handler_gets_the_last_version_of_every_object() -> None:
    def scenario(world: World) -> None:
        owner, seen = Owner(world), Recorder(world)
        threads = [world.spawn(owner.change), world.spawn(owner.on, seen), world.spawn(owner.change)]
        for thread in threads:
            thread.join()
        world.until(lambda: seen.latest == 2, "the last version", 1.0)

    explore(scenario, deviations=1)
    explore(scenario, seeds=range(100))


def test_wait_handled_always_returns_after_the_handler() -> None:
    def scenario(world: World) -> None:
        owner, seen = Owner(world), Recorder(world)
        handle = owner.on(seen)

        def write_and_wait() -> None:
            owner.change()
            version = owner.version
            owner.handlers.wait_handled(version)
            world.check(
                seen.latest >= version, f"wait_handled({version}) returned, and the handler had {seen.versions}"
            )
            world.check(handle.counters().waiting == 0 or owner.version > version, "an event still waits")

        world.together(write_and_wait, write_and_wait)
        owner.handlers.wait_initial()

    explore(scenario, deviations=1)
    explore(scenario, seeds=range(100))


def test_no_call_begins_after_remove(monkeypatch: pytest.MonkeyPatch) -> None:
    class TakenEvent(Armed):
        """Other threads may run between the moment at which an event is taken and the call."""

        def reached(self, name: str) -> None:
            worlds[-1].sleep(0.0)

    worlds: list[World] = []
    monkeypatch.setitem(armed, "replica.in_handler", TakenEvent("", 0))

    def scenario(world: World) -> None:
        worlds.append(world)
        owner, seen = Owner(world), Recorder(world)
        handle = owner.on(seen)

        def remove() -> None:
            handle.remove()
            seen.may_be_called = False  # a running call may end; no call begins, also not with an event that was taken

        world.together(owner.change, remove)
        owner.change()
        world.sleep(1.0)
        world.check(not cast("Any", handle._thread).is_alive(), "the thread runs after remove()")
        counters = owner.handlers.counters()
        world.check(counters.handled == len(seen.versions), f"{counters.handled} counted of {seen.versions}")

    explore(scenario, deviations=2)


def test_close_ends_every_wait_and_every_thread() -> None:
    def scenario(world: World) -> None:
        owner, seen = Owner(world), Recorder(world)
        handle = owner.on(seen)
        owner.change()

        def wait() -> None:
            try:
                owner.handlers.wait_handled()
            except ClosedError:
                return
            world.check(seen.latest == 1, "wait_handled returned without the handler's call")

        def close() -> None:
            world.check(owner.handlers.close(10.0), "close() reports that a handler still runs")
            world.check(not cast("Any", handle._thread).is_alive(), "the thread runs after close()")
            seen.may_be_called = False
            owner.change()
            with pytest.raises(ClosedError):
                owner.on(seen)

        world.together(wait, close)
        world.check(owner.handlers.close(0.0), "a second close() reports that a handler still runs")

    explore(scenario, deviations=1)
    explore(scenario, seeds=range(100))


def test_in_handler_is_true_from_the_first_call() -> None:
    def scenario(world: World) -> None:
        owner = Owner(world)
        owner.change()
        calls: list[bool] = []
        owner.on(lambda change: calls.append(owner.handlers.in_handler()))
        world.until(lambda: calls, "the first call", 1.0)
        world.check(all(calls), "a handler may wait for itself: in_handler() is False in its thread")

    explore(scenario, deviations=2)


def test_handler_closes_its_own_handlers() -> None:
    def scenario(world: World) -> None:
        owner = Owner(world)
        calls: list[int] = []

        def closes(change: Event) -> None:
            calls.append(change.version or 0)
            world.check(owner.handlers.in_handler(), "in_handler() is False in the handler's thread")
            owner.handlers.close(10.0)

        handle = owner.on(closes)
        owner.change()
        owner.change()
        world.until(lambda: not cast("Any", handle._thread).is_alive(), "the end of the handler's thread", 1.0)
        world.check(len(calls) == 1, f"called {calls}")

    explore(scenario, deviations=2)


def test_failed_change_is_retried_and_parked_in_time() -> None:
    policy = HandlerPolicy(tries=3, backoff=1.0, max_backoff=8.0)

    def scenario(world: World) -> None:
        owner = Owner(world, policy)
        times: list[float] = []

        def fails(change: Event) -> None:
            times.append(world.now)
            raise ValueError("no")

        handle = owner.on(fails)
        owner.change()
        owner.handlers.wait_handled()
        world.check([at - times[0] for at in times] == [0.0, 1.0, 3.0], f"tried at {times}")
        world.check([parked.event.version for parked in handle.parked()] == [1], "it is not parked")
        owner.handlers.close()

    explore(scenario, deviations=1)


def test_watcher_is_called_after_every_handled_change() -> None:
    def scenario(world: World) -> None:
        owner, seen = Owner(world), Recorder(world)
        noted: list[int] = []
        handle = owner.on(seen)

        def note() -> None:
            noted.append(cast("Any", handle)._queue.handled)

        owner.handlers.watchers = (note,)
        owner.change()
        world.until(lambda: noted and noted[-1] == 1, "a watcher that finds the change handled", 1.0)

    explore(scenario, deviations=2)
