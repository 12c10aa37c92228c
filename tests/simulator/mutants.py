"""Bugs on purpose, to prove that the simulator finds them: each patches one small method while a seed runs.

The product's files stay unchanged: a mutant replaces a method during a ``with`` block.
"""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import msgspec

from pubsub_lib.core.awaited import Awaited
from pubsub_lib.core.cache import Cache
from pubsub_lib.core.chain import Chain
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.events import Event
from pubsub_lib.core.foreign_stores import ForeignStores
from pubsub_lib.core.freshness import Freshness, FreshnessMonitor
from pubsub_lib.core.handler_queue import HandlerQueue
from pubsub_lib.core.history_change import HistoryChange
from pubsub_lib.core.lease import Lease
from pubsub_lib.core.leased_publishers import LeasedPublishers
from pubsub_lib.core.model import ALL, Delta, Full, Head, Incomplete, TopicSnapshot, Want
from pubsub_lib.core.reconnection import Reconnection
from pubsub_lib.core.reorder_buffer import PendingStep, ReorderBuffer
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.core.sequencer import Sequencer
from pubsub_lib.core.step_result import StepResult
from pubsub_lib.core.sync_scheduler import SyncScheduler
from pubsub_lib.core.tracker import Tracker
from pubsub_lib.core.transitions import SYNCING, State, Trigger
from pubsub_lib.core.verification import Verification
from pubsub_lib.errors import StoreUnavailable
from simulator import database
from simulator.database import Database
from simulator.group import Attempt, GroupQueue
from simulator.network import Network
from simulator.publisher import PublisherTasks
from simulator.service import Service
from simulator.store import ModelStore
from simulator.watched_state import WatchedReplicaState
from simulator.writer import Writer
from tests.simulator import liar_mutants, tree_mutants
from tests.simulator.registry import MUTANTS, Patch, infected, mutant

__all__ = ["MUTANTS", "infected", "liar_mutants", "tree_mutants"]


# -- applying --------------------------------------------------------------------------------------------------------


@mutant("links are applied ahead of a missing one")
def ahead_of_hole() -> list[Patch]:
    receive = Tracker._receive

    def _receive(self: Any, chain: Any, message: Any, now: float, applied: Any) -> None:
        link, known = message.link, chain.known
        if not chain.frozen and known is not None and link.point.position > known.position and chain.is_whole(message):
            self._apply(chain, link.point, [link], now, applied)
        else:
            receive(self, chain, message, now, applied)

    return [(Tracker, "_receive", _receive)]


@mutant("links are applied while a full sync runs")
def applied_during_full() -> list[Patch]:
    return [(Chain, "frozen", property(lambda self: self.known is None))]


@mutant("a large link is applied before its run is complete")
def half_a_run() -> list[Patch]:
    return [(Chain, "is_whole", lambda self, message: self.name != ALL or message.link.tx_links == 1)]


@mutant("a replica of everything applies the first link of a transaction alone")
def half_a_transaction() -> list[Patch]:
    return [(Chain, "is_whole", lambda self, message: message.parts == 1)]


@mutant("a waiting step counts as complete when one of its links is there")
def half_a_step() -> list[Patch]:
    return [(PendingStep, "complete", property(lambda self: len(self._parts) == sum(self._totals.values())))]


@mutant("points are compared by position only (tracker)")
def tracker_by_position() -> list[Patch]:
    def take(self: Any, known: Any) -> Any:
        for prev, step in self._steps.items():
            if prev.position == known.position and step.complete:
                self._remove(step)
                return step
        return None

    def previous(self: Any, link: Any) -> Any:
        point = link.tx_prev if self.name == ALL else link.prev
        return self.known if self.known is not None and point.position == self.known.position else point

    return [(ReorderBuffer, "take", take), (Chain, "previous", previous)]


@mutant("points are compared by position only (store)")
def store_by_position() -> list[Patch]:
    return [(ModelStore, "_delta", _delta(lambda first, point, links: first.position == point.position))]


@mutant("≥ for > on points: a delta begins with a link that the replica has")
def delta_from_known_itself() -> list[Patch]:
    links_after = ModelStore._links_after
    return [(ModelStore, "_links_after", lambda self, position: links_after(self, position - 1))]


