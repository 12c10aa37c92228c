"""The service's part in the sync channel: the route of its HTTP endpoint, and its counters."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from pubsub_lib.config.service import ServiceSettings
from pubsub_lib.http_routes import Streaming
from pubsub_lib.settings import Settings
from pubsub_lib.sync.question import SyncSource
from pubsub_lib.sync.server import ROUTE, SyncRoute

Counters = Callable[[], Mapping[str, Mapping[str, float]]]


class Syncs(NamedTuple):
    """The route, if the service has it."""

    route: SyncRoute | None

    @property
    def streams(self) -> Mapping[str, Streaming]:
        """For the HTTP endpoint."""
        return {} if self.route is None else {ROUTE: self.route}

    def counters_with(self, counters: Counters) -> Counters:
        """These counters, and those of the route."""
        route = self.route
        return counters if route is None else lambda: {**counters(), "sync_channel": route.counters()}


def syncs_of(source: SyncSource, settings: Settings, service: ServiceSettings) -> Syncs:
    """The route of these settings, which answers from this source. A transfer takes at most ``sync_timeout``, after
    which the replica has given it up.
    """
    if not service.serve_syncs:
        return Syncs(None)
    return Syncs(SyncRoute(source, service.max_syncs, settings.timing.sync_timeout, service.snapshot_bytes))
