"""What a relay has: its replica, the last links of each topic, and how old all that may be (rules R1 and R6)."""

import random
from collections.abc import Collection, Mapping

import msgspec

from pubsub_lib.core.answer_time import UNKNOWN
from pubsub_lib.core.cache import Cache
from pubsub_lib.core.effects import Apply
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.events import Event
from pubsub_lib.core.freshness import NEVER_YET
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.log_space import LogSpace
from pubsub_lib.core.model import (
    ZERO,
    AnswerAge,
    Delta,
    Full,
    Head,
    Heads,
    Incomplete,
    Link,
    Point,
    SyncAnswer,
    TopicSnapshot,
    Want,
)
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.core.timing import Timing
from pubsub_lib.core.topic_log import TopicLog


class Question(msgspec.Struct, frozen=True):
    """A sync that a replica below requests."""

    asker: str
    """Names the question to the caller."""
    wants: Mapping[str, Want]
    refresh: bool
    """A proof from after the question is wanted, and not only a young one."""
    arrived: float
    proofs: Mapping[str, float]
    """The proofs of the wanted chains at the arrival."""
    nonce: str = ""
    """The asker's last hello request."""
    until: float = 0.0
    """When it is answered at the latest."""
    unready: list[str] = []
    """The topics whose proof may be too old. The relay removes those that it has seen to be young enough."""


class RelayedState(ReplicaState):
    """The relay's replica. It remembers which links a step applied, and which topics a full sync replaced."""

    def __init__(self, timing: Timing, limits: Limits, rng: random.Random, cache: Cache, now: float) -> None:
        super().__init__(timing, limits, rng, cache, now)
        self.done: list[Link | tuple[str, Point]] = []
        """In order: links, and for a replaced topic its name and point."""

    def _apply(self, effect: Apply, events: list[Event], now: float, envelope: Envelope | None) -> None:
        super()._apply(effect, events, now, envelope)
        self.done.extend(effect.links)

    def _replace(self, chain: str, answer: Full, reached: int, events: list[Event], now: float) -> bool:
        same_history = super()._replace(chain, answer, reached, events, now)
        self.done.append((chain, answer.head))
        return same_history


