"""How fresh a replica is, and when it must read the store itself (rules 6, 7 and 14).

A *proof* of a chain is a time on the replica's own clock at which the store's head was a point that the replica has.
"""

import random
from collections.abc import Collection, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from pubsub_lib.core.chain import Chain
from pubsub_lib.core.model import ZERO, Point
from pubsub_lib.core.quarantine import Publisher
from pubsub_lib.core.request_portions import SentRequest
from pubsub_lib.core.timing import Timing
from pubsub_lib.core.verification import Verification

if TYPE_CHECKING:
    from pubsub_lib.core.answer_time import AnswerTime

NEVER_YET = float("-inf")
_POSITION = attrgetter("position")
MAX_PENDING = 64
"""Maximum number of readings of one chain that wait for known to reach their head."""
MAX_REQUESTS = 64
"""Number of hello requests whose replies are accepted at least. With many topics, more requests are kept: those of the
last ``REQUEST_ROUNDS`` rounds."""
REQUEST_ROUNDS = 3
"""Number of rounds whose requests are kept. They outlast the replies that count (``Timing.check``)."""

class HeadReading(msgspec.Struct, frozen=True, gc=False):
    """A reading of the store: at a moment from ``time`` to ``latest`` the chain's head was its dict key, and the
    store's point ``store``. ``source``: service name and UUID of the publisher that states so; None: of the replica.
    """

    time: float
    store: Point
    publisher: bool
    latest: float
    source: Publisher | None = None


class Freshness:
    """The proofs of one chain."""

    __slots__ = (
        "ahead_at", "covered_at", "covered_by", "covered_store", "first_request", "head_known_at", "latest", "pending",
        "proof", "publisher_proof", "stated", "stated_at", "verified_at",
    )  # fmt: skip

    def __init__(self, now: float, first_request: int = 0) -> None:
        self.first_request = first_request
        """The number of the first hello request since the chain is followed."""
        self.proof = NEVER_YET
        self.latest = NEVER_YET
        """The latest moment that the proofs may be of. An answer must be of a later one to count (rule R3)."""
        self.publisher_proof = now  # no publisher could have answered yet: a new chain does not begin by polling
        self.head_known_at = NEVER_YET
        """The last moment of which a publisher knew the head, also one that the replica does not have yet."""
        self.ahead_at = NEVER_YET
        """The first moment since the last proof of a publisher of which one knew a head that the replica lacks."""
        self.covered_store = ZERO
        """Point of the store up to which the replica has everything of this chain."""
        self.covered_at = now
        self.covered_by: Publisher | None = None
        """The publisher that stated so."""
        self.stated, self.stated_at = 0, now
        """The first position that it stated and that no reading has confirmed, and when."""
        self.pending: dict[Point, HeadReading] = {}
        self.verified_at = NEVER_YET
        """Begin of the last reading of the store itself whose head was on the replica's chain."""

    @property
    def covered(self) -> int:
        """The position of ``covered_store``."""
        return self.covered_store.position

    def add_reading(self, chain: Chain, head: Point, reading: HeadReading, now: float) -> None:
        """A reading was received. It counts at once when its head is on the replica's own chain, later when known
        reaches that head, and never when the head belongs to another history. While the chain waits for a full sync
        its objects may be wrong, so no reading counts.
        """
        passed = chain.passed(head)
        ahead = chain.known is None or head.position > chain.known.position
        if reading.publisher and (passed or ahead):
            self.head_known_at = max(self.head_known_at, reading.time)
        if passed and not chain.frozen:
            self.count(reading, now)
        elif ahead:
            if reading.publisher and self.ahead_at <= self.publisher_proof:
                self.ahead_at = reading.time
            self._keep(chain, head, reading)

    def read(self, chain: Chain, head: Point, reading: HeadReading, now: float) -> None:
        """A delta was used."""
        self.add_reading(chain, head, reading, now)
        if chain.passed(head):
            self.verified_at = max(self.verified_at, reading.time)

    def reached(self, point: Point, now: float) -> None:
        """Known reached a point: a pending reading with this head counts now."""
        reading = self.pending.pop(point, None)
        if reading is not None:
            self.count(reading, now)

    def restart(self, head: Point, reading: HeadReading, now: float) -> None:
        """A full sync set known to ``head``. Earlier readings, and the position covered by them, may belong to a
        history that a restore has undone; a second restore can bring its points back.
        """
        self.verified_at = reading.time
        self.covered_store = ZERO
        self.count(reading, now)
        self.pending = {point: kept for point, kept in self.pending.items() if kept.time >= reading.time}
        self.reached(head, now)
        self.pending = {point: kept for point, kept in self.pending.items() if point.position > head.position}

    def count(self, reading: HeadReading, now: float) -> None:
        """Let a reading count."""
        self.proof = max(self.proof, reading.time)
        self.latest = max(self.latest, reading.latest)
        # A later reading with a lower position: the store was restored, to a point that this chain has. The replica
        # does not have the new history's changes up to the old position yet.
        # A publisher that cannot read the store for a while answers from its last reading, maybe before a restore.
        late = reading.source is not None and reading.time < self.verified_at
        if not late and (reading.store.position > self.covered or reading.time > self.covered_at):
            if reading.source is None or reading.source != self.covered_by:
                self.stated, self.stated_at = reading.store.position, now
            self.covered_store, self.covered_by, self.covered_at = reading.store, reading.source, now
        if reading.publisher:
            self.publisher_proof = max(self.publisher_proof, reading.time)

    def denied(self, store: Point, begun: float, changed: int | None) -> Publisher | None:
        """The store was read, after ``begun``. Return the publisher whose covered position this shows to be false, and
        forget that position. ``store``: the store's point. ``changed``: the position of the chain's first change that
        the replica did not have; None without one.
        """
        source = self.covered_by
        if source is None or self.stated_at > begun:
            return None
        if self.stated <= store.position and (changed is None or changed > self.stated):
            self.stated, self.stated_at = self.covered, self.covered_at
            return None
        self.covered_store, self.covered_by = ZERO, None
        self.pending = {point: kept for point, kept in self.pending.items() if kept.store.position <= store.position}
        return source

    def _keep(self, chain: Chain, head: Point, reading: HeadReading) -> None:
        if len(self.pending) >= MAX_PENDING:
            known = chain.known.position if chain.known is not None else 0
            self.pending = {point: kept for point, kept in self.pending.items() if point.position > known}
        if len(self.pending) >= MAX_PENDING:
            del self.pending[next(iter(self.pending))]
        older = self.pending.pop(head, None)
        if older is not None:
            reading = HeadReading(
                max(reading.time, older.time),
                max(reading.store, older.store, key=_POSITION),
                reading.publisher or older.publisher,
                max(reading.latest, older.latest),
                max(reading, older, key=lambda each: each.store.position).source,
            )
        self.pending[head] = reading


