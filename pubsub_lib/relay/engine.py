"""The threads of a relay: those of a replica, with a relay around its state, and the callers from below."""

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from pubsub_lib.api import Subscriber
from pubsub_lib.core.cache import Cache
from pubsub_lib.core.envelope import Envelope, HelloRequest
from pubsub_lib.core.model import Delta, Full, Incomplete, Record, SyncAnswer, Want
from pubsub_lib.core.relay_contents import RelayedState
from pubsub_lib.core.relaying import Relay
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.core.topic_copy import Part, TopicCopy
from pubsub_lib.errors import PubSubError, StoreUnavailable
from pubsub_lib.journal import Journal
from pubsub_lib.logs import logger
from pubsub_lib.relay.core import RelayCore
from pubsub_lib.replica.core import Core
from pubsub_lib.replica.discovery import Discovery
from pubsub_lib.replica.engine import Engine
from pubsub_lib.replica.handlers import Handlers
from pubsub_lib.replica.journaling import ReplicaJournal
from pubsub_lib.replica.scheduling import Scheduler
from pubsub_lib.replica.sync_reader import SyncReader, ask, interrupt
from pubsub_lib.settings import Settings
from pubsub_lib.sync.packing import pack
from pubsub_lib.sync.question import SyncQuestion
from pubsub_lib.threads.giving_way import giving_way

_log = logger(__name__)

SLACK: Final = 0.5
"""Seconds for which an answer may be late: the relay's threads may be busy."""
SETTLING: Final = 3.0
"""Seconds after the start for which the deltas of replicas wait that have not connected again. Replicas do that within
the default ``max_reconnect_interval``, which is 2 s, and a part of a second."""