@mutant("> for ≥ on points: a link at known is treated as new")
def known_taken_for_new() -> list[Patch]:
    def _receive(self: Any, chain: Any, message: Any, now: float, applied: Any) -> None:
        link, known = message.link, chain.known
        if not chain.frozen and link.point == known and chain.is_whole(message):
            self._apply(chain, link.point, [link], now, applied)
        else:
            receive(self, chain, message, now, applied)

    receive = Tracker._receive
    return [(Tracker, "_receive", _receive)]


# -- histories -------------------------------------------------------------------------------------------------------


def _delta(joins: Callable[[Any, Any, Any], bool]) -> Callable[[Any, str, Any], Delta | Incomplete]:
    def delta(self: Any, chain: str, point: Any) -> Delta | Incomplete:
        links = [link for link in self._links_after(point.position) if chain in (ALL, link.topic)]
        head = self._chain_head(chain)
        first = (links[0].tx_prev if chain == ALL else links[0].prev) if links else head
        return Delta(links, head) if joins(first, point, links) else Incomplete()

    return delta


@mutant("a restore that known does not overtake: an empty list of links counts as a complete delta")
def restore_behind() -> list[Patch]:
    return [(ModelStore, "_delta", _delta(lambda first, point, links: not links or first == point))]


@mutant("a restore that is overtaken: links after a point always count as a complete delta")
def restore_overtaken() -> list[Patch]:
    return [(ModelStore, "_delta", _delta(lambda first, point, links: bool(links) or first == point))]


@mutant("a hello that is behind is always treated as late")
def behind_is_late() -> list[Patch]:
    return [(Tracker, "_overtook", lambda self, chain, head, began: False)]


@mutant("a hello with known's position and another nonce is treated as known")
def same_position_is_known() -> list[Patch]:
    receive, judge = Tracker._receive_head, Tracker._judge_hello_head

    def _receive_head(self: Any, chain: Any, head: Any, *rest: Any) -> None:
        same = chain.known is not None and head.position == chain.known.position
        receive(self, chain, chain.known if same else head, *rest)

    def _judge_hello_head(self: Any, chain: Any, head: Any, now: float) -> None:
        if head.point.position != chain.known.position:
            judge(self, chain, head, now)

    return [(Tracker, "_receive_head", _receive_head), (Tracker, "_judge_hello_head", _judge_hello_head)]


@mutant("a wait for a commit compares positions")
def waits_by_position() -> list[Patch]:
    return [(Chain, "passed", lambda self, point: self.known is not None and point.position <= self.known.position)]


@mutant("a commit that the store's history contains counts as applied, whatever known is")
def held_is_applied() -> list[Patch]:
    def answered(self: Any, query: Any, held: Any) -> None:
        if held[0]:
            self._settled[query.chain] = self._asked[query.chain][2]

    return [(Awaited, "answered", answered)]


@mutant("a delta that is behind known is used")
def behind_is_used() -> list[Patch]:
    caught_up = Tracker._caught_up

    def _caught_up(self: Any, chain: Any, delta: Any, *rest: Any) -> Any:
        if delta.head.position < chain.known.position:
            chain.known = delta.head
        return caught_up(self, chain, delta, *rest)

    return [(Tracker, "_caught_up", _caught_up)]


@mutant("a delta is requested from the head of a hello, not from known")
def delta_from_hello() -> list[Patch]:
    def want(chain: Any) -> Want:
        if chain.state is State.DELTA_DUE:
            return Want(after=chain.heads[-1].point if chain.heads else chain.known)
        return Want()

    return [(Chain, "want", property(want))]


@mutant("count and digest of the head replace those of the link")
def head_instead_of_link() -> list[Patch]:
    delta = ModelStore._delta

    def _of_head(self: Any, chain: str, point: Any) -> Any:
        answer = delta(self, chain, point)
        if isinstance(answer, Incomplete):
            return answer
        links = []
        for link in answer.links:
            head: Head = self.head(link.topic)
            links.append(msgspec.structs.replace(link, count=head.count, digest=head.digest))
        return Delta(links, answer.head)

    return [(ModelStore, "_delta", _of_head)]


@mutant("known is set to the snapshot's position, not to the topic's head")
def known_from_snapshot() -> list[Patch]:
    replaced = Tracker._replaced

    def _replaced(self: Any, chain: Any, full: Any, store: Any, *rest: Any) -> Any:
        return replaced(self, chain, msgspec.structs.replace(full, head=store), store, *rest)

    return [(Tracker, "_replaced", _replaced)]


