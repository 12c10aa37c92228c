"""Real sequencers, trackers, caches and journals, connected by a store and a simulated wire that may fail in any way.

A run has one thread and depends on its seed alone. Its journals have the same records as those of real processes. A
killed process leaves the bytes that it had written.
"""

import random
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from unittest import mock

from pubsub_lib.core.cache import Cache
from pubsub_lib.core.effects import RequestHello, StartSync
from pubsub_lib.core.envelope import Envelope, Hello, HelloRequest
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, Link, SyncAnswer
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.core.sequencer import Sequencer
from pubsub_lib.core.step_result import StepResult
from pubsub_lib.core.timing import Timing
from pubsub_lib.core.transitions import State
from pubsub_lib.journal import Journal, JournalSettings
from pubsub_lib.journal import writer as journal_writer
from pubsub_lib.journal.appending import OPEN_SUFFIX
from pubsub_lib.replica.journaling import ReplicaJournal
from pubsub_lib.store import writer as store_writer
from pubsub_sql.follower import ChangelogFollower
from tests.unit.audit.joined_parts import DROPPED, STALE, TWICE, BreakableTracker, Clock, Database, Planted
from tests.unit.core.builders import Write

TIMING: Final = Timing(sync_jitter=0.5, sync_interval=0.5, sync_timeout=4.0, max_sync_backoff=4.0)
SMALL: Final = Limits(max_frame_bytes=4096)
"""Limits of the publishers in one half of the runs: a link with large values is split into several messages. In the
other half a frame holds a whole batch.
"""
BOUND, GRACE, WINDOW, SILENCE = 600.0, 30.0, 60.0, 3600.0
"""Settings of the audit, in seconds. Every run converges within the bound of its first message, after any faults."""
BATCH: Final = 50
"""Maximum number of links that are sent at once."""
BURSTS: Final = {1: 60, 3: 20, 10: 15, BATCH: 5}
"""Number of transactions that are committed at once -> its probability in percent."""
ROUNDS: Final = 400
"""Maximum number of rounds of recovery, half a second each."""


class Process:
    """A process that writes a journal, and may be killed."""

    def __init__(self, world: "World", side: str, name: str) -> None:
        self.world = world
        self._side, self.name = side, name
        self.note: Journal

    def open_journal(self) -> None:
        settings = JournalSettings(str(self.world.folder), mark_seconds=3600.0, to_parquet=False)
        self.note = Journal(settings, self._side, self.name)  # type: ignore[arg-type]

    def close_as_killed(self) -> None:
        """Close the journal without further records, as SIGKILL does."""
        path = self.world.folder / f"{self.note.run}-000001{OPEN_SUFFIX}"
        size = path.stat().st_size
        self.note.close()
        with path.open("r+b") as file:
            file.truncate(size)


