"""A publisher's bookkeeping: it numbers every message, and makes hellos at start, when idle and on request.

Sans-I/O: links, hello requests, connections, readings and the clock in; envelopes to send out. ``now`` is in seconds of
a clock that never goes back. Not thread-safe: the caller holds a lock around every call. The caller sends links under
that lock too, in the order in which it got them. A publisher sends hellos without the lock, so that no commit waits for
one: a hello that a later link overtakes names an older sequence, which is harmless, and its age only has to be true
when the hello was made. A relay, for which no writer waits, sends hellos under the lock; of those that the transport
refuses it tries one in a step.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

import msgspec

from pubsub_lib.core.backoff import doubled
from pubsub_lib.core.codec import packed
from pubsub_lib.core.envelope import Envelope, Hello, HelloRequest
from pubsub_lib.core.hello_portions import portions
from pubsub_lib.core.limits import MAX_HELLO_TOPICS, Limits
from pubsub_lib.core.model import ALL, EMPTY, NO_STORE, Head, Heads, Link, Point
from pubsub_lib.core.timing import Timing

NEVER_YET = float("-inf")
MAX_REQUESTS = 10_000
"""Maximum number of hello requests that wait for a reading. Further ones are not answered, and the replicas send them
again. Drivers remember as many: a replica requests 200 topics at a time, so with 64 a replica of 20,000 topics would
not get most of its replies.
"""
HELLO_TOPICS = MAX_HELLO_TOPICS
"""Maximum number of topics in one hello; fewer when their names are too long for ``max_frame_bytes``."""
HELLO_DELAY = 0.1
"""Seconds from a connection to the hello that it causes: the subscriptions arrive after the connection, and one hello
is enough for all subscribers that connect meanwhile."""
HELLO_SPACING = 1.0
"""Minimum seconds between two broadcast hellos, however many subscribers connect."""
MAX_BACKOFF = 30.0
"""Maximum seconds between attempts to read the heads while the store does not answer, and between broadcasts that the
transport refuses."""
_TOPIC = attrgetter("topic")


class Progress(msgspec.Struct, frozen=True):
    """What a publisher has sent since its start, and its last reading of the store."""

    sequences: Mapping[str, int]
    """The last sequence of each topic."""
    heads: Heads | None
    """None before the first reading."""
    began: float
    """When the reading began that last confirmed the heads."""


class Sequencer:
    """One publisher since its start. ``uuid`` must be new at every start (32 hex digits)."""

    def __init__(self, service: str, uuid: str, timing: Timing, limits: Limits, now: float) -> None:
        self.service = service
        self.uuid = uuid
        self.store_id = NO_STORE
        """The store's id for every message. The caller sets it before ``publish``, and after a reading of the store."""
        self.serves = 0
        """The port of the sync channel at this host, for every hello but the goodbye; 0: none. The caller sets it."""
        self._timing = timing
        self._limits = limits
        self._sequences: dict[str, int] = {}
        """The last sequence of each topic; the topic that was sent on last stands at the end."""
        self._sent_at = now
        """When a link or a broadcast hello was last sent."""
        self._broadcast_at = NEVER_YET
        """When the last broadcast hello was made."""
        self._connected_at = NEVER_YET
        self._hello_at = now
        """When a hello is due although the publisher is not idle: at the start, after a connection, after a refusal."""
        self._broadcast_last = False
        """Whether the last hello was a broadcast."""
        self._refusals = 0
        """Consecutive broadcasts that were refused."""
        self._refused_last = False
        """Whether the last broadcast was refused."""
        self._requests: dict[str, HelloRequest] = {}
        """Requests that wait for a reading."""
        self._answers: deque[HelloRequest] = deque()
        """Requests to be answered now."""
        self._portions: deque[HelloRequest] = deque()
        """The rest of the request that is being answered, in parts for one hello each."""
        self._heads: Heads | None = None
        self._all_read = NEVER_YET
        """When the reading of all these heads began."""
        self._began = NEVER_YET
        """When the reading began that last confirmed these heads."""
        self._reading = False
        self._failed = False
        """A hello is due and its reading failed: the hello is made from the last reading, with its true age."""
        self._failures = 0
        self._read_from = now

    # -- output ------------------------------------------------------------------------------------------------------

    def publish(self, links: Sequence[Link], now: float) -> list[Envelope]:
        """Number these links, in this order. A large link becomes a run; adjacent links of a topic share an envelope.

        Raises FrameError("oversized") when one change does not fit in a frame; then no link was numbered.
        """
        # All links are encoded before one is numbered.
        ready = (
            [(links[0].topic, packed(links, self._limits))]
            if len(links) == 1
            else [(topic, packed(list(run), self._limits)) for topic, run in groupby(links, _TOPIC)]
        )
        envelopes = []
        for topic, frames in ready:
            last = self._sequences.pop(topic, 0)  # to the end: the hello names the latest topics
            for messages in frames:
                envelopes.append(Envelope(self.service, self.uuid, topic, last + 1, messages, None, self.store_id))
                last += len(messages)
            self._sequences[topic] = last
        self._sent_at = now
        return envelopes

    def hello_requested(self, ask: HelloRequest, now: float) -> None:
        """A replica requests a hello reply: made now when the last reading is young enough, else after the next."""
        if len(self._requests) + len(self._answers) >= MAX_REQUESTS:
            return
        if self._fresh(now):
            self._answers.append(ask)
        else:
            self._requests[ask.nonce] = ask

    def connected(self, now: float) -> None:
        """A subscriber has connected: it is to receive a hello with the store's point. One hello serves all subscribers
        that connect at about the same time.
        """
        self._connected_at = now
        self._hello_at = min(self._hello_at, max(now + HELLO_DELAY, self._broadcast_at + HELLO_SPACING))

    def next_hello(self, now: float) -> Envelope | None:
        """The next hello to send, or None. Call it until it returns None, after every other method. Replies to requests
        come first. Each call makes one hello, so that the caller's lock is not held for long.
        """
        self._broadcast_last = False
        while self._answers and not self._portions:
            # One request at a time: cutting all that waited for a reading would delay commits.
            self._portions.extend(self._cut(self._answers.popleft()))
        if self._portions:
            ask = self._portions.popleft()
            topics = [topic for topic in ask.topics if topic != ALL]
            return self._hello(topics, self._heads_of(topics), now, nonce=ask.nonce)
        if self._heads is None or now < self._due() or not (self._failed or self._fresh(now)):
            return None
        # A subscriber that connected just now may not be subscribed yet.
        again = self._connected_at > now - HELLO_DELAY
        self._hello_at = now + HELLO_SPACING if again else float("inf")
        self._sent_at = self._broadcast_at = now
        self._failed = False
        self._broadcast_last = True
        if not self._refused_last:
            self._refusals = 0
        self._refused_last = False
        latest = next(portions(reversed(self._sequences), HELLO_TOPICS, self._limits))
        # A topic that is not in the reading has no known head yet.
        known = self._heads.topics
        return self._hello(latest, {topic: known[topic] for topic in latest if topic in known}, now)

    def refused(self) -> int:
        """The transport refused the last hello: it would refuse the others too. The replies that are due are dropped,
        and their replicas request them again. Returns their number. A broadcast is retried after a growing pause.
        """
        if self._broadcast_last:
            pause = doubled(HELLO_SPACING, self._refusals, MAX_BACKOFF)
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
        """True when the caller should read the store: its point, and the heads of ``ALL`` topics unless
        :meth:`heads_at` has them. The caller passes them to ``heads_read``.
        """
        return not self._reading and now >= self._read_from and self._needs_reading(now)

    def begin_reading(self) -> None:
        """The caller begins to read the store."""
        self._reading = True

    def heads_at(self, store: Point, now: float) -> Heads | None:
        """The heads of the last reading if the store's point is the same as then: they need not be read again.

        None after ``stale_after``: a repair of the database corrects a head's count and digest without a new point, and
        replicas would compare theirs with the wrong ones until the next commit.
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
            self.store_id = heads.store_id
        self._heads = heads
        self._began = began
        self._answer_all()

    def heads_failed(self, now: float) -> None:
        """The store did not answer. Requests are answered from the last reading, with its true age."""
        self._reading = False
        self._failed = now >= self._due()
        self._read_from = now + doubled(self._timing.reading_age, self._failures, MAX_BACKOFF)
        self._failures += 1
        if self._heads is None:
            self._requests.clear()
        self._answer_all()

    def next_time(self) -> float:
        """When ``next_hello`` or ``wants_reading`` is next due; infinite while the caller reads."""
        if self._reading:
            return float("inf")
        if self._heads is None or self._requests:
            return self._read_from
        return max(self._due(), self._read_from)

    @property
    def sequences(self) -> Mapping[str, int]:
        """The last sequence sent, per topic."""
        return dict(self._sequences)

    def progress(self) -> Progress:
        """What was sent, and the last reading."""
        return Progress(dict(self._sequences), self._heads, self._began)

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
            serves=0 if goodbye else self.serves,
        )
        return Envelope(self.service, self.uuid, ALL, 0, (), hello, self.store_id)

    def _heads_of(self, topics: Collection[str]) -> dict[str, Head]:
        """The heads of these topics in the last reading. A topic that is missing in a reading of all topics was never
        written; of one that is missing in another reading nothing is known, so the hello leaves it out.
        """
        read = self._heads
        if read is None or read.everything:
            return {topic: EMPTY if read is None else read.topics.get(topic, EMPTY) for topic in topics}
        return {topic: read.topics[topic] for topic in topics if topic in read.topics}

    def _cut(self, ask: HelloRequest) -> Iterator[HelloRequest]:
        """A request in parts for one hello each."""
        for topics in portions(ask.topics, HELLO_TOPICS, self._limits):
            yield HelloRequest(ask.nonce, topics)