@mutant("an object that changed its topic is left behind in the old one")
def moved_left_behind() -> list[Patch]:
    return [(ModelStore, "_moves", lambda self, old, topic: False)]


@mutant("objects that a snapshot lacks stay")
def deletes_missed() -> list[Patch]:
    replace = Cache.replace

    def _replace(self: Any, topic: str, snapshot: TopicSnapshot, **more: Any) -> Any:
        there = {(at.table, at.key) for at in snapshot.records}
        stay = [at for at in self.topic_records(topic) if (at.table, at.key) not in there]
        return replace(self, topic, TopicSnapshot(snapshot.head, [*snapshot.records, *stay]), **more)

    return [(Cache, "replace", _replace)]


@mutant("a full sync reads the heads outside the snapshot of its rows")
def torn_snapshot() -> list[Patch]:
    pages = Database.pages

    def _pages(self: Any, label: str, ask: Any, number: int) -> Any:
        answer = yield from pages(self, label, ask, number)
        return msgspec.structs.replace(
            answer,
            chains={chain: with_later_head(self.store, chain, part) for chain, part in answer.chains.items()},
        )

    def with_later_head(store: Any, chain: str, part: Any) -> Any:
        return msgspec.structs.replace(part, head=store._chain_head(chain)) if isinstance(part, Full) else part

    return [(Database, "pages", _pages)]


@mutant("a topic that is dropped leaves its objects behind")
def dropped_stays() -> list[Patch]:
    return [(Cache, "drop", lambda self, topic: [])]


@mutant("a transaction whose COMMIT had succeeded is tried again")
def commit_retried() -> list[Patch]:
    def _settle(self: Any, nonce: int, since: Any) -> Any:
        yield from ()
        return False

    return [(Writer, "_settle", _settle)]


# -- waiting and the clock -------------------------------------------------------------------------------------------


@mutant("links that wait are kept over a sync")
def waiting_kept() -> list[Patch]:
    return [(ReorderBuffer, "drop_before", lambda self, turn: 0), (Chain, "drop_heads_before", lambda self, turn: None)]


@mutant("each link that waits restarts the clock")
def clock_restarted() -> list[Patch]:
    def clock_started(self: Any) -> float | None:
        times = [head.received for head in self.heads]
        times += [step.received for step in self.reorder_buffer._steps.values()]
        return max(times, default=None)

    return [(Chain, "clock_started", clock_started)]


@mutant("the clock is cleared when the first of two that wait connects")
def clock_cleared() -> list[Patch]:
    apply = Tracker._apply

    def _apply(self: Any, chain: Any, *arguments: Any) -> None:
        apply(self, chain, *arguments)
        if chain.state is State.HOLDING:
            self._trigger(chain, Trigger.SETTLED, arguments[2])

    return [(Tracker, "_apply", _apply)]


@mutant("the clock never ends")
def clock_forgotten() -> list[Patch]:
    return [(Tracker, "_check_clock", lambda self, chain, now: None)]


@mutant("the number of waiting links is not bounded")
def waiting_unbounded() -> list[Patch]:
    hold = ReorderBuffer.hold

    def _hold(self: Any, *arguments: Any) -> bool:
        space = self._space
        limits, space.limits = space.limits, msgspec.structs.replace(space.limits, max_waiting_links=10_000)
        try:
            return hold(self, *arguments)
        finally:
            space.limits = limits

    return [(ReorderBuffer, "hold", _hold)]


# -- syncs -----------------------------------------------------------------------------------------------------------


@mutant("an overflow restarts the sync that runs")
def overflow_restarts() -> list[Patch]:
    hold = Tracker._hold

    def _hold(self: Any, chain: Any, message: Any, now: float) -> None:
        before = self.counters.overflowed
        hold(self, chain, message, now)
        if self.counters.overflowed > before and self.syncs.running:
            self.syncs.running = False
            for other in self._chains.values():
                if other.state in SYNCING:
                    self._trigger(other, Trigger.FAILED, now)
            self.syncs.need_now(now)

    return [(Tracker, "_hold", _hold)]


