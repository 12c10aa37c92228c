"""A service's check of what workers hand over (rule 14), as :mod:`pubsub_lib.service.outgoing` and
:mod:`pubsub_lib.service.changelog_reader` make it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pubsub_lib.core.handoffs import Contradicted, Handoffs, contents_of
from pubsub_lib.core.model import ALL, Link, Point
from pubsub_lib.errors import StoreUnavailable
from simulator.kernel import Steps
from simulator.plan import HANDOFF_AFTER, QUARANTINE

if TYPE_CHECKING:
    from simulator.service import HandedOver, Service


class HandoffCheck:
    """The check of one start of a service."""

    def __init__(self, service: "Service") -> None:
        self._service = service
        self._handoffs = Handoffs(service.name, HANDOFF_AFTER, QUARANTINE)

    def taken(self, item: "HandedOver") -> Sequence[Link]:
        """A worker hands links over. The links to publish."""
        service, handoffs = self._service, self._handoffs
        if handoffs.excludes(item.worker):
            return ()
        service.world.monitor.handed_over(service.process, item.worker)
        unpublished, worker = service.unpublished, (service.name, item.worker)
        unknown = unpublished.unknown(item.links)
        handoffs.add(unknown, worker)
        known = [(link, unpublished.shown(link)) for link in item.links]
        true = [shown for link, shown in known if shown is not None and contents_of(shown) != contents_of(link)]
        self._exclude([each for link in true for each in handoffs.altered(link, worker)])
        if true or (unknown and handoffs.doubts(item.worker)):
            service.world.count("worker doubted")
            unpublished.expect(unknown)
            return unpublished.handed_over(true or [link for link, shown in known if shown is not None], compared=True)
        return unpublished.handed_over(item.links, compared=True)

    def read(self, links: Sequence[Link], *, complete: bool) -> None:
        """The changelog was read."""
        if not complete:
            self._forget()
        self._exclude(self._handoffs.confirm(links))

    def judge(self, after: Point) -> Steps:
        """Look up what the changelog did not show, together with the point up to which it was read."""
        service = self._service
        overdue = self._handoffs.overdue(service.process.clock.now())
        if not overdue:
            return
        database = service.world.database
        names = [(ALL, after), *overdue]
        try:
            own, *held = yield from database.query(
                "place", lambda: [database.store.holds(topic, [point])[0] for topic, point in names], service.name
            )
        except StoreUnavailable:
            return
        if not own:
            self._forget()
            return
        self._exclude(self._handoffs.judge(overdue, held, service.process.clock.now()))

    def _exclude(self, workers: Sequence[Contradicted]) -> None:
        for each in workers:
            self._service.world.monitor.worker_excluded(self._service.process, each.uuid)

    def _forget(self) -> None:
        self._handoffs.forget()
        self._service.world.monitor.handoffs_forgotten(self._service.process)
