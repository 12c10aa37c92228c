"""A relay: a replica that publishes what it has, and answers the questions of the replicas below it (rules R1 and R6).

Sans-I/O, as its two halves: envelopes, answers, questions and the clock in; envelopes, answers and requests out. It has
a UUID of its own and numbers its messages itself. It sends a link on as it is, and only after it has applied the link,
so what leaves it is in chain order, and it can serve what it has announced. Not thread-safe: the caller holds one lock.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from pubsub_lib.core.effects import RequestHello, StartSync
from pubsub_lib.core.envelope import MAX_PATH, Envelope, Hello, HelloRequest
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, Link, SyncAnswer
from pubsub_lib.core.relay_contents import Question, RelayContents, RelayedState
from pubsub_lib.core.relay_sequencer import RelaySequencer
from pubsub_lib.core.sequencer import MAX_REQUESTS
from pubsub_lib.core.step_result import NOTHING, StepResult
from pubsub_lib.core.timing import Timing
from pubsub_lib.errors import FrameError

MAX_LOOPS: Final = 100
"""Maximum number of remembered publishers that are below the relay."""


class RelayStep(msgspec.Struct, frozen=True):
    """The result of a relay's step."""

    result: StepResult = NOTHING
    """That of its replica."""
    envelopes: Sequence[Envelope] = ()
    """Messages to send, in this order; hellos are fetched with ``next_hello``."""
    ready: Sequence[Question] = ()
    """Questions to be answered now, by ``contents.answer``. The caller may do that a little later: an answer with all
    objects of large topics takes milliseconds, and one hello may make several questions ready.
    """
    loop: tuple[str, str] | None = None
    """Service name and UUID of a parent that is below this relay itself: it must be left (rule R6)."""
    unfollowed: Sequence[str] = ()
    """Topics of the question that this relay does not follow."""


