"""The invariants of runs with relays. Those that need evidence of the database at each replica are left out."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from pubsub_lib.core.chain import Chain
from pubsub_lib.core.effects import StartSync
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.freshness import NEVER_YET
from pubsub_lib.core.model import Delta, Point, SyncAnswer
from pubsub_lib.core.sequencer import Sequencer
from pubsub_lib.core.step_result import StepResult
from pubsub_lib.core.transitions import State
from simulator import invariants
from simulator.history import History
from simulator.invariants import Violation
from simulator.kernel import Process
from simulator.monitor import Monitor
from simulator.plan import TIMING
from simulator.tree_nodes import LOOK, Below, RelayNode

if TYPE_CHECKING:
    from simulator.replica import Replica
    from simulator.tree_world import TreeWorld

LATE: Final = 4.0
"""Seconds after a restore in which late messages may still show what it undid (docs/guarantees.md)."""
LOOP_ENDS: Final = 2 * TIMING.max_idle_time
"""Seconds without faults of the network after which no relay listens to one below it."""
EXCLUDED_FOR: Final = 2 * TIMING.stale_after
"""Seconds after which a refused parent may be chosen again, and the present one has had its time."""
LEFT_IN: Final = 2 * LOOK
"""Seconds in which a stale replica leaves its parent."""

LOST: Final = ("expired", "overflowed")
"""Causes of a delta that brings links which did not arrive, or which could not wait."""


class Used(NamedTuple):
    """A relay's delta that is used now, and what it may cover (rule R4)."""

    delta: Delta
    since: float
    """The earliest moment of the answer: what was received later must stay."""
    waits: Mapping[Point, float]
    """When each point that waits was received."""


