"""A replica's threads: receiving, clock, sync, handlers and callers, in every order of a few steps."""

from typing import Any

import msgspec
import pytest

from pubsub_lib import Timing
from pubsub_lib.core.events import Event
from pubsub_lib.core.handler_queue import HandlerPolicy
from pubsub_lib.core.history_change import HistoryChange
from pubsub_lib.core.model import ALL, DEFAULT_TOPIC, Point
from pubsub_lib.errors import ClosedError, PubSubError
from tests.scheduler.doubles import StoreDouble, unavailable
from tests.scheduler.explore import DEEP, World, explore
from tests.scheduler.replicas import SLOW_TICKS, WatchedReplica, answer, deliver, replica_of, synced
from tests.unit.core.builders import envelope

SOON = 0.01
"""Virtual seconds for an effect that needs no wait."""
TRIES = HandlerPolicy().tries


def test_clock_starts_when_a_link_begins_to_wait() -> None:
    def scenario(world: World) -> None:
        store = StoreDouble(world, latency=0.2)
        replica = replica_of(world, store, journal=True)
        replica.start()
        store.commit()
        world.until(lambda: store.readings == 1, "the first sync's reading", 5.0)

        def link_after_a_lost_one() -> None:
            world.sleep(0.2)  # the answer is being applied now
            store.commit()
            deliver(replica, *store.commit())

        world.spawn(link_after_a_lost_one).join()
        window = SLOW_TICKS.message_delay_window
        world.until(lambda: replica.known("t") == 3, "the lost link's delta", window + store.latency + SOON)

    explore(scenario, deviations=1)
    explore(scenario, seeds=range(100))


def test_link_that_begins_to_wait_during_a_tick_starts_the_clock() -> None:
    def scenario(world: World) -> None:
        store = StoreDouble(world)
        replica = synced(world, replica_of(world, store))
        lost, late = store.commit(), store.commit()
        world.together(replica.threads.loops["clock"].wake, lambda: deliver(replica, *late))
        deliver(replica, *lost)  # it was only late: no link waits any more
        store.commit()
        world.together(replica.threads.loops["clock"].wake, lambda: deliver(replica, *store.commit()))
        world.until(lambda: replica.known("t") == 4, "the delta", SLOW_TICKS.message_delay_window + SOON)

    explore(scenario, deviations=1)
    explore(scenario, seeds=range(100))


def test_clock_starts_for_each_link_that_begins_to_wait() -> None:
    def scenario(world: World) -> None:
        store = StoreDouble(world)
        replica = synced(world, replica_of(world, store))
        for position in (2, 4):  # the first of each pair is lost
            store.commit()
            deliver(replica, *store.commit())
            bound = SLOW_TICKS.message_delay_window + SOON
            world.until(lambda upto=position: replica.known("t") == upto, "the delta", bound)  # type: ignore[misc]

    explore(scenario, deviations=1)


def test_pause_of_one_topic_delays_no_other_topic() -> None:
    """A link that had waited does not fit for the second time: its topic is read again after a pause."""
    timing = msgspec.structs.replace(SLOW_TICKS, sync_backoff=25.0, max_sync_backoff=25.0)

    def scenario(world: World) -> None:
        store = StoreDouble(world)
        replica = synced(world, replica_of(world, store, ["t", "u"], timing=timing))
        for number in (1, 2):
            first, (last,) = store.commit(("u", "k", "1")), store.commit(("u", "k", "2"))
            deliver(replica, msgspec.structs.replace(last, digest=number))
            deliver(replica, *first)
            world.sleep(2 * SLOW_TICKS.message_delay_window)  # the reading that the first one causes may be late
        paused = replica.tracker.restless
        world.check(paused, "the second link that does not fit began no pause")
        store.commit()  # it is lost
        deliver(replica, *store.commit())
        world.until(lambda: replica.known("t") == 6, "the delta", SLOW_TICKS.message_delay_window + SOON)
        world.check(replica.tracker.restless == paused, "the pause has ended")

    explore(scenario, deviations=1)


def test_reply_ends_a_topics_wait_while_another_link_waits() -> None:
    timing = msgspec.structs.replace(SLOW_TICKS, message_delay_window=60.0, hello_wait=3.0)

    def scenario(world: World) -> None:
        store = StoreDouble(world)
        store.commit(("t", "k", "1"), ("u", "k", "1"))
        replica = synced(world, replica_of(world, store, timing=timing))
        store.commit()
        deliver(replica, *store.commit())  # it waits for the one before it, for a minute
        replica.subscribe("u")
        world.until(lambda: "u" in replica.driver.asked[-1].topics, "the hello request", SOON)
        world.together(lambda: answer(replica, store), replica.threads.loops["clock"].wake)
        world.until(lambda: replica.known("u") == 2, "the new topic's sync", SOON)

    explore(scenario, deviations=1)


