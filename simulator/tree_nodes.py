"""The participants of a tree: replicas that listen to a relay and read from it, and relays."""

import random
from collections.abc import Collection, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from pubsub_lib.core.effects import StartSync
from pubsub_lib.core.envelope import Envelope, HelloRequest
from pubsub_lib.core.model import SyncAnswer, Want
from pubsub_lib.core.parents import Parents
from pubsub_lib.core.relay_contents import Question, RelayedState
from pubsub_lib.core.relaying import Relay, RelayStep
from pubsub_lib.core.step_result import StepResult
from pubsub_lib.errors import StoreUnavailable
from simulator.kernel import Await, LocalClock, Mailbox, Sleep, Steps
from simulator.plan import ReplicaPlan
from simulator.replica import Replica
from simulator.watched_state import WatchedReplicaState

if TYPE_CHECKING:
    from simulator.tree_world import TreeWorld

ANSWER_WAIT = 1.0
"""Seconds that a replica waits for a relay's answer."""
LOOK = 0.2
"""Seconds between two looks at the own staleness."""

Answers = Mailbox[SyncAnswer | None]
"""The answer to one question; None: the relay has nothing of it."""


class Below(Replica):
    """A replica that has no access to the database."""

    reads_directory: ClassVar = False
    world: "TreeWorld"

    def __init__(
        self, world: "TreeWorld", name: str, plan: ReplicaPlan, clock: LocalClock, rng: random.Random,
        above: Sequence[str],
    ) -> None:  # fmt: skip
        self.parents = Parents(above, world.plan.timing, clock.now()) if above else None
        self.chosen_at = world.kernel.now
        """When it began to listen to its parent."""
        super().__init__(world, name, plan, clock, rng)
        if self.parents is not None:
            self.process.spawn(self._choosing(self.parents))

    def listens_to(self, publisher: str) -> bool:
        """Whether it listens to this publisher."""
        return publisher == self.parents.current if self.parents is not None else publisher.startswith("service")

    def _choosing(self, parents: Parents) -> Steps:
        """Leave a parent because of the own staleness (rule R5)."""
        while True:
            yield Sleep("choose", LOOK)
            now = self.clock.now()
            if parents.check(self.replica_state.tracker.freshness.unproved(now), now):
                self.moved()

    def moved(self) -> None:
        """It listens to another parent from now on."""
        assert self.parents is not None
        self.world.kernel.trace(self.name, "moves to", self.parents.current)
        self.world.count("moved")
        self.chosen_at = self.world.kernel.now
        self.world.network.moved(self.name)
        self.replica_state.tracker.syncs.source_changed(self.clock.now())
        self.nudge.set()

    def _read(self, start: StartSync) -> Generator[Sleep | Await, None, SyncAnswer]:
        if self.parents is None:
            if self.name in self.world.database.blind:
                raise StoreUnavailable("the simulated database is out of reach")
            return (yield from super()._read(start))
        answers: Answers = Mailbox(1)
        parent = self.parents.current
        self.world.network.call(self.name, parent, lambda: self.world.question(parent, self.name, start, answers))
        yield Await("answer", answers, ANSWER_WAIT)
        if not answers.items:
            raise StoreUnavailable(f"{parent} does not answer")
        yield Sleep("answer read", self._rng.uniform(0.0, 0.1))
        answer = answers.items.popleft()
        if answer is None:
            raise StoreUnavailable(f"{parent} does not have these topics")
        return answer


class WatchedRelayedState(RelayedState, WatchedReplicaState):
    """The state of a relay, watched by the monitor."""


class Downside:
    """A relay as those below it see it."""

    def __init__(self, node: "RelayNode") -> None:
        self.name = node.name
        self._node = node

    def ask(self, ask: HelloRequest) -> None:
        """A hello request arrived."""
        self._node.asks.put(ask)

    def connected(self) -> None:
        """A replica has connected."""
        if self._node.world.plan.connections_seen:
            self._node.world.monitor.publisher_connected(self._node.process, self._node.relay.sequencer)
            self._node.relay.sequencer.connected(self._node.clock.now())
            self._node.nudge.set()


