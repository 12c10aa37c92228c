"""A publisher's threads: writers that commit, the hello thread, the driver's requests, and threads that close."""

from collections.abc import Callable

import pytest

from pubsub_lib.core.sequencer import HELLO_DELAY, HELLO_SPACING
from pubsub_lib.errors import ClosedError, PubSubError
from tests.scheduler.bench import TIMING, Bench
from tests.scheduler.doubles import unavailable
from tests.scheduler.explore import DEEP, World, explore

SOON = 0.01


def test_links_are_sent_in_order_of_sequences_and_after_the_journal() -> None:
    def scenario(world: World) -> None:
        bench = Bench(world).started()

        def write() -> None:
            bench.store.commit()
            bench.store.commit(("t", "k", "2"), ("u", "k", "2"))

        world.together(write, write, lambda: bench.ask("n1"))
        world.check(len(bench.driver.positions) == 6, f"sent: {bench.driver.positions}")
        world.until(lambda: bench.hellos("n1"), "the answer", SOON)

    explore(scenario, deviations=1)
    explore(scenario, seeds=range(150))


def test_hello_never_has_an_age_below_its_readings_age() -> None:
    def scenario(world: World) -> None:
        bench = Bench(world, latency=0.8)

        def write() -> None:
            for _ in range(6):
                world.sleep(world.rng.choice((0.1, 0.5, 0.9, 2.5)))
                bench.store.commit()

        def ask() -> None:
            for number in range(4):
                world.sleep(world.rng.choice((0.3, 1.1)))
                bench.ask(f"n{number}")

        world.together(bench.publisher.start, write, ask)
        world.sleep(15.0)  # an idle hello comes as well
        world.check(len(bench.hellos()) >= 2, "no hello when it is idle")
        world.check(bench.hellos("n3"), "the last hello request is not answered")

    explore(scenario, seeds=range(60))


def test_hello_of_an_unchanged_store_has_the_age_of_its_reading() -> None:
    def scenario(world: World) -> None:
        bench = Bench(world, latency=0.8).started()
        world.sleep(2 * TIMING.reading_age)

        def write() -> None:
            world.sleep(world.rng.choice((0.3, 0.5, 0.7, 0.9)))  # in the middle of the reading that finds no change
            bench.store.commit()

        world.together(lambda: bench.ask("n1"), write)
        world.until(lambda: bench.hellos("n1"), "the answer", 4 * bench.store.latency)

    explore(scenario, seeds=range(40))


@pytest.mark.parametrize("nonces", [("n1",), ("n1", "n2")])
def test_hello_request_wakes_the_loop(nonces: tuple[str, ...]) -> None:
    def scenario(world: World) -> None:
        bench = Bench(world).started()
        world.sleep(2 * TIMING.reading_age)
        asks = [(lambda nonce=nonce: bench.ask(nonce)) for nonce in nonces]
        world.together(*asks, bench.publisher._loop.wake)
        world.until(lambda: all(bench.hellos(nonce) for nonce in nonces), "the answers", SOON)

    explore(scenario, deviations=DEEP)


def test_hello_request_is_answered_after_one_reading() -> None:
    def scenario(world: World) -> None:
        bench = Bench(world, latency=0.2).started()
        world.sleep(2 * TIMING.reading_age)
        asked = world.now

        def ask(nonce: str) -> Callable[[], None]:
            return lambda: bench.ask(nonce)

        world.together(ask("n1"), ask("n2"), bench.store.commit)
        world.until(lambda: bench.hellos("n1") and bench.hellos("n2"), "the answers", 4 * bench.store.latency + SOON)
        world.check(world.now - asked < TIMING.max_idle_time, "answers came by chance")

    explore(scenario, deviations=1)
    explore(scenario, seeds=range(100))