class TreeMonitor(Monitor):
    """The invariants of a run with relays."""

    may_break: ClassVar[Collection[str]] = (
        "history notice", "delta without cause", "full without cause", "incomplete", "repair", "clock", "asked",
        "reconnected",
    )  # fmt: skip
    _world: "TreeWorld"

    def __init__(self, world: "TreeWorld", history: History) -> None:
        super().__init__(world, history)
        self._loops: dict[str, float] = {}
        """By relay: since when it listens to itself."""
        self._by_message: dict[tuple[str, Point], float] = {}
        """When a point of a chain was last reached by a message, anywhere: a relay's answer passes on what a late
        message brought.
        """
        self._used: dict[Replica, dict[str, Used]] = {}
        """By replica and chain."""
        self._named: dict[tuple[Replica, str, Point], float] = {}
        """When the last reading began in which a hello reply to this replica named a point as a topic's head."""
        self._sent_on: dict[RelayNode, set[tuple[str, Point]]] = {}
        """By relay: the topics and points of the links that it sent."""

    def sent(self, process: Process, publishing: Sequencer, envelope: Envelope) -> None:
        """A relay sends only what it has applied, and only heads of its own known points, with their true age. Its
        broadcasts are as those of a service.
        """
        node = self._world.replicas.get(process.name)
        if not isinstance(node, RelayNode):
            super().sent(process, publishing, envelope)
            return
        if self._world.kernel.tracing:
            self._trace_envelope(process.name, "sends", envelope)
        self._publisher(process, publishing).sent(envelope, self._world.kernel.now)
        tracker, sent = node.replica_state.tracker, self._sent_on.setdefault(node, set())
        for message in envelope.messages:
            sent.add((message.link.topic, message.link.point))
            if not tracker.chain(message.link.topic).passed(message.link.point):
                raise Violation("ahead", f"{process.name} sends {message.link.point}, which it has not applied")
        hello = envelope.hello
        if hello is None:
            return
        for topic, last in hello.sequences.items():
            if last > publishing.sequences.get(topic, 0):
                raise Violation("hello", f"{process.name} claims to have sent {last} on {topic!r}")
        now = self._world.kernel.now
        for topic, head in hello.heads.items():
            self._claimed(node, topic, head.point, now - hello.age)

    def answered(self, node: RelayNode, answer: SyncAnswer) -> None:
        """A relay answers a question: from what it has, and not while it is about to replace that."""
        for topic, part in answer.chains.items():
            head = getattr(part, "head", None)
            chain = node.replica_state.tracker.chain(topic)
            known = chain.known
            if chain.frozen:
                raise Violation("frozen", f"{node.name} answers {topic!r} while it is {chain.state.value}")
            if head is not None and head != known:
                raise Violation("answered", f"{node.name} answers {head} of {topic!r} and is at {known}")

    def _claimed(self, node: RelayNode, topic: str, point: Point, since: float) -> None:
        now = self._world.kernel.now
        if not self._history.covers(topic, point, since - invariants.CLOCK_SLACK, now):
            raise Violation("hello", f"{node.name} claims {point} of {topic!r}, {now - since:.3f} s old")

    def received(self, replica: "Replica", envelope: Envelope, now: float) -> None:
        """A replica is about to process an envelope."""
        super().received(replica, envelope, now)
        hello = envelope.hello
        asked = self._watches[replica].asked.get(hello.nonce) if hello is not None else None
        if hello is None or asked is None:
            return
        for topic, head in hello.heads.items():
            at = replica, topic, head.point
            self._named[at] = max(self._named.get(at, NEVER_YET), asked - hello.age)

    def sync_begun(self, replica: "Replica", start: StartSync, now: float) -> None:
        """Without faults no link is lost, so each of them arrives by a message and none by a delta."""
        super().sync_begun(replica, start, now)
        if self._world.plan.faultless and self._world.kernel.now < self._world.rest_since:
            for name, want in start.wants.items():
                if want.after is not None and start.causes[name] in LOST:
                    self._demand("by message", replica, f"{name!r} ({start.causes[name]}) in a run without faults")

    def sync_answered(self, replica: "Replica", start: StartSync, answer: SyncAnswer) -> bool:
        """The answer is about to be used: what was received since its earliest moment must stay (rule R4)."""
        watch, used = self._watches[replica], {}
        for name, part in answer.chains.items():
            if isinstance(part, Delta) and answer.ages is not None and name in watch.chains:
                used[name] = Used(part, watch.begun - answer.ages[name].age, watch.chains[name].waits())
        in_time = super().sync_answered(replica, start, answer)
        self._used[replica] = used if in_time else {}
        return in_time

    def acted(self, replica: "Replica", outcome: StepResult) -> None:
        """A replica made a step."""
        super().acted(replica, outcome)
        for name, used in self._used.pop(replica, {}).items():
            if name in replica.topics:
                self._demand("kept", replica, self._forgotten(replica, replica.replica_state.tracker.chain(name), used))

    def _forgotten(self, replica: "Replica", chain: Chain, used: Used) -> str | None:
        if chain.state not in (State.FOLLOWING, State.HOLDING):
            return None  # the next sync brings them
        since = used.since
        if chain.known_position < used.delta.head.position:
            # The begin of the delta was used, up to the head of a reading: that reading covers what was received before
            # it, and the answer nothing (rule R3).
            heads = [link.point for link in used.delta.links if link.point.position <= chain.known_position]
            since = max((self._named.get((replica, chain.name, head), NEVER_YET) for head in heads), default=NEVER_YET)
        kept = {*chain.reorder_buffer.points(), *(head.point for head in chain.heads)}
        later = [point for point, received in used.waits.items() if received > since]
        lost = [point for point in later if point.position > chain.known_position and point not in kept]
        return f"{chain.name!r} at {chain.known} forgot {lost}, received after the answer was true" if lost else None

    def check_chain(
        self, replica: "Replica", chain: Chain, before: Point | None, noticed: tuple[Point, Point] | None, *,
        changed: bool,
    ) -> None:  # fmt: skip
        """A replica made a step; its chain was at the point ``before``."""
        if changed and chain.source is not None and chain.known is not None:
            at = chain.name, chain.known
            self._by_message[at] = max(self._by_message.get(at, float("-inf")), replica.clock.true(chain.known_at))
        super().check_chain(replica, chain, before, noticed, changed=changed)
        self._demand("passed on", replica, self._kept_back(replica, chain, before))
        self._demand("undone", replica, self._undone(replica, chain))

    def _kept_back(self, replica: "Replica", chain: Chain, before: Point | None) -> str | None:
        """A relay sends each link that it applies at once: those below would get it by a delta, and much later."""
        if not isinstance(replica, RelayNode) or before is None or chain.known is None:
            return None
        if chain.name in replica.replaced:  # by a full sync, which brings objects and no links
            return None
        sent = self._sent_on.get(replica, ())
        kept = [at for at in self._history.between(chain.name, before, chain.known) if (chain.name, at) not in sent]
        return f"{chain.name!r} at {chain.known} did not send {kept}" if kept else None

    def sweep(self, replicas: Collection["Replica"]) -> None:
        """Check the invariants that can break by time alone."""
        super().sweep(replicas)
        for node in replicas:
            if isinstance(node, RelayNode) and not node.process.paused:
                watch = self._publisher(node.process, node.relay.sequencer)
                watch.check_greeting(self._world.rest_since, self._world.kernel.now)

    def look(self, replica: "Replica") -> None:
        """No replica proves what a restore has undone long before; no loop stays."""
        tracker = replica.replica_state.tracker
        for name in tracker.topics:
            self._demand("undone", replica, self._undone(replica, tracker.chain(name)))
        self._demand("parent", replica, self._stays(replica))
        loop, now = self._loop(replica), self._world.kernel.now
        if loop is None or self._disturbed(replica):
            self._loops.pop(replica.name, None)
        elif now > self._loops.setdefault(replica.name, now) + LOOP_ENDS:
            self._demand("loop", replica, f"{loop} for {now - self._loops[replica.name]:.3f} s")

    def _undone(self, replica: "Replica", chain: Chain) -> str | None:
        local = replica.clock.now()
        staleness = replica.replica_state.tracker.freshness.staleness(chain.name, local)
        if chain.known is None or staleness == float("inf"):
            return None
        since = replica.clock.true(local - staleness) - invariants.CLOCK_SLACK
        history, now = self._history, self._world.kernel.now
        by_late_message = since <= self._by_message.get((chain.name, chain.known), float("-inf"))
        if since <= history.restored_at + LATE or by_late_message:
            return None
        heads = history.shown(chain.name, since, now)
        if any(history.is_ancestor(chain.name, chain.known, head) for head in heads):
            return None
        ago = now - history.restored_at
        return f"{chain.name!r} at {chain.known} claims {staleness:.3f} s, and was undone {ago:.3f} s ago or before"

    def _stays(self, replica: "Replica") -> str | None:
        """A stale replica with another parent to choose leaves its own one (rule R5)."""
        if not isinstance(replica, Below) or replica.parents is None or not replica.topics:
            return None
        refused_at = max(replica.parents.refused.values(), default=NEVER_YET)
        if replica.clock.now() - refused_at <= EXCLUDED_FOR:
            return None
        staleness = replica.replica_state.tracker.freshness.unproved(replica.clock.now())
        since = self._world.kernel.now - replica.chosen_at
        if min(staleness, since) <= TIMING.stale_after + LEFT_IN or len(self._world.tree.parents[replica.name]) == 1:
            return None
        return f"listens to {replica.parents.current} for {since:.3f} s, without a proof for {staleness:.3f} s"

    def _disturbed(self, replica: "Replica") -> bool:
        """Whether a fault of the network or a pause may keep the relays of a loop from noticing it; or that a relay has
        nothing yet, and so sends no hello.
        """
        weather, nodes = self._world.network.weather, self._world.replicas.values()
        idle = any(each.process.paused or not each.replica_state.tracker.synced for each in nodes)
        return bool(weather.cut) or idle or max(weather.drop, weather.delay, weather.reorder) > 0.0

    def _loop(self, replica: "Replica") -> str | None:
        above = [replica.name]
        while isinstance(replica, Below) and replica.parents is not None:
            found = self._world.replicas.get(replica.parents.current)
            if found is None or found.name in above:
                return f"listens to itself through {above[1:]}" if found is not None else None
            replica = found
            above.append(found.name)
        return None