class RelayNode(Below):
    """One start of a relay."""

    def __init__(
        self, world: "TreeWorld", name: str, plan: ReplicaPlan, clock: LocalClock, rng: random.Random,
        above: Sequence[str],
    ) -> None:  # fmt: skip
        super().__init__(world, name, plan, clock, rng, above)
        self.process.kind = "relay"
        assert isinstance(self.replica_state, WatchedRelayedState)
        uuid = f"{rng.getrandbits(128):032x}"
        self.relay = Relay(name, uuid, world.plan.timing, world.plan.limits, self.replica_state, clock.now())
        self.core = RelayCore(self)
        self.asks: Mailbox[HelloRequest] = Mailbox(2000)
        self.questions: Mailbox[tuple[str, StartSync, Answers]] = Mailbox(100)
        self._waiting: dict[str, tuple[str, Answers, StartSync, float]] = {}
        self._asked = 0
        self.process.spawn(self._following_more(world.kernel.rng(f"{name} topics")))
        self.process.spawn(self._answering_asks())
        self.process.spawn(self._answering_questions())

    def _new_state(self, rng: random.Random) -> WatchedReplicaState:
        plan = self.world.plan
        return WatchedRelayedState(plan.timing, plan.limits, rng, self.cache, self.clock.now())

    def moved(self) -> None:
        """See :meth:`Below.moved`."""
        super().moved()
        self.relay.parent_changed()

    def _following_more(self, rng: random.Random) -> Steps:
        """Follow the other topics one by one: meanwhile those below ask for topics that the relay does not have."""
        for topic in self.world.plan.topics[1:]:
            yield Sleep("follow more", rng.uniform(0.0, 2.0))
            self.subscriptions[topic] = None
            yield Sleep("subscribed", 0.001)
            self.act(self.core.subscribe((topic,), self.clock.now()))
            self.nudge.set()

    def _answering_asks(self) -> Steps:
        while True:
            yield Await("hello request", self.asks)
            while self.asks.items:
                ask = self.asks.items.popleft()
                self.act(self.out(self.relay.hello_requested(ask, self.clock.now())))
                self.nudge.set()
                yield Sleep("asked", 0.0)

    def _answering_questions(self) -> Steps:
        while True:
            yield Await("question", self.questions)
            while self.questions.items:
                asker, start, answers = self.questions.items.popleft()
                self._asked += 1
                ident = f"{asker} {self._asked}"
                self._waiting[ident] = asker, answers, start, self.clock.now()
                self.act(self.out(self.relay.sync_requested(ident, start, self.clock.now())))
                self.nudge.set()
                yield Sleep("questioned", 0.0)

    def out(self, step: RelayStep) -> StepResult:
        """Send what a step of the relay made; returns what its replica is to do."""
        world = self.world
        for envelope in step.envelopes:
            self._send(envelope)
        world.monitor.hello_burst(self.process, self.relay.sequencer)
        while (hello := self.relay.next_hello(self.clock.now())) is not None:
            self._send(hello)
        for ready in step.ready:
            ident = ready.asker
            answer = self.relay.contents.answer(ready, self.clock.now())
            asker, answers, start, arrived = self._waiting.pop(ident)
            lacking = self.relay.contents.lacking(start.wants)
            if lacking and answer is not None:
                question = Question(ident, start.wants, start.refresh, arrived, {})
                self.process.spawn(self._reading_older(lacking, question, asker, answers))
            else:
                self._answer(asker, answers, answer)
        if step.loop is not None and self.parents is not None:
            world.count("loop")
            if self.parents.refuse(step.loop[0], self.clock.now()):
                self.moved()
        return step.result

    def _reading_older(self, lacking: Mapping[str, Want], question: Question, asker: str, answers: Answers) -> Steps:
        """Read the links from before this start, and answer then."""
        begun = self.clock.now()
        try:
            older = yield from self._read(StartSync(0, lacking, {}))
        except StoreUnavailable:
            self.world.count("older lost")
        else:
            self.world.count("older")
            self.relay.contents.join(older, begun, self.clock.now())
        self._answer(asker, answers, self.relay.contents.answer(question, self.clock.now()))

    def _answer(self, asker: str, answers: Answers, answer: SyncAnswer | None) -> None:
        def arrive() -> None:
            answers.put(answer)

        if answer is not None:
            self.world.monitor.answered(self, answer)
        self.world.network.call(self.name, asker, arrive)

    def _send(self, envelope: Envelope) -> None:
        self.world.monitor.sent(self.process, self.relay.sequencer, envelope)
        self.world.network.send(self.name, envelope)


class RelayCore:
    """A relay in place of a replica's state."""

    def __init__(self, node: RelayNode) -> None:
        self._node = node
        self._relay = node.relay

    def feed(self, envelope: Envelope, now: float) -> StepResult:
        """An envelope was received."""
        return self._node.out(self._relay.feed(envelope, now))

    def tick(self, now: float) -> StepResult:
        """Time passed."""
        return self._node.out(self._relay.tick(now))

    def subscribe(self, topics: Collection[str], now: float) -> StepResult:
        """Follow topics."""
        return self._node.out(self._relay.subscribe(topics, now))

    def sync_done(self, number: int, answer: SyncAnswer, now: float) -> StepResult:
        """A parent, or the store, answered."""
        return self._node.out(self._relay.sync_done(number, answer, now))

    def next_time(self) -> float:
        """When ``tick`` is next due."""
        return self._relay.next_time()
