"""One start of a relay: it listens above, publishes below, and answers syncs."""

import random
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from pubsub_lib.api import Publisher as DriverPublisher
from pubsub_lib.api import Subscriber
from pubsub_lib.closing import close_all
from pubsub_lib.core.model import SyncAnswer
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.core.sequencer import Progress
from pubsub_lib.journal import open_journal
from pubsub_lib.journal.rows import SCHEMA
from pubsub_lib.logs import logger
from pubsub_lib.relay.engine import RelayEngine
from pubsub_lib.replica.discovery import DirectoryEntry, discovery_of
from pubsub_lib.replica.journaling import journal_of
from pubsub_lib.replica.own_agent import OwnAgent
from pubsub_lib.replica.parent_channel import ParentChannel, left_server
from pubsub_lib.replica.parent_subscriber import ParentSubscriber, unheard
from pubsub_lib.replica.replica import with_default
from pubsub_lib.replica.scheduling import Threads
from pubsub_lib.replica.sources import channel_client, second_client
from pubsub_lib.replica.status import problems, rejected
from pubsub_lib.replica.sync_reader import SyncReader
from pubsub_lib.settings import Settings
from pubsub_lib.sync.client import SyncClient
from pubsub_lib.sync.question import SyncQuestion

_log = logger(__name__)

CLOSE_TIMEOUT: Final = 2.0
"""Seconds that ``close`` waits for a running sync."""


class Reading(msgspec.Struct, frozen=True):
    """A relay's state at one moment."""

    topics: int
    served: int
    """Topics that it can answer syncs of now."""
    synced: bool
    staleness: float
    mismatching: Collection[str]
    waiting: int
    """Questions of replicas below that wait for an answer."""
    above: int
    """Publishers above from which a hello was received lately, and those above them."""
    polling: bool
    quarantined: int
    """Publishers above whose messages are not used."""