@mutant("a need that arises while a sync runs is forgotten")
def need_forgotten() -> list[Patch]:
    need = SyncScheduler.need

    def _need(self: Any, now: float) -> None:
        if not self.running:
            need(self, now)

    return [(SyncScheduler, "need", _need), (Tracker, "_remember_needs", lambda self, now: None)]


@mutant("an answer that is received too late is used")
def late_answer_used() -> list[Patch]:
    done = Tracker.sync_done

    def _done(self: Any, number: int, answer: Any, now: float) -> Any:
        known = all(name in answer.chains for name, at in self._chains.items() if at.state in SYNCING)
        return done(self, self.syncs.number if self.syncs.running and known else number, answer, now)

    return [(Tracker, "sync_done", _done)]


@mutant("a failed sync is never tried again")
def failed_forever() -> list[Patch]:
    failed = SyncScheduler.failed

    def _failed(self: Any, *given: Any, **named: Any) -> None:
        failed(self, *given, **named)
        self._free_from = float("inf")

    return [(SyncScheduler, "failed", _failed)]


@mutant("a sync does not time out")
def no_sync_timeout() -> list[Patch]:
    return [(SyncScheduler, "timed_out", lambda self, now: False)]


@mutant("a sync proves as of its answer, not of its request")
def sync_proves_its_end() -> list[Patch]:
    done = Tracker.sync_done

    def _done(self: Any, number: int, answer: Any, now: float) -> Any:
        if self.syncs.running and self.syncs.number == number:
            self.syncs.begun = now
        return done(self, number, answer, now)

    return [(Tracker, "sync_done", _done)]


@mutant("a full sync where a delta would be enough")
def full_for_delta() -> list[Patch]:
    return [(Chain, "want", property(lambda self: Want()))]


# -- hellos and freshness --------------------------------------------------------------------------------------------


@mutant("a hello's proof counts before known reached its head")
def proof_too_early() -> list[Patch]:
    return [(Freshness, "add_reading", lambda self, chain, head, claim, now: self.count(claim, now))]


@mutant("staleness is measured from the answer's arrival")
def staleness_from_arrival() -> list[Patch]:
    head = Tracker._receive_head

    def _receive_head(
        self: Any, chain: Any, point: Any, began: float | None, hello: Any, now: float, lost_at: float
    ) -> None:
        head(self, chain, point, None if began is None else now, hello, now, lost_at)

    return [(Tracker, "_receive_head", _receive_head)]


@mutant("every hello request has the same nonce")
def nonce_reused() -> list[Patch]:
    ask, request = FreshnessMonitor.request_sent, FreshnessMonitor.request_of
    return [
        (FreshnessMonitor, "request_sent", lambda self, nonce, topics, now: ask(self, "", topics, now)),
        (FreshnessMonitor, "request_of", lambda self, nonce: request(self, "")),
    ]


@mutant("the age of the reading is forgotten")
def age_forgotten() -> list[Patch]:
    hello = Sequencer._hello

    def _hello(self: Any, *arguments: Any, **more: Any) -> Any:
        envelope = hello(self, *arguments, **more)
        changed = None if envelope.hello is None else msgspec.structs.replace(envelope.hello, age=0.0)
        return msgspec.structs.replace(envelope, hello=changed)

    return [(Sequencer, "_hello", _hello)]


@mutant("the age of the reading counts from its end")
def age_from_answer() -> list[Patch]:
    read = Sequencer.heads_read
    return [(Sequencer, "heads_read", lambda self, heads, began, now: read(self, heads, now, now))]


@mutant("hello replies are requested only when idle")
def asked_when_idle() -> list[Patch]:
    apply = Tracker._apply

    def _apply(self: Any, chain: Any, point: Any, links: Any, now: float, applied: Any) -> None:
        apply(self, chain, point, links, now, applied)
        self.freshness.ask_at = now + self._timing.max_idle_time

    return [(Tracker, "_apply", _apply)]


@mutant("the store is polled only when no hello reply is received")
def polled_when_silent() -> list[Patch]:
    receive = Tracker._receive_hello

    def _receive_hello(self: Any, envelope: Any, hello: Any, now: float, *, proves: bool) -> None:
        receive(self, envelope, hello, now, proves=proves)
        if hello.nonce:
            for name in self._chains:
                self.freshness.of[name].publisher_proof = now

    return [(Tracker, "_receive_hello", _receive_hello)]


