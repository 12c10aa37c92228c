"""The cost of a lost wake-up: ``python -m tests.scheduler.late_wakes`` prints docs/contributing/scheduler.md's table.

Each case runs with default times under many seeds, once as it is, and once with every wake-up of one thread lost from a
random moment on. A thread that is not woken still runs at its next *tick*: the time until which it sleeps.
"""

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from pubsub_lib import Timing
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import SyncAnswer, Want
from pubsub_lib.threads.periodic_thread import PeriodicThread
from pubsub_sql.subscriber import PollingSubscriber
from tests.scheduler.bench import Bench
from tests.scheduler.choices import Chance
from tests.scheduler.doubles import StoreDouble, unavailable
from tests.scheduler.explore import World, run
from tests.scheduler.replicas import WatchedReplica, answer, deliver, replica_of

TIMING: Final = Timing(recount_time=0.0)
"""The default times, without the recount of the memory: its ticks would hide a lost wake-up."""
LATENCY: Final = 0.05
"""Duration of a reading in seconds."""
SLOWEST_POLL: Final = 2.0
SETTLED: Final = 20.0
"""Virtual seconds before a wake-up is lost."""
GIVEN_UP: Final = 300.0

Started = tuple[Callable[[], None], Callable[[], object]]
"""The action at the begin, and whether its effect has come."""


class Case(NamedTuple):
    """A wake-up and its effect."""

    name: str
    effect: str
    prompt: float
    """Maximum seconds to the effect when the wake-up is not lost."""
    tick: float
    """Maximum seconds until the thread runs without a wake-up."""
    tick_is: str
    begin: Callable[[World, bool], Started]
    """Start everything; the flag makes the wake-ups lost."""


def _lose(lost: bool, owner: Any, name: str = "wake") -> None:
    if lost:
        setattr(owner, name, lambda: None)


# -- a replica, and a publisher that answers its hello requests --------------------------------------------------------


class _Store(StoreDouble):
    """Records that buckets were read."""

    wanted_buckets = False

    def read_sync(self, wants: Mapping[str, Want]) -> SyncAnswer:
        self.wanted_buckets |= any(want.buckets is not None for want in wants.values())
        return super().read_sync(wants)


def _replica(world: World, topics: Sequence[str] = ("t",)) -> tuple[WatchedReplica, _Store]:
    store = _Store(world, LATENCY)
    store.commit(("t", "k", "1"), ("u", "k", "1"))
    replica = replica_of(world, store, topics, timing=TIMING)

    def publish() -> None:
        answered = 0
        while True:
            world.scheduler.block("a hello request", lambda: len(replica.driver.asked) > answered)  # noqa: B023 - meant
            answered = len(replica.driver.asked)
            answer(replica, store, takes=LATENCY)

    replica.start()
    world.spawn(publish)
    world.sleep(SETTLED + world.rng.uniform(0.0, TIMING.max_idle_time))
    return replica, store


def _link_begins_to_wait(world: World, lost: bool) -> Started:
    replica, store = _replica(world)
    _lose(lost, replica.threads.loops["clock"])

    def begin() -> None:
        store.commit()
        deliver(replica, *store.commit())

    return begin, lambda: replica.known("t") == 4


def _digest_differs(world: World, lost: bool) -> Started:
    """No wake-up is removed here: while a link waits, the clock is not woken for a digest that differs."""
    replica, store = _replica(world, ["t", "u"])
    if lost:
        store.commit()
        deliver(replica, *store.commit())  # it waits for the one before it
        world.sleep(world.rng.uniform(0.0, TIMING.message_delay_window / 2))
    (link,) = store.commit(("u", "k", "2"))
    wrong = msgspec.structs.replace(link, digest=link.digest ^ 1)
    return lambda: deliver(replica, wrong), lambda: store.wanted_buckets


def _sync_fails(world: World, lost: bool) -> Started:
    replica, store = _replica(world)
    _lose(lost, replica.threads.loops["clock"])
    store.failures = [unavailable()]

    def begin() -> None:
        store.commit()
        replica.resync("t")
        if lost:
            PeriodicThread.wake(replica.threads.loops["clock"])  # this wake-up is not the tested one

    return begin, lambda: replica.known("t") == 3


def _topic_is_followed(world: World, lost: bool) -> Started:
    replica, _ = _replica(world)
    _lose(lost, replica.threads.loops["clock"])
    return lambda: replica.subscribe("u"), lambda: replica.known("u") == 2


def _replica_is_connected(world: World, lost: bool) -> Started:
    replica, _ = _replica(world)
    _lose(lost, replica.threads.loops["clock"])
    asked = len(replica.driver.asked)
    return replica.driver.connect, lambda: len(replica.driver.asked) > asked


