"""A publisher's bookkeeping: it numbers every message, and says hello at start, on idle topics and when asked.

Sans-I/O: links, questions, readings and the clock in; envelopes to send out. ``now`` is in seconds of a clock that
never goes back. Not thread-safe: the caller holds a lock, and sends the envelopes in the order in which it got them.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby, islice
from operator import attrgetter

from pubsub_lib.core.codec import packed
from pubsub_lib.core.envelope import Envelope, Hello, HelloAsk
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, EMPTY, Head, Heads, Link
from pubsub_lib.core.timing import Timing

NEVER = float("-inf")
MOST_QUESTIONS = 10_000
"""Questions that wait for a reading; more are not answered, and their askers ask again. Drivers remember as many: a
replica asks about 200 topics at a time, so 64 would leave one of 20,000 topics without most of its answers.
"""
HELLO_TOPICS = 200
"""Topics in one hello: with the longest names that is below 120 KiB."""
LONGEST_BACKOFF = 30.0
"""Seconds between attempts to read the heads while the store does not answer."""
_TOPIC = attrgetter("topic")


class Publishing:
    """One publisher since its start. ``uuid`` must be new at every start (32 hex digits)."""

    def __init__(self, service: str, uuid: str, timing: Timing, limits: Limits, now: float) -> None:
        self.service = service
        self.uuid = uuid
        self._timing = timing
        self._limits = limits
        self._sequences: dict[str, int] = {}
        self._said: OrderedDict[str, float] = OrderedDict()
        """When each topic last got a message, oldest first."""
        self._questions: dict[str, HelloAsk] = {}
        self._heads: Heads | None = None
        self._began = NEVER
        self._reading = False
        self._failures = 0
        self._read_from = now
        self._started = False

    # -- what is sent ------------------------------------------------------------------------------------------------

    def publish(self, links: Sequence[Link], now: float) -> list[Envelope]:
        """Number these links, in this order. A large link becomes a run; neighbours on a topic share an envelope.

        Raises FrameError("oversized") when one change does not fit in a frame; then nothing was numbered.
        """
        # All is encoded before anything is numbered.
        ready = (
            [(links[0].topic, packed(links, self._limits))]
            if len(links) == 1
            else [(topic, packed(list(run), self._limits)) for topic, run in groupby(links, _TOPIC)]
        )
        envelopes = []
        for topic, frames in ready:
            self._say(topic, now)
            for messages in frames:
                first = self._sequences.get(topic, 0) + 1
                self._sequences[topic] = first + len(messages) - 1
                envelopes.append(Envelope(self.service, self.uuid, topic, first, messages))
        return envelopes

    def asked(self, ask: HelloAsk, now: float) -> list[Envelope]:
        """A replica asks for an own hello: answered now when the last reading is young enough, else after the next."""
        if self._fresh(now):
            return list(self._answer(ask, now))
        if len(self._questions) < MOST_QUESTIONS:
            self._questions[ask.nonce] = ask
        return []

    def tick(self, now: float) -> list[Envelope]:
        """Hellos on topics that are idle, as far as the last reading allows."""
        return self._idle_hellos(now) if self._fresh(now) else []

    def goodbye(self, now: float) -> list[Envelope]:
        """The last message: this publisher stops."""
        return [self._hello((), now, goodbye=True)]

    # -- readings of the store's heads ---------------------------------------------------------------------------------

    def wants_reading(self, now: float) -> bool:
        """True when the caller should read the heads of ``ALL`` topics and bring them to ``heads_read``."""
        return not self._reading and now >= self._read_from and self._needs_reading(now)

    def begin_reading(self) -> None:
        """The caller reads now."""
        self._reading = True

    def heads_read(self, heads: Heads, began: float, now: float) -> list[Envelope]:
        """The heads of all topics, and when their reading began (before the first query was sent)."""
        self._reading = False
        self._failures = 0
        self._heads = heads
        self._began = began
        self._started = True
        for topic in heads.topics:
            if topic not in self._said:
                self._said[topic] = NEVER
                self._said.move_to_end(topic, last=False)
        return [*self._answers(now), *self._idle_hellos(now)]

    def heads_failed(self, now: float) -> list[Envelope]:
        """The store did not answer. Questions are answered with what is known, which says its true age."""
        self._reading = False
        self._read_from = now + min(self._timing.reading_age * 2.0 ** min(self._failures, 32), LONGEST_BACKOFF)
        self._failures += 1
        if self._heads is None:
            self._questions.clear()
            return []
        return [*self._answers(now), *self._idle_hellos(now)]

    def next_time(self) -> float:
        """When ``tick`` or ``wants_reading`` next has something to say; infinite when nothing was ever said."""
        if self._reading:
            return float("inf")
        if not self._started or self._questions:
            return self._read_from
        oldest = next(iter(self._said.values()), None)
        return float("inf") if oldest is None else max(oldest + self._timing.max_idle_time, self._read_from)

    @property
    def sequences(self) -> dict[str, int]:
        """The last sequence sent, per topic."""
        return dict(self._sequences)

    # -- hellos --------------------------------------------------------------------------------------------------------

    def _fresh(self, now: float) -> bool:
        return now - self._began <= self._timing.reading_age

    def _needs_reading(self, now: float) -> bool:
        return not self._started or bool(self._questions) or (bool(self._idle(now, 1)) and not self._fresh(now))

    def _idle(self, now: float, most: int | None = None) -> list[str]:
        latest = now - self._timing.max_idle_time
        idle = []
        for topic, said in islice(self._said.items(), most):
            if said > latest:
                break
            idle.append(topic)
        return idle

    def _idle_hellos(self, now: float) -> list[Envelope]:
        hellos = []
        for topic in self._idle(now):
            self._say(topic, now)
            hellos.append(self._hello((topic,), now))
        return hellos

    def _answers(self, now: float) -> list[Envelope]:
        questions, self._questions = self._questions, {}
        return [envelope for ask in questions.values() for envelope in self._answer(ask, now)]

    def _answer(self, ask: HelloAsk, now: float) -> Iterator[Envelope]:
        topics = [topic for topic in ask.topics if topic != ALL]
        if not topics:
            yield self._hello((), now, nonce=ask.nonce)
        for start in range(0, len(topics), HELLO_TOPICS):
            yield self._hello(topics[start : start + HELLO_TOPICS], now, nonce=ask.nonce)

    def _hello(self, topics: Collection[str], now: float, *, nonce: str = "", goodbye: bool = False) -> Envelope:
        hello = Hello(
            sequences={topic: self._sequences.get(topic, 0) for topic in topics},
            heads={topic: self._head(topic) for topic in topics} if self._heads is not None else {},
            store=self._heads.store if self._heads is not None else None,
            age=now - self._began if self._heads is not None else 0.0,
            nonce=nonce,
            goodbye=goodbye,
        )
        topic = next(iter(topics)) if len(topics) == 1 else ALL
        return Envelope(self.service, self.uuid, topic, 0, (), hello)

    def _head(self, topic: str) -> Head:
        # A reading is of all topics: one that it does not show was never written.
        return EMPTY if self._heads is None else self._heads.topics.get(topic, EMPTY)

    def _say(self, topic: str, now: float) -> None:
        self._said[topic] = now
        self._said.move_to_end(topic)
