"""The queue in front of one handler: order, conflation, retries (rules H1 to H3). No thread, no clock, no lock
inside.
"""

import math
from collections import OrderedDict, deque
from collections.abc import Collection, Sequence
from heapq import heappop, heappush

import msgspec
from msgspec.structs import replace

from pubsub_lib.core.events import Event
from pubsub_lib.core.history_change import is_barrier
from pubsub_lib.core.limits import Positive
from pubsub_lib.core.model import Action
from pubsub_lib.core.timing import Seconds
from pubsub_lib.errors import ConfigError, UsageError

Ident = tuple[str, str]
"""(table, key)"""


class HandlerPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How changes are handed to one handler (rule H3). Times in seconds."""

    queue_limit: Positive = 10_000
    """Changes that wait for one handler before further ones of a waiting key are merged."""
    tries: Positive = 5
    """Calls for one change, the first included, before it is parked."""
    backoff: Seconds = 0.5
    """Wait before the second try; doubles with each further one."""
    max_backoff: Seconds = 30.0
    """Longest wait between two tries."""

    def check(self) -> "HandlerPolicy":
        """Return self. Raises ConfigError when the times contradict each other."""
        if self.max_backoff < self.backoff:
            raise ConfigError(
                f"max_handler_backoff ({self.max_backoff} s) is below handler_backoff ({self.backoff} s); "
                "raise it or lower the other"
            )
        return self


class Selector(msgspec.Struct, frozen=True):
    """What a handler wants to hear of (None: any), and in which order of tables a full sync is told to it."""

    tables: frozenset[str] | None = None
    topic: str | None = None
    key: str | None = None
    order: tuple[str, ...] = ()

    def matches(self, event: Event) -> bool:
        """True when the handler is to hear of this event."""
        return self.select(event) is not None

    def select(self, event: Event) -> Event | None:
        """The event as this handler sees it, or None. To a handler of one topic an object that moves in from
        another followed topic is created, and one that moves out is deleted (with version None).
        """
        if (self.tables is not None and event.table not in self.tables) or self.key not in (None, event.key):
            return None
        if self.topic is None or self.topic == event.topic == (event.old_topic or event.topic):
            return event
        if self.topic == event.topic:
            return replace(event, action="create", old_version=None, old_value=None, old_topic=None)
        if self.topic == event.old_topic:
            return replace(event, action="delete", topic=self.topic, version=None, new_value=None)
        return None


def selector(
    tables: str | Collection[str] | None, topic: str | None, key: str | None, order: Sequence[str] = ()
) -> Selector:
    """The selector of a handler of one table, of several, or of all (None). Raises UsageError for no table at all, and
    for an order that names a table twice or one that the handler is not called for.
    """
    named = None if tables is None else frozenset([tables] if isinstance(tables, str) else tables)
    if named is not None and not named:
        raise UsageError("no table was named; give None to be called for all tables")
    if isinstance(order, str):
        raise UsageError(f"order must be a list of tables, not the string {order!r}; write [{order!r}]")
    if len(set(order)) < len(order):
        raise UsageError(f"order names a table twice: {list(order)}; name each once")
    unknown = set() if named is None else set(order) - named
    if named is not None and unknown:
        raise UsageError(f"order names {sorted(unknown)}, and the handler is called for {sorted(named)} only")
    return Selector(named, topic, key, tuple(order))


class Mark(msgspec.Struct, frozen=True):
    """A moment in a queue: what had been pushed by then, up to a position (None: everything)."""

    serial: int
    position: int | None


class Parked(msgspec.Struct, frozen=True):
    """An event that is not tried any more until a new event of its object comes, and the last error."""

    event: Event
    error: BaseException


class _Item(msgspec.Struct, gc=False):
    """One or more events of one object, to be told as one: from ``first``'s old value to ``latest``'s new
    one.

    ``position`` and ``serial`` are the first one's: who waits for any of them waits for this item. Items of
    one key that wait are chained (``earlier``, ``later``). gc=False: each link is cut when its item leaves
    the chain.
    """

    first: Event
    latest: Event
    position: int
    serial: int
    since: float
    initial: bool
    tried: Event | None = None
    tries: int = 0
    dead: bool = False
    error: BaseException | None = None
    earlier: "_Item | None" = None
    later: "_Item | None" = None

    @property
    def ident(self) -> Ident:
        return self.first.table, self.first.key

    @property
    def is_barrier(self) -> bool:
        return is_barrier(self.first)

    @property
    def is_nothing(self) -> bool:
        """The object came and went, and the handler never heard of it."""
        return self.tried is None and self.first.old_value is None and self.latest.new_value is None

    @property
    def is_of_known(self) -> bool:
        """It began as a change of an object that the handler has, or may have, and not as that one's delete."""
        return self.first.new_value is not None and (self.first.old_value is not None or self.tried is not None)

    def event(self) -> Event:
        """What the handler is told: the newest value, against what it was told before."""
        first, latest, tried = self.first, self.latest, self.tried
        if first is latest:
            return first
        old_version, old_value, old_topic = first.old_version, first.old_value, first.old_topic
        if old_value is None and latest.new_value is None and tried is not None:
            # A create that was tried and failed may have done half its work, so the delete is told after all: of
            # what was tried, since the handler never heard of another value.
            if tried.new_value is not None:
                old_version, old_value, old_topic = tried.version, tried.new_value, tried.topic
            else:
                old_version, old_value, old_topic = tried.old_version, tried.old_value, tried.old_topic
        action: Action = "delete" if latest.new_value is None else "create" if old_value is None else "set"
        return replace(
            latest, action=action, old_version=old_version, old_value=old_value, old_topic=old_topic
        )


