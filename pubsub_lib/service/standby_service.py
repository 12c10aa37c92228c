"""``publisher-service`` with ``role = standby``: it answers first syncs from a copy of the database.

It sends no message and writes nothing, so it has no entry in the directory and no lease. How far a copy is behind is
not known, so its answers have no age, and by rule R3 (docs/protocol.md) a replica uses them for first syncs alone.
Thread: ``pubsub-standby`` reads the copy's position.
"""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import msgspec

from pubsub_lib.config.service import STANDBY, ServiceSettings
from pubsub_lib.constructor_checks import check_settings
from pubsub_lib.core.model import SyncAnswer
from pubsub_lib.errors import PubSubError
from pubsub_lib.latency import Latencies
from pubsub_lib.logs import logger
from pubsub_lib.service import roles
from pubsub_lib.service.health import hanging
from pubsub_lib.service.status import About, Sources, StatusReader
from pubsub_lib.service.step_times import longest_step, max_quiet
from pubsub_lib.settings import Settings
from pubsub_lib.store import Store
from pubsub_lib.sync.agents import Agents
from pubsub_lib.sync.packing import read_packed
from pubsub_lib.sync.question import SyncQuestion
from pubsub_lib.threads.periodic_thread import PeriodicThread
from pubsub_lib.version import __version__

_log = logger(__name__)

CLOSE_TIMEOUT = 2.0
"""Seconds that ``close`` waits for a query that runs."""


class StandbyService:
    """One start of such a service. As :class:`pubsub_lib.service.service.PublisherService`."""

    failure: PubSubError | None = None
    """Nothing stops it: no other service can have taken its name."""
    address: str = ""
    """Replicas do not listen to it."""

    def __init__(
        self,
        settings: Settings,
        service: ServiceSettings,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """Opens the database. ``on_failure`` is never called. Raises ConfigError, StoreError."""
        check_settings(settings)
        roles.check_standby(settings, service)
        self.uuid = uuid.uuid4().hex
        """The identity of this start, in its log and on its status page."""
        self._name = settings.service_name
        self._store = Store(settings, read_only=True)
        self._interval = service.follow_interval
        self._lease = service.lease
        self._max_quiet = max_quiet(service.lease, service.follow_interval)
        self._max_busy = longest_step(settings.store)
        self._position: int | None = None
        """None: the copy was not read yet."""
        self._loops = {"standby": PeriodicThread("standby", self._look)}
        self._running = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the thread. Raises TransportError; then everything is released."""
        try:
            for loop in self._loops.values():
                loop.start()
        except BaseException:
            self.close()
            raise
        self._running = True

    def close(self) -> None:
        """Release everything. Blocks for at most ``CLOSE_TIMEOUT``."""
        self._running = False
        for name, loop in self._loops.items():
            if not loop.close(CLOSE_TIMEOUT):
                _log.warning("the thread %s still waits for the database at shutdown", name)
        self._store.close()

    def adjust(self, service: ServiceSettings) -> None:
        """Use the interval of these settings from now on, and no other one. Any thread, does not block."""
        self._interval = service.follow_interval
        self._max_quiet = max_quiet(self._lease, service.follow_interval)
        self._loops["standby"].wake()

    def answer_sync(self, question: SyncQuestion) -> SyncAnswer:
        """Answer a sync of a replica from the copy, without an age. Any thread; blocks, raises StoreError."""
        return msgspec.structs.replace(self._store.read_sync(question.wants, read_packed), ages={})

    def agents_route(self, address: str) -> None:
        """It takes no announcements: replicas announce themselves where they listen."""

    def problems(self) -> list[str]:
        """The reasons why the service is not ready, one sentence each; empty when it is. Any thread, does not block."""
        if not self._running:
            return ["the service is not running"]
        quiet = time.monotonic() - self._loops["standby"].last_success
        return ["the standby database is not being read"] if quiet > self._max_quiet else []

    def stuck(self) -> Sequence[str]:
        """The hanging threads, one sentence each. Any thread, does not block."""
        now = time.monotonic()
        return hanging({name: loop.running_for(now) for name, loop in self._loops.items()}, self._max_busy)

    def counters(self) -> Mapping[str, Mapping[str, float]]:
        """Counters, by part of the service. Any thread, does not block."""
        return {"failures": {name: loop.failures for name, loop in self._loops.items()}}

    def gauges(self) -> Mapping[str, Mapping[str, float]]:
        """The position of the copy, after its first reading. Any thread, does not block."""
        position = self._position
        return {"standby": {} if position is None else {"position": float(position)}}

    def latencies(self) -> Mapping[str, Latencies]:
        """It measures none."""
        return {}

    def status_reader(
        self, driver: str, address: str, agents: Callable[[], Agents | None] = lambda: None
    ) -> StatusReader:
        """For the status page."""
        sources = Sources(
            about=About(self._name, self.uuid, __version__, driver, address, STANDBY),
            problems=lambda: [*self.problems(), *self.stuck()],
            directory=None,
            clients=lambda: None,
            counters=self.counters,
            gauges=self.gauges,
            excluded=lambda: (),
            loops=self._loops,
            progress=lambda timeout: None,
            agents=agents,
        )
        return StatusReader(sources, time.monotonic())

    def _look(self, now: float) -> float:
        self._position = self._store.read_heads(()).store.position
        return now + self._interval