class Relay:
    """One start of a relay of named topics. ``uuid``: new at every start, 32 hex digits."""

    def __init__(
        self, service: str, uuid: str, timing: Timing, limits: Limits, state: RelayedState, now: float,
        settling: float = 0.0,
    ) -> None:  # fmt: skip
        """``settling``: seconds from now within which the replicas below, which listened to the start before this one,
        connect again.
        """
        self.uuid = uuid
        self.instead: tuple[str, ...] = ()
        """The addresses of other relays, to which the replicas below may go when this one stops."""
        self.state = state
        self.sequencer = RelaySequencer(self, service, uuid, timing, limits, now)
        self.oversized = 0
        """Links that were too large to send on: replicas below read them by a sync."""
        self.unserved = 0
        """Hello requests that name no topic that this relay follows, and syncs that want a topic that it does not
        follow. They get no answer about it."""
        self._timing = timing
        self.contents = RelayContents(self.state)
        self._questions: list[Question] = []
        self._held: list[Question] = []
        """Questions for deltas of replicas that do not receive this relay's links yet."""
        self.settled_at = now + settling
        """From then on no question is held."""
        self._requested: set[str] = set()
        """The nonces of the hello requests until then."""
        self._refreshing: float | None = None
        """When the running refresh of the proofs began."""
        self._refreshed: list[str] = []
        """The topics that the relay had then."""
        self._unproved: list[str] = []
        """Those of them that are not known to be proved since."""
        self._above: dict[str, tuple[float, tuple[bytes, ...]]] = {}
        """By UUID of each publisher above: when its last hello was received, and the path in it."""
        self._loops: set[str] = set()
        """UUIDs of publishers that are below this relay."""

    # -- from above --------------------------------------------------------------------------------------------------

    def feed(self, envelope: Envelope, now: float) -> RelayStep:
        """An envelope was received from a publisher above."""
        hello = envelope.hello
        if hello is not None:
            if bytes.fromhex(self.uuid) in hello.path or envelope.uuid == self.uuid:
                if len(self._loops) < MAX_LOOPS:
                    self._loops.add(envelope.uuid)
                return RelayStep(loop=(envelope.service, envelope.uuid))
            self._loops.discard(envelope.uuid)
            self._above.pop(envelope.uuid, None)
            self._above[envelope.uuid] = now, hello.path
        elif envelope.uuid in self._loops:
            return RelayStep(loop=(envelope.service, envelope.uuid))
        return self._step(self.state.feed(envelope, now), now, now)

    def parent_changed(self) -> None:
        """The relay listens to another publisher. Which ones are above it, or below it, is shown by later hellos."""
        self._above.clear()
        self._loops.clear()

    def tick(self, now: float) -> RelayStep:
        """Time passed."""
        return self._step(self.state.tick(now), now, now)

    def sync_done(self, number: int, answer: SyncAnswer, now: float) -> RelayStep:
        """A parent, or the store, answered."""
        asked, ages = self.state.tracker.syncs.begun + answer.asked_after, answer.ages
        times = None if ages is None else {name: asked - min(at.age, at.applied) for name, at in ages.items()}
        result = self.state.sync_done(number, answer, now)
        self.sequencer.store_id = self.state.stores.own
        if not all(isinstance(each, Link) for each in self.state.done):
            self.sequencer.objects_arrived(now)
        return self._step(result, now, asked, times)

    def sync_failed(self, number: int, now: float, pause: float | None = None) -> None:
        """Neither a parent nor the store answered, or one asked for a pause."""
        self.state.sync_failed(number, now, pause)

    def subscribe(self, topics: Collection[str], now: float) -> RelayStep:
        """Follow topics, to which the driver must be subscribed already."""
        return self._step(self.state.subscribe(topics, now), now, now)

    def directory_read(self, uuids: Collection[str], now: float) -> list[RelayStep]:
        """The store's directory shows live leases of these publishers (rule 14). What they sent before is used now."""
        return [self._step(result, now, now) for result in self.state.directory_read(uuids, now)]

    def _step(
        self, result: StepResult, now: float, applied: float, times: Mapping[str, float] | None = None
    ) -> RelayStep:
        """Publish what the step applied. ``applied``: when a link was in the store's history at the earliest;
        ``times``: the same by topic, for those of a relay's answer.
        """
        links = self.contents.take(now, applied, times)
        if self._held or self._requested:  # just started
            self._release(now)
        if not self._questions and self._refreshing is None and not self.sequencer.wants_reading(now):
            return RelayStep(result, self._publish(links, now))  # nearly always: a link was passed on
        ready: list[Question] = []
        waiting: list[Question] = []
        for each in self._questions:
            (ready if self._ready(each, now) else waiting).append(each)
        refresh = self._refresh(now, all_ready=not waiting)
        if refresh.hello_requests:
            requests = [*result.hello_requests, *refresh.hello_requests]
            result = msgspec.structs.replace(result, hello_requests=requests)
        self._questions = waiting
        envelopes = self._publish(links, now)
        return RelayStep(result, envelopes, ready)

    def _publish(self, links: Sequence[Link], now: float) -> list[Envelope]:
        try:
            return self.sequencer.publish(links, now) if links else []
        except FrameError:
            self.oversized += len(links)
            return []

    # -- from below --------------------------------------------------------------------------------------------------

    def hello_requested(self, ask: HelloRequest, now: float) -> RelayStep:
        """A replica below requests a hello reply. Topics that this relay does not follow are left out."""
        if now < self.settled_at and len(self._requested) < MAX_REQUESTS:
            self._requested.add(ask.nonce)
        topics = tuple(topic for topic in ask.topics if topic in self.state.tracker.topics)
        if not topics or ALL in ask.topics:
            self.unserved += 1
            return RelayStep()
        self.sequencer.hello_requested(HelloRequest(ask.nonce, topics), now)
        return self._step(NOTHING, now, now)

    def sync_requested(self, asker: str, start: StartSync, now: float) -> RelayStep:
        """A replica below requests a sync. It is answered when the proofs are young, or could not be renewed in time.
        A full answer needs a proof from after the question, because a replica refuses an older one (rule R3).

        Just started, the relay answers with deltas after the replica's last hello request has arrived: the replica was
        connected to the start before this one, and would lack all links between the answer and its new connection.
        """
        unfollowed = [topic for topic in start.wants if topic not in self.state.tracker.topics]
        self.unserved += bool(unfollowed)
        full = any(want.after is None for want in start.wants.values())
        proofs = {topic: self.contents.proof(topic) for topic in start.wants}
        until = now + self._timing.round_trip
        refresh = start.refresh or full
        question = Question(asker, start.wants, refresh, now, proofs, start.nonce, until, list(proofs))
        (self._held if start.nonce and not full else self._questions).append(question)
        return msgspec.structs.replace(self._step(NOTHING, now, now), unfollowed=unfollowed)

    def _release(self, now: float) -> None:
        """Answer the held questions of the replicas that receive the links, and all of them after some time."""
        settled = now >= self.settled_at
        if settled:
            self._requested.clear()
        for question in self._held.copy():
            if settled or question.nonce in self._requested:
                self._held.remove(question)
                self._questions.append(msgspec.structs.replace(question, until=now + self._timing.round_trip))

    def next_hello(self, now: float) -> Envelope | None:
        """The next hello to send, or None. Call it until it returns None, after every other method."""
        return self.sequencer.next_hello(now)

    def next_time(self) -> float:
        """When ``tick`` or ``next_hello`` is next due."""
        due = min(self.state.next_time(), self.sequencer.next_time())
        if self._refreshing is not None:
            due = min(due, self._refreshing + self._timing.round_trip)
        if self._held:
            due = min(due, self.settled_at)
        return min([due, *(each.until for each in self._questions)])

    # -- hellos --------------------------------------------------------------------------------------------------------

    def hello(self, sequences: Mapping[str, int], now: float, *, nonce: str, goodbye: bool) -> Hello:
        """A hello about these topics: with the heads of those that the relay has and can prove."""
        contents = self.contents
        heads = {topic: contents.head(topic) for topic in sequences if contents.proves(topic)}
        # A broadcast may name no topic: then it is about the store's point alone.
        about = heads or [topic for topic in self.state.tracker.topics if contents.proves(topic)]
        age = max((now - contents.proof(topic) for topic in about), default=0.0)
        least = min((now - contents.latest(topic) for topic in about), default=0.0)
        store = contents.store(about) if about else None
        instead, serves = (self.instead, 0) if goodbye else ((), self.sequencer.serves)
        least = min(max(least, 0.0), age)
        return Hello(sequences, heads, store, age, nonce, goodbye, least, self.path(now), instead, serves)

    def path(self, now: float) -> tuple[bytes, ...]:
        """The UUIDs above this relay, the nearest first, of publishers whose hellos were received lately."""
        recent = [(uuid, path) for uuid, (at, path) in self._above.items() if now - at <= self._timing.stale_after]
        self._above = {uuid: self._above[uuid] for uuid, _ in recent}
        above = [bytes.fromhex(uuid) for uuid, _ in reversed(recent)]
        farther = [uuid for _, path in reversed(recent) for uuid in path]
        return tuple(dict.fromkeys([*above, *farther]))[:MAX_PATH]

    # -- proofs and answers ------------------------------------------------------------------------------------------

    def _refresh(self, now: float, *, all_ready: bool) -> StepResult:
        """Ask above for new proofs, once for all questions that wait; and end that when they came, or not in time."""
        begins = self._refreshing is None and (not all_ready or self.sequencer.wants_reading(now))
        if begins:
            self._refreshing = now
            self._refreshed = self.contents.served()
            self._unproved = self._refreshed.copy()
            self.sequencer.begin_reading()
        if self._refreshing is None:
            return NOTHING
        renewed = all_ready and self._renewed(self._refreshing - self._timing.reading_age)
        if renewed or now >= self._refreshing + self._timing.round_trip:
            served = any(map(self.contents.serves, self._refreshed))
            self.sequencer.refresh_ended(self._refreshing, now, served=served, proved=renewed)
            self._refreshing = None
            self._refreshed = self._unproved = []
        elif begins:
            requests = self.state.tracker.request_hellos(now)
            return StepResult(hello_requests=[each for each in requests if isinstance(each, RequestHello)])
        return NOTHING

    def _renewed(self, since: float) -> bool:
        """Whether each topic has a proof that is not older. A topic is looked at until it has one, because this is
        called for each link meanwhile.
        """
        contents, unproved = self.contents, self._unproved
        while unproved and not (contents.serves(unproved[-1]) and contents.proof(unproved[-1]) < since):
            unproved.pop()
        return not unproved

    def _ready(self, question: Question, now: float) -> bool:
        if now >= question.until:
            return True
        young = question.arrived - self._timing.reading_age
        while question.unready:
            topic = question.unready[-1]
            proof = self.contents.proof(topic)
            old = proof < young or (question.refresh and proof <= question.proofs[topic])
            if old and self.contents.serves(topic):
                return False
            question.unready.pop()
        return True
