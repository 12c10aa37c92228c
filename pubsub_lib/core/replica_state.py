"""Tracker and cache together: the state of a replica, without its threads, sockets and clocks.

Used by the threaded replica and the simulator. Not thread-safe: the caller holds one lock for all calls and ``cache``.
"""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import assert_never

import msgspec

from pubsub_lib.core.cache import Cache
from pubsub_lib.core.combined_events import combined
from pubsub_lib.core.compared_topics import ComparedTopics
from pubsub_lib.core.contradictions import Contradictions
from pubsub_lib.core.effects import Apply, Compare, Effect, Replace, RequestHello, StartSync
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.events import Event
from pubsub_lib.core.foreign_stores import ForeignStores
from pubsub_lib.core.history_change import HistoryChange
from pubsub_lib.core.leased_publishers import LeasedPublishers
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, ZERO, Full, Head, Point, SyncAnswer, Want
from pubsub_lib.core.provoked_reads import ProvokedReads
from pubsub_lib.core.quarantine import Publisher
from pubsub_lib.core.recount import Recount
from pubsub_lib.core.step_result import NOTHING, StepResult
from pubsub_lib.core.timing import Timing
from pubsub_lib.core.topic_objects import Rot
from pubsub_lib.core.tracker import Tracker
from pubsub_lib.core.tracker_counters import Faults
from pubsub_lib.core.unleased_messages import UnleasedMessages
from pubsub_lib.core.witness import Witness
from pubsub_lib.errors import NotSubscribedError