class Sender(Process):
    """A publisher that sends committed links, and answers hello requests."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, "service", name)
        self.pending: list[Sequence[Link]] = []
        """The committed links that are not sent yet, by transaction."""
        self.begin()

    def begin(self) -> None:
        self.open_journal()
        uuid = f"{self.world.rng.getrandbits(128):032x}"
        self.core = Sequencer(self.name, uuid, TIMING, self.world.limits, self.world.clock.now)
        self.core.store_id = self.world.database.read_heads([]).store_id

    def kill(self) -> None:
        self.pending.clear()
        self.close_as_killed()
        self.begin()

    def send(self, many: int, *, in_order: bool = True) -> None:
        """Send the first ``many`` pending transactions, in as few envelopes as possible."""
        if not in_order:  # as when several workers hand over at the same time
            self.world.rng.shuffle(self.pending)
        now, self.pending = self.pending[:many], self.pending[many:]
        links = [link for transaction in now for link in transaction]
        if not links:
            return
        self.note.links("taken", links)
        for envelope in self.core.publish(links, self.world.clock.now):
            self.note.messages(("sent",), envelope)
            for replica in self.world.replicas:
                if not replica.polls and replica.wants(envelope.topic):
                    replica.wire.append(envelope)

    def answer(self, request: RequestHello) -> Envelope:
        heads = self.world.database.read_heads(request.topics)
        topics = {} if ALL in request.topics else heads.topics
        sequences = {topic: self.core.sequences.get(topic, 0) for topic in topics}
        self.note.note("hello", peer=request.nonce, service=self.name, uuid=self.core.uuid)
        hello = Hello(sequences, topics, heads.store, 0.0, request.nonce)
        return Envelope(self.name, self.core.uuid, ALL, 0, (), hello, heads.store_id)


class Replica(Process):
    """The work of the engine's threads around a replica state, step by step."""

    def __init__(self, world: "World", name: str, topics: Sequence[str], *, polls: bool) -> None:
        super().__init__(world, "replica", name)
        self._topics = topics
        self.polls = polls
        self.spared = False
        """Whether it is no longer killed, and no longer drops topics."""
        self.begin()

    def begin(self) -> None:
        self.open_journal()
        self.journal = ReplicaJournal(self.note, polls=self.polls)
        rng = random.Random(self.world.rng.getrandbits(32))
        self.replica_state = ReplicaState(TIMING, Limits(), rng, Cache(), self.world.clock.now)
        self.tracker = BreakableTracker(TIMING, Limits(), rng, self.world.clock.now)
        self.replica_state.tracker = self.tracker
        self.replica_state.witness = self.journal
        self.wire: deque[Envelope] = deque()
        self.hello_requests: list[RequestHello] = []
        self.job: StartSync | None = None
        self.reading: SyncAnswer | None = None
        self.poller = ChangelogFollower(SMALL, 7)
        self.follow(self._topics)

    def kill(self) -> None:
        if not self.spared:
            self.close_as_killed()
            self.begin()

    def wants(self, topic: str) -> bool:
        return topic in self.tracker.topics or ALL in self.tracker.topics

    def follow(self, topics: Sequence[str]) -> None:
        self.journal.following(topics)
        self.take(self.replica_state.subscribe(topics, self.world.clock.now))

    def drop_and_follow(self) -> None:
        """Drop a topic and follow it again. The last message of the topic arrives after the drop."""
        topic = self.world.rng.choice(list(self.tracker.topics))
        if self.spared:
            return
        self.take(self.replica_state.unsubscribe(topic))
        self.journal.dropping(topic)
        late = [each for each in self.wire if topic in (each.topic, ALL)]
        self.wire = deque(each for each in self.wire if each not in late)
        for envelope in late[-1:]:
            self.take(self.replica_state.feed(envelope, self.world.clock.now))
        self.follow([topic])

    def take(self, outcome: StepResult) -> None:
        for request in outcome.hello_requests:
            self.journal.asking(request)
            self.hello_requests.append(request)
        if outcome.sync is not None:
            self.journal.sync_begins(outcome.sync)
            self.job, self.reading = outcome.sync, None

    def deliver(self, index: int = 0, *, keep: bool = False) -> None:
        """Deliver a message: of any ``index``, so perhaps out of order. With ``keep`` it may arrive again later."""
        if self.wire:
            envelope = self.wire[index % len(self.wire)]
            if not keep:
                del self.wire[index % len(self.wire)]
            self.world.largest = max(self.world.largest, len(envelope.messages))
            self.take(self.replica_state.feed(envelope, self.world.clock.now))
            self.mark()

    def lose(self, index: int) -> None:
        if self.wire:
            del self.wire[index % len(self.wire)]

    def ask(self, *, lost: bool) -> None:
        """Send the oldest hello request to the publishers, or, when this replica polls, to the store."""
        if not self.hello_requests:
            return
        request = self.hello_requests.pop(0)
        if self.polls:
            self.poll([HelloRequest(request.nonce, request.topics)])
        elif not lost:
            self.wire.extend(sender.answer(request) for sender in self.world.senders)

    def poll(self, asks: Sequence[HelloRequest] = ()) -> None:
        if self.polls:
            clock: Callable[[], float] = self.world.clock.monotonic
            for envelope in self.poller.poll(self.world.database, lambda: self.tracker.topics, asks, clock):
                self.take(self.replica_state.feed(envelope, clock()))

    def read(self) -> None:
        """Let the running sync read the store now."""
        if self.job is not None:
            self.reading = self.world.database.read_sync(self.job.wants)

    def end_sync(self, *, well: bool = True) -> None:
        """Complete the running sync with the data that it read, or let it fail."""
        job, reading = self.job, self.reading
        if job is None or (well and reading is None):
            return
        self.job = self.reading = None
        if well:
            assert reading is not None
            self.take(self.replica_state.sync_done(job.number, reading, self.world.clock.now))
            self.mark()
        else:
            self.replica_state.sync_failed(job.number, self.world.clock.now)
            self.journal.sync_failed(job, "StoreUnavailable")

    def mismatch(self) -> None:
        """Report that contents differ, so that differing buckets, or everything, is read."""
        for chain in list(self.tracker.topics):
            if not self.tracker.chain(chain).frozen:
                self.replica_state.mismatched(chain, self.world.clock.now)

    def mark(self) -> None:
        """Record the contents, as before a mark, sometimes."""
        if self.world.rng.random() < 0.5:
            self.journal.held.record(self.replica_state)

    def tick(self) -> None:
        self.mark()
        self.take(self.replica_state.tick(self.world.clock.now))

    @property
    def settled(self) -> bool:
        """Whether the replica has every commit."""
        chains = [self.tracker.chain(name) for name in self.tracker.topics]
        heads = self.world.database.read_heads([chain.name for chain in chains])
        return all(
            chain.state is State.FOLLOWING
            and chain.known == (heads.store if chain.name == ALL else heads.topics[chain.name].point)
            for chain in chains
        )

    def end(self) -> None:
        """Record listings of the replica's objects, as the engine does, and close the journal in order."""
        self.journal.held.record_all(self.replica_state)
        for name in self.tracker.topics:
            known = self.tracker.chain(name).known
            assert known is not None
            for topic in self.replica_state.cache.topics() if name == ALL else [name]:
                self.journal.listing(topic, known, self.replica_state.cache.topic_records(topic))
        self.journal.close()


