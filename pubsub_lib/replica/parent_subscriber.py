"""A replica with parents listens to one of them at a time: a subscriber that chooses its driver's address (rule R5)."""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

from pubsub_lib.api import OnConnected, OnEnvelope, Subscriber
from pubsub_lib.core.envelope import Envelope, Hello
from pubsub_lib.core.parents import Parents
from pubsub_lib.core.quarantine import Publisher
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.core.timing import Timing
from pubsub_lib.errors import PubSubError
from pubsub_lib.logs import fields, logger
from pubsub_lib.replica.parent_channel import ParentChannel
from pubsub_lib.threads.periodic_thread import PeriodicThread

_log = logger(__name__)

MAX_UUIDS: Final = 100
"""Maximum number of remembered UUIDs of each kind; a parent has one after each of its starts."""
MAX_REQUESTED: Final = 1000
"""Maximum number of remembered hello requests, the newest ones. A replica requests 200 topics at a time."""
MARGIN: Final = 0.01
"""Seconds after the moment at which a parent may have to be left: then it is certain."""


class ParentJournal(Protocol):
    """The part of a replica's journal that names its parents."""

    def parent(self, address: str, speaker: Publisher | None) -> None:
        """See :meth:`pubsub_lib.replica.journaling.ReplicaJournal.parent`."""


def unheard(state: ReplicaState, now: float, readable: bool) -> float:
    """Seconds since the parent proved the stalest chain. ``readable``: it may prove one that is yet to be read."""
    return state.tracker.freshness.unheard(now, readable=readable)