def test_connection_leads_to_a_hello() -> None:
    def scenario(world: World) -> None:
        bench = Bench(world).started()
        before = len(bench.hellos())

        def connect() -> None:
            world.scheduler.point("a subscriber connects")
            bench.driver.on_connected()

        world.together(connect, bench.store.commit, connect)
        world.until(lambda: len(bench.hellos()) > before, "a hello", 1.0 + SOON)

    explore(scenario, deviations=1)


@pytest.mark.parametrize("asks", [False, True])
def test_refused_hello_to_a_new_subscriber_is_retried_soon(asks: bool) -> None:
    def scenario(world: World) -> None:
        bench = Bench(world).started()
        world.sleep(2 * TIMING.reading_age)
        before = len(bench.hellos())
        bench.driver.refusing = 0.1
        bench.driver.on_connected()
        world.sleep(HELLO_DELAY)
        if asks:  # then the driver's thread may send the hello
            world.together(lambda: bench.ask("n1"), lambda: bench.ask("n2"))
        world.sleep(0.5)
        world.check(len(bench.hellos()) == before, "the transport refuses everything")
        bench.driver.refusing = 0.0
        world.until(lambda: len(bench.hellos()) > before, "the hello", HELLO_SPACING + SOON)

    explore(scenario, deviations=1)


def test_commit_does_not_wait_for_refused_hellos() -> None:
    def scenario(world: World) -> None:
        bench = Bench(world).started()
        world.sleep(2 * TIMING.reading_age)
        bench.driver.refusing = 0.5
        world.spawn(bench.ask, "n1", *[f"t{number}" for number in range(1000)])
        world.spawn(bench.ask, "n2")
        bench.driver.on_connected()
        world.sleep(0.2)  # hellos are on their way now
        began = world.now
        bench.store.commit()
        taken = world.now - began
        world.check(taken <= 0.5 + SOON, f"the commit took {taken:g} s; its own message takes 0.5 s to be refused")

    explore(scenario, deviations=1)


def test_commit_waiting_for_the_lock_gives_up_in_time() -> None:
    def scenario(world: World) -> None:
        bench = Bench(world).started()
        bench.driver.refusing = 3.0
        world.spawn(bench.store.commit)
        world.sleep(1.0)
        began = world.now
        bench.store.commit()
        world.check(world.now - began <= 0.5, f"the commit waited {world.now - began:g} s for another thread's commit")

    explore(scenario, deviations=1)


def test_failed_reading_of_the_store_is_retried() -> None:
    def scenario(world: World) -> None:
        bench = Bench(world)
        bench.store.failures = [unavailable(), ZeroDivisionError("a bug")]
        bench.publisher.start()
        world.until(lambda: bench.hellos(), "the start hello", 3 * TIMING.reading_age + SOON)

    explore(scenario, deviations=1)


def test_publisher_closed_during_its_start_ends() -> None:
    def scenario(world: World) -> None:
        bench = Bench(world, latency=0.1)

        def start() -> None:
            try:
                bench.publisher.start()
            except PubSubError:
                pass

        world.together(start, bench.publisher.close, bench.store.commit)
        bench.check_ended()
        bench.publisher.close()

    explore(scenario, deviations=DEEP)
    explore(scenario, seeds=range(150))


@pytest.mark.parametrize("fresh", [True, False])
def test_goodbye_is_the_last_message_and_comes_once(fresh: bool) -> None:
    def scenario(world: World) -> None:
        bench = Bench(world, latency=0.1).started()
        world.sleep(0.0 if fresh else 2 * TIMING.reading_age)
        world.together(
            bench.publisher.close, bench.store.commit, lambda: bench.ask("n1"), bench.publisher.close,
            bench.publisher._loop.wake,
        )  # fmt: skip
        goodbyes = [each for each in bench.driver.sent if each.hello is not None and each.hello.goodbye]
        world.check(len(goodbyes) == 1, f"{len(goodbyes)} goodbyes")
        bench.check_ended()
        with pytest.raises(ClosedError):
            bench.publisher.publish([])

    explore(scenario, deviations=1)
    explore(scenario, seeds=range(300))