@mutant("the store is never polled")
def never_polled() -> list[Patch]:
    return [(FreshnessMonitor, "_polls_from", lambda self, fresh: float("inf"))]


@mutant("a connection leads to no hello request")
def reconnection_unasked() -> list[Patch]:
    return [(Tracker, "connected", lambda self, now: None)]


@mutant("a driver reports a connection before it has subscribed on it")
def asked_before_subscribed() -> list[Patch]:
    subscribe = Network._subscribe

    def _subscribe(self: Any, service: str, replica: str) -> None:
        late = self._kernel.now + 1.0
        self._kernel.at(late, lambda: subscribe(self, service, replica))

    return [(Network, "_subscribe", _subscribe)]


@mutant("of several connections only the first leads to a hello request")
def only_first_connection_asked() -> list[Patch]:
    connected = Reconnection.connected

    def _connected(self: Any, chains: Any, now: float) -> None:
        if self._since == float("inf"):
            connected(self, chains, now)

    return [(Reconnection, "connected", _connected)]


@mutant("the store's point of a broadcast is ignored for topics that it does not name")
def store_point_ignored() -> list[Patch]:
    return [(Tracker, "_take_hint", lambda self, hello, now: None)]


@mutant("a subscriber that connects gets no hello")
def connection_not_greeted() -> list[Patch]:
    return [(Sequencer, "connected", lambda self, now: None)]


@mutant("an idle publisher sends one hello for each topic of the store")
def hello_per_topic() -> list[Patch]:
    next_hello = Sequencer.next_hello
    rest: dict[Any, list[Envelope]] = {}

    def _next_hello(self: Any, now: float) -> Any:
        if rest.get(self):
            return rest[self].pop()
        envelope = next_hello(self, now)
        if envelope is not None and envelope.hello is not None and not envelope.hello.nonce:
            rest[self] = [envelope for _ in self._heads.topics][1:]
        return envelope

    return [(Sequencer, "next_hello", _next_hello)]


@mutant("a replica does not compare itself with the store while publishers prove it")
def never_verified() -> list[Patch]:
    return [(Verification, "_next", lambda self, now: float("inf"))]


@mutant("chains that a sync has just read are compared with the store as well")
def all_verified() -> list[Patch]:
    return [(Verification, "recent", lambda self, verified_at, now: False)]


@mutant("a broadcast names topics that its publisher never sent on")
def hello_of_all_topics() -> list[Patch]:
    hello = Sequencer._hello

    def _hello(self: Any, topics: Any, heads: Any, now: float, **more: Any) -> Any:
        broadcast = self._heads is not None and not more
        return hello(self, topics, self._heads.topics if broadcast else heads, now, **more)

    return [(Sequencer, "_hello", _hello)]


@mutant("a hello is sent with the lock that numbers links")
def hello_inside_lock() -> list[Patch]:
    send = PublisherTasks._send_hello

    def _send_hello(self: Any, hello: Any) -> Any:
        self._held = True
        taken = yield from send(self, hello)
        self._held = False
        return taken

    return [(PublisherTasks, "_send_hello", _send_hello)]


@mutant("after a refused hello the others are tried too")
def refusal_ignored() -> list[Patch]:
    refused = PublisherTasks._refused

    def _refused(self: Any) -> bool:
        with patch.object(Sequencer, "refused", lambda self: 0):
            refused(self)
        return False

    return [(PublisherTasks, "_refused", _refused)]


@mutant("a replica of everything checks only the topics it knows: it misses a new topic's only message")
def new_topic_missed() -> list[Patch]:
    hello_heads = Tracker._hello_heads

    def _hello_heads(self: Any, hello: Any) -> Any:
        chain = self._chains.get(ALL)
        for topic, point in hello_heads(self, hello):
            if topic == ALL and chain is not None and chain.known is not None:
                yield topic, chain.known  # as if no known topic had a new head
            else:
                yield topic, point

    return [(Tracker, "_hello_heads", _hello_heads)]


@mutant("the holder of a lease counts it from the answer, and rounds up")
def lease_too_long() -> list[Patch]:
    granted = Lease.granted

    def _granted(self: Any, asked: float) -> None:
        granted(self, asked + 0.5 * self._seconds)

    return [(Lease, "granted", _granted)]


# -- handlers --------------------------------------------------------------------------------------------------------