class HandlerQueue:
    """Events on their way to one handler. The caller holds a lock around every call; nothing blocks.

    :meth:`push` puts in; :meth:`next` hands out one event at a time, answered by :meth:`done` or
    :meth:`failed`.

    Events of one object come in their order, those of different objects too unless one is retried. An event
    that was done is never handed out again; only failed ones are repeated.

    From ``queue_limit`` waiting events on, a new one is merged into the waiting one of its object, which keeps
    its place; a create with its delete vanishes. The delete of an object that the handler knows has a place of its
    own all the same, once: what refers to the object may be waiting to be deleted before it. Never more than
    ``queue_limit`` + 2 × distinct objects wait.

    A failed event waits for its next try (exponential backoff) and takes up later ones of its object, so that
    none overtakes it. After ``tries`` failures it is parked; the next new event of that object merges into it
    and is tried afresh. Other objects go on meanwhile. An object's last event is tried at least once.

    A barrier (:mod:`.history_change`) lets nothing pass that was pushed after it until it is handled or parked: no
    event is merged into one before it, and neither an event nor a retry comes while it waits for its turn or its next
    try. So the limit above holds once more for each barrier that waits.
    """

    def __init__(self, policy: HandlerPolicy) -> None:
        self.policy = policy
        self._limit = policy.queue_limit
        self.handled = 0
        self.failures = 0
        self.retried = 0
        self.parked_count = 0
        self.conflated = 0
        self.initial_left = 0
        """Initial events that are neither handled nor parked yet."""
        self._order: deque[_Item] = deque()
        self._dead = 0
        self._tails: dict[Ident, _Item] = {}
        self._running: _Item | None = None
        self._retrying: dict[Ident, _Item] = {}
        self._due: list[tuple[float, int, _Item]] = []
        self._parked: OrderedDict[Ident, _Item] = OrderedDict()
        self._serial = 0
        self._position = 0
        self._barrier = 0
        """The serial of the newest barrier, ..."""
        self._barriers = 0
        """... and how many are neither handled nor parked."""
        self._barrier_due: tuple[float, _Item] | None = None
        """The barrier that failed, and when its next try is due; it is in ``_retrying`` too, and not in ``_due``."""

    def __len__(self) -> int:
        """How many events wait, those in backoff included, the one handed out not."""
        return len(self._order) - self._dead + len(self._retrying)

    # -- in ------------------------------------------------------------------------------------------------

    def push(self, event: Event, now: float = 0.0, *, initial: bool = False) -> None:
        """Put an event in, in chain order. ``initial``: it is part of what the handler is told at its start."""
        self._serial += 1
        position = event.position
        if position > self._position:
            self._position = position
        ident = event.table, event.key
        waiting = self._retrying.get(ident) if self._retrying else None
        if waiting is None and len(self._order) - self._dead >= self._limit:
            waiting = self._tails.get(ident)
            if waiting is not None and event.new_value is None and waiting.is_of_known:
                waiting = None
            if waiting is not None and waiting.serial < self._barrier:
                waiting = None
        if waiting is not None:
            self._merge(waiting, event)
            return
        item = _Item(event, event, position, self._serial, now, initial)
        parked = self._parked.pop(ident, None) if self._parked else None
        if parked is not None:
            item.first, item.tried = parked.first, parked.tried
        self.initial_left += initial
        if is_barrier(event):
            self._barrier = self._serial
            self._barriers += 1
        tail = self._tails.get(ident)
        if tail is not None:
            item.earlier, tail.later = tail, item
        self._tails[ident] = item
        self._order.append(item)

    def _merge(self, item: _Item, event: Event) -> None:
        item.latest = event
        if event.position < item.position:
            item.position = event.position
        self.conflated += 1
        if event.new_value is None and item.is_nothing:
            self._kill(item)
            self._settle(item)

    def _kill(self, item: _Item) -> None:
        """Take an item out of the middle of the order: it stays there as dead until its turn or the next
        clean-up.
        """
        self._unchain(item)
        item.dead = True
        self._dead += 1
        if self._dead > 64 and self._dead * 2 > len(self._order):
            self._order = deque(alive for alive in self._order if not alive.dead)
            self._dead = 0

    def _unchain(self, item: _Item) -> None:
        if item.later is not None:
            item.later.earlier = item.earlier
        elif item.earlier is not None:
            self._tails[item.ident] = item.earlier
        else:
            del self._tails[item.ident]
        if item.earlier is not None:
            item.earlier.later = item.later
        item.earlier = item.later = None

    # -- out -----------------------------------------------------------------------------------------------

    def next(self, now: float) -> Event | None:
        """The next event to handle, or None when nothing is ready (:meth:`next_time` tells when). Raises
        UsageError while the one before is neither done nor failed.
        """
        if self._running is not None:
            raise UsageError("the event before is neither done nor failed; say so first")
        item = self._take_retry(now)
        if item is None and self._barrier_due is None:
            item = self._head()
            if item is not None:
                self._order.popleft()
                self._unchain(item)
        if item is None:
            return None
        self._running = item
        item.tried = event = item.event()
        return event

    def _take_retry(self, now: float) -> _Item | None:
        """An event whose next try is due: while there is a barrier, only the barrier itself."""
        item: _Item | None = None
        if self._barrier_due is not None:
            if self._barrier_due[0] <= now:
                item, self._barrier_due = self._barrier_due[1], None
        elif self._due and self._due[0][0] <= now and not self._barriers:
            item = heappop(self._due)[2]
        if item is not None:
            del self._retrying[item.ident]
            self.retried += 1
        return item

    def next_time(self) -> float | None:
        """When :meth:`next` has something: minus infinity for at once; None: not before the next push or
        answer.
        """
        if self._running is not None:
            return None
        if self._barrier_due is not None:
            return self._barrier_due[0]
        if self._head() is not None:
            return -math.inf
        return self._due[0][0] if self._due else None

    def done(self, now: float = 0.0) -> None:
        """The event handed out was handled."""
        self.handled += 1
        item = self._take_running()
        self._barriers -= item.is_barrier
        self._settle(item)

    def failed(self, now: float, error: BaseException) -> Parked | None:
        """The handler raised on the event handed out. Returns it when that was its last try."""
        item = self._take_running()
        event, item.error = item.tried, error
        assert event is not None
        self.failures += 1
        item.tries += 1
        newer = self._take_waiting(item)
        if item.tries >= self.policy.tries:
            if not newer:
                self.parked_count += 1
                self._parked[item.ident] = item
                if len(self._parked) > self.policy.queue_limit:
                    self._parked.popitem(last=False)
                self._barriers -= item.is_barrier
                self._settle(item)
                return Parked(event, error)
            item.tries = 0  # what came meanwhile is tried afresh
        wait = min(self.policy.backoff * 2.0 ** min(max(item.tries - 1, 0), 60), self.policy.max_backoff)
        self._retrying[item.ident] = item
        if item.is_barrier:
            self._barrier_due = now + wait, item
        else:
            heappush(self._due, (now + wait, item.serial, item))
        return None

    def _take_running(self) -> _Item:
        item, self._running = self._running, None
        if item is None:
            raise UsageError("no event is handed out; call next() first")
        return item

    def _take_waiting(self, item: _Item) -> bool:
        """Merge what waits for the same object into this item. True when there was something."""
        tail = self._tails.get(item.ident)
        if tail is None:
            return False
        item.latest = tail.latest
        while tail is not None:
            item.position = min(item.position, tail.position)
            if tail.initial and not item.initial:
                item.initial = True
                self.initial_left += 1
            earlier = tail.earlier
            self._kill(tail)
            self._settle(tail)
            self.conflated += 1
            tail = earlier
        return True

    def _settle(self, item: _Item) -> None:
        if item.initial:
            item.initial = False
            self.initial_left -= 1

    def _head(self) -> _Item | None:
        while self._order and self._order[0].dead:
            self._order.popleft()
            self._dead -= 1
        return self._order[0] if self._order else None

    # -- questions -----------------------------------------------------------------------------------------

    def mark(self, position: int | None = None) -> Mark:
        """What must be handled or parked until all that was pushed by now, up to this position, is."""
        late = [i.serial for i in self._unsettled() if position is None or i.position <= position]
        return Mark(max(late, default=0), position)

    def passed(self, mark: Mark) -> bool:
        """True when all that the mark stands for is handled or parked. Quick: looks at the head and the
        failing.
        """
        head = self._head()
        if head is not None and head.serial <= mark.serial:
            return False
        failing = [*self._retrying.values(), *([self._running] if self._running is not None else [])]
        return not any(
            item.serial <= mark.serial and (mark.position is None or item.position <= mark.position)
            for item in failing
        )

    def settled(self, position: int) -> bool:
        """True when every event up to this position that was pushed is handled or parked. Looks at every
        event.
        """
        return all(item.position > position for item in self._unsettled())

    def handled_up_to(self) -> int:
        """The highest position with everything up to it handled or parked. Looks at every event."""
        return min((item.position - 1 for item in self._unsettled()), default=self._position)

    def lag(self, now: float) -> float:
        """Seconds that the oldest event neither handled nor parked has been here; 0.0 when there is none."""
        oldest = [item.since for item in (self._head(), self._running) if item is not None]
        oldest.extend(item.since for item in self._retrying.values())
        return now - min(oldest, default=now)

    def parked(self) -> list[Parked]:
        """The events that are parked now, the newest ``queue_limit`` of them, oldest first."""
        return [
            Parked(item.tried, item.error)
            for item in self._parked.values()
            if item.tried is not None and item.error is not None
        ]

    def clear(self) -> None:
        """Forget everything that waits, also what is parked; the event handed out may still be answered."""
        for item in self._order:
            item.earlier = item.later = None
        self._order.clear()
        self._barriers = int(self._running is not None and self._running.is_barrier)
        self._barrier_due = None
        self._dead = 0
        self._tails.clear()
        self._retrying.clear()
        self._due.clear()
        self._parked.clear()
        if self._running is not None:
            self._running.initial = False
        self.initial_left = 0

    def _unsettled(self) -> list[_Item]:
        items = [item for item in self._order if not item.dead]
        items.extend(self._retrying.values())
        if self._running is not None:
            items.append(self._running)
        return items
