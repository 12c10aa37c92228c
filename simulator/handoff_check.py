"""A service's check of what workers hand over (rule 14), as :mod:`pubsub_lib.service.outgoing` and
:mod:`pubsub_lib.service.changelog_reader` make it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pubsub_lib.core.handoffs import Handoffs
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
        self._handoffs = Handoffs(HANDOFF_AFTER, QUARANTINE)

    def taken(self, item: "HandedOver") -> Sequence[Link]:
        """A worker hands links over. The links to publish."""
        if self._handoffs.excludes(item.worker):
            return ()
        self._service.world.monitor.handed_over(self._service.process, item.worker)
        fresh = self._service.unpublished.handed_over(item.links)
        self._handoffs.add(fresh, (self._service.name, item.worker))
        return fresh

    def read(self, links: Sequence[Link], *, complete: bool) -> None:
        """The changelog was read."""
        if not complete:
            self._forget()
        self._handoffs.confirm(link.point for link in links)

    def judge(self, after: Point) -> Steps:
        """Look up what the changelog did not show, together with the point up to which it was read."""
        service = self._service
        overdue = self._handoffs.overdue(service.process.clock.now())
        if not overdue:
            return
        database = service.world.database
        points = [after, *overdue]
        try:
            own, *held = yield from database.query("place", lambda: database.store.holds(ALL, points), service.name)
        except StoreUnavailable:
            return
        if not own:
            self._forget()
            return
        for each in self._handoffs.judge(overdue, held, service.process.clock.now()):
            service.world.monitor.worker_excluded(service.process, each.uuid)

    def _forget(self) -> None:
        self._handoffs.forget()
        self._service.world.monitor.handoffs_forgotten(self._service.process)
