"""A publisher-service: takes links from workers, reads the changelog for links not handed over, renews leases."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from pubsub_lib.core.envelope import HelloRequest
from pubsub_lib.core.lease import Lease
from pubsub_lib.core.model import Link, Point
from pubsub_lib.core.unpublished_links import UnpublishedLinks
from pubsub_lib.errors import StoreUnavailable
from simulator.directory import ENTRY
from simulator.handoff_check import HandoffCheck
from simulator.kernel import Await, LocalClock, Mailbox, Process, Sleep, Steps
from simulator.plan import LEASE_SECONDS
from simulator.publisher import PublisherTasks

if TYPE_CHECKING:
    from simulator.world import World

GRACE = 0.06
FOLLOW_INTERVAL = 0.12
ORPHANS = "orphans"
SERVICE = "service "


class HandedOver(msgspec.Struct, frozen=True):
    """A worker's links, the id of its store, and the worker's UUID."""

    links: Sequence[Link]
    store_id: bytes
    worker: str = ""


class Service:
    """One start of a service: a new UUID and an empty state."""

    def __init__(self, world: "World", name: str, uuid: str, clock: LocalClock) -> None:
        self.world = world
        self.name = name
        self.process = Process(world.kernel, "service", name, clock)
        self.inbox: Mailbox[HandedOver | HelloRequest] = Mailbox(2000)
        self.sender = PublisherTasks(
            world,
            self.process,
            uuid,
            lambda envelope: world.network.send(name, envelope),
            lambda: name in world.network.weather.refusing,
        )
        self.unpublished = UnpublishedLinks(name, GRACE, 3 * LEASE_SECONDS)
        self.own_lease = Lease(LEASE_SECONDS, clock.now())
        self.orphans = Lease(LEASE_SECONDS, clock.now())
        self.live: list[str] = []
        self._check = HandoffCheck(self) if world.plan.liars else None
        self._after: Point | None = None
        self.process.spawn(self._receiving())
        self.process.spawn(self._following())
        self.process.spawn(self._leasing())

    def ask(self, ask: HelloRequest) -> None:
        """A hello request arrived from the wire."""
        self.inbox.put(ask)

    def connected(self) -> None:
        """A replica has connected."""
        if self.world.plan.connections_seen:
            self.sender.connected()

    def _receiving(self) -> Steps:
        while True:
            yield Await("receive", self.inbox)
            while self.inbox.items:
                item = self.inbox.items.popleft()
                if isinstance(item, HelloRequest):
                    self.sender.asked(item)
                elif self.is_own(item):
                    taken = self.unpublished.handed_over(item.links) if self._check is None else self._check.taken(item)
                    self._publish(taken)
                yield Sleep("numbered", 0.0)

    def is_own(self, item: "HandedOver") -> bool:
        """Whether a worker of this store handed over (rule 15), as :mod:`pubsub_lib.service.receiving` checks it."""
        return item.store_id == self.sender.publishing.store_id

    def _publish(self, links: Sequence[Link]) -> None:
        if links:
            self.sender.out(self.sender.publishing.publish(links, self.process.clock.now()))

    def _following(self) -> Steps:
        """Follow the changelog from its head on."""
        store, database, clock = self.world.database.store, self.world.database, self.process.clock
        while True:
            yield Sleep("follow", FOLLOW_INTERVAL)
            try:
                if self._after is None:
                    heads = yield from database.query("head", lambda: store.read_heads(()), self.name)
                    self._after = heads.store
                    continue
                after = self._after
                links, head, complete = yield from database.query(
                    "links",
                    lambda: store.read_links(after, 50),  # noqa: B023 - called at once
                    self.name,
                )
            except StoreUnavailable:
                continue
            self._after = links[-1].point if complete and links else head
            self.unpublished.in_changelog(links, clock.now())
            if self._check is not None:
                self._check.read(links, complete=complete)
                yield from self._check.judge(self._after)
            held = self.orphans.held(clock.now())
            if held:
                self.world.monitor.acts_under_lease(self)
            due = self.unpublished.due(clock.now(), self.live, held)
            self._publish(due)
            self.unpublished.settle(due)

    def _leasing(self) -> Steps:
        database, clock = self.world.database, self.process.clock
        while True:
            for lease, name, holder in (
                (self.own_lease, SERVICE + self.name, self.sender.publishing.uuid),
                (self.orphans, ORPHANS, self.name + self.sender.publishing.uuid),
            ):
                if not lease.due(clock.now()):
                    continue
                asked = clock.now()
                lease.asked(asked)
                try:
                    granted = yield from database.query(
                        "lease",
                        lambda name=name, holder=holder: self._renew(name, holder),  # type: ignore[misc]
                        self.name,
                    )
                except StoreUnavailable:
                    continue
                if granted:
                    lease.granted(asked)
                else:
                    lease.refused()
            now = clock.now()
            wait = clock.true(min(self.own_lease.next_time(), self.orphans.next_time())) - clock.true(now)
            yield Sleep("leases", max(wait, 0.01))

    def _renew(self, name: str, holder: str) -> bool:
        """The server's work for one request: renew, list the live services, collect garbage, by its own clock."""
        store, now = self.world.database.store, self.world.database.clock.now()
        granted = store.acquire(name, holder, LEASE_SECONDS, now)
        if name != ORPHANS:
            store.acquire(ENTRY + holder, holder, LEASE_SECONDS, now)
        self.live = store.live(SERVICE, now)
        store.collect_garbage(now)
        return granted