class FreshnessMonitor:
    """When to send hello requests, which replies count, how stale each chain is, and whether to poll."""

    def __init__(self, timing: Timing, rng: random.Random, now: float) -> None:
        self._timing = timing
        self.of: dict[str, Freshness] = {}
        """The proofs of each chain by its name; changed by :meth:`add` and :meth:`remove` only."""
        self._requests: dict[str, SentRequest] = {}
        self._sent = self._asked = 0
        self.ask_at = now
        self.poll_at = now
        self.denied: list[tuple[Publisher, float]] = []
        """The publishers whose covered positions the store denied, and when these were received. The caller empties it.
        """
        self.poll_delay = 0.0
        """Seconds by which polls begin later than ``stale_after``. The caller sets it."""
        self._max_unverified = timing.max_unverified
        self._verification = Verification(timing, rng, now)

    def add(self, chain: str, now: float) -> None:
        """A chain is followed from now on."""
        self.of[chain] = Freshness(now, self._sent)

    def remove(self, chain: str) -> None:
        """A chain is no longer followed."""
        del self.of[chain]

    def request_sent(self, nonce: str, topics: Collection[str], now: float) -> None:
        """A hello request was sent."""
        self._forget(nonce)
        self._requests[nonce] = SentRequest(now, frozenset(topics), self._sent)
        self._sent += 1
        self._asked += len(self._requests[nonce].topics)
        # Counted in topics and not in requests: a replica that follows topics one by one sends many small requests.
        while len(self._requests) > MAX_REQUESTS and self._asked > REQUEST_ROUNDS * len(self.of):
            self._forget(next(iter(self._requests)))

    def _forget(self, nonce: str) -> None:
        forgotten = self._requests.pop(nonce, None)
        if forgotten is not None:
            self._asked -= len(forgotten.topics)

    def request_of(self, nonce: str) -> SentRequest | None:
        """The request of a reply, by its nonce. Several publishers answer the same request."""
        return self._requests.get(nonce)

    def answered(self, request: SentRequest, chains: Iterable[str]) -> list[str]:
        """Those of the chains that a reply to this request is about, in their order. A request from before an
        unsubscribe proves no subscription of a chain that is followed again.
        """
        topics, of, number = request.topics, self.of, request.number
        return [chain for chain in chains if chain in topics and number >= of[chain].first_request]

    @property
    def last_nonce(self) -> str:
        """The nonce of the last hello request; "" before the first."""
        return next(reversed(self._requests), "")

    def judge(self, chain: str, store: Point, at: "AnswerTime", changed: int | None = None) -> None:
        """The store was read, as of :meth:`Freshness.denied`. A relay's answer may be older, so it denies nothing."""
        fresh = self.of[chain]
        received, source = fresh.stated_at, None if at.relayed else fresh.denied(store, at.earliest, changed)
        if source is not None:
            self.denied.append((source, received))

    def distrust(self, publishers: Collection[Publisher], now: float) -> None:
        """What these publishers stated does not count any more: poll until another publisher proves."""
        for fresh in self.of.values():
            fresh.publisher_proof = min(fresh.publisher_proof, now - self._timing.stale_after)
            fresh.pending = {point: kept for point, kept in fresh.pending.items() if kept.source not in publishers}
            if fresh.covered_by in publishers:
                fresh.covered_store, fresh.covered_by = ZERO, None

    def periodic(self, now: float) -> bool:
        """True when the next round of hello requests is due (every ``max_idle_time``, busy or not)."""
        if now < self.ask_at:
            return False
        self.ask_at = now + self._timing.max_idle_time
        return True

    def staleness(self, chain: str, now: float) -> float:
        """Seconds since the best proof that counts; infinite before the first."""
        fresh = self.of[chain]
        if self._max_unverified == float("inf"):
            return now - fresh.proof
        return now - min(fresh.proof, fresh.verified_at + self._max_unverified)

    def unproved(self, now: float) -> float:
        """Seconds since the proof of the stalest chain, or since it was followed, if that was later (rule R5)."""
        return max((now - max(fresh.proof, fresh.publisher_proof) for fresh in self.of.values()), default=0.0)

    def unheard(self, now: float, *, readable: bool = True) -> float:
        """As ``unproved``, but only what publishers prove counts. For a replica that does not read from its parent: its
        polls of the store would hide that the parent proves nothing.

        A head that the replica still has to read counts for ``sync_timeout``: another parent would not end a sync that
        hangs. Later it is taken for one that the store never had. Not ``readable``: the replica reads from this
        parent, which answers no syncs, so such a head does not count.
        """
        known = (self._known_at(fresh) if readable else fresh.publisher_proof for fresh in self.of.values())
        return max((now - at for at in known), default=0.0)

    def _known_at(self, fresh: Freshness) -> float:
        until = fresh.ahead_at + self._timing.sync_timeout
        return max(fresh.publisher_proof, min(fresh.head_known_at, until))

    def to_verify(self, now: float) -> list[str]:
        """Chains to compare with the store now, although publishers prove them."""
        if not self._verification.due(now):
            return []
        return [name for name, fresh in self.of.items() if not self._verification.recent(fresh.verified_at, now)]

    def to_poll(self, now: float) -> list[str]:
        """Chains to read from the store now, because no publisher's proof of them is fresh."""
        stale = [name for name, fresh in self.of.items() if self._polls_from(fresh) <= now]
        if not stale or now < self.poll_at:
            return []
        self.poll_at = now + self._timing.poll_interval
        return stale

    def is_polling(self, now: float) -> bool:
        """True while some chain has no fresh proof from a publisher."""
        return any(self._polls_from(fresh) <= now for fresh in self.of.values())

    def next_time(self) -> float:
        """When ``periodic``, ``to_poll`` or ``to_verify`` is next due; infinite while no chain is followed."""
        if not self.of:
            return float("inf")
        stale_at = min(map(self._polls_from, self.of.values()))
        return min(self.ask_at, max(self.poll_at, stale_at), self._verification.next_time)

    def _polls_from(self, fresh: Freshness) -> float:
        return fresh.publisher_proof + self._timing.stale_after + self.poll_delay