class ReplicaState:
    """One replica's state. ``now`` is always in seconds of a clock that never goes back."""

    def __init__(self, timing: Timing, limits: Limits, rng: random.Random, cache: Cache, now: float) -> None:
        self.cache = cache
        self.tracker = Tracker(timing, limits, rng, now)
        self.recount = Recount(timing.recount_time, now)
        self._compared = ComparedTopics()
        self.faults = Faults()
        self.contradictions = Contradictions(self.tracker)
        self.quarantine = self.contradictions.quarantine
        self.provoked = ProvokedReads(self.tracker.counters)
        self.stores = ForeignStores()
        self.leased = LeasedPublishers(timing, rng)
        self.unleased = UnleasedMessages(self.tracker.counters)
        self.witness: Witness | None = None
        self.listens: Callable[[], bool] = lambda: True
        """False while no handler needs events: then none need be made. Called with the caller's lock held."""

    def subscribe(self, topics: Collection[str], now: float, known: Mapping[str, Point] | None = None) -> StepResult:
        """Follow more topics, to which the driver must be subscribed already. Raises as ``check_subscribe``."""
        self.check_subscribe(topics)
        return self._carry_out(self.tracker.subscribe(topics, now, known), now)

    def check_subscribe(self, topics: Collection[str]) -> None:
        """Raises NotSubscribedError when everything is subscribed to and a topic is named, or the other way round."""
        every = {*self.tracker.topics, *topics}
        if ALL in every and len(every) > 1:
            raise NotSubscribedError(
                f"a replica subscribes either to everything or to named topics, not both: {sorted(every - {ALL})[:5]}; "
                "use two replicas"
            )

    def unsubscribe(self, topic: str) -> StepResult:
        """Drop a topic and its objects; reported to handlers as deletes. Raises NotSubscribedError."""
        self._check_subscribed(topic)
        self.tracker.unsubscribe(topic)
        self.provoked.forget(topic)
        dropped = list(self.cache.topics()) if topic == ALL else [topic]
        events = [event for name in dropped for event in self.cache.drop(name)]
        return StepResult(events, by_sync=len(events))

    def feed(self, envelope: Envelope, now: float) -> StepResult:
        """An envelope was received."""
        if envelope.store_id != self.stores.own and self.stores.excludes(envelope):
            return self._drop_foreign(envelope, now)
        if self.quarantine.until and self.quarantine.excludes(envelope.uuid, now):
            self._exclude(envelope, now)
            return NOTHING
        leased = self.leased
        live = not leased.required or envelope.uuid in leased.live or leased.may_be_used(envelope.uuid, now)
        used = envelope if live else self.unleased.hold(envelope, now)
        if used is None:
            return NOTHING
        effects = self.tracker.feed(used, now, proves=live)
        if self.witness is not None:
            self.witness.received(envelope, effects, self.tracker)
        outcome = self._carry_out(effects, now, envelope) if effects else NOTHING
        return outcome if envelope.hello is None or not self.cache.lagging else self._prove(outcome)

    def _drop_foreign(self, envelope: Envelope, now: float) -> StepResult:
        """Count the message of another store (rule 15). This may be the replica's store, if that was created again."""
        self.tracker.counters.foreign_store += max(1, len(envelope.messages))
        if (publisher := self.stores.first_message(envelope, now)) is None:
            return NOTHING
        self.tracker.verify(now)
        return StepResult(foreign=publisher)

    def _exclude(self, envelope: Envelope, now: float) -> None:
        self.contradictions.exclude(envelope, self._chain_of(envelope.topic), now)

    def connected(self, now: float) -> None:
        """A publisher is connected (again): ``tick`` will request hellos. Call it when all topics are subscribed to."""
        self.tracker.connected(now)

    def directory_read(self, uuids: Collection[str], now: float) -> list[StepResult]:
        """The store's directory shows live leases of these publishers (rule 14). What they sent before is used now."""
        self.leased.read(uuids, now)
        return [self.feed(envelope, now) for envelope in self.unleased.taken(self.leased, now)]

    def tick(self, now: float) -> StepResult:
        """Time passed."""
        rotted = self._recount(now) if now >= self.recount.next_time else ()
        effects = self.tracker.tick(now)
        if self.leased.to_ask(now):
            effects += self.tracker.request_hellos(now)
        if self.witness is not None:
            drained = [link for effect in effects if isinstance(effect, Apply) for link in effect.links]
            if drained:
                self.witness.drained(drained, self.tracker)
        outcome = self._carry_out(effects, now) if effects else NOTHING
        read = self.leased.due(now)
        return msgspec.structs.replace(outcome, rotted=rotted, read_directory=read) if rotted or read else outcome

    def next_time(self) -> float:
        """When ``tick`` is next due."""
        return min(self.tracker.next_time(), self.recount.next_time, self.leased.next_time())

    def sync_done(self, number: int, answer: SyncAnswer, now: float) -> StepResult:
        """The store answered."""
        syncs = self.tracker.syncs
        in_time = syncs.running and number == syncs.number
        of_store = in_time and answer.ages is None
        if in_time and self.stores.identified(answer.store_id):
            self.tracker.forget_received(now)
        if in_time:
            self.contradictions.answered(answer, self.leased, now)
        # First the contents of all topics, then the links that had waited: handlers may order the former themselves.
        effects = sorted(self.tracker.sync_done(number, answer, now), key=lambda each: not isinstance(each, Replace))
        if self.witness is not None:
            self.witness.synced(answer, number, effects, self.tracker)
        outcome = self._carry_out(effects, now)
        if of_store and (excluded := self.contradictions.denied(answer, now)):
            outcome = msgspec.structs.replace(outcome, quarantined=[*outcome.quarantined, *excluded])
        if self.stores.seen_at > syncs.begun:
            self.tracker.verify(now)
        return self._prove(outcome) if self.cache.lagging else outcome

    def sync_failed(self, number: int, now: float, pause: float | None = None) -> None:
        """The store did not answer, or asked for a pause."""
        self.tracker.sync_failed(number, now, pause)

    def _carry_out(self, effects: Sequence[Effect], now: float, envelope: Envelope | None = None) -> StepResult:
        events: list[Event] = []
        hello_requests: list[RequestHello] = []
        sync: StartSync | None = None
        by_sync = 0
        changed: dict[str, tuple[Point, Point]] = {}
        contradicted: list[Replace] = []
        quarantined: list[Publisher] = []
        for effect in effects:
            if isinstance(effect, Apply):  # the most frequent effect; a match statement takes four times as long
                self._apply(effect, events, now, envelope)
            elif isinstance(effect, Replace):
                before, after = effect.before, effect.answer.head
                reached = 0 if before is None else before.position
                quarantined += self.provoked.answered(effect, self.cache.differs, self.quarantine, now)
                same_history = self._replace(effect.chain, effect.answer, reached, events, now)
                by_sync = len(events)
                if before is not None and not same_history:
                    changed[effect.chain] = before, after
                    if effect.source is not None and effect.answer.contains_known is False:  # not a guess
                        contradicted.append(effect)
            elif isinstance(effect, Compare):
                self._compare(effect.heads, now, envelope)
            elif isinstance(effect, RequestHello):
                everything = effect.topics == (ALL,)
                topics = (ALL, *self._compared.next(self.cache.topics)) if everything else effect.topics
                hello_requests.append(RequestHello(effect.nonce, topics))
            elif isinstance(effect, StartSync):
                wants = {name: self._fill(name, want) for name, want in effect.wants.items()}
                sync = msgspec.structs.replace(effect, wants=wants)
                self.contradictions.reading(wants)
            else:
                assert_never(effect)
        self.tracker.counters.history_changes += len(changed)
        excluded: tuple[Publisher, ...] = ()
        if contradicted or quarantined:
            excluded = self.contradictions.undone(contradicted, quarantined, now)
        if not changed:
            return StepResult(events, hello_requests, sync, by_sync=by_sync, quarantined=quarantined)
        read = combined(events[:by_sync])
        steps = [*read, *events[by_sync:]]
        sources = {each.chain: each.source for each in contradicted if each.source is not None}
        history = HistoryChange(changed, sources, excluded)
        return StepResult(steps, hello_requests, sync, by_sync=len(read), history=history, quarantined=quarantined)

    def _apply(self, effect: Apply, events: list[Event], now: float, envelope: Envelope | None) -> None:
        for link, guarded, intact in self.cache.apply_run(effect.links, events if self.listens() else None):
            waited = effect.waited is not None and (link.topic, link.point) in effect.waited
            if not intact:
                self.provoked.link_differed(self._chain_of(link.topic), link, effect.waited, envelope, now)
            self._faulty(link.topic, guarded, intact, now, by_link=True, waited=waited)

    def _replace(self, chain: str, answer: Full, reached: int, events: list[Event], now: float) -> bool:
        """Take a full sync's answer. Returns whether its history contains the known point.

        The store decides that, not the versions: an object altered in memory also looks as if it went back. When the
        changelog no longer reaches back to the known point, a version that went back means another history."""
        if chain == ALL:
            for topic in [each for each in self.cache.topics() if each not in answer.topics]:
                events.extend(self.cache.drop(topic))
        back = False
        for topic, snapshot in answer.topics.items():
            applied = self.cache.replace(
                topic, snapshot, with_events=self.listens(), reached=reached, same_history=answer.contains_known
            )
            events.extend(applied.events)
            self._faulty(topic, applied.guarded, applied.intact, now)
            back = back or applied.went_back
        return not back if answer.contains_known is None else answer.contains_known

    def _faulty(
        self, topic: str, guarded: int, intact: bool, now: float, *, by_link: bool = False, waited: bool = False
    ) -> None:
        self.faults.guarded += guarded
        if not intact:
            self.faults.mismatches += 1
            self.mismatched(topic, now, by_link=by_link, waited=waited)

    def _compare(self, heads: Mapping[str, Head], now: float, envelope: Envelope | None) -> None:
        if envelope is not None and not self.provoked.may_compare(envelope.uuid, now):
            return
        for topic, head in heads.items():
            if self.cache.differs(topic, head):
                if envelope is not None:
                    self.provoked.differed(self._chain_of(topic), (envelope.service, envelope.uuid), topic, head, now)
                self._faulty(topic, 0, False, now)

    def _recount(self, now: float) -> Sequence[Rot]:
        """Recount the next objects in memory. For a topic with a fault the differing buckets are fetched."""
        found = self.recount.step(self.cache, self._to_be_read, now)
        for rot in found:
            self.faults.rotted += rot.objects
            if not self._to_be_read(rot.topic):  # else the pending answer is compared with the cache
                self.mismatched(rot.topic, now)
        return found

    def _to_be_read(self, topic: str) -> bool:
        name = self._chain_of(topic)
        return name not in self.tracker.topics or self.tracker.chain(name).frozen

    def _chain_of(self, topic: str) -> str:
        return ALL if ALL in self.tracker.topics else topic

    def _prove(self, outcome: StepResult) -> StepResult:
        """Show the objects that a topic holds below a tombstone although it lags no longer: a restored history undid
        the delete. Their versions go back, so handlers are notified, after the step's other events."""
        events: list[Event] = []
        changed: dict[str, tuple[Point, Point]] = {}
        for topic in list(self.cache.lagging):
            shown = self.cache.prove(topic, self.tracker.covered([topic]))
            if shown:
                chain = self._chain_of(topic)
                at = self.tracker.chain(chain).known or ZERO
                changed[chain] = at, at
                events.extend(shown)
        if not changed:
            return outcome
        self.tracker.counters.history_changes += len(changed)
        return msgspec.structs.replace(outcome, then=StepResult(events, history=HistoryChange(changed)))

    def mismatched(self, topic: str, now: float, *, by_link: bool = False, waited: bool = False) -> None:
        """A topic's count or digest differs from the store's: fetch the differing buckets (rule 10)."""
        self.tracker.mismatched(topic, now, by_link=by_link, waited=waited)

    def resync(self, topics: Collection[str], now: float) -> None:
        """Read these chains again as soon as the rate limit allows. Raises NotSubscribedError and then reads none."""
        for topic in topics:
            self._check_subscribed(topic)
        self.tracker.resync(topics, now)

    def _check_subscribed(self, topic: str) -> None:
        if topic not in self.tracker.topics:
            topics = sorted(self.tracker.topics)[:5]
            raise NotSubscribedError(f"the replica is not subscribed to the topic {topic!r}; its topics are {topics}")

    def _fill(self, topic: str, want: Want) -> Want:
        if want.after is not None:
            return want
        buckets = None if want.buckets is None else self.cache.bucket_digests(topic)
        known = self.tracker.chain(topic).known
        return Want(buckets=buckets, known=known, judged=None if known is None else self.provoked.judged(topic))
