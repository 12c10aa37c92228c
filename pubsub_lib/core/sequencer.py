"""A publisher's bookkeeping: it numbers every message, and says hello at start, when it is idle and when it is asked.

Sans-I/O: links, questions, connections, readings and the clock in; envelopes to send out. ``now`` is in seconds of a
clock that never goes back. Not thread-safe: the caller holds a lock around every call. It sends links under that lock
too, in the order in which it got them. Hellos it sends without the lock: one that a later link overtakes names an older
sequence, which is harmless, and its age only has to be true when it was made.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from pubsub_lib.core.codec import packed
from pubsub_lib.core.envelope import Envelope, Hello, HelloRequest
from pubsub_lib.core.hello_portions import portions
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, EMPTY, Head, Heads, Link, Point
from pubsub_lib.core.timing import Timing

NEVER_YET = float("-inf")
MAX_REQUESTS = 10_000
"""Questions that wait for a reading; more are not answered, and their askers ask again. Drivers remember as many: a
replica asks about 200 topics at a time, so 64 would leave one of 20,000 topics without most of its answers.
"""
HELLO_TOPICS = 200
"""Topics in one hello at most; fewer when their names are too long for ``max_frame_bytes``."""
HELLO_DELAY = 0.1
"""Seconds from a connection to the hello that it causes: the subscriptions arrive after the connection, and one hello
serves all who connect meanwhile."""
HELLO_SPACING = 1.0
"""Seconds between two broadcast hellos at least, however many subscribers connect."""
MAX_BACKOFF = 30.0
"""Seconds at most between attempts to read the heads while the store does not answer, and between broadcasts that the
transport refuses."""
_TOPIC = attrgetter("topic")


class Sequencer:
    """One publisher since its start. ``uuid`` must be new at every start (32 hex digits)."""

    def __init__(self, service: str, uuid: str, timing: Timing, limits: Limits, now: float) -> None:
        self.service = service
        self.uuid = uuid
        self._timing = timing
        self._limits = limits
        self._sequences: dict[str, int] = {}
        """The last sequence of each topic; the topic that was sent on last stands at the end."""
        self._sent_at = now
        """When something was last sent to everybody."""
        self._broadcast_at = NEVER_YET
        """When the last broadcast hello was said."""
        self._connected_at = NEVER_YET
        self._hello_at = now
        """When a hello is due although the publisher is not idle: at the start, after a connection, after a refusal."""
        self._broadcast_last = False
        """The hello that was made last is a broadcast."""
        self._refusals = 0
        """Broadcasts refused since the last that was not."""
        self._refused_last = False
        """The last broadcast was refused."""
        self._requests: dict[str, HelloRequest] = {}
        """Wait for a reading."""
        self._answers: deque[HelloRequest] = deque()
        """To be answered now."""
        self._portions: deque[HelloRequest] = deque()
        """What is left of the question that is being answered, in parts that one hello answers."""
        self._heads: Heads | None = None
        self._all_read = NEVER_YET
        """When the reading of all these heads began; ..."""
        self._began = NEVER_YET
        """... and when it was last known that they hold."""
        self._reading = False
        self._failed = False
        """A hello is due and the reading for it failed: what is known is told, with its true age."""
        self._failures = 0
        self._read_from = now

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
            last = self._sequences.pop(topic, 0)  # to the end: the hello speaks of the latest
            for messages in frames:
                envelopes.append(Envelope(self.service, self.uuid, topic, last + 1, messages))
                last += len(messages)
            self._sequences[topic] = last
        self._sent_at = now
        return envelopes

    def hello_requested(self, ask: HelloRequest, now: float) -> None:
        """A replica asks for a hello reply: answered now when the last reading is young enough, else after the next."""
        if len(self._requests) + len(self._answers) >= MAX_REQUESTS:
            return
        if self._fresh(now):
            self._answers.append(ask)
        else:
            self._requests[ask.nonce] = ask

    def connected(self, now: float) -> None:
        """A subscriber has connected: it is to hear a hello, which tells it where the store stands. A herd of
        subscribers is told together.
        """
        self._connected_at = now
        self._hello_at = min(self._hello_at, max(now + HELLO_DELAY, self._broadcast_at + HELLO_SPACING))

    def next_hello(self, now: float) -> Envelope | None:
        """The next hello to send, None when there is none: call it until then, after everything else here. Answers to
        questions first. Each is made by itself, so that the caller's lock is not held for long.
        """
        self._broadcast_last = False
        if self._answers and not self._portions:
            # One question at a time: to cut all that wait for a reading would hold up commits.
            self._portions.extend(self._cut(self._answers.popleft()))
        if self._portions:
            ask = self._portions.popleft()
            topics = [topic for topic in ask.topics if topic != ALL]
            heads = {topic: self._head(topic) for topic in topics}
            return self._hello(topics, heads, now, nonce=ask.nonce)
        if self._heads is None or now < self._due() or not (self._failed or self._fresh(now)):
            return None
        # Who connected just now may not be subscribed yet.
        again = self._connected_at > now - HELLO_DELAY
        self._hello_at = now + HELLO_SPACING if again else float("inf")
        self._sent_at = self._broadcast_at = now
        self._failed = False
        self._broadcast_last = True
        if not self._refused_last:
            self._refusals = 0
        self._refused_last = False
        latest = next(portions(reversed(self._sequences), HELLO_TOPICS, self._limits))
        # Of a topic that the reading does not show yet nothing is known.
        known = self._heads.topics
        return self._hello(latest, {topic: known[topic] for topic in latest if topic in known}, now)

    def refused(self) -> int:
        """The transport refused the last hello: it would refuse the others too. The answers that are due are dropped,
        and their askers ask again. Returns how many. A broadcast is said again after a pause, which grows.
        """
        if self._broadcast_last:
            pause = min(HELLO_SPACING * 2.0 ** min(self._refusals, 32), MAX_BACKOFF)
            self._hello_at = min(self._hello_at, self._broadcast_at + pause)
            self._refusals += 1
            self._refused_last = True
            self._broadcast_last = False
        dropped = len(self._answers) + len(self._portions)
        self._answers.clear()
        self._portions.clear()
        return dropped

    def goodbye(self, now: float) -> Envelope:
        """The last message: this publisher stops."""
        return self._hello((), {}, now, goodbye=True)

    # -- readings of the store's heads ---------------------------------------------------------------------------------

    def wants_reading(self, now: float) -> bool:
        """True when the caller should read the store: its point, and unless :meth:`heads_at` has them the heads of
        ``ALL`` topics. It brings them to ``heads_read``.
        """
        return not self._reading and now >= self._read_from and self._needs_reading(now)

    def begin_reading(self) -> None:
        """The caller reads now."""
        self._reading = True

    def heads_at(self, store: Point, now: float) -> Heads | None:
        """The heads of the last reading, when the store stands where it stood then: they need not be read again.

        Not for longer than ``stale_after``: a repair of the database corrects a head's count and digest without a new
        point, and replicas would compare theirs with the wrong ones until the next commit.
        """
        if self._heads is None or self._heads.store != store or now >= self._all_read + self._timing.stale_after:
            return None
        return self._heads

    def heads_read(self, heads: Heads, began: float, now: float) -> None:
        """The heads of all topics, and when their reading began (before the first query was sent)."""
        self._reading = self._failed = False
        self._failures = 0
        if heads is not self._heads:
            self._all_read = began
        self._heads = heads
        self._began = began
        self._answer_all()

    def heads_failed(self, now: float) -> None:
        """The store did not answer. Questions are answered with what is known, which says its true age."""
        self._reading = False
        self._failed = now >= self._due()
        self._read_from = now + min(self._timing.reading_age * 2.0 ** min(self._failures, 32), MAX_BACKOFF)
        self._failures += 1
        if self._heads is None:
            self._requests.clear()
        self._answer_all()

    def next_time(self) -> float:
        """When ``next_hello`` or ``wants_reading`` next has something to say; infinite while the caller reads."""
        if self._reading:
            return float("inf")
        if self._heads is None or self._requests:
            return self._read_from
        return max(self._due(), self._read_from)

    @property
    def sequences(self) -> Mapping[str, int]:
        """The last sequence sent, per topic."""
        return dict(self._sequences)

    # -- hellos --------------------------------------------------------------------------------------------------------

    def _fresh(self, now: float) -> bool:
        return now - self._began <= self._timing.reading_age

    def _due(self) -> float:
        """When the next broadcast hello is due."""
        return min(self._hello_at, self._sent_at + self._timing.max_idle_time)

    def _needs_reading(self, now: float) -> bool:
        return self._heads is None or bool(self._requests) or (now >= self._due() and not self._fresh(now))

    def _answer_all(self) -> None:
        self._answers.extend(self._requests.values())
        self._requests.clear()

    def _hello(
        self, topics: Collection[str], heads: Mapping[str, Head], now: float, *, nonce: str = "", goodbye: bool = False
    ) -> Envelope:
        read = self._heads
        hello = Hello(
            sequences={topic: self._sequences.get(topic, 0) for topic in topics},
            heads=heads,
            store=read.store if read is not None else None,
            age=now - self._began if read is not None else 0.0,
            nonce=nonce,
            goodbye=goodbye,
        )
        return Envelope(self.service, self.uuid, ALL, 0, (), hello)

    def _head(self, topic: str) -> Head:
        # A reading is of all topics: one that it does not show was never written.
        return EMPTY if self._heads is None else self._heads.topics.get(topic, EMPTY)

    def _cut(self, ask: HelloRequest) -> Iterator[HelloRequest]:
        """A question in parts that one hello answers."""
        for topics in portions(ask.topics, HELLO_TOPICS, self._limits):
            yield HelloRequest(ask.nonce, topics)