class World:
    """One run. ``fault``: the rule (of ``joined_parts.FAULTS``) that one replica's tracker breaks once; "": none."""

    def __init__(self, seed: int, folder: Path, database: Callable[[Clock], Database], fault: str = "") -> None:
        self.rng = random.Random(seed)
        self.folder = folder
        self.fault = fault
        self.clock = Clock()
        self._open = database
        self.victim = ""
        self.planted: Planted | None = None
        self.largest = 0
        """Messages of the largest batch that a replica received."""
        self._writes = 0

    def run(self, steps: int) -> None:
        """Run all steps, until every journal is closed."""
        with mock.patch.object(journal_writer, "time", self.clock), mock.patch.object(store_writer, "time", self.clock):
            self.database = self._open(self.clock)
            try:
                self._run(steps)
            finally:
                self.database.close()

    def _run(self, steps: int) -> None:
        rng = self.rng
        self.topics = [f"t{number}" for number in range(rng.choice((1, 1, 2, 3)))]
        self.limits = rng.choice((SMALL, Limits()))
        self.keys = [(rng.choice(self.topics), f"k{number}") for number in range(rng.randint(1, 5))]
        self.replicas: list[Replica] = []
        self.senders = [Sender(self, f"s{number}") for number in range(rng.choice((1, 1, 2)))]
        followed = rng.sample(self.topics, rng.randint(1, len(self.topics)))
        self.replicas.append(Replica(self, "named", followed, polls=False))
        self.replicas.append(Replica(self, "every", [ALL], polls=False))
        self.replicas.append(Replica(self, "polls", rng.choice(([ALL], followed)), polls=True))
        if rng.random() < 0.7:
            self._heal()  # else the faults begin before the first sync
        weights: list[float] = []
        for step in range(steps):
            if rng.random() < 0.1:
                self._burst()
            if step % 25 == 0:
                weights = [rng.choice((0.0, 1.0, 3.0)) for _ in _STEPS]
                weights += [rng.choice((0.0, 0.0, 1.0)) for _ in _FAULTS]
                weights[0] += 0.5
                weights[1] += 0.5
            self._step(rng.choices(_STEPS + _FAULTS, weights)[0])
        if self.fault:
            self._plant()
        self._heal()
        self.clock.now += BOUND + 2 * GRACE + WINDOW
        for replica in self.replicas:
            replica.end()
        for sender in self.senders:
            sender.note.close()
        self.database.journal(self.folder)

    def _step(self, name: str) -> None:
        rng = self.rng
        replica, sender = rng.choice(self.replicas), rng.choice(self.senders)
        index = 0 if rng.random() < 0.7 else rng.randrange(1000)
        match name:
            case "commit":
                for _ in range(*rng.choices(list(BURSTS), list(BURSTS.values()))):
                    self._commit(rng.choice(self.senders))
            case "send":
                sender.send(rng.randint(1, max(1, min(BATCH, len(sender.pending)))), in_order=rng.random() < 0.6)
            case "elapse":
                self._elapse(rng.choice((0.1, 0.5, 1.0, 3.0)))
            case "deliver":
                replica.deliver(index, keep=rng.random() < 0.1)
            case "ask":
                replica.ask(lost=rng.random() < 0.2)
            case "fail":
                replica.end_sync(well=False)
            case "lose":
                replica.lose(index)
            case "trim":
                self.database.trim(rng.randint(1, 20))
            case "kill":
                rng.choice((replica, sender)).kill()
            case _:
                getattr(replica, name)()

    def _burst(self) -> None:
        """Several commits that are sent in a few batches and delivered at once to one replica."""
        sender = self.rng.choice(self.senders)
        for _ in range(self.rng.randint(2, 12)):
            self._commit(sender)
        for _ in range(self.rng.randint(2, 4)):
            sender.send(self.rng.randint(1, max(1, len(sender.pending))), in_order=self.rng.random() < 0.3)
        replica = self.rng.choice(self.replicas)
        for _ in range(len(replica.wire)):
            replica.deliver()

    def _commit(self, sender: Sender, changes: int = 0) -> None:
        rng = self.rng
        writes: list[Write] = []
        for topic, key in rng.sample(self.keys, changes or rng.randint(1, min(3, len(self.keys)))):
            delete = rng.random() < 0.15 and self.database.holds(topic, key)
            value = "1" * rng.choice((1, 2, 3, 1500))
            writes.append((topic, key, None if delete else value))
        sender.pending.append(self.database.commit(writes))

    def _elapse(self, seconds: float) -> None:
        self.clock.now += seconds
        for replica in self.replicas:
            replica.tick()

    def _plant(self) -> None:
        """Let one replica break a rule once."""
        replica = self.rng.choice([each for each in self.replicas if not each.polls])
        self.victim, replica.spared = replica.name, True
        self._heal()
        replica.tracker.fault = self.fault
        wanted = [(topic, key) for topic, key in self.keys if replica.wants(topic)]
        self.keys = wanted or [(self.rng.choice(list(replica.tracker.topics)), "k9")]
        sender = self.rng.choice(self.senders)
        for _ in range(self.rng.randint(2, 5)):
            self._write(sender, self.rng.choice(self.keys) if self.fault == DROPPED else self.keys[0])
        while sender.pending:
            sender.send(BATCH if self.fault == STALE else 1)
        while replica.wire and replica.tracker.planted is None:
            replica.deliver(self.rng.choice((0, 0, -1)) if self.fault == DROPPED else 0, keep=self.fault == TWICE)
        replica.poll()
        self.planted = replica.tracker.planted
        if self.rng.random() < 0.5:  # a later loss is noticed, and its delta begins after the planted fault
            self._write(sender, self.rng.choice(self.keys))
            sender.send(BATCH)
            replica.lose(0)

    def _write(self, sender: Sender, of: tuple[str, str]) -> None:
        # A new value each time: writing the stored value again would not be a change.
        self._writes += 1
        sender.pending.append(self.database.commit([(*of, str(7_000_000 + self._writes))]))

    def _heal(self) -> None:
        """Run without faults until every replica has every commit."""
        for sender in self.senders:
            sender.send(len(sender.pending))
        for _ in range(ROUNDS):
            for replica in self.replicas:
                replica.ask(lost=False)
                while replica.wire:
                    replica.deliver()
                replica.poll()
                replica.read()
                replica.end_sync()
            self._elapse(0.5)
            if all(replica.settled for replica in self.replicas):
                return
        raise AssertionError("the replicas do not converge to the store")


_STEPS = ["commit", "send", "elapse", "deliver", "deliver", "ask", "poll", "read", "end_sync"]
_FAULTS = ["lose", "fail", "trim", "kill", "mismatch", "drop_and_follow"]
