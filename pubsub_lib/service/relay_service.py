"""``publisher-service`` with ``role = relay``: a relay with an entry in the directory, if it has a database.

Threads: those of the relay (:mod:`pubsub_lib.relay.engine`); ``pubsub-leases`` renews the entry; with keys
``pubsub-clients`` reads the clients; with ``sync_url``, or with ``parents`` alone, ``pubsub-announcer`` announces the
relay and the agents below it. Without ``store_url`` there is no entry and no lease.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType

import msgspec

from pubsub_lib import contract, loader
from pubsub_lib.api import Publisher as DriverPublisher
from pubsub_lib.api import Subscriber
from pubsub_lib.config.options import SERVICE_GROUP
from pubsub_lib.config.service import ServiceSettings
from pubsub_lib.constructor_checks import check_settings
from pubsub_lib.core.leased_publishers import RELAY
from pubsub_lib.core.model import SyncAnswer
from pubsub_lib.errors import PubSubError
from pubsub_lib.free_port import with_bound_port
from pubsub_lib.latency import Latencies
from pubsub_lib.logs import logger
from pubsub_lib.publisher.admission import admission_of
from pubsub_lib.relay.full_syncs import FullSyncReader, longest_wait
from pubsub_lib.relay.runtime import RelayRuntime
from pubsub_lib.replica.sources import channel_client, second_client, sibling_client
from pubsub_lib.replica.sync_reader import SyncReader
from pubsub_lib.service import roles
from pubsub_lib.service.health import entry_problems, hanging, sending_problems
from pubsub_lib.service.leases import Leases
from pubsub_lib.service.status import About, Sources, StatusReader
from pubsub_lib.service.step_times import longest_step
from pubsub_lib.settings import Settings
from pubsub_lib.store import Store
from pubsub_lib.sync.agent_registry import AgentRegistry
from pubsub_lib.sync.agents import Agents
from pubsub_lib.sync.agents_server import AgentsRoute
from pubsub_lib.sync.announcer import Announcer
from pubsub_lib.sync.question import SyncQuestion
from pubsub_lib.threads.periodic_thread import PeriodicThread
from pubsub_lib.version import __version__

_log = logger(__name__)

CLOSE_TIMEOUT = 2.0
"""Seconds that ``close`` waits for a query that runs, and again for unregistering."""


def relay_drivers(settings: Settings) -> tuple[DriverPublisher, Subscriber]:
    """The driver to the replicas below, and the driver from above. Raises as
    :func:`pubsub_lib.service.service.drivers`, and DriverError for a driver whose publishers bind no address.
    """
    needs = {"bind_based": f"role = relay in [{SERVICE_GROUP}]", "fan_out": "the replicas, which listen to a relay"}
    sender = loader.load_publisher(settings, needs)
    own = roles.listening(settings).for_driver()
    return sender, contract.subscriber(loader.load(settings.driver), own)


def _opened(settings: Settings) -> Store:
    """The database. One attempt: the relay retries by its own rules, and a failure must be visible in the meantime."""
    once = msgspec.structs.replace(settings.store, retry_attempts=1)
    return Store(msgspec.structs.replace(settings, group_commit="process", store=once))


def _reader(store: Store | None, settings: Settings, service: ServiceSettings) -> SyncReader | None:
    """What answers the relay's own syncs: the sync channel of ``sync_url``, or the database, which is read fully under
    a lease. None: the settings have neither, so the sync channel of the current parent answers.
    """
    if settings.sync_url:
        return channel_client(settings)
    if store is None:
        return None
    siblings = sibling_client(settings, service.sibling_urls) if service.sibling_urls else None
    return FullSyncReader(store, store.directory, service.lease, longest_wait(settings.timing), siblings)


class RelayService:
    """One start of a relay's service. As :class:`pubsub_lib.service.service.PublisherService`."""

    def __init__(
        self,
        settings: Settings,
        service: ServiceSettings,
        on_failure: Callable[[], None] = lambda: None,
        reader: SyncReader | None = None,
    ) -> None:
        """Opens the database, if ``store_url`` names one. ``reader`` answers the relay's own syncs; by default that is
        the sync channel of ``sync_url``, without one the database, for full syncs under a lease, and without both the
        sync channel of the current parent. Raises ConfigError, DriverError, StoreError.
        """
        check_settings(settings)
        roles.check_relay(settings, service)
        self._name = settings.service_name
        self._on_failure = on_failure
        self.failure: PubSubError | None = None
        """The reason why the service must be closed, although it still runs."""
        settings = roles.listening(settings)
        sender, subscriber = relay_drivers(settings)
        self._store = store = _opened(settings) if settings.store_url else None
        live = None if store is None else store.directory.live
        reader = reader or _reader(store, settings, service)
        self._full_syncs = reader if isinstance(reader, FullSyncReader) else None
        older = second_client(settings) if settings.sync_url else store
        self._relay = RelayRuntime(
            settings, reader, sender, subscriber, live, older=older, drain_to=service.drain_to
        )  # fmt: skip
        self._admission = admission_of(settings, store, sender, "") if settings.keys else None
        self.address = service.address
        """Where replicas reach the relay, after ``start`` with the port that is bound."""
        self._leases = None if store is None else Leases(
            store.directory, self._name, self.uuid, service.address, service.lease, time.monotonic(),
            sender.public_key() if settings.keys else "", RELAY,
        )  # fmt: skip
        self._agents = AgentRegistry(self.uuid)
        self._announcer: Announcer | None = None
        above = settings.sync_url or self._relay.parent_channel
        if above and settings.announce_interval:
            agent = self._relay.described_at(lambda: self.address)
            self._announcer = Announcer(
                above, settings.announce_interval, agent, lambda: self._agents.known(time.monotonic()),
                named=agent.knows_parent,
            )  # fmt: skip
        self._loops = {} if self._leases is None else {
            "leases": PeriodicThread("leases", partial(self._renew, self._leases))
        }  # fmt: skip
        self._sender = sender
        self._max_busy = longest_step(settings.store)
        self._running = self._to_leave = False

    def __enter__(self) -> "RelayService":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def uuid(self) -> str:
        """The identity of this start, in every message and in the directory."""
        return self._relay.uuid

    def start(self) -> None:
        """Bind, listen and start the threads. Raises TransportError; then no thread runs and everything is released."""
        try:
            self._relay.start()
            self.address = with_bound_port(self.address, self._sender.bound_address())
            if self._leases is not None:
                self._leases.address = self.address
            if self._admission is not None:
                self._admission.start()
            for loop in self._loops.values():
                loop.start()
            if self._announcer is not None:
                self._announcer.start()
        except BaseException:
            self.close()
            raise
        self._running = self._to_leave = True

    def close(self) -> None:
        """Send a goodbye, leave the directory, release everything. Blocks for at most about 11 s."""
        self._running = False
        for loop in self._loops.values():
            loop.close(0.0)
        if self._announcer is not None:
            self._announcer.close()
        self._relay.close()
        if self._admission is not None:
            self._admission.close()
        for name, loop in self._loops.items():
            if not loop.close(CLOSE_TIMEOUT):
                _log.warning("the thread %s still waits for the database at shutdown", name)
        if self._to_leave and self._leases is not None:
            self._to_leave = False
            self._leases.leave_within(CLOSE_TIMEOUT)
        if self._store is not None:
            self._store.close()

    def adjust(self, service: ServiceSettings) -> None:
        """A relay reads no changelog and trims none, so it uses none of the options that a running service changes."""

    def answer_sync(self, question: SyncQuestion) -> SyncAnswer | None:
        """Answer a sync of a replica below from memory. See :meth:`.RelayRuntime.answer`."""
        return self._relay.answer(question)

    def serve_syncs_at(self, port: int) -> None:
        """Name this port of this host in hellos, for the syncs of replicas below. Any thread."""
        self._relay.serve_syncs_at(port)

    def agents_route(self, address: str) -> AgentsRoute:
        """Takes announcements, and answers with the agents. Replicas find the relay at ``address``."""
        announcer = self._announcer
        above: Callable[[], Sequence[str]] = tuple if announcer is None else lambda: announcer.above
        return AgentsRoute(self._agents, self._name, RELAY, address, above)

    def problems(self) -> list[str]:
        """The reasons why the service is not ready, one sentence each; empty when it is. Any thread."""
        if not self._running:
            return ["the service is not running"]
        now, leases = time.monotonic(), self._leases
        hangs = self._sender.sending_for(now) > self._sender.max_sending
        return [
            *self._relay.problems(),
            *(() if self._full_syncs is None else self._full_syncs.problems()),
            *([] if leases is None else entry_problems(leases, now)),
            *sending_problems(hangs=hangs, admission=self._admission, now=now),
            *([] if leases is None else leases.name_conflicts.problems()),
        ]

    def stuck(self) -> Sequence[str]:
        """The hanging threads, one sentence each. Any thread, does not block."""
        now = time.monotonic()
        busy = {name: loop.running_for(now) for name, loop in self._loops.items()}
        busy["sending"] = self._sender.sending_for(now)
        return hanging(busy, self._max_busy)

    def counters(self) -> Mapping[str, Mapping[str, float]]:
        """Counters, by part of the service. Any thread, does not block."""
        failures = {name: loop.failures for name, loop in self._loops.items()}
        found = {**self._relay.counters(), "failures": failures}
        if self._announcer is not None:
            made = self._announcer.counters()
            own = {"announcements": made["accepted"], "announcements_failed": made["failed"]}
            found["relayed"] = {**found["relayed"], **own}
        return found

    def gauges(self) -> Mapping[str, Mapping[str, float]]:
        """The leases, if there are any, and the state of the relay. Any thread; waits for its lock."""
        reading, error = self._relay.reading(), self._relay.journal_error
        return {
            **({} if error is None else {"broken": {"journal": float(bool(error))}}),
            **({} if self._leases is None else {"leases": self._held(self._leases)}),
            "relay": {
                "topics": float(reading.topics),
                "served": float(reading.served),
                "proof_age": reading.staleness,
                "questions_waiting": float(reading.waiting),
                "publishers_above": float(reading.above),
                "polling": float(reading.polling),
                "quarantined": float(reading.quarantined),
            },
        }

    def _held(self, leases: Leases) -> Mapping[str, float]:
        held = {"entry": float(leases.registered(time.monotonic()))}
        return held if self._full_syncs is None else {**held, "full_sync": float(self._full_syncs.holds)}

    def latencies(self) -> Mapping[str, Latencies]:
        """A relay measures none."""
        return {}

    def status_reader(
        self, driver: str, address: str, agents: Callable[[], Agents | None] = lambda: None
    ) -> StatusReader:
        """For the status page: ``driver`` sends to replicas, which find the relay at ``address``. ``agents``:
        None without announcements.
        """
        admission, leases = self._admission, self._leases
        sources = Sources(
            about=About(self._name, self.uuid, __version__, driver, address, RELAY),
            problems=lambda: [*self.problems(), *self.stuck()],
            directory=None if leases is None else lambda: leases.last_reading,
            clients=lambda: None if admission is None else admission.clients,
            counters=self.counters,
            gauges=self.gauges,
            excluded=lambda: (),
            loops=self._loops,
            progress=self._relay.progress,
            listens_to=lambda: self._relay.listens_to,
            agents=agents,
        )
        return StatusReader(sources, time.monotonic())

    def _renew(self, leases: Leases, now: float) -> float:
        again = leases.step(now)
        if self.failure is None and (failure := leases.name_conflicts.failure()) is not None:
            self.failure = failure
            self._on_failure()
        return again
