"""Recounts the database in the background, to find rows that were altered there without the library.

One service does it, the holder of the maintenance lease. A round checks every row in pages, and compares every topic's
rows with its head. Two rounds are made in ``recount_time``, so that the second round finds in time an alteration right
after the first one's check. Provable damage is repaired at once.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

from pubsub_lib.core.backoff import doubled
from pubsub_lib.core.model import Head
from pubsub_lib.errors import StoreError, StoreUnavailable
from pubsub_lib.journal import Journal
from pubsub_lib.logs import fields, logger
from pubsub_lib.store.repair import Repaired, names
from pubsub_lib.store.repair_plan import Cursor, Mark, Page
from pubsub_lib.store.verbs import Identity
from pubsub_lib.threads.periodic_thread import AFTER_FAILURE

_log = logger(__name__)

PAGE: Final = 1000
"""Number of rows that one step checks."""
TOPICS: Final = 100
"""Maximum number of topics whose heads one step compares."""
REPAIRING: Final = 2.0
"""Seconds of a step after which it begins no further repair. The next step goes on: a step without end would count as
that of a thread that hangs, and would go on without the lease."""
PAUSE: Final = 1.0
"""Maximum seconds between two steps."""
MAX_PAUSE: Final = 60.0
"""Maximum seconds between two steps while the database refuses all that is left of a round."""
OFF: Final = 3600.0
"""Seconds between two steps of a recount that is turned off."""

MAX_NAMED: Final = 10
"""Maximum number of objects that one log line names."""

REPAIRED: Final = (
    "they were repaired from the changelog; if this happens again, check the database's disk, and which other programs "
    "write there"
)
NOT_REPAIRED: Final = (
    "not all were repaired, because the changelog does not contain the right values; check the topic with "
    "pubsub-db verify, write these objects again, and then run pubsub-db accept, which sets the head to the rows"
)
REWRITTEN: Final = "writers have written them again meanwhile, so no repair was needed"
OVERTAKEN: Final = "not all were repaired, because writers changed the topic each time; the next round retries"


class Countable(Protocol):
    """The methods of a store that a recount uses. All of them block and raise StoreError."""

    def topics(self) -> Mapping[str, Head]:
        """The heads of all topics."""

    def look_at_rows(self, after: Cursor | None, maximum: int) -> Page:
        """The next rows."""

    def unfit(self, topics: Collection[str]) -> list[str]:
        """Topics whose rows do not match their head."""

    def repair(self, topic: str, suspects: Collection[Identity] = ()) -> Repaired:
        """Repair the provable damage."""


class StoreRecount:
    """``within`` seconds (0: never). ``step`` is called by one thread, the other methods by any."""

    def __init__(
        self,
        store: Countable,
        holds: Callable[[float], bool],
        within: float,
        journal: Journal | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``holds(now)``: whether this service holds the lease."""
        self._store = store
        self._holds = holds
        self._period = within / 2
        self._journal = journal
        self._clock = clock
        self._counts: Counter[str] = Counter(rounds=0, objects=0, rotted=0, repaired=0, overtaken=0)
        self._after: Cursor | None = None
        self._rows = False
        """Whether rows are left to be checked in this round."""
        self._topics: list[str] = []
        """Topics whose heads are left to be checked in this round."""
        self._size = TOPICS
        """How many of them the next step compares: half as many after a failure, since the database may time out."""
        self._known: set[str] = set()
        """Topics that are, or were, in ``_topics`` in this round."""
        self._suspects: dict[str, list[Identity]] = {}
        """Topics that are left to be repaired, with the objects that do not match their fingerprint."""
        self._behind = False
        """Whether the last step had no time for all repairs: they come before anything else is checked."""
        self._refused: set[str] = set()
        """Topics that the database did not compare, or did not repair, at some step of this round."""
        self._refusals = 0
        """How many steps in succession had nothing but these topics left, and raised."""
        self._running = False
        self._begun_at = float("-inf")
        self._pause = PAUSE
        self._left: Mapping[str, frozenset[Mark]] = {}
        self._found: dict[str, frozenset[Mark]] = {}
        """Damage that could not be repaired, by topic: in the last round, and so far in this one."""
        self._failed_before: Mapping[str, str] = {}
        self._failed: dict[str, str] = {}
        """Topics whose repair raised, and the error's sentence: in the last round, and so far in this one."""

    def step(self, now: float) -> float:
        """Check the next rows or topics if this service holds the lease; returns the time of the next step. Blocks for
        the database; raises StoreError. A failed repair leaves its topic unrepaired and raises only StoreUnavailable.
        """
        period = self._period  # read once, because any thread may adjust it
        if not period:
            self._stop()
            return now + OFF
        if not self._holds(now):
            self._running = False
            self._left, self._found = {}, {}  # the holder reports them
            return now + min(PAUSE, period)
        if now >= self._begun_at + period and self._is_refused():
            self._end()  # incomplete: the other topics must not wait for those that the database always refuses
        if not self._running:
            if now < self._begun_at + period:
                return self._begun_at + period
            self._begin(now, period)
        try:
            if not self._behind:
                self._look()
        finally:  # a topic that the database never compares must not keep others from their repair
            self._repair_suspects()
        self._refusals = 0
        if self._rows or self._topics or self._suspects:
            return now + self._pause
        self._end()
        self._counts["rounds"] += 1
        return max(self._begun_at + period, now + self._pause)

    def pause(self) -> float:
        """Seconds to the next step after one that raised. More each time when only topics are left that the database
        has refused: each try may read a whole topic until it times out.
        """
        if not self._is_refused():
            return AFTER_FAILURE
        self._refusals += 1
        return doubled(AFTER_FAILURE, self._refusals - 1, max(min(MAX_PAUSE, self._period / 10), AFTER_FAILURE))

    def adjust(self, within: float) -> None:
        """Make two rounds in another time, from the next round on. 0 makes the next step stop the current round and
        clear what was reported. Any thread.
        """
        self._period = within / 2

    def counters(self) -> Mapping[str, int]:
        """Completed ``rounds``, checked ``objects``, ``rotted`` (damaged) and ``repaired`` objects, and fixes that were
        ``overtaken`` by writers.
        """
        return dict(self._counts)

    def unrepaired(self) -> Sequence[str]:
        """Topics with damage that could not be repaired, by the last round and this one."""
        return sorted({*self._left, *self._found})

    def _stop(self) -> None:
        """Report nothing any more: nothing is checked, so no repair would be noticed."""
        self._running = False
        self._left, self._found = {}, {}
        self._failed_before, self._failed = {}, {}

    def _begin(self, now: float, period: float) -> None:
        heads = self._store.topics()  # first: when it raises, the next step begins the round again
        self._running, self._rows, self._after = True, True, None
        self._begun_at = now
        self._found, self._failed = {}, {}
        self._suspects, self._refused, self._behind = {}, set(), False
        self._topics, self._size = sorted(heads), TOPICS
        self._known = set(heads)
        steps = 2 + sum(head.count for head in heads.values()) / PAGE + len(heads) / TOPICS
        self._pause = min(PAUSE, period / 2 / steps)  # a round ends well before the next one begins

    def _is_refused(self) -> bool:
        """Whether nothing is left in this round but topics that the database has refused to compare or to repair."""
        return self._running and not self._rows and self._refused.issuperset([*self._topics, *self._suspects])

    def _end(self) -> None:
        """End the round. What the last one found on topics that this one could not check is still reported."""
        unchecked = {*self._topics, *self._suspects}
        self._running = False
        self._left = {topic: marks for topic, marks in self._left.items() if topic in unchecked} | self._found
        self._found = {}
        self._failed_before, self._failed = self._failed, {}

    def _look(self) -> None:
        if self._rows:
            self._look_at_rows()
        elif self._topics:
            self._look_at_topics()

    def _look_at_rows(self) -> None:
        page = self._store.look_at_rows(self._after, PAGE)
        self._counts["objects"] += page.looked
        for row in page.altered:
            self._suspects.setdefault(row.topic, []).append((row.table, row.key))
        # Before the repairs, so that a topic whose repair fails does not keep the round at this page.
        self._after, self._rows = page.behind, page.behind is not None
        self._topics += sorted(page.topics - self._known)  # of a new topic, or of one whose row is lost
        self._known |= page.topics

    def _look_at_topics(self) -> None:
        others, part = self._topics[: -self._size], self._topics[-self._size :]
        try:
            unfit = self._store.unfit(part)
        except StoreError:  # a later step of this round compares them, after the others
            self._topics, self._size = part + others, max(self._size // 2, 1)
            self._refused.update(part)
            raise
        self._topics, self._size = others, min(self._size * 2, TOPICS)
        for topic in unfit:
            if topic not in self._found:
                self._suspects.setdefault(topic, [])

    def _repair_suspects(self) -> None:
        until, self._behind = self._clock() + REPAIRING, False
        for topic in list(self._suspects):
            if self._clock() >= until:
                self._behind = True
                return
            suspects = self._suspects.pop(topic)
            try:
                self._repair(topic, suspects)
            except StoreUnavailable:  # the next step tries again, after the others
                self._suspects[topic] = suspects
                self._refused.add(topic)
                raise

    def _repair(self, topic: str, suspects: Collection[Identity]) -> None:
        known = self._left.get(topic, frozenset()) | self._found.get(topic, frozenset())
        try:
            done = self._store.repair(topic, suspects)
        except StoreUnavailable:
            raise
        except StoreError as error:  # the other topics must not wait for this one
            self._note_failure(topic, str(error))
            return
        if done.remaining:
            self._found[topic] = self._found.get(topic, frozenset()) | done.remaining
        new = done.found - known
        named = names(new)
        if not done.found:
            # A writer has repaired them meanwhile by writing them again.
            named = sorted(set(suspects) - set(names(known)))
        if not named and not new:
            return  # no damage, or already counted, logged and journalled when it was found first
        wrong = len(named) + (not named or (not done.left and done.repaired > len(named)))
        self._counts["rotted"] += wrong
        self._counts["repaired"] += done.repaired
        self._counts["overtaken"] += done.overtaken
        if self._journal is not None:
            self._journal.note("rot", topic=topic, cause="store", count=wrong, size=done.repaired)
        _log.error(
            "%d objects of the topic %r were altered, lost or added in the database without the library (%s); %s",
            wrong,
            topic,
            ", ".join(f"{table} {key!r}" for table, key in named[:MAX_NAMED]) or "their names are unknown",
            _outcome(done, new),
            extra=fields(topic=topic, objects=wrong, repaired=done.repaired),
        )

    def _note_failure(self, topic: str, sentence: str) -> None:
        self._found.setdefault(topic, frozenset())
        known = sentence in (self._failed.get(topic), self._failed_before.get(topic))
        self._failed[topic] = sentence
        if not known:
            _log.error(
                "the topic %r was altered in the database without the library, and the repair of the topic %r failed: "
                "%s",
                topic,
                topic,
                sentence,
                extra=fields(topic=topic),
            )


def _outcome(done: Repaired, new: Collection[Mark]) -> str:
    if done.remaining.isdisjoint(new):
        return REPAIRED if done.repaired else REWRITTEN
    return OVERTAKEN if done.overtaken else NOT_REPAIRED