def test_timed_out_sync_does_not_delay_the_next_one() -> None:
    timing = msgspec.structs.replace(SLOW_TICKS, sync_timeout=5.0, sync_backoff=1.0)

    def scenario(world: World) -> None:
        store = StoreDouble(world)
        store.commit()
        replica = synced(world, replica_of(world, store, timing=timing))
        store.commit()
        store.latency = 8.0
        replica.resync()
        world.sleep(6.5)  # the first timed out, and the second is due
        store.latency = 0.0
        world.until(lambda: replica.known("t") == 2, "the second sync", 1.5 + SOON)

    explore(scenario, deviations=1)


def test_events_of_a_dropped_topic_keep_their_order() -> None:
    def scenario(world: World) -> None:
        store = StoreDouble(world)
        store.commit()
        replica = synced(world, replica_of(world, store, ["t", "u"]))
        replica.on("port", lambda event: None)
        world.together(lambda: replica.unsubscribe("t"), lambda: deliver(replica, *store.commit()))
        world.check(not replica.records(topic="u"), "objects of a topic that was dropped")

    explore(scenario, deviations=DEEP)


def test_incomplete_delta_is_followed_by_a_full_sync_at_once() -> None:
    def scenario(world: World) -> None:
        store = StoreDouble(world)
        store.commit()
        replica = synced(world, replica_of(world, store))
        store.commit()
        last = store.commit()
        store.history.trim(store.history.point.position)  # the delta will be incomplete, and a full sync follows
        deliver(replica, *last)
        world.until(lambda: replica.known("t") == 3, "the full sync", SLOW_TICKS.message_delay_window + SOON)

    explore(scenario, deviations=1)


def test_failed_sync_is_retried_after_its_backoff() -> None:
    def scenario(world: World) -> None:
        store = StoreDouble(world)
        store.commit()
        store.failures = [unavailable(), ZeroDivisionError("a bug")]
        replica = replica_of(world, store, journal=True)
        replica.start()
        world.until(lambda: replica.known("t") == 1, "the third try", SLOW_TICKS.hello_wait + 1.0 + 2.0 + SOON)
        replica.wait_synced(timeout=SOON)

    explore(scenario, deviations=1)


def test_answer_without_a_chain_is_a_failed_sync() -> None:
    def scenario(world: World) -> None:
        store = Forgetful(world)
        replica = replica_of(world, store)
        replica.start()
        replica.wait_synced(timeout=SLOW_TICKS.hello_wait + 1.0 + SOON)

    explore(scenario, deviations=1)


class Forgetful(StoreDouble):
    """A store whose first answer is empty."""

    def read_sync(self, wants: Any) -> Any:
        answer = super().read_sync(wants)
        return answer if self.readings > 1 else type(answer)(answer.store, {})


def test_resync_and_follow_start_at_once() -> None:
    def scenario(world: World) -> None:
        store = StoreDouble(world)
        store.commit(("t", "k", "1"), ("u", "k2", "1"))
        replica = synced(world, replica_of(world, store))
        store.commit()
        replica.resync()
        world.until(lambda: replica.known("t") == 3, "the resync", SOON)
        world.together(lambda: replica.subscribe("u"), lambda: replica.resync("t"))
        world.until(lambda: replica.known("u") == 2, "the new topic's sync", SLOW_TICKS.hello_wait + SOON)
        world.check("u" in replica.driver.topics, "the new topic is not subscribed to")

    explore(scenario, deviations=1)


def test_new_topic_is_subscribed_to_before_its_hello_request() -> None:
    def scenario(world: World) -> None:
        store = StoreDouble(world)
        store.commit(("t", "k", "1"), ("u", "k2", "1"))
        replica = synced(world, replica_of(world, store, journal=True))

        def follow_and_drop() -> None:
            replica.subscribe("u")
            replica.unsubscribe("u")

        world.together(follow_and_drop, follow_and_drop)
        world.check(set(replica.topics) == {"t", DEFAULT_TOPIC}, f"{replica.topics} are followed")
        world.check(replica.driver.topics == set(replica.topics), f"{replica.driver.topics} are subscribed to")

    explore(scenario, deviations=1)
    explore(scenario, seeds=range(100))