@mutant("handlers are not notified that the history changed")
def history_notice_missing() -> list[Patch]:
    def as_event(self: Any, number: int) -> Event:
        value = msgspec.json.encode(self)
        return Event("no barrier", f"{number}", "", "create", None, None, None, value, 0)

    return [(HistoryChange, "as_event", as_event)]


@mutant("handlers are notified of another history only when its head is behind")
def history_ahead_is_ours() -> list[Patch]:
    replace = WatchedReplicaState._replace

    def _replace(self: Any, chain: str, answer: Any, reached: int, events: Any, now: float) -> bool:
        return replace(self, chain, answer, reached, events, now) or answer.head.position > reached

    return [(WatchedReplicaState, "_replace", _replace)]


@mutant("after a full sync handlers are notified of another history when its head is ahead")
def longer_history_is_another() -> list[Patch]:
    replace = WatchedReplicaState._replace

    def _replace(self: Any, chain: str, answer: Any, reached: int, events: Any, now: float) -> bool:
        return replace(self, chain, answer, reached, events, now) and answer.head.position <= reached

    return [(WatchedReplicaState, "_replace", _replace)]


@mutant("handlers run again after a sync")
def handlers_twice() -> list[Patch]:
    replace = WatchedReplicaState._replace

    def _replace(self: Any, chain: str, answer: Any, reached: int, events: Any, now: float) -> bool:
        same_history = replace(self, chain, answer, reached, events, now)
        events.extend(self.cache.present(topic=None if chain == ALL else chain))
        return same_history

    return [(WatchedReplicaState, "_replace", _replace)]


@mutant("handlers are called again for the other topics when one is dropped")
def handlers_twice_after_drop() -> list[Patch]:
    unsubscribe = ReplicaState.unsubscribe

    def _unsubscribe(self: Any, topic: str) -> StepResult:
        dropped = unsubscribe(self, topic)
        again = [event for each in self.tracker.topics for event in self.cache.present(topic=each)]
        return msgspec.structs.replace(dropped, events=[*dropped.events, *again])

    return [(ReplicaState, "unsubscribe", _unsubscribe)]


@mutant("the store is never asked about a commit")
def wait_asks_nothing() -> list[Patch]:
    return [(Awaited, "_may_be_lost", lambda self, chain, known, proof: False)]


@mutant("a commit is called lost when the point of the replica is")
def wait_by_known() -> list[Patch]:
    answered = Awaited.answered

    def _answered(self: Any, query: Any, held: Any) -> None:
        ours, known = held
        answered(self, query, (False if known is False else ours, known))

    return [(Awaited, "answered", _answered)]


@mutant("the outcome of a commit is called unknown when the point of the replica is lost")
def wait_unknown_by_known() -> list[Patch]:
    answered = Awaited.answered

    def _answered(self: Any, query: Any, held: Any) -> None:
        ours, known = held
        answered(self, query, (None if known is False else ours, known))

    return [(Awaited, "answered", _answered)]


@mutant("the events that wait for a handler are never conflated")
def handler_queue_unbounded() -> list[Patch]:
    init = HandlerQueue.__init__

    def _init(self: Any, policy: Any) -> None:
        init(self, policy)
        self._limit = 1 << 60

    return [(HandlerQueue, "__init__", _init)]


@mutant("every full sync reads only the objects that differ")
def repair_for_full() -> list[Patch]:
    want: Any = Chain.__dict__["want"]

    def _want(self: Any) -> Want:
        wanted: Want = want.fget(self)
        return wanted if wanted.after is not None else Want(buckets={})

    return [(Chain, "want", property(_want))]


@mutant("a replica is never called synced")
def never_synced() -> list[Patch]:
    return [(Tracker, "synced", property(lambda self: False))]


@mutant("a conflated event keeps the first value")
def conflated_to_first() -> list[Patch]:
    merge = HandlerQueue._merge

    def _merge(self: Any, item: Any, event: Any, position: int, initial: bool) -> None:
        latest = item.latest
        merge(self, item, event, position, initial)
        if event.new_value is not None:
            item.latest = latest

    return [(HandlerQueue, "_merge", _merge)]


@mutant("a handler that raised is not tried again")
def not_retried() -> list[Patch]:
    return [(HandlerQueue, "failed", lambda self, now, error: self.done(now))]


# -- group commit ----------------------------------------------------------------------------------------------------


