"""The publisher service (steps 3 and 4 of the data path); one per host.

Threads: the hop's receiving thread sends links from workers; ``pubsub-commits`` commits for workers, as an option;
``pubsub-publisher`` sends hellos; ``pubsub-changelog`` reads the changelog; ``pubsub-leases`` only renews leases, so
that no slow query lets a lease expire; ``pubsub-maintenance`` trims; ``pubsub-recount`` checks whether the database was
altered without the library.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from pubsub_lib import contract, loader
from pubsub_lib.api import Publisher as DriverPublisher
from pubsub_lib.api import Subscriber
from pubsub_lib.config.service import ServiceSettings
from pubsub_lib.constructor_checks import check_settings
from pubsub_lib.core.leased_publishers import ORIGIN
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import Link, SyncAnswer
from pubsub_lib.core.unpublished_links import UnpublishedLinks
from pubsub_lib.errors import PubSubError
from pubsub_lib.free_port import with_bound_port
from pubsub_lib.journal import open_journal
from pubsub_lib.latency import Latencies
from pubsub_lib.logs import logger
from pubsub_lib.publisher.publisher import Publisher
from pubsub_lib.service import roles
from pubsub_lib.service.changelog_reader import ChangelogReader
from pubsub_lib.service.commit_server import CommitServer
from pubsub_lib.service.health import Health
from pubsub_lib.service.leases import MAINTENANCE, ORPHANS, Leases
from pubsub_lib.service.maintenance import Maintenance
from pubsub_lib.service.outgoing import Outgoing
from pubsub_lib.service.receiving import Receiving
from pubsub_lib.service.recount import StoreRecount
from pubsub_lib.service.status import About, Sources, StatusReader
from pubsub_lib.settings import Settings
from pubsub_lib.store import Store
from pubsub_lib.sync.agent_registry import AgentRegistry
from pubsub_lib.sync.agents import Agents
from pubsub_lib.sync.agents_server import AgentsRoute
from pubsub_lib.sync.packing import read_packed
from pubsub_lib.sync.question import SyncQuestion
from pubsub_lib.threads.periodic_thread import PeriodicThread
from pubsub_lib.version import __version__

_log = logger(__name__)

CLOSE_TIMEOUT: Final = 2.0
"""Seconds that ``close`` waits for threads in the middle of a query, and again for unregistering."""
KEEP_LEASES: Final = 3
"""Lease times for which a link of another service is kept; one lease time passes until its death is detected."""


def drivers(settings: Settings) -> tuple[DriverPublisher, Subscriber | None]:
    """The driver to the replicas, and the driver from the workers; None when every process sends by itself.

    Raises ConfigError for options that a driver cannot use, and for an address that others can reach (it is allowed
    with ``insecure``, and a warning is logged); DriverError for a driver that is missing or unsuitable.
    """
    sender = loader.load_publisher(settings, {"fan_out": "the replicas, which listen to a service"})
    if not settings.multiproc_driver:
        return sender, None
    return sender, contract.subscriber(loader.load_hop(settings.multiproc_driver), settings.for_multiproc())


class PublisherService:
    """One start of a service, with a UUID of its own. A context manager; ``start`` and ``close`` from one thread."""

    def __init__(
        self,
        settings: Settings,
        service: ServiceSettings = ServiceSettings(),  # noqa: B008 - frozen
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """Opens the database. Raises ConfigError, DriverError, StoreError.

        ``on_failure`` is called, on a thread of the service, when the service must stop; ``failure`` is the reason.
        """
        check_settings(settings)
        roles.check_origin(settings)
        self._name = name = settings.service_name
        self._on_failure = on_failure
        self.failure: PubSubError | None = None
        """The reason why the service must be closed, although it still runs."""
        sender, hop = drivers(settings)
        self._store = Store(msgspec.structs.replace(settings, group_commit="process"))
        self._journal = open_journal(settings.journal, "service", name)
        self._publisher = Publisher(settings, self._store, sender, journal=self._journal, entered=True, measured=True)
        unpublished = UnpublishedLinks(name, service.grace, KEEP_LEASES * service.lease)
        self._outgoing = Outgoing(name, unpublished, self._publisher, self._journal)
        self._commits = (
            CommitServer(settings, self._store, self._committed) if settings.group_commit == "host" else None
        )
        self._receiving = self._receiving_from(hop, settings.limits)
        directory, key = self._store.directory, sender.public_key() if settings.keys else ""
        self._sender = sender
        self.address = service.address
        """Where replicas reach the service, after ``start`` with the port that is bound."""
        self._leases = Leases(directory, name, self.uuid, service.address, service.lease, time.monotonic(), key)
        self._changelog_reader = ChangelogReader(
            self._store, self._outgoing, service.follow_interval, self._leases.orphans
        )
        self._maintenance = Maintenance(
            self._store, lambda now: self._leases.holds(MAINTENANCE, now), service.trim_interval, service.keep_links,
            service.keep_time,
        )  # fmt: skip
        self._recount = StoreRecount(
            self._store, lambda now: self._leases.holds(MAINTENANCE, now), service.recount_time, self._journal
        )
        self._loops = {
            "changelog": PeriodicThread("changelog", self._changelog_reader.step),
            "leases": PeriodicThread("leases", self._renew),
            "maintenance": PeriodicThread("maintenance", self._maintenance.step),
            "recount": PeriodicThread("recount", self._recount.step, self._recount.pause),
        }
        self._health = Health(
            self._loops, self._publisher, self._commits, self._leases, self._recount, service, settings.store,
            sender.max_sending,
        )  # fmt: skip
        self._running = self._to_leave = False

    def _receiving_from(self, hop: Subscriber | None, limits: Limits) -> Receiving | None:
        if hop is None:
            return None
        store = self._store  # it has read the id when it was opened, so that the property does not block
        return Receiving(hop, self._name, self._outgoing, lambda: store.store_id, self._journal, limits)

    def __enter__(self) -> "PublisherService":
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def uuid(self) -> str:
        """The identity of this start, in every message and in the directory."""
        return self._publisher.uuid

    def start(self) -> None:
        """Bind both sockets and start the threads. Raises TransportError, which names an address that is in use; then
        no thread runs and everything is released.
        """
        try:
            self._publisher.start()
            self.address = self._leases.address = with_bound_port(self.address, self._sender.bound_address())
            if self._receiving is not None:
                self._receiving.start()
            if self._commits is not None:
                self._commits.start()
            for loop in self._loops.values():
                loop.start()
        except BaseException:
            for loop in self._loops.values():
                loop.close(0.0)
            self._release()
            raise
        if self._journal is not None and self._receiving is not None:
            self._journal.watch(self._receiving.rejected)
        self._running = self._to_leave = True

    def close(self) -> None:
        """Send the links of workers, send goodbye, leave the directory, release everything. Blocks for at most about
        10 s, also when the database hangs in the middle of an answer: goodbye is sent before the database is used.
        """
        self._running = False
        if self._commits is not None:
            self._commits.close()  # before the hop, because workers hand over what they committed
        if self._receiving is not None:
            self._receiving.close()
        for loop in self._loops.values():
            loop.close(0.0)  # only requests the stop: the current step may need the publisher, which is closed next
        self._publisher.close()
        until = time.monotonic() + CLOSE_TIMEOUT
        for name, loop in self._loops.items():
            if not loop.close(until - time.monotonic()):
                _log.warning("the thread %s still waits for the database at shutdown", name)
        if self._to_leave:
            self._to_leave = False
            self._leases.leave_within(CLOSE_TIMEOUT)
        self._release()

    def adjust(self, service: ServiceSettings) -> None:
        """Use the intervals and bounds of these settings (:data:`pubsub_lib.service.reload.ADJUSTED`) from now on, and
        no other ones. Any thread, does not block.
        """
        self._changelog_reader.adjust(service.follow_interval)
        self._health.adjust(service.follow_interval)
        self._maintenance.adjust(service.trim_interval, service.keep_links, service.keep_time)
        self._recount.adjust(service.recount_time)
        for name in ("changelog", "maintenance", "recount"):
            self._loops[name].wake()  # its next step may be due earlier now

    def problems(self) -> list[str]:
        """The reasons why the service is not ready, one sentence each; empty when it is. Any thread, does not block."""
        stopped = [] if self._running else ["the service is not running"]
        return stopped + self._health.problems()

    def stuck(self) -> Sequence[str]:
        """The hanging threads, one sentence each: a step takes longer than all timeouts of the database together. An
        unreachable database causes none; a stopped one (SIGSTOP) does, because PostgreSQL's client waits for an answer
        as long as the connection is open. Any thread, does not block.
        """
        return self._health.stuck()

    def counters(self) -> Mapping[str, Mapping[str, float]]:
        """Counters, by part of the service. Any thread, does not block."""
        found = {
            "links": self._outgoing.counters(),
            "workers": self._outgoing.worker_counters(),
            "sending": self._publisher.counters(),
            "receiving": self._receiving.counters() if self._receiving is not None else {},
            "maintenance": self._maintenance.counters(),
            "recount": self._recount.counters(),
            "failures": {name: loop.failures for name, loop in self._loops.items()},
            "jumps": {"changelog": self._changelog_reader.jumps},
        }
        if self._commits is not None:
            found["commits"] = self._commits.counters()
        if self._journal is not None:
            found["journal"] = self._journal.counters()
        return found

    def gauges(self) -> Mapping[str, Mapping[str, float]]:
        """Leases that are held, excluded workers, unrepaired topics, a broken journal. Any thread, does not block."""
        now = time.monotonic()
        held = {name: float(self._leases.holds(name, now)) for name in (ORPHANS, MAINTENANCE)}
        found = {
            "leases": {**held, "entry": float(self._leases.registered(now))},
            "excluded": {"workers": float(len(self._outgoing.excluded_workers))},
            "unrepaired": {"topics": float(len(self._recount.unrepaired()))},
        }
        if self._journal is not None:
            found["broken"] = {"journal": float(bool(self._journal.error))}
        return found

    def latencies(self) -> Mapping[str, Latencies]:
        """The time from the commit until each step, by its name. Any thread, does not block."""
        return {"sent": self._publisher.commit_to_sent()}

    def status_reader(
        self, driver: str, address: str, agents: Callable[[], Agents | None] = lambda: None
    ) -> StatusReader:
        """For the status page: ``driver`` sends to replicas, which find the service at ``address``, or "".
        ``agents``: None without announcements.
        """
        sources = Sources(
            about=About(self._name, self.uuid, __version__, driver, address),
            problems=lambda: [*self.problems(), *self.stuck()],
            directory=lambda: self._leases.last_reading,
            clients=lambda: None if (read := self._publisher.admission) is None else read.clients,
            counters=self.counters,
            gauges=self.gauges,
            excluded=lambda: self._outgoing.excluded_workers,
            loops=self._loops,
            progress=self._publisher.progress,
            agents=agents,
        )
        return StatusReader(sources, time.monotonic())

    def answer_sync(self, question: SyncQuestion) -> SyncAnswer:
        """Answer a sync of a replica from the database. Any thread; blocks, raises StoreError."""
        return self._store.read_sync(question.wants, read_packed)

    def serve_syncs_at(self, port: int) -> None:
        """Name this port of this host in hellos, for the syncs of replicas. Any thread."""
        self._publisher.serve_syncs_at(port)

    def agents_route(self, address: str) -> AgentsRoute:
        """Takes announcements, and answers with the agents. Replicas find the service at ``address``, or ""."""
        return AgentsRoute(AgentRegistry(self.uuid), self._name, ORIGIN, address)

    def _committed(self, links: Sequence[Link]) -> None:
        """Publish what was committed for workers, as if they had handed it over."""
        if self._journal is not None:
            self._journal.links("taken", links)
        self._outgoing.handed_over(links)

    def _renew(self, now: float) -> float:
        again = self._leases.step(now)
        if self.failure is None and (failure := self._leases.name_conflicts.failure()) is not None:
            self.failure = failure
            self._on_failure()
        return again

    def _release(self) -> None:
        if self._commits is not None:
            self._commits.close()
        if self._receiving is not None:
            self._receiving.close()
        self._publisher.close()
        self._store.close()
        if self._journal is not None:
            self._journal.close()
