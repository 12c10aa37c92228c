"""What the service knows about itself, the other services and its topics: the data of the status page.

Nothing here reads the database. The threads of the service read the directory and the heads anyway, and their last
readings are shown with their age.
"""

import heapq
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from pubsub_lib.api import Client
from pubsub_lib.core.handoffs import Worker
from pubsub_lib.core.leased_publishers import ORIGIN
from pubsub_lib.core.sequencer import Progress
from pubsub_lib.service.name_conflicts import ServiceLease
from pubsub_lib.service.rates import Rates, Sample, rate
from pubsub_lib.sync.agents import Agents
from pubsub_lib.threads.periodic_thread import PeriodicThread

MAX_ROWS: Final = 100
"""Maximum number of topics, services and clients that are listed, each."""
LOCK_TIMEOUT: Final = 0.5
"""Seconds for which a request waits for commits that are being sent."""
NEVER_YET: Final = float("-inf")

Values = Mapping[str, Mapping[str, float]]
"""Numbers by part of the service and name, as the metrics have them."""


class Entry(msgspec.Struct, frozen=True):
    """A service or a program's own publisher in the directory."""

    service: str
    uuid: str
    address: str
    seconds_left: float
    """Until the end of its lease, if it is not renewed; below 0 when that time has passed since the reading."""
    role: str = ORIGIN


class Topic(msgspec.Struct, frozen=True):
    """A topic, with what this service has sent on it."""

    name: str
    sequence: int
    """Messages that this service has sent since its start."""
    rate: float
    """Messages per second."""
    position: int | None
    """Of its head in the last reading; None when no reading has shown it."""
    objects: int | None


class Thread(msgspec.Struct, frozen=True):
    """A thread of the service that repeats one step."""

    name: str
    succeeded: float | None
    """Seconds since its last step that did not fail; None: there was none."""
    failures: int


class Topics(msgspec.Struct, frozen=True):
    """The topics with the highest rates, and when the numbers were read."""

    rows: Sequence[Topic]
    total: int
    window: float
    """Seconds over which the rates are averages."""
    sent_age: float | None
    """Seconds since the sequences were read, 0 unless commits were being sent for a long time; None: never."""
    read_age: float | None
    """Seconds since the positions were read from the database; None: never."""
    store_position: int | None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of the service. Ages and times left in seconds."""

    service: str
    uuid: str
    version: str
    driver: str
    address: str
    """Where replicas connect; "" with a driver that binds no address."""
    running: float
    made_at: float
    """Seconds since 1970."""
    problems: Sequence[str]
    """Why the service is not ready, in sentences, and hanging threads."""
    entries: Sequence[Entry]
    entries_total: int
    entries_age: float | None
    """None: the directory was not read yet."""
    clients: Sequence[Client] | None
    """Programs that may connect; None without keys."""
    clients_total: int
    counters: Values
    gauges: Values
    excluded: Sequence[Worker] = ()
    """Workers whose links are not used."""
    threads: Sequence[Thread]
    topics: Topics
    role: str = ORIGIN
    listens_to: Sequence[str] = ()
    """Of a relay: the addresses of its parent, or of the publishers above."""
    agents: Agents | None = None
    """The replicas and relays that announced themselves; None: no announcements are taken."""
    database: bool = True
    """False: a relay without one, which is not in the directory and does not read it."""


class About(msgspec.Struct, frozen=True):
    """What does not change while the service runs."""

    service: str
    uuid: str
    version: str
    driver: str
    address: str
    role: str = ORIGIN


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Where the parts of a status come from. Functions for any thread, which do not block."""

    about: About
    problems: Callable[[], Sequence[str]]
    directory: Callable[[], tuple[Sequence[ServiceLease], float]] | None
    """The live services, and when their reading began; None: there is no database."""
    clients: Callable[[], Collection[Client] | None]
    counters: Callable[[], Values]
    gauges: Callable[[], Values]
    excluded: Callable[[], Sequence[Worker]]
    loops: Mapping[str, PeriodicThread]
    progress: Callable[[float], Progress | None]
    """It blocks for at most its timeout."""
    listens_to: Callable[[], Sequence[str]] = tuple
    agents: Callable[[], Agents | None]


class StatusReader:
    """Makes a status when it is called. Call it from one thread at a time; it waits for at most ``LOCK_TIMEOUT``."""

    def __init__(self, sources: Sources, now: float) -> None:
        self._sources = sources
        self._started = now
        self._rates = Rates(now)
        self._progress: Progress | None = None
        self._progress_at = NEVER_YET

    def __call__(self) -> Status:
        """The status now."""
        sources, about = self._sources, self._sources.about
        progress = sources.progress(LOCK_TIMEOUT)
        now = time.monotonic()
        if progress is not None:
            self._progress, self._progress_at = progress, now
        entries, read_at = ((), NEVER_YET) if sources.directory is None else sources.directory()
        clients = sources.clients()
        return Status(
            service=about.service,
            uuid=about.uuid,
            version=about.version,
            driver=about.driver,
            address=about.address,
            running=now - self._started,
            made_at=time.time(),
            problems=sources.problems(),
            entries=_entries(entries, now - read_at, about.uuid),
            entries_total=len(entries),
            entries_age=_age(now, read_at),
            clients=None if clients is None else heapq.nsmallest(MAX_ROWS, clients, key=lambda each: each.name),
            clients_total=len(clients or ()),
            counters=sources.counters(),
            gauges=sources.gauges(),
            excluded=sources.excluded(),
            threads=[_thread(name, loop, now) for name, loop in sources.loops.items()],
            topics=self._topics(now),
            role=about.role,
            listens_to=sources.listens_to(),
            agents=sources.agents(),
            database=sources.directory is not None,
        )

    def _topics(self, now: float) -> Topics:
        progress, at = self._progress, self._progress_at
        if progress is None:
            return Topics((), 0, 0.0, None, None, None)
        base = self._rates.since(progress.sequences, at)
        names = {*progress.sequences, *(progress.heads.topics if progress.heads is not None else ())}
        rows = heapq.nsmallest(MAX_ROWS, _rows(names, progress, base, at), key=lambda each: (-each.rate, each.name))
        store = None if progress.heads is None else progress.heads.store.position
        return Topics(rows, len(names), at - base.at, now - at, _age(now, progress.began), store)


def _entries(found: Sequence[ServiceLease], age: float, own: str) -> list[Entry]:
    """By name; this service is never left out."""
    first = heapq.nsmallest(MAX_ROWS, found, key=lambda each: (each.uuid != own, each.service, each.uuid))
    shown = [Entry(each.service, each.uuid, each.address, each.seconds_left - age, each.role) for each in first]
    return sorted(shown, key=lambda each: (each.service, each.uuid))


def _rows(names: Collection[str], progress: Progress, base: Sample, at: float) -> Iterator[Topic]:
    for name in names:
        sequence = progress.sequences.get(name, 0)
        head = None if progress.heads is None else progress.heads.topics.get(name)
        position, objects = (None, None) if head is None else (head.point.position, head.count)
        yield Topic(name, sequence, rate(sequence, name, base, at), position, objects)


def _thread(name: str, loop: PeriodicThread, now: float) -> Thread:
    return Thread(name, _age(now, loop.last_success), loop.failures)


def _age(now: float, at: float) -> float | None:
    return None if at == NEVER_YET else max(0.0, now - at)