def _sync_is_to_start(world: World, lost: bool) -> Started:
    replica, store = _replica(world)
    syncs = replica.threads.loops["sync"]
    if lost:

        def wake_later() -> None:
            del syncs.__dict__["wake"]  # only this wake-up is lost

        syncs.__dict__["wake"] = wake_later
    store.commit()
    return lambda: replica.resync("t"), lambda: replica.known("t") == 3


# -- a publisher -------------------------------------------------------------------------------------------------------


def _publisher(world: World, lost: bool) -> Bench:
    bench = Bench(world, latency=LATENCY, timing=TIMING)
    bench.publisher.start()
    world.sleep(SETTLED + world.rng.uniform(0.0, TIMING.max_idle_time))
    _lose(lost, bench.publisher._loop)
    return bench


def _publisher_is_asked(world: World, lost: bool) -> Started:
    bench = _publisher(world, lost)
    return lambda: bench.ask("n1"), lambda: bench.hellos("n1")


def _subscriber_connects(world: World, lost: bool) -> Started:
    bench = _publisher(world, lost)
    before = len(bench.hellos())
    return lambda: bench.driver.on_connected(), lambda: len(bench.hellos()) > before


# -- the polling driver ------------------------------------------------------------------------------------------------


def _poller_is_asked(world: World, lost: bool) -> Started:
    store = StoreDouble(world, LATENCY)
    subscriber = PollingSubscriber(
        lambda: store, Limits(), fastest=0.1, slowest=SLOWEST_POLL, batch=100, max_backoff=SLOWEST_POLL
    )
    received: list[Any] = []
    subscriber.initialize(received.append, lambda: None)
    subscriber.daemonize()
    world.sleep(SETTLED + world.rng.uniform(0.0, SLOWEST_POLL))
    _lose(lost, subscriber, "_wake")
    return lambda: subscriber.request_hello("n1", ["t"]), lambda: received


SYNC: Final = TIMING.sync_jitter + LATENCY
"""Maximum duration of one sync that may start at once."""
CASES: Final = (
    Case(
        "clock, when a link begins to wait",
        "the lost link is read",
        TIMING.message_delay_window + SYNC,
        TIMING.max_idle_time,
        "`max_idle_time`",
        _link_begins_to_wait,
    ),
    Case(
        "clock, after a sync that failed",
        "it is tried again",
        TIMING.sync_jitter + TIMING.sync_backoff + SYNC + LATENCY,
        TIMING.max_idle_time,
        "`max_idle_time`",
        _sync_fails,
    ),
    Case(
        "clock, when a topic is followed",
        "it is read",
        TIMING.hello_wait + SYNC,
        TIMING.max_idle_time,
        "`max_idle_time`",
        _topic_is_followed,
    ),
    Case(
        "clock, when the replica is connected",
        "it asks for hello replies",
        TIMING.connect_jitter,
        TIMING.max_idle_time,
        "`max_idle_time`",
        _replica_is_connected,
    ),
    Case(
        "clock, when a digest differs while a link waits",
        "the buckets are read",
        SYNC,
        TIMING.message_delay_window,
        "`message_delay_window`",
        _digest_differs,
    ),
    Case(
        "sync thread, when a sync is to start",
        "the chain is read",
        SYNC,
        TIMING.sync_timeout + TIMING.sync_backoff + TIMING.sync_jitter,
        "`sync_timeout` + `sync_backoff` + `sync_jitter`",
        _sync_is_to_start,
    ),
    Case(
        "publisher's loop, at a hello request",
        "it is answered",
        2 * LATENCY,
        TIMING.max_idle_time,
        "`max_idle_time`",
        _publisher_is_asked,
    ),
    Case(
        "publisher's loop, when a subscriber connects",
        "a hello is sent",
        1.0 + 2 * LATENCY,
        TIMING.max_idle_time,
        "`max_idle_time`",
        _subscriber_connects,
    ),
    Case(
        "polling driver, at a hello request",
        "it is answered",
        2 * LATENCY,
        SLOWEST_POLL,
        "the slowest poll",
        _poller_is_asked,
    ),
)


def delays(case: Case, lost: bool, seeds: Collection[int]) -> list[float]:
    """Virtual seconds from the begin to the effect, one for each seed. Raises Failure when the effect does not come."""
    found: list[float] = []

    def scenario(world: World) -> None:
        begin, done = case.begin(world, lost)
        began = world.now
        begin()
        world.until(done, case.effect, GIVEN_UP)
        found.append(world.now - began)

    for seed in seeds:
        run(scenario, Chance(seed))
    return found


def table(seeds: Collection[int]) -> str:
    """The table in Markdown."""
    lines = [
        "| wake-up | effect | within | longest seen | lost: the next tick | within | longest seen |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in CASES:
        prompt, late = max(delays(case, False, seeds)), max(delays(case, True, seeds))
        lines.append(
            f"| {case.name} | {case.effect} | {case.prompt:.2f} s | {prompt:.2f} s | {case.tick_is} "
            f"| {case.prompt + case.tick:.2f} s | {late:.2f} s |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(table(range(500)) + "\n")
