"""A store, a wire with arbitrary faults, and one replica, moved step by step: for random tests.

Every step checks the invariants; ``heal`` ends all faults and checks that the replica equals the store.
"""

import random
from collections.abc import Sequence

from pubsub_lib.core.cache import Cache
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, EMPTY, ZERO, Heads, Point, SyncAnswer
from pubsub_lib.core.reorder_buffer import CHANGE_OVERHEAD
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.core.step_result import StepResult
from pubsub_lib.core.timing import Timing
from pubsub_lib.core.transitions import State
from tests.unit.core.builders import History, Objects, Write, envelope, hello, run_of

TOPICS = ("a", "b")
TIMING = Timing(sync_jitter=0.5, sync_interval=0.5, sync_timeout=4.0, max_sync_backoff=4.0, verify_interval=5.0)
TIGHT = Limits(max_waiting_links=4, max_waiting_bytes=2 * (CHANGE_OVERHEAD + len("port") + len("k1")) + 8)
HEALING = 60.0
"""Seconds without faults after which the replica must equal the store: more than any bound of TIMING."""


class World:
    """``everything``: one replica of all topics, else of the two named ones."""

    def __init__(self, seed: int, *, everything: bool = False, tight: bool = False) -> None:
        self.now = 1000.0
        self.history = History(seed)
        self.chains = (ALL,) if everything else TOPICS
        self.limits = TIGHT if tight else Limits()
        self.replica_state = ReplicaState(TIMING, self.limits, random.Random(seed), Cache(), self.now)
        self.wire: list[Envelope] = []
        self.hellos: list[Envelope] = []
        self.nonces: list[str] = []
        self.sync: int | None = None
        self.wants: StepResult | None = None
        self.reading: SyncAnswer | None = None
        self.heads_read: tuple[Heads, float] | None = None
        self.restores = 0
        self.trims = 0
        self.was_head: dict[tuple[str, Point], float] = {}
        self.contents: dict[tuple[str, Point], dict[str, Objects]] = {}
        self._note()
        self._take(self.replica_state.subscribe(self.chains, self.now))

    # -- steps: the store ----------------------------------------------------------------------------------------

    def commit(self, writes: Sequence[Write], parts: int) -> None:
        """One transaction, sent correctly: one message per link, or a run."""
        objects = self.history.objects
        writes = [
            (topic, key, value)
            for topic, key, value in writes
            if value is not None or ("port", key) in objects.get(topic, {})
        ]
        if not writes:
            return
        for link in self.history.commit(*writes):
            for message in run_of(link, max(1, min(parts, len(link.changes)))):
                self.wire.append(envelope(message))
        self._note()

    def restore(self, back: int) -> None:
        """The store is restored from a backup."""
        self.restores += 1
        position = max(0, self.history.point.position - back)
        self.history = self.history.restored(position, seed=self.history.point.nonce + self.restores)
        self.heads_read = None
        self._note()

    def trim(self, keep: int) -> None:
        """The changelog is trimmed."""
        self.trims += 1
        self.history.trim(self.history.point.position - keep)

    # -- steps: the wire -----------------------------------------------------------------------------------------

    def deliver(self, index: int, *, keep: bool) -> None:
        """A message arrives, perhaps out of order, and perhaps again later."""
        if self.wire:
            index %= len(self.wire)
            message = self.wire[index] if keep else self.wire.pop(index)
            self._take(self.replica_state.feed(message, self.now))

    def lose(self, index: int) -> None:
        """A message is lost."""
        if self.wire:
            self.wire.pop(index % len(self.wire))

    def read_heads(self) -> None:
        """A publisher reads."""
        heads = self.history.reading()
        every = {topic: heads.topics.get(topic, EMPTY) for topic in TOPICS}
        self.heads_read = Heads(heads.store, every), self.now

    def send_hello(self, *, own: bool) -> None:
        """A publisher sends a hello: a reply to the last request, or a broadcast."""
        if self.heads_read is not None and (self.nonces or not own):
            heads, began = self.heads_read
            self.hellos.append(hello(heads, nonce=self.nonces[-1] if own else "", age=self.now - began))

    def receive_hello(self, index: int) -> None:
        """A hello arrives."""
        if self.hellos:
            self._take(self.replica_state.feed(self.hellos.pop(index % len(self.hellos)), self.now))

    # -- steps: the replica --------------------------------------------------------------------------------------

    def elapse(self, seconds: float) -> None:
        """Time passes."""
        self.now += seconds
        self._note()
        self._take(self.replica_state.tick(self.now))
        assert self.replica_state.tracker.next_time() > self.now, "the clock's thread would loop busily"

    def connect(self) -> None:
        """A connection is made again; messages on their way are lost."""
        self.wire.clear()
        self.replica_state.connected(self.now)

    def read(self) -> None:
        """The running sync reads its snapshot now."""
        if self.wants is not None and self.wants.sync is not None:
            self.reading = self.history.answer(self.wants.sync.wants)

    def answer(self) -> None:
        """The running sync's snapshot arrives."""
        if self.sync is not None and self.reading is not None:
            number, reading = self.sync, self.reading
            self.sync = self.reading = self.wants = None
            self._take(self.replica_state.sync_done(number, reading, self.now))

    def fail(self) -> None:
        """The running sync fails."""
        if self.sync is not None:
            number = self.sync
            self.sync = self.reading = self.wants = None
            self.replica_state.sync_failed(number, self.now)

    def report_mismatch(self, chain: str) -> None:
        """Report a mismatch, as after a wrong digest."""
        if chain not in self.replica_state.tracker.topics:
            return
        if self.replica_state.tracker.chain(chain).state not in (State.FULL, State.FULL_AGAIN):
            self.replica_state.mismatched(chain, self.now)

    def resync(self, chain: str) -> None:
        """Request that everything is read again."""
        if chain in self.replica_state.tracker.topics:
            self.replica_state.resync([chain], self.now)

    def drop_and_follow(self, chain: str) -> None:
        """A topic is dropped and followed again."""
        if chain in self.replica_state.tracker.topics:
            self._take(self.replica_state.unsubscribe(chain))
            self._take(self.replica_state.subscribe([chain], self.now))

    def resume(self) -> None:
        """The replica starts again with its objects and its known points."""
        tracker = self.replica_state.tracker
        points = {name: tracker.chain(name).known for name in self.chains}
        known = {name: point for name, point in points.items() if point is not None}
        if known.keys() == set(self.chains) and not any(tracker.chain(name).frozen for name in self.chains):
            self.sync = self.reading = self.wants = None
            cache = self.replica_state.cache
            self.replica_state = ReplicaState(TIMING, self.limits, random.Random(self.now), cache, self.now)
            self._take(self.replica_state.subscribe(self.chains, self.now, known))

    def heal(self) -> None:
        """End all faults: publishers and the store answer. Messages on their way are lost."""
        self.wire.clear()
        self.hellos.clear()
        until = self.now + HEALING
        while self.now < until:
            self.read_heads()
            self.send_hello(own=True)
            self.receive_hello(0)
            self.read()
            self.answer()
            self.elapse(0.5)
        for chain in self.chains:
            assert self.replica_state.tracker.chain(chain).known == self.history.head(chain)
            found = self.replica_state.tracker.chain(chain)
            verifies = found.cause == "unverified" and found.state in (State.DELTA_DUE, State.DELTA)
            assert found.state is State.FOLLOWING or verifies
        assert self.replica_state.tracker.staleness(self.now) <= 2 * TIMING.max_idle_time
        for topic in TOPICS:
            assert self._records(topic) == self.history.objects.get(topic, {})

    # -- invariants --------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check the invariants, after every step."""
        tracker = self.replica_state.tracker
        assert self.replica_state.faults.guarded == 0, "an older version was about to replace a newer one"
        assert self.replica_state.faults.mismatches == 0, "count and digest differ from the store's"
        for name in tracker.topics:
            chain = tracker.chain(name)
            assert chain.reorder_buffer.messages <= self.limits.max_waiting_links
            expected = self.contents[name, chain.known or ZERO]
            for topic in TOPICS if name == ALL else (name,):
                assert self._records(topic) == expected.get(topic, {}), (name, chain.known, chain.state)
            if not self.restores and chain.known is not None:
                proof = self.now - tracker.freshness.staleness(name, self.now)
                assert proof <= self.was_head[name, chain.known], "staleness was reported too small"
        if not self.restores and not self.trims:
            needs = {"greeted", "mismatched", "asked", "failed"}
            assert set(tracker.counters.fulls) <= needs, "a full sync without cause"

    def _records(self, topic: str) -> Objects:
        return {(row.table, row.key): row for row in self.replica_state.cache.topic_records(topic)}

    def _note(self) -> None:
        whole = {topic: dict(objects) for topic, objects in self.history.objects.items()}
        for name in (ALL, *TOPICS):
            self.contents[name, self.history.head(name)] = whole
            self.was_head[name, self.history.head(name)] = self.now

    def _take(self, outcome: StepResult) -> None:
        for request in outcome.hello_requests:
            self.nonces.append(request.nonce)
        if outcome.sync is not None:
            self.sync, self.wants, self.reading = outcome.sync.number, outcome, None
        self.check()