class RelayContents:
    """What one relay can answer about its topics. Not thread-safe."""

    def __init__(self, state: RelayedState) -> None:
        self.state = state
        self._logs: dict[str, TopicLog] = {}
        self._space = LogSpace()
        self._unlogged: list[tuple[Link, float]] = []
        """Taken links that are not in the logs yet, each with the time of :meth:`TopicLog.add`."""

    def take(self, now: float, applied: float, times: Mapping[str, float] | None) -> list[Link]:
        """The links that the last step applied, which :meth:`log` puts into the logs. ``applied``: when they were in
        the store's history at the earliest; ``times``: the same by topic, for those of a relay's answer.
        """
        done, self.state.done = self.state.done, []
        links: list[Link] = []
        for each in done:
            if isinstance(each, Link):
                at = applied if times is None else min(times.get(each.topic, NEVER_YET), now)
                self._unlogged.append((each, at))
                links.append(each)
            else:
                self.log()
                topic, point = each
                self._log_from(topic, point).restart(point)
        return links

    def log(self) -> None:
        """Put the taken links into the logs. The caller may do that after it has sent them: every method that reads the
        logs does it first.
        """
        unlogged, self._unlogged = self._unlogged, []
        for link, at in unlogged:
            self._log_from(link.topic, link.prev).add(link, at)

    def _log_from(self, topic: str, point: Point) -> TopicLog:
        log = self._logs.get(topic)
        if log is None:
            log = self._logs[topic] = TopicLog(point, self._space)
        return log

    def serves(self, topic: str) -> bool:
        """Whether the relay has a topic's objects now: it follows the topic, and waits for no full sync of it."""
        tracker = self.state.tracker
        return topic in tracker.topics and tracker.chain(topic).known is not None and not tracker.chain(topic).frozen

    def served(self) -> list[str]:
        """The topics that the relay has now."""
        return [topic for topic in self.state.tracker.topics if self.serves(topic)]

    def proof(self, topic: str) -> float:
        """The time of a topic's best proof, on the relay's clock."""
        freshness = self.state.tracker.freshness
        return -freshness.staleness(topic, 0.0) if topic in freshness.of else NEVER_YET

    def proves(self, topic: str) -> bool:
        """Whether the relay has a topic's objects, and a proof of them."""
        return self.serves(topic) and self.proof(topic) > NEVER_YET

    def heads(self) -> Heads:
        """The heads of all topics that the relay has now."""
        served = self.served()
        heads = {topic: self.head(topic) for topic in served}
        return Heads(self.store(served), heads, self.state.stores.own, everything=False)

    def latest(self, topic: str) -> float:
        """The latest moment that a topic's proofs may be of."""
        return self.state.tracker.freshness.of[topic].latest

    def head(self, topic: str) -> Head:
        """The head of a topic that the relay has: its own known."""
        known = self.state.tracker.chain(topic).known
        assert known is not None
        return Head(known, *self.state.cache.head(topic))

    def store(self, topics: Collection[str]) -> Point:
        """A point of the store up to which these topics are complete."""
        of = self.state.tracker.freshness.of
        return min((of[topic].covered_store for topic in topics), key=lambda point: point.position, default=ZERO)

    def answer(self, question: Question, now: float) -> SyncAnswer | None:
        """The answer to a question. The topics that this relay does not have now are missing in it; None when it has
        none of them. Before its own first sync it does not know the store's id either. Its objects are a
        :class:`.TopicCopy` of each topic.
        """
        chains: dict[str, Delta | Incomplete | Full] = {}
        ages: dict[str, AnswerAge] = {}
        arrived = question.arrived
        for topic, want in question.wants.items():
            if self.serves(topic):
                chains[topic], applied = self._part(topic, want)
                ages[topic] = AnswerAge(arrived - self.proof(topic), now - self.latest(topic), arrived - applied)
        return SyncAnswer(self.store(chains), chains, self.state.stores.own, ages) if chains else None

    def lacking(self, wants: Mapping[str, Want]) -> dict[str, Want]:
        """The wanted deltas that begin before the relay's logs: a relay that was started again has no older links, but
        the store's changelog may have them.
        """
        return {
            topic: want
            for topic, want in wants.items()
            if want.after is not None and self.serves(topic) and self._log(topic).lacks(want.after)
        }

    def join(self, older: SyncAnswer, begun: float, now: float) -> None:
        """Put older links, which the store or a parent answered, before the logs that they lead to. ``begun``: when
        they were requested.
        """
        if older.store_id != self.state.stores.own:
            return
        asked = begun + older.asked_after
        for topic, part in older.chains.items():
            if isinstance(part, Delta) and self.serves(topic):
                age = AnswerAge(0.0, 0.0, 0.0) if older.ages is None else older.ages.get(topic, UNKNOWN)
                self._log(topic).prepend(part.links, min(asked - min(age.age, age.applied), now))

    def _log(self, topic: str) -> TopicLog:
        self.log()
        return self._log_from(topic, self.head(topic).point)

    def _part(self, topic: str, want: Want) -> tuple[Delta | Incomplete | Full, float]:
        """A topic's part of an answer, and the time of the delta's first link."""
        head = self.head(topic)
        log = self._log(topic)
        if want.after is None:
            contains = None if want.known is None else log.holds(want.known)
            records = self.state.cache.copy(topic)
            return Full({topic: TopicSnapshot(head, records)}, head.point, contains), NEVER_YET
        found = log.after(want.after)
        if found is not None:
            links, applied = found
            return Delta(links, head.point, {topic: head}), applied if links else NEVER_YET
        # Behind the question: the replica judges by the age whether the history changed (rule R2).
        return (Delta([], head.point) if want.after.position > head.point.position else Incomplete()), NEVER_YET