class ParentSubscriber(Subscriber):
    """Around the driver's subscriber, which must have no address of its own. The driver connects to the new parent, so
    the replica requests hello replies at once, and reads what it missed as a delta.

    A parent is left when it proves nothing for ``stale_after``, when it sends a goodbye, and when it is below this
    relay itself. A thread of its own changes the addresses, because a driver may take locks for that.
    """

    def __init__(self, driver: Subscriber, addresses: Sequence[str], timing: Timing) -> None:
        self._driver = driver
        self._timing = timing
        self._lock = threading.Lock()
        """Guards what follows. It is never held while the replica's lock is taken."""
        self._parents = Parents(addresses, timing, time.monotonic())
        self._listens_to = ""
        self._publisher = ""
        self._serves = 0
        self._left_channel = "", 0
        self._received: set[str] = set()
        """UUIDs of hellos since the parent was chosen."""
        self._left: set[str] = set()
        """Those of the parents before, until the current one replies: their late messages are no reason to leave it."""
        self._requested: deque[str] = deque(maxlen=MAX_REQUESTED)
        """Nonces of the hello requests since the parent before was disconnected. Only the current one replies to them.
        It may have the UUID of one before, if two addresses lead to one relay.
        """
        self._refused: set[str] = set()
        self._journal: ParentJournal | None = None
        self._recorded: tuple[str, Publisher | None] = "", None
        """The parent's address, and the service name and UUID in its last hello, as the journal has them."""
        self.moves = 0
        """Number of changes of the parent."""
        self._unheard: Callable[[float, bool], float] = lambda now, readable: 0.0
        self._reads_channel = False
        self._changed: Callable[[], None] = lambda: None
        self._thread = PeriodicThread("parents", self.step)

    @property
    def current(self) -> str:
        """The parent's address. Any thread."""
        return self._parents.current

    @property
    def publisher(self) -> str:
        """The service name in the last hello since the parent was chosen; "" before the first one. Any thread."""
        return self._publisher

    @property
    def channel(self) -> tuple[str, int]:
        """The parent's address, and the port of its sync channel in its last hello; 0: none, or no hello since the
        parent was chosen. Any thread.
        """
        with self._lock:
            return self._parents.current, self._serves

    @property
    def left_channel(self) -> tuple[str, int]:
        """As ``channel``, of the parent that was left last; the port is 0 when none was left. Any thread."""
        with self._lock:
            return self._left_channel

    def judge_by(self, unheard: Callable[[float, bool], float]) -> None:
        """``unheard(now, readable)``: see the function of this name. It takes the replica's lock. Call it before
        ``daemonize``.
        """
        self._unheard = unheard

    def make_channel(self) -> ParentChannel:
        """The sync channel of the current parent, from which all syncs are to be read: a parent that names none cannot
        prove what is yet to be read. Call it before ``daemonize``.
        """
        self._reads_channel = True
        return ParentChannel(self)

    @property
    def reads_channel(self) -> bool:
        """Whether the syncs are read from the current parent."""
        return self._reads_channel

    def notify_by(self, changed: Callable[[], None]) -> None:
        """``changed()`` is called when the driver listens to another parent. It may take the replica's lock. Call this
        before ``daemonize``.
        """
        self._changed = changed

    def record_by(self, journal: ParentJournal | None) -> None:
        """Record each parent in this journal. Call it before ``initialize``."""
        self._journal = journal

    # -- the parent --------------------------------------------------------------------------------------------------

    def step(self, now: float) -> float:
        """Leave the parent if it proves nothing, and listen to the current one; returns the time of the next step."""
        silent = self._unheard(now, bool(self._serves) or not self._reads_channel)
        with self._lock:
            if self._parents.check(silent, now):
                self._moved(f"it proved nothing for {silent:.1f} s")
            wanted, may_leave_at = self._parents.current, self._parents.next_time()
        if self._listen(wanted, now):
            self._changed()
        return max(may_leave_at, now + self._timing.stale_after - silent) + MARGIN

    def refuse(self, service: str, uuid: str) -> None:
        """The publisher of this UUID is below this relay itself: it is not used for a while (rule R6). Any thread, also
        with the replica's lock.
        """
        with self._lock:
            if uuid in self._left:
                return
            first = uuid not in self._refused
            self._remember(self._refused, uuid)
            parent = self._parents.current
            if self._parents.refuse(parent, time.monotonic()):
                self._moved(f"the relay {service!r} there is below this one")
        if first:
            _log.error(
                "the parent at %s is the relay %r, which is below this relay; correct parents", parent, service,
                extra=fields(address=parent),
            )  # fmt: skip
        self._thread.wake()

    @staticmethod
    def _remember(uuids: set[str], uuid: str) -> None:
        if len(uuids) < MAX_UUIDS:
            uuids.add(uuid)

    def _moved(self, why: str) -> None:
        self.moves += 1
        for uuid in self._received:
            self._remember(self._left, uuid)
        self._received.clear()
        self._requested.clear()
        self._left_channel = self._listens_to, self._serves
        self._publisher, self._serves = "", 0
        _log.warning(
            "leaving the parent at %s for %s: %s", self._listens_to, self._parents.current, why,
            extra=fields(address=self._parents.current),
        )  # fmt: skip

    def _listen(self, wanted: str, now: float) -> bool:
        """Returns whether the driver listens to another address now."""
        if wanted == self._listens_to:
            return False
        with self._lock:
            recorded = self._recorded
            self._record(wanted, None)  # before its first message can come
        try:
            self._driver.register_listen_address(wanted)
        except PubSubError:
            with self._lock:
                self._parents.leave(now)
                self._record(*recorded)
            raise
        if self._listens_to:
            self._driver.unregister_listen_address(self._listens_to)
        with self._lock:
            self._listens_to = wanted
        return True

    def _record(self, address: str, speaker: Publisher | None) -> None:
        if (address, speaker) != self._recorded:
            self._recorded = address, speaker
            if self._journal is not None and address:
                self._journal.parent(address, speaker)

    def _receive(self, envelope: Envelope) -> None:
        if envelope.hello is not None:
            with self._lock:
                moved = self._judge(envelope, envelope.hello)
            if moved:
                self._thread.wake()
        self._on_envelope(envelope)

    def _judge(self, envelope: Envelope, hello: Hello) -> bool:
        """Note what a hello of the parent names. Returns whether it is a goodbye, and another parent is chosen."""
        if hello.nonce in self._requested:
            self._left.clear()
            self._requested.clear()
        if envelope.uuid in self._left:
            return False
        self._record(self._recorded[0], (envelope.service, envelope.uuid))
        self._serves = hello.serves
        self._publisher = envelope.service
        self._remember(self._received, envelope.uuid)
        moved = hello.goodbye and self._parents.leave(time.monotonic(), hello.instead)
        if moved:
            self._moved(f"its publisher {envelope.service!r} stops")
        return moved

    # -- the driver's subscriber -------------------------------------------------------------------------------------

    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.initialize`."""
        self._on_envelope = on_envelope
        self._driver.initialize(self._receive, on_connected)
        self._listen(self._parents.current, time.monotonic())

    def register_topic(self, topic: str) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.register_topic`."""
        self._driver.register_topic(topic)

    def unregister_topic(self, topic: str) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.unregister_topic`."""
        self._driver.unregister_topic(topic)

    def pin_key(self, address: str, public_key: str) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.pin_key`."""
        self._driver.pin_key(address, public_key)

    def know_publishers(self, uuids: Collection[str]) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.know_publishers`."""
        self._driver.know_publishers(uuids)

    def request_hello(self, nonce: str, topics: Collection[str]) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.request_hello`."""
        with self._lock:
            if self._left and self._listens_to == self._parents.current:
                self._requested.append(nonce)
        self._driver.request_hello(nonce, topics)

    def daemonize(self) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.daemonize`."""
        self._driver.daemonize()
        self._thread.start()

    def counters(self) -> Mapping[str, int]:
        """Those of the driver."""
        return self._driver.counters()

    def close(self) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.close`. A running step ends by itself."""
        self._thread.close(0.0)
        self._driver.close()