def walk(seed: int, steps: int) -> World:
    """A world with random steps; the same seed makes the same steps."""
    rng = random.Random(seed)
    world = World(seed, everything=rng.random() < 0.3, tight=rng.random() < 0.5)
    risky = rng.random() < 0.7
    weights: list[float] = []
    for step in range(steps):
        if step % 25 == 0:  # idle times, busy times, times with faults
            weights = [rng.choice([0.0, 1.0, 3.0]) for _ in _STEPS]
            weights += [rng.choice([0.0, 0.0, 1.0]) * risky for _ in _FAULTS]
            weights[0] += 0.1
        name = rng.choices(_STEPS + _FAULTS, weights)[0]
        _step(world, name, rng)
    world.heal()
    return world


_STEPS = ["elapse", "commit", "deliver", "read_heads", "send_hello", "receive_hello", "read", "answer", "connect"]
_FAULTS = ["lose", "fail", "restore", "trim", "mismatch", "drop_and_follow", "resume"]


def _step(world: World, name: str, rng: random.Random) -> None:
    index = rng.randrange(1000)
    match name:
        case "commit":
            values: list[str | None] = ["1", "22", "333", "4444444444", None]
            keys = rng.sample(range(6), rng.randint(1, 3))
            writes: list[Write] = [(rng.choice(TOPICS), f"k{key}", rng.choice(values)) for key in keys]
            world.commit(writes, rng.randint(1, 3))
        case "deliver":
            world.deliver(0 if rng.random() < 0.7 else index, keep=rng.random() < 0.2)
        case "elapse":
            world.elapse(rng.choice([0.1, 0.5, 1.0, 3.0, 6.0]))
        case "send_hello":
            world.send_hello(own=rng.random() < 0.7)
        case "lose" | "receive_hello":
            getattr(world, name)(index)
        case "restore" | "trim":
            getattr(world, name)(rng.randint(0, 6))
        case "mismatch":
            (world.report_mismatch if index % 2 else world.resync)(rng.choice(world.chains))
        case "drop_and_follow":
            world.drop_and_follow(rng.choice(world.chains))
        case _:
            getattr(world, name)()
