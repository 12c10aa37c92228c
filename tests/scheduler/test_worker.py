"""A worker that hands links over: several threads commit, one closes."""

from typing import Any, cast

from pubsub_lib import Settings, Worker
from pubsub_lib.core.model import Link
from pubsub_lib.errors import PubSubError
from pubsub_lib.publisher import worker as module
from tests.scheduler.doubles import JournalDouble, PublisherDouble, StoreDouble
from tests.scheduler.explore import DEEP, World, explore


def worker_of(world: World) -> tuple[Worker, StoreDouble, PublisherDouble]:
    """A worker that is not started."""
    store, driver = StoreDouble(world), PublisherDouble(world)
    worker = Worker(Settings(store_url="sqlite://", service_name="api-1"), store, driver)
    return worker, store, driver


def test_commits_of_several_threads_are_handed_over_in_order_of_sequences() -> None:
    def scenario(world: World) -> None:
        worker, store, driver = worker_of(world)
        cast("Any", worker)._journal = journal = JournalDouble(world)
        sends = driver.send_event

        def send(envelope: Any) -> None:
            for message in envelope.messages:
                link: Link = message.link
                lacks = journal.lacks("handed", link.topic, link.point.position)
                world.check(not lacks, f"{link.point} is handed over before the journal has it")
            sends(envelope)

        cast("Any", driver).send_event = send
        worker.start()

        def write() -> None:
            store.commit()
            store.commit()

        world.together(write, write)  # both threads open the first connection
        world.check(sorted(driver.positions) == [1, 2, 3, 4], f"handed over: {driver.positions}")
        world.check(worker.counters()["unsent"] == 0, "unsent")

    explore(scenario, deviations=2)
    explore(scenario, seeds=range(100))


def test_threads_of_one_process_share_one_connection() -> None:
    def scenario(world: World) -> None:
        store, made = StoreDouble(world), []

        class Made(Worker):
            def _load(self) -> PublisherDouble:
                made.append(PublisherDouble(world))
                return made[-1]

        worker = Made(Settings(store_url="sqlite://", service_name="api-1", multiproc_driver="doubled"), store)
        made.clear()  # the first one only checked that the driver can be loaded
        worker.start()
        world.together(store.commit, store.commit)
        world.check(len(made) == 1, f"{len(made)} connections, each with its own sequences")

    explore(scenario, deviations=DEEP, lines=[module])


def test_worker_closed_during_start_and_commits_ends() -> None:
    def scenario(world: World) -> None:
        worker, store, driver = worker_of(world)

        def start() -> None:
            try:
                worker.start()
            except PubSubError:
                pass

        world.together(start, worker.close, store.commit)
        world.check(not store.listeners, "the store still calls the worker at each commit")
        world.check(driver.closed or not driver.initialized, "the driver is open")

    explore(scenario, deviations=2)
    explore(scenario, seeds=range(100))


def test_thread_waiting_for_the_lock_gives_up_in_time() -> None:
    def scenario(world: World) -> None:
        worker, store, driver = worker_of(world)
        worker.start()
        store.commit()
        driver.refusing = 3.0
        world.spawn(store.commit)
        world.sleep(1.0)
        began = world.now
        store.commit()
        world.check(world.now - began <= 0.5, f"the commit waited {world.now - began:g} s for another thread's commit")

    explore(scenario, deviations=1)