class RelayRuntime:
    """A relay of ``settings.topics`` named ``settings.service_name``. A context manager. Any thread.

    ``reader``: answers its own syncs, as of a :class:`.Replica`. ``older``: see :class:`.RelayEngine`. ``reader`` None:
    both read from the sync channel of the current parent, which its hellos name; the settings then need parents.
    ``sender`` and ``subscriber`` are the two halves of the driver, new ones; the subscriber has no address of its own.
    ``live``: reads the directory; None without one. ``drain_to``: the addresses to which ``close`` sends the replicas
    below.
    """

    def __init__(
        self,
        settings: Settings,
        reader: SyncReader | None,
        sender: DriverPublisher,
        subscriber: Subscriber,
        live: Callable[[], Sequence[DirectoryEntry]] | None,
        *,
        rng: random.Random | None = None,
        older: SyncReader | None = None,
        drain_to: Sequence[str] = (),
    ) -> None:
        self.uuid = uuid.uuid4().hex
        """The identity of this start, in every message."""
        self._settings = settings
        self._timing = settings.timing
        self._topics = with_default(tuple(settings.topics), settings.default_topic)
        self._sender = sender
        self._drain_to = drain_to
        self._loop: tuple[str, float] = "", float("-inf")
        """The service name of a parent that is below this relay, and when its last message was received."""
        self.parents = ParentSubscriber(subscriber, settings.parents, settings.timing) if settings.parents else None
        self._subscriber: Subscriber = subscriber if self.parents is None else self.parents
        self.parent_channel: ParentChannel | None = None
        """The sync channel of the current parent, if the relay's syncs are read from there."""
        if reader is None:
            assert self.parents is not None  # the settings have them, or another source
            self.parent_channel = self.parents.make_channel()
            reader, older = (make(settings, self.parent_channel) for make in (channel_client, second_client))
        for each in (reader, older):
            if isinstance(each, SyncClient) and self.parents is not None:
                each.ask_last(partial(left_server, self.parents))
        discovery = None
        if live is not None and settings.discovery_interval > 0:
            discovery = discovery_of(settings, live, self._subscriber)
        name = settings.service_name
        self._received = journal_of(settings, name, relay=(name, self.uuid))
        self._sent = open_journal(settings.journal, "relay", name, SCHEMA)
        self._journals = [each for each in (self._received, self._sent) if each is not None]
        self._engine = RelayEngine(
            settings, self.uuid, sender.send_event, self._looped, reader, self._subscriber, Threads(),
            rng if rng is not None else random.SystemRandom(), discovery, self._received, self._sent, older,
        )  # fmt: skip
        if self.parents is not None:
            self.parents.judge_by(lambda now, readable: self._engine.read(unheard, now, readable))
            self.parents.notify_by(self._parent_changed)
            self.parents.record_by(self._received)
        self._discovery = discovery
        self._started = self._closed = False

    def __enter__(self) -> "RelayRuntime":
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def start(self) -> None:
        """Bind, listen and sync in the background. Raises TransportError; then everything is released."""
        try:
            self._sender.initialize(self._engine.on_hello_request, self._engine.on_connected_below)
            self._started = True
            self._engine.start(self._topics)
            if self._received is not None:
                self._received.watch(self._rejected, self._engine)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Send a goodbye, stop and release everything, within about 7 s. Idempotent."""
        if self._closed:
            return
        self._closed = True
        received = self._received
        close_all(
            partial(self._engine.send_goodbye, self._drain_to) if self._started else None,
            lambda: self._engine.close(time.monotonic() + CLOSE_TIMEOUT),
            None if received is None else partial(self._engine.read, received.list_objects),
            *(each.close for each in self._journals),
            self._sender.close,
        )

    def answer(self, question: SyncQuestion) -> SyncAnswer | None:
        """Answer a sync of a replica below; None: it fails. Any thread; blocks as :meth:`.RelayEngine.answer`, and the
        objects of the answer are compressed already.
        """
        return None if self._closed else self._engine.answer(question)

    def serve_syncs_at(self, port: int) -> None:
        """Name this port in all later hellos: the sync channel at this host. 0: there is none. Any thread."""
        self._engine.read(lambda state: self._engine.core.serve_syncs_at(port, self._engine.now()))
        self._engine.clock.wake()

    def described_at(self, address: Callable[[], str]) -> OwnAgent:
        """Describes the relay for its announcements, at each call. Replicas reach it at ``address()``."""
        return OwnAgent(self._settings, self.uuid, self._engine, self.parents, self._discovery, "relay", address)

    @property
    def topics(self) -> Sequence[str]:
        """The topics, with the default topic."""
        return self._topics

    @property
    def listens_to(self) -> Sequence[str]:
        """The addresses of the parent, or of the publishers: those of the settings, and those found in the directory.
        Any thread.
        """
        if self.parents is not None:
            return (self.parents.current,)
        found = () if self._discovery is None else self._discovery.addresses
        return (*self._settings.fixed_addresses, *found)

    def problems(self) -> list[str]:
        """Why the relay is not ready, one sentence each; empty when it is. Any thread."""
        reading = self.reading()
        found = problems(
            self._timing,
            synced=reading.synced,
            staleness=reading.staleness,
            last_error=self._engine.sync_failures.last,
            failure=self._engine.failure,
            mismatching=reading.mismatching,
        )
        found = [each.replace("the replica", "the relay") for each in found]
        service, at = self._loop
        if self._engine.now() - at <= self._timing.stale_after:
            option = "parents" if self._settings.parents else "publishers_ips"
            found.append(f"the parent {service!r} is below this relay, so nothing of it is used; correct {option}")
        return found

    def reading(self) -> Reading:
        """The relay's state now. Any thread; waits for the lock."""
        return self._engine.read(self._read)

    def _read(self, state: ReplicaState) -> Reading:
        tracker, relay, now = state.tracker, self._engine.core.relay, self._engine.now()
        return Reading(
            topics=len(tracker.topics),
            served=len(relay.contents.served()),
            synced=tracker.synced,
            staleness=tracker.staleness(now),
            mismatching=tracker.mismatching,
            waiting=self._engine.core.waiting,
            above=len(relay.path(now)),
            polling=tracker.freshness.is_polling(now),
            quarantined=len(state.quarantine.excluded(now)),
        )

    def counters(self) -> Mapping[str, Mapping[str, int]]:
        """What was sent, received and synced. Any thread, does not block."""
        tracker, core = self._engine.counters(), self._engine.core
        moves = 0 if self.parents is None else self.parents.moves
        counts = dict(core.counts)
        hellos = {name: counts.pop(name) for name in ("hellos", "answers", "unsent")}
        written = [each.counters() for each in self._journals]
        journal = {what: sum(each[what] for each in written) for what in ("written", "lost")}
        return {
            **({"journal": journal} if written else {}),
            "sending": {**self._sender.counters(), **hellos},
            "receiving": dict(self._subscriber.counters()),
            "syncs": {
                "delta": sum(dict(tracker.deltas).values()),
                "full": sum(dict(tracker.fulls).values()),
                "failed": tracker.syncs_failed,
            },
            "faults": {**msgspec.structs.asdict(self._engine.faults), "contradicted": tracker.contradicted},
            "relayed": {
                **counts,
                "oversized": core.relay.oversized,
                "unserved": core.relay.unserved,
                "parent_changes": moves,
            },
        }

    @property
    def journal_error(self) -> str | None:
        """Why records of a journal are being lost now; "" while none are, None without journals. Any thread."""
        return next((each.error for each in self._journals if each.error), "" if self._journals else None)

    def _rejected(self) -> Mapping[str, int]:
        return rejected(self._subscriber.counters(), self._engine.counters())

    def progress(self, timeout: float) -> Progress | None:
        """What was sent, and the heads as last proved. Any thread; waits for the lock."""
        return self._engine.read(lambda state: self._engine.core.relay.sequencer.progress())

    def _parent_changed(self) -> None:
        self._engine.parent_changed(reads_from_it=self.parent_channel is not None)

    def _looped(self, service: str, publisher: str) -> None:
        """Called with the lock held."""
        self._loop = service, self._engine.now()
        if self.parents is not None:
            self.parents.refuse(service, publisher)