def test_connection_leads_to_a_hello_request() -> None:
    def scenario(world: World) -> None:
        store = StoreDouble(world)
        store.commit()
        replica = synced(world, replica_of(world, store))
        before = len(replica.driver.asked)
        world.together(replica.driver.connect, replica.threads.loops["clock"].wake)
        jitter = SLOW_TICKS.round_trip
        world.until(lambda: len(replica.driver.asked) > before, "a hello request", jitter + SOON)

    explore(scenario, deviations=1)


def test_handler_registered_while_links_arrive_gets_all_changes() -> None:
    def scenario(world: World) -> None:
        store = StoreDouble(world)
        store.commit()
        replica = synced(world, replica_of(world, store))
        versions: list[int] = []

        def note(event: Event) -> None:
            version = event.version or 0
            world.check(not versions or version > versions[-1], f"version {version} after {versions}")
            versions.append(version)

        def register() -> None:
            replica.on("port", note)

        def follow_on() -> None:
            deliver(replica, *store.commit())
            deliver(replica, *store.commit())

        world.together(register, follow_on)
        world.until(lambda: versions and versions[-1] == 3, "the last version", SOON)

    explore(scenario, deviations=1)
    explore(scenario, seeds=range(100))


def test_handler_is_notified_of_changed_history_before_versions_go_back() -> None:
    def scenario(world: World) -> None:
        store = StoreDouble(world)
        for _ in range(3):
            store.commit()
        replica = synced(world, replica_of(world, store))
        seen: list[int] = []
        notices: list[object] = []

        def note(event: Event) -> None:
            version = event.version or 0
            back = bool(seen) and version <= seen[-1]
            world.check(not back or notices, f"version {version} after {seen}, without a notice of the changed history")
            seen.append(version)

        replica.on("port", note, on_history_changed=notices.append)
        world.until(lambda: seen, "the initial event", SOON)
        store.history = store.history.restored(1, seed=7)
        links = store.commit()  # position 2, of another history
        replica.resync()
        world.together(lambda: deliver(replica, *links), replica.threads.loops["clock"].wake)
        world.until(lambda: seen[-1] == 2, "the object of the restored store", SLOW_TICKS.message_delay_window + SOON)
        world.check(len(notices) == 1, f"{len(notices)} notices")

    explore(scenario, deviations=1)
    explore(scenario, seeds=range(60))


@pytest.mark.parametrize(("failures", "tries"), [(1, 2), (TRIES, TRIES)])
def test_failing_notice_of_history_change_is_not_overtaken(failures: int, tries: int) -> None:
    def scenario(world: World) -> None:
        store = StoreDouble(world)
        for _ in range(3):
            store.commit()
        replica = synced(world, replica_of(world, store))
        notices: list[HistoryChange] = []
        versions: list[int] = []

        def note(event: Event) -> None:
            version = event.version or 0
            if versions and version <= versions[-1]:
                world.check(len(notices) == tries, f"version {version} after {len(notices)} tries of the notice")
            versions.append(version)

        def notice(change: HistoryChange) -> None:
            notices.append(change)
            if len(notices) <= failures:
                raise ValueError("a handler that fails when the history changed")

        replica.on("port", note, on_history_changed=notice)
        world.until(lambda: versions, "the initial event", SOON)
        store.history = store.history.restored(1, seed=7)
        links = store.commit()  # position 2, of another history
        replica.resync()
        world.together(lambda: deliver(replica, *links), replica.threads.loops["clock"].wake)
        world.until(lambda: versions[-1] == 2, "the object of the restored store", 60.0)

    explore(scenario, deviations=1)
    explore(scenario, seeds=range(60))


def test_wait_for_always_returns_when_the_commit_is_applied() -> None:
    def scenario(world: World) -> None:
        store = StoreDouble(world)
        replica = synced(world, replica_of(world, store))

        class Commit:
            def __init__(self) -> None:
                self.links = store.commit()
                self.point: Point = store.history.point

        def write_and_wait() -> None:
            commit = Commit()
            world.spawn(deliver, replica, *commit.links)
            replica.wait_for(commit)
            position = commit.point.position
            world.check(replica.known("t") >= position, f"wait_for({position}) returned at {replica.known('t')}")
            found = replica.record("port", "k")
            world.check(found is not None and found.version >= position, f"{found} after version {position}")

        began = world.now
        world.together(write_and_wait, write_and_wait)
        world.check(world.now - began <= SLOW_TICKS.message_delay_window + SOON, f"it took {world.now - began} s")

    explore(scenario, deviations=1)
    explore(scenario, seeds=range(100))


