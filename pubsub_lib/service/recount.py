"""Recounts the database in the background, to find rows that were altered there without the library.

One service does it, the holder of the maintenance lease. A round checks every row in pages, and compares every topic's
rows with its head. Two rounds are made in ``recount_time``, so that the second round finds in time an alteration right
after the first one's check. Provable damage is repaired at once.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

from pubsub_lib.core.model import Head
from pubsub_lib.errors import StoreError, StoreUnavailable
from pubsub_lib.journal import Journal
from pubsub_lib.logs import fields, logger
from pubsub_lib.store.repair import Repaired, names
from pubsub_lib.store.repair_plan import Cursor, Mark, Page
from pubsub_lib.store.verbs import Identity

_log = logger(__name__)

PAGE: Final = 1000
"""Number of rows that one step checks."""
TOPICS: Final = 100
"""Number of topics whose heads one step compares."""
PAUSE: Final = 1.0
"""Maximum seconds between two steps."""
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
        self, store: Countable, holds: Callable[[float], bool], within: float, journal: Journal | None = None
    ) -> None:
        """``holds(now)``: whether this service holds the lease."""
        self._store = store
        self._holds = holds
        self._period = within / 2
        self._journal = journal
        self._counts: Counter[str] = Counter(rounds=0, objects=0, rotted=0, repaired=0, overtaken=0)
        self._after: Cursor | None = None
        self._rows = False
        """Whether rows are left to be checked in this round."""
        self._topics: list[str] = []
        """Topics whose heads are left to be checked in this round."""
        self._known: set[str] = set()
        """Topics that are, or were, in ``_topics`` in this round."""
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
        if not self._running:
            if now < self._begun_at + period:
                return self._begun_at + period
            self._begin(now, period)
        if self._rows:
            self._look_at_rows()
        elif self._topics:
            self._look_at_topics()
        if self._rows or self._topics:
            return now + self._pause
        self._running = False
        self._counts["rounds"] += 1
        self._left, self._found = self._found, {}
        self._failed_before, self._failed = self._failed, {}
        return max(self._begun_at + period, now + self._pause)

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
        self._topics = sorted(heads)
        self._known = set(heads)
        steps = 2 + sum(head.count for head in heads.values()) / PAGE + len(heads) / TOPICS
        self._pause = min(PAUSE, period / 2 / steps)  # a round ends well before the next one begins

    def _look_at_rows(self) -> None:
        page = self._store.look_at_rows(self._after, PAGE)
        self._counts["objects"] += page.looked
        suspects: dict[str, list[Identity]] = {}
        for row in page.altered:
            suspects.setdefault(row.topic, []).append((row.table, row.key))
        # Before the repairs, so that a topic whose repair fails does not keep the round at this page.
        self._after, self._rows = page.behind, page.behind is not None
        self._topics += sorted(page.topics - self._known)  # of a new topic, or of one whose row is lost
        self._known |= page.topics
        for topic, found in suspects.items():
            self._repair(topic, found)

    def _look_at_topics(self) -> None:
        part = self._topics[-TOPICS:]
        del self._topics[-TOPICS:]
        for topic in self._store.unfit(part):
            if topic not in self._found:
                self._repair(topic, ())

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
