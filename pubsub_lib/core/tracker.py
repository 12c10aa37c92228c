"""The state machine of a replica: envelopes and the clock in, effects out. Rules 1 to 14.

Only a link that connects, or a full sync, changes a topic. The tracker uses no cache, no socket, no store and no clock:
``now`` is an argument, in seconds of any clock that never goes back.
Not thread-safe: the caller holds one lock around tracker and cache.
"""

import random
from collections.abc import Collection, Iterator, Mapping, Sequence

from pubsub_lib.core.answer_time import AnswerTime, Verdict, judge_all
from pubsub_lib.core.chain import Chain, HelloHead, steps
from pubsub_lib.core.effects import Apply, Compare, Effect, Replace, RequestHello, StartSync
from pubsub_lib.core.envelope import Envelope, Hello, Message
from pubsub_lib.core.freshness import NEVER_YET, FreshnessMonitor, HeadReading
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.mismatches import LinkPauses, PersistentMismatch
from pubsub_lib.core.model import ALL, Delta, Full, Head, Link, Point, SyncAnswer, Want
from pubsub_lib.core.reconnection import Reconnection
from pubsub_lib.core.reorder_buffer import WaitingSpace
from pubsub_lib.core.request_portions import cut
from pubsub_lib.core.sequence_gaps import SequenceGaps
from pubsub_lib.core.store_hints import NEVER_DUE, StoreHints
from pubsub_lib.core.sync_scheduler import SyncScheduler, backoff
from pubsub_lib.core.timing import Timing
from pubsub_lib.core.tracker_counters import Counters
from pubsub_lib.core.transitions import DUE, SYNCING, State, Trigger

_FOLLOWING = State.FOLLOWING
"""Used for every message: the look-up of an enumeration's member through its class is 10 times slower."""