class RelayEngine(Engine):
    """The engine's lock guards the relay, too. Messages are sent under it, in the order of their sequences.

    ``older``: answers what the relay lacks for replicas below, because it was started after them. One thread at a time
    reads from it, beside the thread of the relay's own syncs. None: such replicas read all objects.
    """

    def __init__(
        self,
        settings: Settings,
        uuid: str,
        send: Callable[[Envelope], None],
        looped: Callable[[str, str], None],
        reader: SyncReader,
        subscriber: Subscriber,
        scheduler: Scheduler,
        rng: random.Random,
        discovery: Discovery | None = None,
        received: ReplicaJournal | None = None,
        sent: Journal | None = None,
        older: SyncReader | None = None,
    ) -> None:
        """``received``, ``sent``: the relay's two journals."""
        self._older = older
        self._reading_older = threading.Lock()
        self._older_wait = settings.timing.sync_timeout / 2
        self._older_pause = settings.timing.stale_after
        self._older_again: dict[str, float] = {}
        """By topic: when older links may be read again, after a reading that did not help. Under ``_reading_older``."""
        self._source = 0
        """The number of changes of the source from which older links are read."""
        self._ending = False
        self._relay_parts = uuid, send, looped, sent
        self._answer_wait = settings.timing.round_trip + SLACK
        handlers = Handlers(settings.handling, scheduler.now, threaded=False, condition=scheduler.condition)
        super().__init__(settings, Cache(), reader, subscriber, handlers, scheduler, rng, discovery, received)

    def _make_state(self, settings: Settings, rng: random.Random, cache: Cache) -> tuple[ReplicaState, Core]:
        uuid, send, looped, journal = self._relay_parts
        now, timing, limits = self.now(), settings.timing, settings.limits
        state = RelayedState(timing, limits, rng, cache, now)
        settling = min(SETTLING, timing.stale_after)  # those with several parents then ask another one
        relay = Relay(settings.service_name, uuid, timing, limits, state, now, settling)
        self.core = RelayCore(relay, send, looped, journal)
        self.faults = state.faults
        """Counters of faults, which go on counting. Without the lock: each is one number."""
        return state, self.core

    def on_envelope(self, envelope: Envelope) -> None:
        """A message arrived from above. The driver's receiving thread; waits for the lock."""
        super().on_envelope(envelope)
        if self.core.has_requests:
            self._ask_above()

    def on_directory(self, uuids: Sequence[str]) -> None:
        """The directory was read. Any thread; waits for the lock."""
        super().on_directory(uuids)
        self._ask_above()

    # -- from below ----------------------------------------------------------------------------------------------------

    def on_hello_request(self, ask: HelloRequest) -> None:
        """A replica below requests a hello reply. A thread of the driver; waits for the lock."""
        self.read(lambda state: self.core.hello_requested(ask, self.now()))
        self._ask_above()

    def on_connected_below(self) -> None:
        """A replica below has connected. A thread of the driver; waits for the lock."""
        self.read(lambda state: self.core.connected(self.now()))
        self.clock.wake()

    def answer(self, question: SyncQuestion) -> SyncAnswer | None:
        """Answer a sync of a replica below. None: the relay has nothing of it, or too many wait. Any thread; blocks for
        ``round_trip`` and ``SLACK`` at most, while the relay asks above for a newer proof, after its start also until
        ``SETTLING``, and for readings of older links, of which one that fails ends the wait; then until all objects of
        the answer are compressed.
        """
        found = self._answer(question)
        return None if found is None else self._packed(found)

    def _answer(self, question: SyncQuestion) -> SyncAnswer | None:
        """The answer with copies of topics, which are not read yet."""
        arrived = self.now()
        asker, ready = self.read(lambda state: self.core.sync_requested(question, self.now()))
        self._ask_above()
        try:
            held = max(0.0, self.core.relay.settled_at - arrived) if question.nonce else 0.0
            asked = ready.result(held + self._answer_wait)
        except TimeoutError:
            self.read(lambda state: self.core.give_up(asker))
            return None
        found = None if asked is None else self.read(lambda state: self.core.answer(asked, self.now()))
        if found is None or not any(isinstance(part, Incomplete) for part in found.chains.values()):
            return found
        return self._with_older_links(question, found, arrived)

    def _packed(self, answer: SyncAnswer) -> SyncAnswer:
        """The answer with its objects compressed. A link waits for the lock while a few objects are read, at most."""
        chains = {chain: self._packed_part(part) for chain, part in answer.chains.items()}
        return msgspec.structs.replace(answer, chains=chains)

    def _packed_part(self, part: Delta | Incomplete | Full) -> Delta | Incomplete | Full:
        if not isinstance(part, Full):
            return part
        topics = {
            topic: msgspec.structs.replace(each, records=pack(giving_way(self._parts(each.records))))
            for topic, each in part.topics.items()
        }
        return msgspec.structs.replace(part, topics=topics)

    def _parts(self, copy: Sequence[Record]) -> Iterator[Part]:
        assert isinstance(copy, TopicCopy)
        while (part := self.read(lambda state: copy.step())) is not None:
            if self._ending:  # who asked may have left long ago
                raise StoreUnavailable("the relay is stopping")
            yield part

    def _with_older_links(self, question: SyncQuestion, found: SyncAnswer, arrived: float) -> SyncAnswer:
        """The answer again, after links from before the relay's start were read. One thread reads for all that wait."""
        older = self._older
        if older is None:
            return found
        # Who asked must not wait for longer than its own timeout: it reads all objects instead.
        if not self._reading_older.acquire(timeout=max(0.0, arrived + self._older_wait - self.now())):
            return found
        try:
            now, lacking = self.now(), self.read(lambda state: self.core.lacking(question))
            wants = {topic: want for topic, want in lacking.items() if now >= self._older_again.get(topic, now)}
            if self._ending or (lacking and not wants):
                return found
            if wants:
                self._read_older(older, question, wants)
            return self.read(lambda state: self.core.answer_again(question, arrived, self.now())) or found
        finally:
            self._reading_older.release()

    def _read_older(self, older: SyncReader, question: SyncQuestion, wants: Mapping[str, Want]) -> None:
        begun, source = self.now(), self._source
        try:
            links = ask(older, SyncQuestion(wants))
        except PubSubError as error:
            _log.warning("replicas below read all objects, because older links cannot be read: %s", error)
        else:
            self.read(lambda state: self.core.join(links, begun, self.now()))
        if source != self._source:
            return  # the new one may have them
        # Else each further question, also with a point that never was, would cost such a reading.
        again = self.now() + self._older_pause
        lacking = self.read(lambda state: self.core.lacking(question))
        self._older_again = {topic: until for topic, until in self._older_again.items() if until > begun}
        self._older_again.update(dict.fromkeys(wants.keys() & lacking.keys(), again))

    def parent_changed(self, *, reads_from_it: bool) -> None:
        """The relay listens to another parent, from which it also reads its syncs and older links, or not. What failed
        at the old one is tried at once. Any thread; waits for the lock.
        """
        self.read(lambda state: self.core.relay.parent_changed())
        if reads_from_it:
            self._source += 1
            self._older_again = {}
            self.read(lambda state: state.tracker.syncs.source_changed(self.now()))
        self.clock.wake()

    def close(self, until: float) -> None:
        """See :meth:`pubsub_lib.replica.engine.Engine.close`."""
        self._ending = True
        if self._older is not None:
            interrupt(self._older)
        super().close(until)

    def send_goodbye(self, instead: Sequence[str] = ()) -> None:
        """Send nothing more after a goodbye. ``instead``: the addresses to which the replicas below may go. Any thread;
        waits for the lock.
        """
        self.read(lambda state: self.core.close(self.now(), instead))

    def _ask_above(self) -> None:
        """Send the hello requests of the last steps. The clock thread may be due earlier now."""
        for request in self.read(lambda state: self.core.take_requests()):
            self.request_hello(request)
        self.clock.wake()
