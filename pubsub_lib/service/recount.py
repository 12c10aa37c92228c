"""Counting the database anew in the background: what was altered there behind the library's back is found in time.

One service does it, the holder of the maintenance lease. A round looks at every row in pages, and compares every
topic's rows with its head; two rounds are made in the stated time, so that what is altered right behind a round is
found by the next one in time. What is found is repaired at once where that can be proved.
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
"""Rows of one step."""
TOPICS: Final = 100
"""Topics whose heads are compared in one step."""
PAUSE: Final = 1.0
"""Seconds between two steps, at the longest."""
OFF: Final = 3600.0
"""Seconds until a recount that is turned off looks again whether there is anything to do."""

MAX_NAMED: Final = 10
"""Objects that one log line names."""

REPAIRED: Final = (
    "they were repaired from the changelog; if this happens again, check the database's disk, and who else writes there"
)
NOT_REPAIRED: Final = (
    "not all were repaired, because the changelog does not tell what is right; look at the topic with "
    "pubsub-db verify, write these objects again, and then run pubsub-db accept, which sets the head to the rows"
)
REWRITTEN: Final = "writers have written them again meanwhile, so nothing was left to repair"
OVERTAKEN: Final = "not all were repaired, because writers changed the topic each time; the next round tries again"


class Countable(Protocol):
    """What a recount needs of a store. Everything blocks and raises StoreError."""

    def topics(self) -> Mapping[str, Head]:
        """The heads of all topics."""

    def look_at_rows(self, after: Cursor | None, maximum: int) -> Page:
        """The next rows."""

    def unfit(self, topics: Collection[str]) -> list[str]:
        """Topics that do not fit their head."""

    def repair(self, topic: str, suspects: Collection[Identity] = ()) -> Repaired:
        """Put right what can be proved."""


class StoreRecount:
    """``within`` seconds (0: never). ``step`` is called by one thread, ``counters`` and ``unrepaired`` by any."""

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
        """Rows are left to be looked at in this round, ..."""
        self._topics: list[str] = []
        """... and the heads of these topics."""
        self._known: set[str] = set()
        """Topics that are, or were, among them in this round."""
        self._running = False
        self._round_at = 0.0
        self._pause = PAUSE
        self._left: Mapping[str, frozenset[Mark]] = {}
        self._found: dict[str, frozenset[Mark]] = {}
        """What could not be repaired, by topic: in the last round, and so far in this one."""
        self._failed_before: Mapping[str, str] = {}
        self._failed: dict[str, str] = {}
        """Topics whose repair raised, and the error's sentence: in the last round, and so far in this one."""

    def step(self, now: float) -> float:
        """Look at the next rows or topics when it is ours to do; when to come again. Blocks for the database; raises
        StoreError. A repair that fails leaves its topic unrepaired and raises only StoreUnavailable.
        """
        if not self._period:
            return now + OFF
        if not self._holds(now):
            self._running = False
            self._left = {}  # the holder knows better
            return now + min(PAUSE, self._period)
        if not self._running:
            if now < self._round_at:
                return min(self._round_at, now + self._period)
            self._begin(now)
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
        return max(self._round_at, now + self._pause)

    def counters(self) -> Mapping[str, int]:
        """``rounds`` that were ended, ``objects`` looked at, found to be ``rotted``, ``repaired``, and fixes that were
        ``overtaken`` by writers.
        """
        return dict(self._counts)

    def unrepaired(self) -> Sequence[str]:
        """Topics in which something is wrong that could not be repaired, as the last round found them."""
        return sorted({*self._left, *self._found})

    def _begin(self, now: float) -> None:
        self._running, self._rows, self._after = True, True, None
        self._round_at = now + self._period
        self._found, self._failed = {}, {}
        heads = self._store.topics()
        self._topics = sorted(heads)
        self._known = set(heads)
        steps = 2 + sum(head.count for head in heads.values()) / PAGE + len(heads) / TOPICS
        self._pause = min(PAUSE, self._period / 2 / steps)  # a round ends well before the next one begins

    def _look_at_rows(self) -> None:
        page = self._store.look_at_rows(self._after, PAGE)
        self._counts["objects"] += page.looked
        suspects: dict[str, list[Identity]] = {}
        for row in page.altered:
            suspects.setdefault(row.topic, []).append((row.table, row.key))
        # First, so that a topic whose repair fails does not keep the round at this page.
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
            # A writer put them right meanwhile, by writing them again.
            named = sorted(set(suspects) - set(names(known)))
        if not named and not new:
            return  # nothing, or counted, logged and journalled when it was found first
        wrong = len(named) + (not named or (not done.left and done.repaired > len(named)))
        self._counts["rotted"] += wrong
        self._counts["repaired"] += done.repaired
        self._counts["overtaken"] += done.overtaken
        if self._journal is not None:
            self._journal.note("rot", topic=topic, cause="store", count=wrong, size=done.repaired)
        _log.error(
            "%d objects of the topic %r were altered, lost or added in the database behind the library's back (%s); %s",
            wrong,
            topic,
            ", ".join(f"{table} {key!r}" for table, key in named[:MAX_NAMED]) or "none can be named",
            _outcome(done, new),
            extra=fields(topic=topic, objects=wrong, repaired=done.repaired),
        )

    def _note_failure(self, topic: str, sentence: str) -> None:
        self._found.setdefault(topic, frozenset())
        known = sentence in (self._failed.get(topic), self._failed_before.get(topic))
        self._failed[topic] = sentence
        if not known:
            _log.error(
                "the topic %r was altered in the database behind the library's back, and the repair of the topic %r "
                "failed: %s",
                topic,
                topic,
                sentence,
                extra=fields(topic=topic),
            )


def _outcome(done: Repaired, new: Collection[Mark]) -> str:
    if done.remaining.isdisjoint(new):
        return REPAIRED if done.repaired else REWRITTEN
    return OVERTAKEN if done.overtaken else NOT_REPAIRED