class Tracker:
    """Follows topics, or everything (topic ``ALL``, which excludes others).

    ``rng`` makes nonces and jitter; give a seeded one to make a run repeatable.
    """

    def __init__(self, timing: Timing, limits: Limits, rng: random.Random, now: float) -> None:
        self._timing = timing
        self._space = WaitingSpace(limits)
        self._rng = rng
        self._chains: dict[str, Chain] = {}
        self._joining: dict[str, float] = {}
        self._holding: dict[str, Chain] = {}
        self._due: dict[str, Chain] = {}
        self._persistent: dict[str, PersistentMismatch] = {}
        self._pauses = LinkPauses(timing)
        self._waited: dict[tuple[str, Point], tuple[str, str] | None] = {}
        """``Apply.waited`` of the links that are applied in this step."""
        self._turn = 0
        self._sender: tuple[str, str] | None = None
        """The publisher of the message that is processed; None while time passes or the store answers."""
        self.syncs = SyncScheduler(timing, rng, now)
        self.freshness = FreshnessMonitor(timing, rng, now)
        self._reconnection = Reconnection(timing, rng)
        self._hints = StoreHints(timing, rng)
        self._reached_store: Point | None = None
        """A point of the store up to which all chains were complete. Valid until a chain is added or replaced: else the
        covered position goes back only when the store does, or was false; then the store's point is another one."""
        self.gaps = SequenceGaps()
        self.counters = Counters()

    # -- subscriptions -------------------------------------------------------------------------------------------

    def subscribe(self, topics: Collection[str], now: float, known: Mapping[str, Point] | None = None) -> list[Effect]:
        """Follow more topics. Subscribe to them first: the reply to this call's hello request proves the subscription.

        ``known``: points that the replica has, from which a delta is enough.
        """
        if not (fresh := [topic for topic in topics if topic not in self._chains]):
            return []
        self._reached_store = None
        for topic in fresh:
            self._chains[topic] = Chain(topic, self._space, (known or {}).get(topic), now)
            self._joining[topic] = now + self._timing.hello_wait
            self.freshness.add(topic, now)
        return [*self._hello_requests(fresh, now)]

    def unsubscribe(self, topic: str) -> None:
        """Stop following a topic; a sync that runs for it is ignored."""
        if (chain := self._chains.pop(topic, None)) is None:
            return
        chain.reorder_buffer.drop_all()  # gives its room back to the other chains
        self._joining.pop(topic, None)
        self._holding.pop(topic, None)
        self._due.pop(topic, None)
        self._persistent.pop(topic, None)
        self._pauses.forget(topic)
        self.freshness.remove(topic)
        self._reconnection.removed(topic)
        self.gaps.forget_topic(topic)
        if not self._due:
            self.syncs.no_need()

    @property
    def restless(self) -> float:
        """Grows when ``tick`` may be due sooner than the last ``next_time()``. While infinite, a hello, or a count or
        digest that differs, makes it due sooner still, by ``message_delay_window`` (docs/contributing/scheduler.md)."""
        soon = self._holding or self.syncs.due is not None or self._hints.ask_at != NEVER_DUE
        return NEVER_DUE if soon else len(self._pauses.ends)

    @property
    def topics(self) -> Collection[str]:
        """The chains of the subscribed topics."""
        return self._chains.keys()

    def chain(self, topic: str) -> Chain:
        """One chain, read-only. KeyError when it is not subscribed to."""
        return self._chains[topic]

    @property
    def synced(self) -> bool:
        """True when at least one chain is followed and every chain was synced once (the calls of initial handlers are
        the caller's part of rule 8). False without a chain."""
        return bool(self._chains) and all(chain.synced for chain in self._chains.values())

    @property
    def mismatching(self) -> Collection[str]:
        """Topics whose count or digest in the store does not fit its objects, as far as is known: the first of each
        chain. Their contents are not proved to be right."""
        return [mismatch.topic for mismatch in self._persistent.values()]

    def staleness(self, now: float) -> float:
        """Seconds since the oldest of the chains' best proofs (rule 7); infinite before the first proof, and while no
        chain is followed."""
        return max((self.freshness.staleness(name, now) for name in self._chains), default=float("inf"))

    def covered(self, topics: Collection[str] | None = None) -> int:
        """Position up to which the replica has everything of these topics (None: of all subscribed ones); 0 when one of
        them is not subscribed to, or without any."""
        names = self._chains if topics is None else [self._chain_of(topic) for topic in topics]
        return min((self._covered(self._chains.get(name)) for name in names), default=0)

    def connected(self, now: float) -> None:
        """A connection to a publisher (or the broker) was made, for the first time or again: hello replies about all
        chains are requested after a jitter. Call it when the driver is subscribed to all followed topics.
        """
        self._turn += 1
        self._reconnection.connected(self._chains, now)

    # -- in --------------------------------------------------------------------------------------------------------

    def feed(self, envelope: Envelope, now: float, *, proves: bool = True) -> list[Effect]:
        """An envelope was received. ``proves``: its publisher has a live lease, so its replies count (rule 14)."""
        self._turn += 1
        if envelope.hello is not None:
            return self._receive_hello(envelope, envelope.hello, now, proves=proves)
        chain = self._chains.get(self._chain_of(envelope.topic))
        if chain is None:
            # Not counted in the sequences either: after a late message, following the topic again is not a gap.
            self.counters.unsubscribed += len(envelope.messages)
            return []
        applied: list[Link] = []
        self._sender = envelope.service, envelope.uuid
        connected = self._receive_run(chain, envelope.messages, now, applied) if chain.state is _FOLLOWING else 0
        for message in envelope.messages[connected:] if connected else envelope.messages:
            self._receive(chain, message, now, applied)
        self.gaps.received(envelope.service, envelope.uuid, envelope.topic, envelope.sequence, len(envelope.messages))
        self._sender = None
        return self._applied(applied) if self._waited else [Apply(applied)] if applied else []

    def tick(self, now: float) -> list[Effect]:
        """Time passed: call at ``next_time()`` or any time."""
        self._turn += 1
        effects: list[Effect] = []
        if self._chains and self.freshness.periodic(now):
            effects.extend(self._hello_requests(self._chains, now))
            self._hints.asked_about_all()
            for chain in self._chains.values():
                chain.new_round()
        if now >= self._hints.ask_at:
            effects.extend(self._hello_requests(self._hints.due(now, self._is_behind), now))
        if now >= self._reconnection.ask_at:
            effects.extend(self._hello_requests(self._reconnection.due(now), now))
        for topic in [topic for topic, until in self._joining.items() if now >= until]:
            self._greeted(self._chains[topic], now)
        for chain in list(self._holding.values()):
            self._check_clock(chain, now)
        ended = [name for name, mismatch in self._persistent.items() if now >= mismatch.again_at]
        for name in [*ended, *self._pauses.due(now)]:
            self._read_again(name, now)
        for topic in self.freshness.to_poll(now):
            self._read_store(self._chains[topic], Trigger.POLLED, now)
        for topic in self.freshness.to_verify(now):
            self._read_store(self._chains[topic], Trigger.UNVERIFIED, now)
        if self.syncs.timed_out(now):
            late = f"no complete answer was received within {self._timing.sync_timeout:g} s (sync_timeout)"
            self.sync_failed(self.syncs.number, now, why=late)
        if self.syncs.may_begin(now):
            effects.extend(self._begin_sync(now))
        return effects

    def sync_done(self, number: int, answer: SyncAnswer, now: float) -> list[Effect]:
        """The store answered a ``StartSync``."""
        self._turn += 1
        if not self.syncs.running or number != self.syncs.number:
            self.counters.late_answers += 1
            return []
        chains = [chain for chain in self._chains.values() if chain.state in SYNCING]
        judged = judge_all(chains, self.freshness.of, answer, self.syncs, self._turn, now)
        self.counters.syncs_failed += self.syncs.failure != ""
        effects: list[Effect] = []
        for chain, (verdict, at, part) in judged:
            if verdict in (Verdict.REFUSED, Verdict.LACKING):
                self.counters.refused += verdict is Verdict.REFUSED
                self._trigger(chain, Trigger.FAILED, now)
                continue
            self._reconnection.read(chain.name, at.earliest, relayed=at.relayed)
            if isinstance(part, Full):
                effects.extend(self._replaced(chain, part, answer.store, at, now))
            elif isinstance(part, Delta) and verdict is Verdict.USED:
                effects.extend(self._caught_up(chain, part, answer.store, at, now))
            else:
                # A publisher's message led to a point that the store lacks: its few bytes must not cost all objects.
                chain.repair = chain.undone = chain.source is not None and chain.synced
                self._trigger(chain, Trigger.INCOMPLETE, now)
                self.syncs.need_now(now)
        self._remember_needs(now)
        return effects

    def sync_failed(self, number: int, now: float, pause: float | None = None, why: str = "") -> None:
        """The store could not answer a ``StartSync``. ``pause``: seconds after which it is to be asked again. ``why``:
        see ``SyncScheduler.failure``.
        """
        self._turn += 1
        if not self.syncs.running or number != self.syncs.number:
            self.counters.late_answers += 1
            return
        self.counters.syncs_failed += 1
        self.syncs.failed(now, pause, why)
        for chain in self._chains.values():
            if chain.state in SYNCING:
                self._trigger(chain, Trigger.FAILED, now)
        self._remember_needs(now)

    def mismatched(self, topic: str, now: float, *, by_link: bool = False, waited: bool = False) -> None:
        """Count or digest of a topic differ after a link or a sync (rule 10): fetch the differing buckets. After a
        sync, call it before the next input. ``by_link``: those of a link. ``waited``: it had waited.
        """
        chain = self._chains.get(self._chain_of(topic))
        if chain is None or chain.name in self._persistent:
            return  # a mismatching chain is read again at its time (rule 9), and links go on meanwhile
        if chain.frozen and (by_link or chain.state in SYNCING):
            return  # a link that was applied when this repair began: the digests of its request include the link
        if waited and not self._pauses.may_read(chain.name, now):
            return
        # First the differing buckets; if the topic still differs after them, everything.
        after_reading = chain.read_in == self._turn and not by_link
        if after_reading and (chain.read_whole or chain.mismatched_readings):
            self._persistent[chain.name] = PersistentMismatch(
                topic, now + backoff(self._timing, chain.mismatched_readings)
            )
            chain.mismatched_readings += 1
            return
        chain.repair = not after_reading
        self._trigger(chain, Trigger.MISMATCHED, now)

    def resync(self, topics: Collection[str], now: float) -> None:
        """The caller requests that these chains are read again. No effect on a chain whose full sync runs, or that will
        be read when it has joined.
        """
        for name in topics:
            chain = self._chains[self._chain_of(name)]
            due = chain.state is State.FULL_DUE
            if due or (not chain.frozen and chain.state is not State.JOINING):
                # Everything, and not only differing buckets: a value altered in memory need not show in them.
                chain.repair = False
                if not due:
                    self._trigger(chain, Trigger.ASKED, now)

    def request_hellos(self, now: float) -> list[Effect]:
        """Hello requests about all chains, besides the regular ones."""
        return [*self._hello_requests(self._chains, now)]

    def verify(self, now: float) -> None:
        """Compare all chains with the store, as soon as the rate limit allows. No effect on those that are read now, or
        will be.
        """
        for chain in self._chains.values():
            self._read_store(chain, Trigger.UNVERIFIED, now)

    def forget_received(self, now: float) -> None:
        """Drop the links, heads and readings that wait: they may be of another store (rule 15)."""
        self._reached_store = None
        for chain in self._chains.values():
            self.counters.foreign_store += chain.reorder_buffer.drop_all()
            chain.heads.clear()
            self.freshness.of[chain.name].pending.clear()
            if chain.state is State.HOLDING:
                self._trigger(chain, Trigger.SETTLED, now)

    def next_time(self) -> float:
        """When ``tick`` is next due; infinite when no chain is followed."""
        clocks = [chain.expires(self._timing.message_delay_window) for chain in self._holding.values()]
        mismatches = [*(each.again_at for each in self._persistent.values()), *self._pauses.ends.values()]
        asks = min(self._reconnection.ask_at, self._hints.ask_at)
        return min(
            [self.freshness.next_time(), self.syncs.next_time(), asks, *self._joining.values(), *clocks, *mismatches]
        )

    # -- messages ----------------------------------------------------------------------------------------------------

    def _receive_run(self, chain: Chain, messages: Sequence[Message], now: float, applied: list[Link]) -> int:
        """Apply the messages at the begin that connect to each other, as one step. Returns their number.

        Under load these are nearly all messages. ``_receive`` does the same with each, at four times the cost.
        """
        known = chain.known
        if known is None or self.freshness.of[chain.name].pending:
            return 0
        everything = chain.name == ALL
        run: list[Link] = []
        points: list[Point] = []
        for message in messages:
            link = message.link
            point = link.point
            if (
                message.parts != 1
                or point.position <= known.position
                or (link.tx_prev != known or link.tx_links != 1 if everything else link.prev != known)
            ):
                break
            run.append(link)
            points.append(point)
            known = point
        if run:
            chain.recent.extend(points[:-1])  # the last one becomes known
            self._apply(chain, known, run, now, applied)
        return len(run)

    def _receive(self, chain: Chain, message: Message, now: float, applied: list[Link]) -> None:
        link = message.link
        known = chain.known
        if chain.frozen:
            self._hold(chain, message, now)
        elif known is not None and link.point.position <= known.position:
            self._drop_old(chain, link)
        elif chain.previous(link) == known and chain.is_whole(message):
            self._apply(chain, link.point, [link], now, applied)
            if chain.state is not State.FOLLOWING:  # in which no link waits
                self._drain(chain, now, applied)
        else:
            self._hold(chain, message, now)
            self._drain(chain, now, applied)

    def _drop_old(self, chain: Chain, link: Link) -> None:
        if chain.known is not None and link.point.position == chain.known.position and link.point != chain.known:
            self.counters.foreign += 1
        else:
            self.counters.old += 1

    def _apply(self, chain: Chain, point: Point, links: Sequence[Link], now: float, applied: list[Link]) -> None:
        applied.extend(links)
        self.counters.applied += len(links)
        chain.advance(point, now)
        chain.source = self._sender
        fresh = self.freshness.of[chain.name]
        if fresh.pending:
            fresh.reached(point, now)

    def _hold(self, chain: Chain, message: Message, now: float) -> None:
        link = message.link
        prev = chain.previous(link)
        if prev.position >= link.point.position:
            self.counters.foreign += 1  # known would go backwards; a correct publisher does not send that
        elif chain.reorder_buffer.hold(message, prev, chain.needed(link), now, self._turn, self._sender):
            self.counters.waited += 1
            self._trigger(chain, Trigger.HELD, now)
        else:
            self.counters.overflowed += 1
            chain.remember_head(link.point, now, self._turn)  # a relay's answer may be older than this link (R4)
            self._trigger(chain, Trigger.OVERFLOWED, now)

    def _drain(self, chain: Chain, now: float, applied: list[Link]) -> None:
        """Apply the steps that waited for known, and drop those that known has passed."""
        while chain.known is not None and len(chain.reorder_buffer):
            step = chain.reorder_buffer.take(chain.known)
            if step is None:
                break
            self._apply(chain, step.point, step.links(), now, applied)
            chain.source = step.source
            self._waited.update({(topic, step.point): publisher for topic, publisher in step.publishers.items()})
        self._purge(chain, now, everywhere=False)

    def _purge(self, chain: Chain, now: float, *, everywhere: bool) -> None:
        if chain.known is not None and len(chain.reorder_buffer):
            self.counters.old += chain.reorder_buffer.drop_old(chain.known, everywhere=everywhere)
        if chain.state is State.HOLDING and chain.clock_started() is None:
            self._trigger(chain, Trigger.SETTLED, now)

    def _applied(self, links: list[Link]) -> list[Effect]:
        waited, self._waited = self._waited or None, {}
        return [Apply(links, waited)] if links else []

    # -- hellos ------------------------------------------------------------------------------------------------------

    def _receive_hello(self, envelope: Envelope, hello: Hello, now: float, *, proves: bool) -> list[Effect]:
        for topic, last in hello.sequences.items():
            if self._chain_of(topic) in self._chains:
                self.gaps.announced(envelope.service, envelope.uuid, topic, last)
        request = self.freshness.request_of(hello.nonce) if hello.nonce else None
        if hello.nonce and request is None:
            return []  # the reply to a forgotten request proves nothing
        if request is not None and not proves:
            self.counters.unleased += 1
        # The earliest begin of the reading on this replica's clock; unknown for a broadcast.
        began = request.asked - hello.age if request is not None and proves else None
        self._sender = envelope.service, envelope.uuid
        for topic, point in self._hello_heads(hello):
            lost_at = float("inf") if request is None else self._reconnection.lost_at(topic, request.asked, now)
            self._receive_head(self._chains[topic], point, began, hello, now, lost_at)
            if began is not None:
                self._reconnection.read(topic, began)
        self._sender = None
        if not hello.nonce:
            self._take_hint(hello, now)
        if request is not None:
            for topic in self.freshness.answered(request, self._joining):  # in the order of following
                self._greeted(self._chains[topic], now)
        reached = self._reached(hello) if began is not None else {}
        return [Compare(reached)] if reached else []

    def _take_hint(self, hello: Hello, now: float) -> None:
        """A broadcast names the heads of few topics: for the others only the store's point shows that changes may be
        missing. A stopping publisher cannot answer a request any more.
        """
        if hello.store is None or hello.goodbye or not self._hints.wanted or ALL in self._chains:
            return  # the store's point is the head of ALL, and was judged
        if hello.store == self._reached_store:
            return  # nearly always while the store is idle: no check of each of many topics
        position = hello.store.position
        late = [name for name, chain in self._chains.items()
                if chain.state is not _FOLLOWING or self._covered(chain) < position]  # fmt: skip
        if late:
            behind = [name for name in late if name not in hello.heads and self._is_behind(name, position)]
            self._hints.received(position, behind, now)
        else:
            self._reached_store = hello.store

    def _is_behind(self, name: str, position: int) -> bool:
        """True when this chain is not proved to be complete up to the store's position, and no wait or sync that will
        prove it is under way.
        """
        chain = self._chains.get(name)
        return chain is not None and chain.state is _FOLLOWING and self._covered(chain) < position

    def _reached(self, hello: Hello) -> dict[str, Head]:
        """The heads that known equals, or that it has certainly passed."""
        everything = self._chains.get(ALL)
        if everything is None:
            return {
                topic: head for topic, head in hello.heads.items()
                if (chain := self._chains.get(topic)) and chain.known == head.point and self._may_compare(chain)
            }  # fmt: skip
        passed = hello.store is not None and everything.passed(hello.store) and self._may_compare(everything)
        limit = hello.store.position if passed and hello.store is not None else -1  # of a reading, no head is beyond
        return {topic: head for topic, head in hello.heads.items() if head.point.position <= limit}

    def _may_compare(self, chain: Chain) -> bool:
        # A mismatching chain was compared without success, and is read again at its time.
        return not chain.frozen and chain.name not in self._persistent

    def _hello_heads(self, hello: Hello) -> Iterator[tuple[str, Point]]:
        if ALL in self._chains:
            if hello.store is not None:
                yield ALL, hello.store
            return
        for topic, head in hello.heads.items():
            if topic in self._chains:
                yield topic, head.point

    def _receive_head(
        self, chain: Chain, head: Point, began: float | None, hello: Hello, now: float, lost_at: float
    ) -> None:
        known, latest = chain.known, now - hello.least_age
        if began is not None and not self._overtook(chain, head, began) and not chain.doubts(head, latest):
            store = hello.store if hello.store is not None else head
            reading = HeadReading(began, store, publisher=True, latest=latest, source=self._sender)
            self.freshness.of[chain.name].add_reading(chain, head, reading, now)
        if known is None or chain.frozen:
            # Judged when the sync has set known. A head received before a sync began is covered by that sync.
            if chain.state in SYNCING:
                chain.remember_head(head, now, self._turn, lost_at)
        elif head == known:
            pass
        elif head.position > known.position:
            chain.remember_head(head, now, self._turn, lost_at)
            self._trigger(chain, Trigger.HELD, now)
        elif head.position == known.position or (began is not None and self._overtook(chain, head, began)):
            self.counters.foreign += 1
            self._trigger(chain, Trigger.HISTORY_CHANGED, now)

    def _overtook(self, chain: Chain, head: Point, began: float) -> bool:
        """True when a head is behind known although its reading began after known was reached."""
        return head.position < chain.known_position and began > chain.known_at

    def _greeted(self, chain: Chain, now: float) -> None:
        """The wait of a new topic ended, by a reply or by its timeout (rule 8)."""
        del self._joining[chain.name]
        if chain.state is State.JOINING:
            self._trigger(chain, Trigger.GREETED if chain.known is None else Trigger.RESUMED, now)

    # -- the clock and polling -----------------------------------------------------------------------------------

    def _check_clock(self, chain: Chain, now: float) -> None:
        window = self._timing.message_delay_window
        if now >= chain.expires(window):
            self._purge(chain, now, everywhere=True)
            if chain.state is State.HOLDING and now >= chain.expires(window):
                ended = now >= chain.window_ends(window)
                self._trigger(chain, Trigger.EXPIRED if ended else Trigger.RECONNECTED, now)

    def _read_store(self, chain: Chain, trigger: Trigger, now: float) -> None:
        if chain.state in (State.FOLLOWING, State.HOLDING):
            self._trigger(chain, trigger, now)

    def _hello_requests(self, topics: Collection[str], now: float) -> Iterator[RequestHello]:
        # Each portion has its own nonce: its reply ends the wait of these topics only.
        for portion in cut(topics):
            nonce = f"{self._rng.getrandbits(96):024x}"
            self.freshness.request_sent(nonce, portion, now)
            yield RequestHello(nonce, portion)

    # -- syncs ---------------------------------------------------------------------------------------------------------

    def _begin_sync(self, now: float) -> list[Effect]:
        due = list(self._due.values())
        if not due:
            self.syncs.no_need()
            return []
        applied: list[Link] = []
        for chain in due:
            if chain.repair and chain.known is not None and not chain.undone:
                # Only buckets that differ are to be read: links received since must not make further ones differ.
                self._drain(chain, now, applied)
        number = self.syncs.begin(now, self._turn)
        wants: dict[str, Want] = {}
        causes: dict[str, str] = {}
        for chain in due:
            tally = self.counters.deltas if chain.state is State.DELTA_DUE else self.counters.fulls
            tally[chain.cause] = tally.get(chain.cause, 0) + 1
            wants[chain.name], causes[chain.name] = chain.want, chain.cause
            self._trigger(chain, Trigger.BEGUN, now)
        refresh, nonce = self.syncs.failures > 0, self.freshness.last_nonce
        return [*self._applied(applied), StartSync(number, wants, causes, refresh, nonce)]

    def _caught_up(self, chain: Chain, delta: Delta, store: Point, at: AnswerTime, now: float) -> list[Effect]:
        known = chain.known
        assert known is not None, "a delta was asked without a point"
        applied: list[Link] = []
        trigger = Trigger.BEHIND
        changed = next((link.point.position for link in delta.links if link.point.position > known.position), None)
        self.freshness.judge(chain.name, store, at, changed)
        if delta.head.position >= known.position:
            if at.relayed and delta.head != known:
                chain.answered = delta.head, max(at.earliest, at.applied)
            for links in steps(delta.links):
                if links[0].point.position <= chain.known_position:
                    continue
                if chain.previous(links[0]) != chain.known:
                    break
                self._apply(chain, links[0].point, links, now, applied)
            trigger = Trigger.CAUGHT_UP if chain.known == delta.head else Trigger.BROKEN
        if at.earliest > NEVER_YET:
            self.freshness.of[chain.name].read(chain, delta.head, at.reading(store), now)
        if chain.known == delta.head:
            chain.source = None
        self._trigger(chain, trigger, now)
        self._after_sync(chain, at.turn, now, applied)
        compared = chain.known == delta.head and self._may_compare(chain)
        return [*self._applied(applied), *([Compare(delta.heads)] if compared and delta.heads else ())]

    def _replaced(self, chain: Chain, full: Full, store: Point, at: AnswerTime, now: float) -> list[Effect]:
        before, source, reached = chain.known, chain.source, chain.known_at
        self.freshness.judge(chain.name, store, at)
        chain.jump(full.head, now)
        self._reached_store = None
        self.freshness.of[chain.name].restart(full.head, at.reading(store), now)
        chain.read_in, chain.read_whole = self._turn, not chain.repair
        chain.repair = chain.undone = False
        self._pauses.read(chain.name)
        # If the answer does not fit this time either, the caller calls mismatched() in this turn.
        if self._persistent.pop(chain.name, None) is None:
            chain.mismatched_readings = 0
        self._trigger(chain, Trigger.REPLACED, now)
        applied: list[Link] = []
        heads = chain.take_heads(at.turn)
        if full.contains_known is False and source is not None and (late := chain.reorder_buffer.drop_all()):
            # The publisher that led known astray may have sent these meanwhile: the store is asked instead.
            self.counters.old += late
            self._trigger(chain, Trigger.HISTORY_CHANGED, now)
        self._after_sync(chain, at.turn, now, applied)
        for head in heads:
            self._judge_hello_head(chain, head, now)
        return [Replace(chain.name, full, before, source, reached), *self._applied(applied)]

    def _judge_hello_head(self, chain: Chain, head: HelloHead, now: float) -> None:
        """A head of a hello that was received while known did not change. A head behind known may have been read before
        or during the sync, so it proves nothing.
        """
        if head.point.position > chain.known_position:
            chain.heads.append(head)
            self._trigger(chain, Trigger.HELD, now)
        elif head.point.position == chain.known_position and head.point != chain.known:
            self.counters.foreign += 1
            self._trigger(chain, Trigger.HISTORY_CHANGED, now)

    def _after_sync(self, chain: Chain, turn: int, now: float, applied: list[Link]) -> None:
        """Links and heads received before the reading's turn are covered by it; the others count as received now."""
        self.counters.old += chain.reorder_buffer.drop_before(turn)
        chain.drop_old_heads(turn)
        self._drain(chain, now, applied)
        self._purge(chain, now, everywhere=True)
        if chain.clock_started() is not None:
            self._trigger(chain, Trigger.HELD, now)

    def _read_again(self, name: str, now: float) -> None:
        """Check whether a chain's count and digest fit now: by its buckets, since reading everything did not help."""
        if name in self._persistent:
            self._persistent[name].again_at = float("inf")
        chain = self._chains[name]
        if not chain.frozen:  # else all its objects, or differing buckets, are to be read anyway
            chain.repair = True
            self._trigger(chain, Trigger.MISMATCHED, now)

    def _remember_needs(self, now: float) -> None:
        if self._due:
            self.syncs.need(now)

    def _trigger(self, chain: Chain, trigger: Trigger, now: float) -> None:
        chain.trigger(trigger)
        if chain.state is State.HOLDING:
            self._holding[chain.name] = chain
        else:
            self._holding.pop(chain.name, None)
        if chain.state in DUE:
            self._due[chain.name] = chain
            self.syncs.need(now)
        else:
            self._due.pop(chain.name, None)

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _chain_of(self, topic: str) -> str:
        return ALL if ALL in self._chains else topic

    def _covered(self, chain: Chain | None) -> int:
        if chain is None or chain.known is None or chain.frozen:
            return 0
        return max(chain.known.position, self.freshness.of[chain.name].covered)