def test_wait_synced_ends_when_the_first_sync_and_its_handlers_are_done() -> None:
    def scenario(world: World) -> None:
        store = StoreDouble(world, latency=0.1)
        store.commit()
        replica = replica_of(world, store)
        handled: list[Event] = []
        replica.on("port", handled.append)

        def wait() -> None:
            replica.wait_synced()
            world.check(handled, "synced before the initial handler ran")
            world.check(replica.synced, "wait_synced() returned and it is not synced")

        replica.start()
        world.together(wait, wait)
        world.check(world.now <= 1000.0 + SLOW_TICKS.hello_wait + store.latency + SOON, f"it is {world.now}")

    explore(scenario, deviations=1)


FRESH = Timing(
    max_idle_time=2.0,
    message_delay_window=0.5,
    hello_wait=0.5,
    reading_age=1.0,
    round_trip=1.0,
    poll_interval=1.0,
    sync_jitter=0.0,
    sync_interval=0.0,
)


@pytest.mark.parametrize("lags", [False, True])
def test_staleness_is_never_too_small(lags: bool) -> None:
    def scenario(world: World) -> None:
        store = StoreDouble(world, latency=0.4)
        replica = replica_of(world, store, timing=FRESH)

        def write() -> None:
            for number in range(6):
                links = store.commit()
                if number % 2:  # the others are lost
                    deliver(replica, *links)
                world.sleep(0.7)

        def publish() -> None:
            answered: list[object] = []
            while True:
                world.scheduler.block("a hello request", lambda: len(replica.driver.asked) > len(answered))
                answered[:] = replica.driver.asked
                answer(replica, store, takes=0.3)

        def look() -> None:
            for _ in range(20):
                replica.check_staleness(store, "t")
                world.sleep(0.25)

        world.spawn(publish)
        world.together(replica.start, write, look)
        if not lags:
            world.until(lambda: replica.known("t") == 6, "the last change", 10.0)

    explore(scenario, seeds=range(80), lags=lags)


def test_replica_closed_during_its_start_ends() -> None:
    def scenario(world: World) -> None:
        store = StoreDouble(world, latency=0.1)
        store.commit()
        replica = replica_of(world, store, journal=True)

        def start() -> None:
            try:
                replica.start()
            except PubSubError:
                pass

        world.together(start, replica.stop)
        world.sleep(5.0)
        check_ended(world, replica)

    explore(scenario, deviations=1)
    explore(scenario, seeds=range(150))


def test_replica_closed_while_it_works_ends_once() -> None:
    def scenario(world: World) -> None:
        store = StoreDouble(world)
        store.commit()
        replica = synced(world, replica_of(world, store, journal=True))
        replica.on("port", lambda event: None)

        def wait() -> None:
            with pytest.raises(ClosedError):
                replica.wait_for(99)

        def receive() -> None:
            deliver(replica, *store.commit())

        world.together(wait, receive, replica.stop, replica.close)
        world.sleep(5.0)
        check_ended(world, replica)

    explore(scenario, deviations=1)
    explore(scenario, seeds=range(150))


def test_replica_closed_by_a_handler_ends() -> None:
    def scenario(world: World) -> None:
        store = StoreDouble(world)
        replica = synced(world, replica_of(world, store))
        replica.on("port", lambda event: replica.close())
        deliver(replica, *store.commit())
        world.sleep(20.0)
        check_ended(world, replica)

    explore(scenario, deviations=1)


def check_ended(world: World, replica: WatchedReplica) -> None:
    """No thread of the replica runs."""
    for loop in (replica.threads.loops["clock"], replica.threads.loops["sync"]):
        thread: Any = loop._thread
        world.check(not thread.is_alive(), f"{thread.name} runs after close()")
    world.check(replica.driver.closed, "the driver is open")
    with pytest.raises(ClosedError):
        replica.get("port", "k")


def test_reads_hold_the_lock() -> None:
    def scenario(world: World) -> None:
        store = StoreDouble(world)
        store.commit()
        replica = synced(world, replica_of(world, store, [ALL]))
        replica.add_index("all", "port", lambda value: "x")

        def read() -> None:
            replica.get("port", "k")
            replica.record("port", "k")
            replica.lookup("all", "x")
            list(replica.iterate("port"))
            replica.records()
            replica.contents("t")
            replica.status()
            world.check(replica.topics == (ALL,), "topics")

        world.together(read, lambda: replica.driver.deliver(envelope(*store.commit())))

    explore(scenario, deviations=1)
