"""The service's send path: workers hand over while the changelog is followed, and each link is sent once."""

from collections.abc import Collection, Sequence

import pytest

from pubsub_lib import Settings
from pubsub_lib.core.model import Link
from pubsub_lib.core.unpublished_links import UnpublishedLinks
from pubsub_lib.publisher.publisher import Publisher
from pubsub_lib.service.changelog_reader import ChangelogReader
from pubsub_lib.service.outgoing import Outgoing
from pubsub_lib.service.receiving import Receiving
from pubsub_lib.threads.periodic_thread import PeriodicThread
from tests.scheduler.doubles import JournalDouble, PublisherDouble, StoreDouble, SubscriberDouble
from tests.scheduler.explore import DEEP, World, explore
from tests.unit.core.builders import STORE, envelope

GRACE = 0.5
INTERVAL = 0.2
SOON = 0.01


class Deciding(UnpublishedLinks):
    """Records the links that were selected for sending, in order."""

    def __init__(self) -> None:
        super().__init__("api-1", GRACE, 60.0)
        self.decided: list[int] = []

    def handed_over(self, links: Sequence[Link], *, compared: bool = False) -> list[Link]:
        return self._noted(super().handed_over(links, compared=compared))

    def due(self, now: float, live: Collection[str], holds_orphans: bool) -> list[Link]:
        return self._noted(super().due(now, live, holds_orphans))

    def _noted(self, links: list[Link]) -> list[Link]:
        self.decided += [link.point.position for link in links]
        return links


class Host:
    """One host's service around doubles: receiving, following, the send path and the publisher are real."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.store = StoreDouble(world)
        self.journal = JournalDouble(world)
        self.driver = PublisherDouble(world, self.store)
        self.hop = SubscriberDouble(world)
        settings = Settings(store_url="sqlite://", service_name="api-1")
        given: object = self.journal
        self.publisher = Publisher(settings, self.store, self.driver, journal=given)  # type: ignore[arg-type]
        self.unpublished = Deciding()
        self.outgoing = Outgoing("api-1", self.unpublished, self.publisher)
        self.receiving = Receiving(self.hop, "api-1", self.outgoing, lambda: STORE, given)  # type: ignore[arg-type]
        self.changelog_reader = ChangelogReader(self.store, self.outgoing, INTERVAL, lambda now: ((), True))
        self.loop = PeriodicThread("changelog", self.changelog_reader.step)

    def start(self) -> "Host":
        with self.world.calm():
            self.driver.initialize(lambda ask: None, lambda: None)
            self.publisher._started = True  # without its callback at commits: workers hand over
            self.receiving.start()
            self.loop.start()
            self.world.sleep(0.05)
        return self

    def hand_over(self, sequence: int) -> None:
        """A worker commits and pushes."""
        links = self.store.commit()
        self.hop.deliver(envelope(*links, sequence=sequence))

    def check_all_sent_once(self, positions: int) -> None:
        sent = self.driver.positions
        self.world.check(sorted(sent) == list(range(1, positions + 1)), f"sent: {sent}")


def test_each_link_is_sent_once_from_worker_or_changelog() -> None:
    def scenario(world: World) -> None:
        host = Host(world).start()

        def worker() -> None:
            host.hand_over(1)
            world.sleep(GRACE)
            host.hand_over(2)

        world.together(worker, host.store.commit)  # the second commit is not handed over
        world.until(lambda: len(host.driver.positions) == 3, "every link", GRACE + 2 * INTERVAL + SOON)
        world.sleep(2.0)
        host.check_all_sent_once(3)

    explore(scenario, deviations=2)
    explore(scenario, seeds=range(150))


@pytest.mark.parametrize("late", [True, False])
def test_links_are_sent_in_the_order_of_decisions(late: bool) -> None:
    def scenario(world: World) -> None:
        host = Host(world).start()
        links = host.store.commit()
        host.store.commit()  # it is not handed over
        host.loop.wake()

        def hand_over() -> None:
            world.sleep(GRACE)  # now the changelog's links are due
            host.hop.deliver(envelope(*(links if late else host.store.commit())))

        world.together(hand_over)
        world.sleep(2.0)
        decided, sent = host.unpublished.decided, host.driver.positions
        world.check(sent == decided, f"decided: {decided}, sent: {sent}")

    explore(scenario, deviations=2)


def test_link_handed_over_late_is_not_sent_again() -> None:
    def scenario(world: World) -> None:
        host = Host(world).start()
        links = host.store.commit()

        def late() -> None:
            world.sleep(GRACE + INTERVAL)  # the link is due now, or being sent
            host.hop.deliver(envelope(*links))

        world.together(late, lambda: world.sleep(GRACE), host.loop.wake)
        world.sleep(2.0)
        host.check_all_sent_once(1)

    explore(scenario, deviations=DEEP)
    explore(scenario, seeds=range(100))


def test_taken_link_is_in_the_journal_before_it_is_sent() -> None:
    def scenario(world: World) -> None:
        host = Host(world).start()
        sends = host.driver.send_event

        def send(sent: object) -> None:
            for message in sent.messages:  # type: ignore[attr-defined]
                position = message.link.point.position
                world.check(not host.journal.lacks("taken", "t", position), f"{position} is sent before it is taken")
            sends(sent)  # type: ignore[arg-type]

        host.driver.send_event = send  # type: ignore[method-assign, assignment]
        host.hand_over(1)
        host.hand_over(2)
        world.check(host.driver.positions == [1, 2], f"sent: {host.driver.positions}")

    explore(scenario, deviations=1)
