"""A real publisher around doubles of driver, store and journal."""

from typing import Any, Final, cast

from pubsub_lib import Publisher, Settings, Timing
from pubsub_lib.core.envelope import HelloRequest
from pubsub_lib.journal import Journal
from tests.scheduler.doubles import JournalDouble, PublisherDouble, StoreDouble
from tests.scheduler.explore import World

TIMING: Final = Timing(max_idle_time=10.0, reading_age=1.0)


class Bench:
    """A publisher that is not started, and its doubles."""

    def __init__(self, world: World, *, latency: float = 0.0, timing: Timing = TIMING) -> None:
        self.world = world
        self.store = StoreDouble(world, latency)
        self.journal = JournalDouble(world)
        self.driver = PublisherDouble(world, self.store, self.journal)
        self.asked = 0
        settings = Settings(store_url="sqlite://", service_name="api-1", timing=timing)
        self.publisher = Publisher(settings, self.store, self.driver, journal=cast("Journal", self.journal))

    def started(self) -> "Bench":
        with self.world.calm():
            self.publisher.start()
            self.world.until(lambda: self.hellos(), "the start hello", 5.0)
        return self

    def hellos(self, nonce: str = "") -> list[Any]:
        found = [envelope.hello for envelope in self.driver.sent if envelope.hello is not None]
        return [hello for hello in found if hello.nonce == nonce and not hello.goodbye]

    def ask(self, nonce: str, *topics: str) -> None:
        """A hello request, on the driver's thread."""
        self.world.scheduler.point(f"gets the hello request {nonce}")
        self.driver.on_hello_request(HelloRequest(nonce, topics or ("t",)))

    def check_ended(self) -> None:
        self.world.sleep(5.0)
        thread: Any = self.publisher._loop._thread
        self.world.check(not thread.is_alive(), "the thread of the hellos runs after close()")
        self.world.check(self.driver.closed, "the driver is open")
        self.world.check(not self.store.listeners, "the store still calls the publisher at each commit")
