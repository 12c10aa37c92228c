"""The queue of one handler: order, conflation, retries (rules H1 to H3). Without a thread, a clock or a lock."""

import math
from collections import OrderedDict, deque
from collections.abc import Collection, Sequence
from heapq import heappop, heappush
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from pubsub_lib.core.backoff import doubled
from pubsub_lib.core.events import Event
from pubsub_lib.core.history_change import BARRIER_TABLE, PARKED_NOTICE
from pubsub_lib.core.limits import Positive
from pubsub_lib.core.timing import Seconds
from pubsub_lib.errors import ConfigError, UsageError

Ident = tuple[str, str]
"""(table, key)"""


class HandlerPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one handler is called for changes (rule H3). Times in seconds."""

    queue_limit: Annotated[
        Positive,
        Meta(
            description="When more changes than this wait for one handler, changes of one key are merged.",
            extra={"old_names": ("queue_limit",)},
        ),
    ] = 10_000
    tries: Annotated[
        Positive,
        Meta(description="Maximum number of calls of a failing handler for one change, before it is parked."),
    ] = 5
    backoff: Annotated[
        Seconds,
        Meta(description="Wait before a failed handler's second call. It doubles with each further call. In seconds."),
    ] = 0.5
    max_backoff: Annotated[
        Seconds,
        Meta(
            description="Maximum wait between two calls of a failing handler. In seconds.",
            extra={"old_names": ("max_handler_backoff",)},
        ),
    ] = 30.0

    def check(self) -> "HandlerPolicy":
        """Return self. Raises ConfigError when the times contradict each other."""
        if self.max_backoff < self.backoff:
            raise ConfigError(
                f"handler_max_backoff ({self.max_backoff} s) is below handler_backoff ({self.backoff} s); "
                "raise it or lower the other"
            )
        return self


class Selector(msgspec.Struct, frozen=True):
    """The events for which a handler is called (None: any), and the order of tables after a full sync."""

    tables: frozenset[str] | None = None
    topic: str | None = None
    key: str | None = None
    order: tuple[str, ...] = ()

    def matches(self, event: Event) -> bool:
        """True when the handler is called for this event."""
        return self.select(event) is not None

    def select(self, event: Event) -> Event | None:
        """The event as this handler gets it, or None. A handler of one topic gets a create for an object that moves in
        from another followed topic, and a delete (with version None) for one that moves out.
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
    """The selector of a handler of one table, of several, or of all (None). Raises UsageError for an empty list of
    tables, and for an order that names a table twice or a table for which the handler is not called.
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
    """The events that were pushed before a moment, up to a position (None: all of them)."""

    serial: int
    position: int | None


class Parked(msgspec.Struct, frozen=True):
    """An event that is not tried any more until a new event of its object is pushed, and the last error."""

    event: Event
    error: BaseException
    text: str
    """The error's type and message, made without a lock: a method of a program's exception may block or raise."""


class _Item(msgspec.Struct, gc=False):
    """One or more events of one object, merged into one call: from ``first``'s old value to ``latest``'s new value.

    ``position`` is that of the first change that they may stand for, ``serial`` the first event's: a wait for any of
    them waits for this item. ``newest`` is the latest's. Items of one key are chained (``earlier``, ``later``).
    gc=False: leaving the chain cuts references.
    """

    first: Event
    latest: Event
    position: int
    serial: int
    newest: int
    since: float
    initial: bool
    tried: Event | None = None
    tries: int = 0
    is_barrier: bool = False
    dead: bool = False
    parked: Parked | None = None
    earlier: "_Item | None" = None
    later: "_Item | None" = None

    @property
    def ident(self) -> Ident:
        return self.first.table, self.first.key

    @property
    def is_cancelled(self) -> bool:
        """The object was created and deleted, and the handler was never called for it."""
        return self.tried is None and self.first.old_value is None and self.latest.new_value is None

    @property
    def is_of_known(self) -> bool:
        """The first event is a change, not a delete, of an object that the handler has or may have."""
        return self.first.new_value is not None and (self.first.old_value is not None or self.tried is not None)

    def event(self) -> Event:
        """The event for the handler: from the value of its last call to the newest value."""
        first, latest, tried = self.first, self.latest, self.tried
        if first is latest:
            return first
        old_version, old_value, old_topic = first.old_version, first.old_value, first.old_topic
        if old_value is None and latest.new_value is None and tried is not None:
            # A create that was tried and failed may have done half its work, so the handler gets the delete: of the
            # tried value, since it was never called with another one.
            if tried.new_value is not None:
                old_version, old_value, old_topic = tried.version, tried.new_value, tried.topic
            else:
                old_version, old_value, old_topic = tried.old_version, tried.old_value, tried.old_topic
        return latest.since(old_version, old_value, old_topic)


class HandlerQueue:
    """The events that wait for one handler. The caller holds a lock around every call; no call blocks.

    :meth:`push` adds an event; :meth:`next` returns one event at a time, which the caller answers by :meth:`done` or
    :meth:`failed`.

    Events are returned in order. Only a retry changes the order, and only between different objects. An event that was
    done is never returned again; only failed ones are repeated.

    From ``queue_limit`` waiting events on, a new event is merged into the waiting one of its object, which keeps its
    place; a create and its delete cancel out. The delete of an object that the handler knows still gets a place of its
    own, once: deletes of other objects that refer to this one may be waiting before it. At most ``queue_limit`` + 2 ×
    distinct objects wait.

    A failed event waits for its next try (exponential backoff) and is merged with later ones of its object, so that
    none overtakes it. After ``tries`` failures it is parked; the next new event of that object merges into it and gets
    all tries again. Other objects continue meanwhile. An object's last event is tried at least once.

    A barrier (:mod:`.history_change`) holds back everything that was pushed after it until it is handled or parked: no
    event is merged into one before it, no retry is returned while the barrier waits for its turn, and neither an event
    nor a retry while it waits for its next try. So each waiting barrier adds the above limit once more. A delete from
    before a barrier that is tried again after it has no version: its own one may be of the history that was undone.
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
        """The serial of the newest barrier."""
        self.barriers = 0
        """Number of barriers that are neither handled nor parked. For reading only."""
        self._barrier_due: tuple[float, _Item] | None = None
        """The barrier that failed, and when its next try is due; it is in ``_retrying`` too, and not in ``_due``."""

    def __len__(self) -> int:
        """Number of waiting events, including those in backoff, without the one that :meth:`next` returned last."""
        return len(self._order) - self._dead + len(self._retrying)

    # -- in ------------------------------------------------------------------------------------------------

    def push(self, event: Event, now: float = 0.0, *, initial: bool = False, by_sync: bool = False) -> None:
        """Add an event, in chain order. ``initial``: it is one of the handler's first events, of existing objects.
        ``by_sync``: it may stand for all changes of its object after ``old_version``."""
        self._serial += 1
        position = event.position
        if position > self._position:
            self._position = position
        first = (event.old_version or 0) + 1 if by_sync or event.version is None else event.version
        if first < position:
            position = first
        ident = event.table, event.key
        waiting = self._retrying.get(ident) if self._retrying else None
        if waiting is None and len(self._order) - self._dead >= self._limit:
            waiting = self._tails.get(ident)
            goes = event.new_value is None
            if waiting is not None and (waiting.serial < self._barrier or (goes and waiting.is_of_known)):
                waiting = None
        if waiting is not None:
            self._merge(waiting, event, position, initial)
            return
        serial, is_barrier = self._serial, event.table == BARRIER_TABLE
        item = _Item(event, event, position, serial, serial, now, initial, is_barrier=is_barrier)
        parked = self._parked.pop(ident, None) if self._parked else None
        if parked is not None:
            item.first, item.tried = parked.first, parked.tried
        self.initial_left += initial
        if item.is_barrier:
            self._barrier = self._serial
            self.barriers += 1
        tail = self._tails.get(ident)
        if tail is not None:
            item.earlier, tail.later = tail, item
        self._tails[ident] = item
        self._order.append(item)

    def _merge(self, item: _Item, event: Event, position: int, initial: bool) -> None:
        item.latest, item.newest = event, self._serial
        self._count_initial(item, initial)
        item.position = min(item.position, position)
        self.conflated += 1
        if event.new_value is None and item.is_cancelled:
            self._kill(item)
            self._settle(item)

    def _kill(self, item: _Item) -> None:
        """Remove an item from the middle of the order: it stays there as dead until its turn or the next clean-up."""
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
        """The next event to handle, or None when no event is ready (see :meth:`next_time`). Raises UsageError while the
        one before is neither done nor failed.
        """
        if self._running is not None:
            raise UsageError("the event before is neither done nor failed; call done() or failed() first")
        item = self._take_retry(now)
        if item is None and self._barrier_due is None and (item := self._head()) is not None:
            self._order.popleft()
            self._unchain(item)
        if item is None:
            return None
        self._running, event = item, item.event()
        if not self.barriers and event.new_value is None and item.newest < self._barrier:
            event = replace(event, version=None)
        item.tried = event
        return event

    def _take_retry(self, now: float) -> _Item | None:
        """An event whose next try is due; while a barrier waits, only the barrier itself."""
        item: _Item | None = None
        if self._barrier_due is not None:
            if self._barrier_due[0] <= now:
                item, self._barrier_due = self._barrier_due[1], None
        elif self._due and self._due[0][0] <= now and not self.barriers:
            item = heappop(self._due)[2]
        if item is not None:
            del self._retrying[item.ident]
            self.retried += 1
        return item

    def next_time(self) -> float | None:
        """When :meth:`next` will have an event: minus infinity means now, None not before the next push or answer."""
        if self._running is not None:
            return None
        if self._barrier_due is not None:
            return self._barrier_due[0]
        if self._head() is not None:
            return -math.inf
        return self._due[0][0] if self._due else None

    def done(self, now: float = 0.0) -> None:
        """The event of the last :meth:`next` was handled."""
        self.handled += 1
        item = self._take_running()
        if item.is_barrier:
            self._parked.pop(PARKED_NOTICE, None)  # the handler knows of a later change of the history now
        self._settle(item)

    def failed(self, now: float, error: BaseException, text: str = "") -> Parked | None:
        """The handler raised on the event of the last :meth:`next`. Returns the event when that was its last try."""
        item = self._take_running()
        assert item.tried is not None
        self.failures += 1
        item.tries += 1
        newer = self._take_waiting(item)
        if item.tries >= self.policy.tries:
            if not newer:
                self.parked_count += 1
                ident = PARKED_NOTICE if item.is_barrier else item.ident
                self._parked[ident] = item
                self._parked.move_to_end(ident)
                if len(self._parked) > self.policy.queue_limit:
                    self._parked.popitem(last=False)
                self._settle(item)
                item.parked = Parked(item.tried, error, text)
                return item.parked
            item.tries = 0  # the newer event gets all tries again
        wait = doubled(self.policy.backoff, max(item.tries - 1, 0), self.policy.max_backoff)
        self._retrying[item.ident] = item
        if item.is_barrier:
            self._barrier_due = now + wait, item
        else:
            heappush(self._due, (now + wait, item.serial, item))
        return None

    def _take_running(self) -> _Item:
        item, self._running = self._running, None
        if item is None:
            raise UsageError("no event waits for an answer; call next() first")
        return item

    def _take_waiting(self, item: _Item) -> bool:
        """Merge the waiting events of the same object into this item. True when there was one."""
        tail = self._tails.get(item.ident)
        if tail is None:
            return False
        item.latest, item.newest = tail.latest, tail.newest
        while tail is not None:
            item.position = min(item.position, tail.position)
            self._count_initial(item, tail.initial)
            self._kill(tail)
            self._settle(tail)
            self.conflated += 1
            tail = self._tails.get(item.ident)
        return True

    def _count_initial(self, item: _Item, initial: bool) -> None:
        self.initial_left += initial and not item.initial
        item.initial = item.initial or initial

    def _settle(self, item: _Item) -> None:
        self.barriers -= item.is_barrier
        self.initial_left -= item.initial
        item.initial = False

    def _head(self) -> _Item | None:
        while self._order and self._order[0].dead:
            self._order.popleft()
            self._dead -= 1
        return self._order[0] if self._order else None

    # -- state ---------------------------------------------------------------------------------------------

    def mark(self, position: int | None = None) -> Mark:
        """A mark of all events pushed by now, up to this position (None: all of them); see :meth:`passed`."""
        late = [i.serial for i in self._unsettled() if position is None or i.position <= position]
        return Mark(max(late, default=0), position)

    def passed(self, mark: Mark) -> bool:
        """True when all events of the mark are handled or parked. Fast: examines the head and the failing events."""
        head = self._head()
        if head is not None and head.serial <= mark.serial:
            return False
        position = mark.position
        return not any(i.serial <= mark.serial and (position is None or i.position <= position) for i in self._taken())

    def settled(self, position: int) -> bool:
        """True when every pushed event up to this position is handled or parked. Examines every event."""
        return all(item.position > position for item in self._unsettled())

    def handled_up_to(self) -> int:
        """The highest position up to which every event is handled or parked. Examines every event."""
        return min((item.position - 1 for item in self._unsettled()), default=self._position)

    def lag(self, now: float) -> float:
        """Seconds since the oldest event that is neither handled nor parked was pushed; 0.0 without one."""
        return now - min((item.since for item in (self._head(), *self._taken()) if item is not None), default=now)

    def parked(self) -> list[Parked]:
        """The parked events, oldest first: the newest ``queue_limit`` of them."""
        return [item.parked for item in self._parked.values() if item.parked is not None]

    def clear(self) -> None:
        """Forget all waiting and parked events. The event of the last :meth:`next` may still be answered."""
        for item in self._order:
            item.earlier = item.later = None
        self._order.clear()
        self.barriers = int(self._running is not None and self._running.is_barrier)
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
        return [*(item for item in self._order if not item.dead), *self._taken()]

    def _taken(self) -> list[_Item]:
        return [*self._retrying.values(), *([self._running] if self._running is not None else [])]
