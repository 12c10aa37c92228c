"""Checks a run: calls every invariant where it can break, with its own evidence and not the tracker's."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, ClassVar

from pubsub_lib.core.chain import Chain
from pubsub_lib.core.effects import StartSync
from pubsub_lib.core.envelope import Envelope, Hello, HelloRequest
from pubsub_lib.core.events import Event
from pubsub_lib.core.history_change import is_barrier
from pubsub_lib.core.model import ALL, Full, Incomplete, Point, SyncAnswer
from pubsub_lib.core.sequencer import Sequencer
from pubsub_lib.core.step_result import StepResult
from pubsub_lib.core.transitions import DUE, SYNCING, State
from simulator import invariants
from simulator.causes import EPS, no_cause
from simulator.evidence import Evidence, Watch, hinted, may_wait
from simulator.group_watch import GroupWatch
from simulator.hello_watch import HelloWatch, about
from simulator.history import History
from simulator.invariants import Violation
from simulator.kernel import Process
from simulator.monitor_hooks import MonitorHooks
from simulator.plan import BACK, LEASE_SECONDS, TIMING
from simulator.store import Commit, Verb
from simulator.truth import judged
from simulator.wait_watch import WaitWatch

if TYPE_CHECKING:
    from simulator.replica import Handler, Replica
    from simulator.service import Service
    from simulator.world import World


class Monitor(MonitorHooks):
    """All invariants of one run. Methods raise Violation."""

    may_break: ClassVar[Collection[str]] = ()
    """Invariants that are not checked."""

    def __init__(self, world: "World", history: History) -> None:
        self._world = world
        self._history = history
        self.groups = GroupWatch(history)
        self.waits = WaitWatch(history, self._demand)
        self._watches: dict[Replica, Watch] = {}
        self._publishers: dict[str, HelloWatch] = {}
        self.syncs: dict[str, int] = {}

    def _demand(self, invariant: str, replica: "Replica | None", wrong: str | None) -> None:
        if wrong is not None and invariant not in self.may_break:
            raise Violation(invariant, f"{replica.name}: {wrong}" if replica is not None else wrong)

    # -- replicas ----------------------------------------------------------------------------------------------------

    def started(self, replica: "Replica") -> None:
        """A replica starts."""
        self._watches[replica] = Watch()

    def connected(self, replica: "Replica", now: float) -> None:
        """A replica is notified of a connection."""
        self._watches[replica].connected = now

    def dropped(self, replica: "Replica", topic: str) -> None:
        """A replica stops following a topic."""
        watch = self._watches[replica]
        watch.chains.pop(topic, None)
        watch.dropped_topics.add(topic)

    def asked(self, replica: "Replica", ask: HelloRequest, now: float) -> None:
        """A replica sends a hello request."""
        watch = self._watches[replica]
        watch.asked[ask.nonce] = now
        watch.rounds = [at for at in watch.rounds if now - TIMING.max_idle_time < at < now] + [now]
        # A replica of everything requests topics as well, for their digests; they are not chains of their own.
        for topic in (ALL,) if ALL in ask.topics else ask.topics:
            watch.chains.setdefault(topic, Evidence(now)).hinted = None

    def received(self, replica: "Replica", envelope: Envelope, now: float) -> None:
        """A replica is about to process an envelope."""
        watch = self._watches[replica]
        if self._world.kernel.tracing:
            self._trace_envelope(replica.name, "hears", envelope)
        if envelope.store_id != self._world.database.store.store_id:
            watch.receive_foreign(envelope.uuid, now)
            return
        if envelope.hello is not None:
            self._received_hello(watch, replica, envelope.hello, envelope.uuid, now)
            return
        if replica.directory is not None and replica.directory.waits(envelope, now):
            return
        name = ALL if ALL in watch.chains else envelope.topic
        if (evidence := watch.chains.get(name)) is not None:
            chain = replica.replica_state.tracker.chain(name) if name in replica.topics else None
            for link in [message.link for message in envelope.messages if may_wait(chain, message.link.point)]:
                evidence.receive_link(link.tx_prev if name == ALL else link.prev, link.point, now)

    def _received_hello(self, watch: Watch, replica: "Replica", hello: Hello, uuid: str, now: float) -> None:
        proves = replica.directory is None or replica.directory.shows(uuid)
        points = {topic: head.point for topic, head in hello.heads.items()}
        if hello.store is not None:
            points[ALL] = hello.store
            if not hello.nonce and not hello.goodbye and hello.store.position > watch.shown:
                hinted(watch, replica, hello, hello.store.position, now)
            watch.shown = max(watch.shown, hello.store.position)
        asked = watch.asked.get(hello.nonce)
        for topic, point in points.items():
            evidence = watch.chains.get(topic)
            if evidence is None or (hello.nonce and asked is None):
                continue
            evidence.receive(point, now)
            chain = replica.replica_state.tracker.chain(topic) if topic in replica.topics else None
            known = -1 if chain is None else chain.known_position
            if asked is not None and proves and hello.store is not None:
                evidence.covers(hello.store.position)
            if asked is not None and asked >= watch.connected and point.position > known:
                evidence.missed = True
            if asked is not None and proves and evidence.known == point and chain is not None and not chain.frozen:
                evidence.proved = max(evidence.proved, asked - hello.age)

    def acted(self, replica: "Replica", outcome: StepResult) -> None:
        """A replica made a step: check all state that may have changed."""
        watch = self._watches[replica]
        tracker = replica.replica_state.tracker
        notices = {} if outcome.history is None else outcome.history.points
        for name in tracker.topics:
            chain = tracker.chain(name)
            evidence = watch.chains.setdefault(name, Evidence(replica.clock.now()))
            if chain.state is not State.FOLLOWING:
                evidence.hinted = None  # the sync or wait under way brings the changes
            due = chain.state in DUE
            if due and not evidence.due and chain.state is State.DELTA_DUE:
                evidence.cause = no_cause(self._world, replica, name, chain.cause, evidence, replica.clock.now()) or ""
            evidence.due = due
            moved, before, noticed = chain.known != evidence.known, evidence.known, notices.get(name)
            if moved:
                self._world.kernel.trace(replica.name, "known", repr(name), chain.known, chain.state.value)
                evidence.known = chain.known
                evidence.forget(chain.known_position)
            self.check_chain(replica, chain, before, noticed, changed=moved or bool(outcome.events))
            self._demand("buffers", replica, invariants.buffers_are_bounded(replica, chain))
            self._demand("need", replica, invariants.needs_are_remembered(replica, chain))
        replica.replaced.clear()
        self._demand("guard", replica, invariants.guard_never_fires(replica))
        for handler in replica.handlers:
            self._demand("handler queue", replica, invariants.handlers_are_bounded(handler, self._world.objects))

    def check_chain(
        self, replica: "Replica", chain: Chain, before: Point | None, noticed: tuple[Point, Point] | None, *,
        changed: bool,
    ) -> None:  # fmt: skip
        """A replica made a step; its chain was at the point ``before``."""
        for invariant, wrong in judged(self._history, replica, chain, before, noticed, changed=changed):
            self._demand(invariant, replica, wrong)

    def mismatched(self, replica: "Replica", topic: str) -> None:
        """Count or digest differ."""
        raise Violation("digest", f"{replica.name}: {topic!r} differs from its link's or snapshot's count and digest")

    # -- syncs -------------------------------------------------------------------------------------------------------

    def sync_begun(self, replica: "Replica", start: StartSync, now: float) -> None:
        """Each sync has a cause, and only one runs at a time."""
        watch = self._watches[replica]
        if watch.running and now < watch.begun + TIMING.sync_timeout - EPS:
            raise Violation("one sync", f"{replica.name}: sync {start.number} begins while {watch.running} runs")
        watch.running, watch.begun = start.number, now
        for evidence in watch.chains.values():
            evidence.sync_begun()
        for name, want in start.wants.items():
            evidence = watch.chains[name]
            cause = start.causes[name]
            if cause == "unverified" and self._world.plan.timing.verify_interval:
                self._world.count("verify")
            kind = "full" if want.after is None else "delta"
            self.syncs[f"{kind}: {cause}"] = self.syncs.get(f"{kind}: {cause}", 0) + 1
            if want.buckets is not None and not replica.replica_state.tracker.chain(name).undone:
                self._demand("repair", replica, f"{name!r} repairs although nothing differed")
            if want.after is None:
                if not evidence.may_full:
                    self._demand("full without cause", replica, f"{name!r} ({cause})")
            else:
                if not evidence.due:  # it became due and began in one step
                    evidence.cause = no_cause(self._world, replica, name, cause, evidence, now) or ""
                self._demand("delta without cause", replica, evidence.cause or None)
                evidence.cause = ""

    def sync_answered(self, replica: "Replica", start: StartSync, answer: SyncAnswer) -> bool:
        """The answer is about to be used. False: it is late, and another sync may run now."""
        watch = self._watches[replica]
        syncs = replica.replica_state.tracker.syncs
        if watch.running != start.number or not syncs.running or syncs.number != start.number:
            return False
        watch.running = 0
        watch.identify()
        watch.shown = max(watch.shown, answer.store.position)
        tracker = replica.replica_state.tracker
        # A topic that was dropped and followed again meanwhile waits for an answer of its own.
        used = {name for name in tracker.topics if tracker.chain(name).state in SYNCING}
        untouched = not self._history.trims and self._history.restored_at < 0
        for name, part in answer.chains.items():
            evidence = watch.chains.get(name)
            if isinstance(part, Incomplete) and untouched:
                self._demand("incomplete", replica, f"{name!r} lost links that were not trimmed")
            if evidence is not None and name in used:
                evidence.hinted = None
                if not isinstance(part, Incomplete):  # which drops nothing that waits
                    evidence.sync_ended()
                    evidence.verified = watch.begun
                evidence.may_full = isinstance(part, Incomplete) or (evidence.may_full and not isinstance(part, Full))
        return True

    def unverified(self, replica: "Replica", name: str) -> float:
        """Seconds since the begin of the last sync of a chain whose answer was used."""
        return replica.clock.now() - self._watches[replica].chains[name].verified

    def received_stranger(self, replica: "Replica", evidence: Evidence) -> bool:
        """Whether a publisher of another store was received for the first time since the chain was verified."""
        return self._watches[replica].stranger_at >= evidence.verified

    def late_answer(self, replica: "Replica", running: int) -> None:
        """The replica received a late answer, which it must ignore. ``running``: the sync that ran then, 0: none."""
        self._demand("late answer", replica, invariants.late_answer_is_ignored(replica, running))
        for name, evidence in self._watches[replica].chains.items():
            if name in replica.topics and replica.replica_state.tracker.chain(name).known != evidence.known:
                raise Violation("late answer", f"{replica.name}: {name!r} moved by an answer that was too late")

    def resync_asked(self, replica: "Replica", topic: str) -> None:
        """A resync of a topic was requested."""
        evidence = self._watches[replica].chains[topic]
        evidence.may_full = evidence.resynced = True

    def sync_failed(self, replica: "Replica", number: int) -> None:
        """The store did not answer."""
        watch = self._watches[replica]
        if watch.running == number:
            watch.running = 0

    # -- handlers ----------------------------------------------------------------------------------------------------

    def handled(self, replica: "Replica", handler: "Handler", event: Event) -> None:
        """A handler was called."""
        if is_barrier(event):
            handler.versions.clear()  # they may go back from here on
            return
        ident = event.table, event.key
        last = handler.versions.get(ident)
        if event.version is not None and last is not None and not self._may_repeat(replica, handler, event):
            if event.version == last:
                self._demand("handler twice", replica, f"{ident} version {event.version}")
            # A dropped topic may have hidden an older version of an object that another topic has not given up yet.
            if event.version < last and not self._watches[replica].dropped_topics:
                self._demand("handler back", replica, f"{ident} version {event.version} after {last}")
        handler.topics[ident] = event.topic
        if event.version is None:
            handler.versions.pop(ident, None)
        else:
            handler.versions[ident] = event.version
        if event.new_value is None:
            handler.values.pop(ident, None)
        else:
            handler.values[ident] = event.new_value

    def _may_repeat(self, replica: "Replica", handler: "Handler", event: Event) -> bool:
        # A dropped topic forgets the versions of its objects, and of no others.
        dropped = self._watches[replica].dropped_topics
        return not dropped.isdisjoint((event.topic, event.old_topic, handler.topics.get((event.table, event.key))))

    # -- writers and services ----------------------------------------------------------------------------------------

    def wrote(self, verbs: Sequence[Verb], commit: Commit) -> None:
        """A writer's transaction was committed successfully."""
        if not self._history.was_committed(ALL, commit.point):
            raise Violation("committed", f"{commit.point} was never committed")
        if self._history.repeated:
            raise Violation("twice", f"transaction {self._history.repeated} is in one history twice")

    def _publisher(self, process: Process, publishing: Sequencer) -> HelloWatch:
        return self._publishers.setdefault(publishing.uuid, HelloWatch(process.name))

    def publisher_connected(self, process: Process, publishing: Sequencer) -> None:
        """A publisher is notified of a connection."""
        self._publisher(process, publishing).connected(self._world.kernel.now)

    def hello_refused(self, process: Process, publishing: Sequencer) -> None:
        """A publisher's transport did not take a hello."""
        self._publisher(process, publishing).refused()

    def hello_burst(self, process: Process, publishing: Sequencer) -> None:
        """A publisher begins to send all due hellos."""
        self._publisher(process, publishing).burst()

    def waits_for_hello(self, process: Process) -> None:
        """A link is delayed because a hello is being sent."""
        raise Violation("prompt", f"{process.name}: a commit waits for a hello")

    def sent(self, process: Process, publishing: Sequencer, envelope: Envelope) -> None:
        """A link is of a committed transaction; a hello contains no false heads, ages or sequences."""
        self._publisher(process, publishing).sent(envelope, self._world.kernel.now)
        hello = envelope.hello
        if self._world.kernel.tracing:
            self._trace_envelope(process.name, "says", envelope)
        self.groups.published(process.name, envelope)
        if hello is None or hello.store is None:
            return
        now = self._world.kernel.now
        since = now - hello.age - invariants.CLOCK_SLACK
        claims = [(ALL, hello.store), *((topic, head.point) for topic, head in hello.heads.items())]
        for chain, point in claims:
            if point not in tuple(self._history.shown(chain, since, now)):
                raise Violation("hello", f"{process.name} claims {point} of {chain!r}, {hello.age:.3f} s old")
        for topic, last in hello.sequences.items():
            if last > publishing.sequences.get(topic, 0):
                raise Violation("hello", f"{process.name} claims to have sent {last} on {topic!r}")

    def _trace_envelope(self, who: str, what: str, envelope: Envelope) -> None:
        topic, publisher = repr(envelope.topic), f"{envelope.service} {envelope.uuid[:4]}"
        self._world.kernel.trace(who, what, topic, f"{publisher} {envelope.sequence}:", about(envelope))

    def acts_under_lease(self, service: "Service") -> None:
        """No other service considers itself the holder."""
        if self._world.kernel.now < self._history.restored_at + LEASE_SECONDS:
            return  # a backup restored leases that other services took since: both act, which is only load
        for other in self._world.services.values():
            if other is not service and other.process.alive and other.orphans.held(other.process.clock.now()):
                raise Violation("lease", f"{service.name} and {other.name} hold the same lease")

    # -- at rest -----------------------------------------------------------------------------------------------------

    def sweep(self, replicas: Collection["Replica"]) -> None:
        """Check the invariants that can break without a step, by time alone."""
        if "blind" not in self._world.plan.faults:
            for service in self._world.services.values():
                watch = self._publisher(service.process, service.sender.publishing)
                watch.check_greeting(self._world.rest_since, self._world.kernel.now)
        for replica in replicas:
            if not replica.process.paused:
                self.look(replica)
                self._look_back(replica)
                self._demand("sync without end", replica, invariants.syncs_end(replica))
                for name, evidence in self._watches[replica].chains.items():
                    chain = replica.replica_state.tracker.chain(name)
                    self._demand("clock", replica, invariants.clock_runs(replica, chain, evidence.waits()))
                    self._demand("asked", replica, invariants.is_asked_about(replica, chain, evidence.hinted))

    def _look_back(self, replica: "Replica") -> None:
        """Without faults, changes lost before a connection are here soon after it, long before a periodic request."""
        world, watch, now = self._world, self._watches[replica], self._world.kernel.now
        lasting = {"overflow", "blind"}.intersection(world.plan.faults)
        if lasting or replica.plan.polling or not world.services:
            return
        for (service, name), since in world.network.connected_at.items():
            late = world.rest_since <= since <= now - BACK
            if name != replica.name or not late or watch.back.get(service) == since:
                continue
            watch.back[service] = since
            for chain in [replica.replica_state.tracker.chain(name) for name in replica.topics]:
                self._demand("reconnected", replica, invariants.is_back(self._history, chain, since, now))