@mutant("a group is committed in two parts")
def group_in_two() -> list[Patch]:
    write = Database._write_together

    def _write_together(self: Any, works: Any, attempts: Any, written_at: float) -> None:
        half = (len(works) + 1) // 2
        write(self, works[:half], attempts[:half], written_at)
        if works[half:]:
            rest = works[half:], attempts[half:], written_at
            self.kernel.at(self.kernel.now + 0.001, lambda: self.up and write(self, *rest))

    return [(Database, "_write_together", _write_together)]


@mutant("a COMMIT that gets no answer keeps only a part of the group")
def group_lost_in_part() -> list[Patch]:
    write = Database._write_together

    def _write_together(self: Any, works: Any, attempts: Any, written_at: float) -> None:
        lost = self.commit_loss_chance > 0.0 and len(works) > 1
        write(self, works[:-1] if lost else works, attempts[:-1] if lost else attempts, written_at)

    return [(Database, "_write_together", _write_together)]


@mutant("a work that fails takes the whole group with it")
def group_fails_together() -> list[Patch]:
    stage = Database._stage

    def _stage(self: Any, works: Any, written_at: float) -> list[Attempt]:
        attempts = stage(self, works, written_at)
        failed = next((each for each in attempts if each.error is not None), None)
        return attempts if failed is None else [failed for _ in attempts]

    return [(Database, "_stage", _stage)]


@mutant("works of one group write the same object")
def group_shares_objects() -> list[Patch]:
    return [(GroupQueue, "_next_group", lambda self: list(self._queue))]


@mutant("each thread of a group gets the answer to the first")
def group_has_one_answer() -> list[Patch]:
    execute = GroupQueue._execute

    def _execute(self: Any, works: Any) -> Any:
        attempts = yield from execute(self, works)
        return [attempts[0] for _ in attempts]

    return [(GroupQueue, "_execute", _execute)]


@mutant("a group is called committed although its COMMIT was lost")
def group_doubt_forgotten() -> list[Patch]:
    return [(database, "_in_doubt", lambda work, attempt: attempt)]


@mutant("a group whose COMMIT was lost is called not committed")
def group_doubt_denied() -> list[Patch]:
    return [(database, "_in_doubt", lambda work, attempt: Attempt(error=StoreUnavailable("the connection was lost")))]


@mutant("the links of a group are handed over before its COMMIT")
def group_published_early() -> list[Patch]:
    def _execute(self: Any, works: Any) -> Any:
        def staged(attempts: Any) -> None:
            self._world.monitor.groups.staged(self._world.database.store, works, attempts)
            for work, attempt in zip(works, attempts, strict=True):
                if attempt.commit is not None:
                    self._world.hand_over("", work.origin, attempt.commit.links)

        return (yield from self._world.database.transact_together(works, self._clock.wall, staged))

    return [(GroupQueue, "_execute", _execute)]


@mutant("the works of a group are written in the reverse order of the queue")
def group_reversed() -> list[Patch]:
    stage, write = Database._stage, Database._write_together

    def _stage(self: Any, works: Any, written_at: float) -> list[Attempt]:
        return stage(self, works[::-1], written_at)[::-1]

    def _write_together(self: Any, works: Any, attempts: Any, written_at: float) -> None:
        write(self, works[::-1], attempts[::-1], written_at)

    return [(Database, "_stage", _stage), (Database, "_write_together", _write_together)]


# -- another store (rule 15) ------------------------------------------------------------------------------------------


@mutant("messages of another store are used")
def another_store_used() -> list[Patch]:
    return [(ForeignStores, "excludes", lambda self, envelope: False)]


@mutant("messages of another store that wait for the first sync are used after it")
def another_store_waits() -> list[Patch]:
    return [(Tracker, "forget_received", lambda self, now: None)]


@mutant("a service publishes the links of another store's workers")
def another_store_published() -> list[Patch]:
    return [(Service, "is_own", lambda self, item: True)]


# -- leases of publishers (rule 14) -----------------------------------------------------------------------------------


@mutant("only publishers whose lease the first reading of the directory shows are used")
def later_leases_ignored() -> list[Patch]:
    read = LeasedPublishers.read

    def _read(self: Any, uuids: Any, now: float) -> None:
        read(self, uuids if not self.required else [each for each in uuids if each in self.live], now)

    return [(LeasedPublishers, "read", _read)]
