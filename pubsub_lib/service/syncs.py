"""The service's part in the sync channel: the routes of its HTTP endpoint, and their counters."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from pubsub_lib.config.service import STANDBY, ServiceSettings
from pubsub_lib.http_routes import Route, Streaming
from pubsub_lib.settings import Settings
from pubsub_lib.sync.agents import Agents
from pubsub_lib.sync.agents_server import GET_ROUTE, POST_ROUTE, AgentsRoute
from pubsub_lib.sync.question import SyncSource
from pubsub_lib.sync.server import ROUTE, SyncRoute

Numbers = Callable[[], Mapping[str, Mapping[str, float]]]


class Syncs(NamedTuple):
    """The routes, if the service has them."""

    route: SyncRoute | None
    agents: AgentsRoute | None

    @property
    def streams(self) -> Mapping[str, Streaming]:
        """For the HTTP endpoint."""
        found: dict[str, Streaming] = {} if self.route is None else {ROUTE: self.route}
        return found if self.agents is None else {**found, POST_ROUTE: self.agents}

    @property
    def routes(self) -> Mapping[str, Route]:
        """For the HTTP endpoint."""
        return {} if self.agents is None else {GET_ROUTE: self.agents.answer}

    def known(self) -> Agents | None:
        """For the status page: the agents, if the service takes announcements."""
        return None if self.agents is None else self.agents.agents()

    def counters_with(self, counters: Numbers) -> Numbers:
        """These counters, and those of the routes."""
        route, agents = self.route, self.agents
        if route is None:
            return counters
        if agents is None:
            return lambda: {**counters(), "sync_channel": route.counters()}
        return lambda: {**counters(), "sync_channel": route.counters(), "announcements": agents.counters()}

    def gauges_with(self, gauges: Numbers) -> Numbers:
        """These gauges, and those of the agents."""
        agents = self.agents
        return gauges if agents is None else lambda: {**gauges(), "agents": agents.gauges()}


def syncs_of(source: SyncSource, agents: AgentsRoute | None, settings: Settings, service: ServiceSettings) -> Syncs:
    """The routes of these settings: syncs, which this source answers, and the agents. A request takes at most
    ``sync_timeout``, after which the replica has given it up. ``agents``: None when the service takes no announcements.
    """
    if not service.serve_syncs:
        return Syncs(None, None)
    firsts = service.role == STANDBY
    route = SyncRoute(source, service.max_syncs, settings.timing.sync_timeout, service.snapshot_bytes, firsts=firsts)
    return Syncs(route, agents)
