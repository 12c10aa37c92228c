"""Writers, a publisher, the memory driver and a replica, all real, while messages are lost and the store is slow.

The invariants are the simulator's, as far as they concern one process: whole links, no version back, staleness never
too small, a replica that equals the store within the bound.
"""

from typing import Any

import pytest

from pubsub_lib import Publisher, Settings, Timing
from pubsub_lib.core.events import Event
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import Link, Point
from pubsub_lib.core.timing import lost_message_bound
from pubsub_lib.fault_injection import PERFECT, Loss
from pubsub_memory.bus import MemoryBus
from pubsub_memory.publisher import MemoryPublisher
from pubsub_memory.subscriber import MemorySubscriber
from tests.scheduler.doubles import StoreDouble, unavailable
from tests.scheduler.explore import World, explore
from tests.scheduler.replicas import replica_of

TIMING = Timing(
    max_idle_time=2.0,
    message_delay_window=0.5,
    hello_wait=0.5,
    reading_age=1.0,
    round_trip=1.0,
    poll_interval=1.0,
    sync_jitter=0.1,
    sync_interval=0.1,
    sync_backoff=0.5,
    max_sync_backoff=2.0,
)
LATENCY = 0.02
BOUND = lost_message_bound(TIMING, LATENCY, sync_wait=TIMING.max_sync_backoff + TIMING.sync_interval)
TOPICS = ("t", "u")


class Commit:
    """A commit for which a writer waits."""

    def __init__(self, store: StoreDouble, *writes: tuple[str, str, str | None]) -> None:
        self.links: list[Link] = store.commit(*writes)
        self.point = Point(self.links[0].point.position, self.links[0].point.nonce)


class System:
    """The whole system, with its invariants at any moment."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.store = StoreDouble(world, LATENCY)
        self.store.commit(("t", "a", "0"), ("t", "b", "0"))
        self.bus = MemoryBus()
        settings = Settings(store_url="sqlite://", service_name="api-1", timing=TIMING)
        self.publisher = Publisher(settings, self.store, MemoryPublisher(self.bus, Limits()))
        subscriber = MemorySubscriber(self.bus, Limits(), 1000)
        self.replica = replica_of(world, self.store, TOPICS, timing=TIMING, journal=True, driver=subscriber)
        self.handled: dict[tuple[str, str], int] = {}

    def write(self) -> None:
        """Transactions that write one value to two objects of a topic, and at times to another topic too."""
        for _ in range(4):
            self.world.sleep(self.world.rng.uniform(0.0, 0.8))
            value = str(self.world.rng.randrange(1000))
            more = [("u", "k", value)] if self.world.rng.random() < 0.5 else []
            commit = Commit(self.store, ("t", "a", value), ("t", "b", value), *more)
            if self.world.rng.random() < 0.3:
                self.replica.wait_for(commit, timeout=2 * BOUND)
                known = self.replica.known("t")
                self.world.check(known >= commit.point.position, f"wait_for({commit.point}) returned at {known}")

    def disturb(self) -> None:
        """Losses, cuts, a store that is slow or unavailable; at the end all faults are removed."""
        for _ in range(3):
            self.world.sleep(self.world.rng.uniform(0.0, 1.0))
            what = self.world.rng.choice(("loss", "cut", "slow", "away"))
            if what == "loss":
                self.bus.set_loss(Loss(drop=0.4, duplicate=0.2, reorder=0.2, delay=0.2), self.world.rng.randrange(99))
            elif what == "cut":
                self.bus.cut()
            elif what == "slow":
                self.store.latency = 0.7
            else:
                self.store.failures = [unavailable(), unavailable()]
            self.world.sleep(self.world.rng.uniform(0.0, 1.0))
            self.bus.set_loss(PERFECT)
            self.bus.restore()
            self.store.latency = LATENCY

    def change_interest(self) -> None:
        for _ in range(2):
            self.world.sleep(self.world.rng.uniform(0.0, 1.0))
            self.replica.subscribe("v")
            self.world.sleep(self.world.rng.uniform(0.0, 1.0))
            self.replica.unsubscribe("v")

    def look(self) -> None:
        for _ in range(25):
            self.world.sleep(0.2)
            self.replica.check_staleness(self.store, "t")
            values = {record.value for record in self.replica.records(topic="t")}
            self.world.check(len(values) <= 1, f"one transaction wrote one value to both objects: {values}")

    def handle(self, event: Event) -> None:
        ident, version = (event.table, event.key), event.version or 0
        last = self.handled.get(ident, 0)
        self.world.check(version > last, f"{ident}: version {version} is handled after {last}")
        self.handled[ident] = version

    def is_equal(self) -> bool:
        return all(self.replica.known(topic) == self.store.history.head(topic).position for topic in TOPICS)

    def check_equal(self) -> None:
        for topic in TOPICS:
            held = {(each.table, each.key): (each.version, each.json) for each in self.replica.records(topic=topic)}
            objects = self.store.history.objects.get(topic, {})
            kept = {ident: (each.version, each.value) for ident, each in objects.items()}
            self.world.check(held == kept, f"of {topic!r} the replica holds {held} and the store {kept}")
        faults = self.replica.status().faults
        self.world.check(not faults.guarded and not faults.mismatches, f"{faults}")
        versions = {(each.table, each.key): each.version for each in self.replica.records()}
        self.world.check(self.handled == versions, f"handled {self.handled} of {versions}")


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_replica_equals_the_store_within_the_bound(first: int) -> None:
    def scenario(world: World) -> None:
        system = System(world)
        system.replica.on("port", system.handle)
        world.together(system.publisher.start, system.replica.start)
        world.together(system.write, system.write, system.disturb, system.change_interest, system.look)
        world.until(system.is_equal, "a replica that equals the store", BOUND)
        world.sleep(0.1)  # its handler has the last changes too
        system.check_equal()
        world.together(system.replica.stop, system.publisher.close, system.store.commit)
        world.sleep(2 * TIMING.max_idle_time)
        threads: list[Any] = [
            system.replica.threads.loops["clock"]._thread,
            system.replica.threads.loops["sync"]._thread,
            system.publisher._loop._thread,
        ]
        for thread in threads:
            world.check(not thread.is_alive(), f"{thread.name} runs after close()")

    explore(scenario, seeds=range(first, first + 20))
