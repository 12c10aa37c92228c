"""A replica's state of one chain: the point up to which it has everything, and the later points that it received.

This module does not decide when to sync: :mod:`.tracker` does, by the table in :mod:`.transitions`.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain

from pubsub_lib.core.envelope import Message
from pubsub_lib.core.model import ALL, ZERO, Link, Point, Want
from pubsub_lib.core.reorder_buffer import ReorderBuffer, WaitingSpace
from pubsub_lib.core.transitions import DONE, FROZEN, State, Trigger, after

RECENT_POINTS = 1024
"""Minimum number of remembered points of the replica's own chain, to recognise a hello that links have overtaken."""
RECENT_ROUNDS = 3
"""Number of rounds of hello requests, of ``max_idle_time`` each, whose points are remembered beyond that minimum.
``Timing.check`` ensures that every answer which counts is younger."""
MAX_RECENT_POINTS = 16_384
"""Maximum number of remembered points of one round."""
MAX_HEADS = 64
"""Maximum number of remembered hello heads. The oldest starts the clock; the newest must never be forgotten."""


class HelloHead:
    """A head of a hello that known has not reached."""

    __slots__ = ("lost_at", "point", "received", "turn")

    def __init__(self, point: Point, received: float, turn: int, lost_at: float) -> None:
        self.point = point
        self.received = received
        self.turn = turn
        self.lost_at = lost_at
        """When the links up to this head can only be lost, although its window has not ended."""


class Chain:
    """One chain's state. Not thread-safe: the tracker's caller holds the lock."""

    __slots__ = (
        "answered",
        "cause",
        "earlier",
        "heads",
        "history",
        "known",
        "known_at",
        "mismatched_readings",
        "name",
        "read_in",
        "read_whole",
        "recent",
        "reorder_buffer",
        "repair",
        "source",
        "state",
        "synced",
        "undone",
    )

    def __init__(self, name: str, space: WaitingSpace, known: Point | None, now: float) -> None:
        self.name = name
        self.state = State.JOINING
        self.known = known
        self.known_at = now
        self.history = object()
        """Another object after each full sync, and when the topic is dropped and followed again: a commit that was on
        the chain before need not be on it any more."""
        self.reorder_buffer = ReorderBuffer(space)
        self.heads: deque[HelloHead] = deque()
        self.recent: deque[Point] = deque(maxlen=MAX_RECENT_POINTS)
        self.earlier: deque[deque[Point]] = deque(maxlen=RECENT_ROUNDS)
        """The points of earlier rounds, of a busy chain only."""
        self.synced = False
        """A sync of this chain was completed."""
        self.repair = False
        """The next full sync need only fetch the buckets that differ."""
        self.undone = False
        """The store does not contain known: links that connect to it must not be applied before the full sync."""
        self.read_in = -1
        """The turn in which the last full sync's answer was received."""
        self.read_whole = False
        """Whether the last full sync read everything, not only the buckets that differ."""
        self.mismatched_readings = 0
        """Consecutive answers that did not fit their own count or digest, since one that read everything."""
        self.source: tuple[str, str] | None = None
        """Service name and UUID of the publisher whose message moved known last; None: a reading of the store did."""
        self.answered: tuple[Point, float] | None = None
        """The head of the last delta of a relay, and the earliest time of which its first link, or all of it, is."""
        self.cause = ""
        """The reason of the sync that is due or runs."""
        if known is not None:
            self.recent.append(known)

    def trigger(self, trigger: Trigger) -> None:
        """Go to the table's next state."""
        state = after(self.state, trigger)
        if state is not self.state and state in (State.DELTA_DUE, State.FULL_DUE):
            self.cause = trigger.value
        self.state = state
        if trigger in DONE:
            self.synced = True

    @property
    def known_position(self) -> int:
        """Known's position; -1 while nothing is known."""
        return -1 if self.known is None else self.known.position

    @property
    def frozen(self) -> bool:
        """True while links wait and known does not change."""
        return self.state in FROZEN or self.known is None

    def previous(self, link: Link) -> Point:
        """The point that a link connects to in this chain: its topic's, or for ``ALL`` its transaction's."""
        return link.tx_prev if self.name == ALL else link.prev

    def needed(self, link: Link) -> int:
        """How many links make one step of this chain."""
        return link.tx_links if self.name == ALL else 1

    def is_whole(self, message: Message) -> bool:
        """True when this one message is a whole step."""
        return message.parts == 1 and (self.name != ALL or message.link.tx_links == 1)

    @property
    def want(self) -> Want:
        """What the sync that is due reads."""
        if self.state is State.DELTA_DUE:
            return Want(after=self.known)
        # Empty buckets stand for "those that differ": the caller, which has the cache, fills in its own digests.
        return Want(buckets={}) if self.repair else Want()

    def advance(self, point: Point, now: float) -> None:
        """Move known one step along the chain."""
        self.known = point
        self.known_at = now
        self.source = None
        self.recent.append(point)
        while self.heads and self.heads[0].point.position <= point.position:
            self.heads.popleft()

    def jump(self, point: Point, now: float) -> None:
        """Set known after a full sync. The points before it may be of another history."""
        self.known = point
        self.known_at = now
        self.source = None
        self.history = object()
        self.answered = None
        self.recent.clear()
        self.earlier.clear()
        self.recent.append(point)

    def new_round(self) -> None:
        """A round of hello requests begins: points older than ``RECENT_ROUNDS`` rounds are forgotten.

        The limit is in rounds and not in points, because a publisher may answer from a reading as old as its configured
        age. A number of points that is affordable for every quiet chain would not reach back that far on a busy one.
        """
        if self.earlier or len(self.recent) > RECENT_POINTS:
            self.earlier.append(self.recent)
            self.recent = deque(list(self.recent)[-RECENT_POINTS:], MAX_RECENT_POINTS)
            if all(len(points) <= RECENT_POINTS for points in self.earlier):
                self.earlier.clear()

    def passed(self, point: Point) -> bool:
        """True when the point is or was known: it lies on this replica's own chain."""
        return point == self.known or point in self.recent or any(point in points for points in self.earlier)

    def remembered(self) -> Iterator[Point]:
        """The points that known has passed, as far as they are remembered, and known. Oldest first."""
        return chain(*self.earlier, self.recent)

    @property
    def oldest(self) -> Point:
        """The first of them: what is before it need not be remembered."""
        return next(self.remembered(), ZERO)

    def doubts(self, head: Point, latest: float) -> bool:
        """True when a relay's delta led beyond this head, and may be older than a reading of ``latest`` in which the
        head was the store's: a restore may have undone the delta before that reading, so it proves nothing (rule R3).
        """
        return self.answered is not None and head.position < self.answered[0].position and latest > self.answered[1]

    def clock_started(self) -> float | None:
        """When the oldest waiting link or head was received; None when nothing waits (rule 3)."""
        step = self.reorder_buffer.oldest
        times = [self.heads[0].received] if self.heads else []
        if step is not None:
            times.append(step.received)
        return min(times) if times else None

    def lost_at(self) -> float:
        """The earliest ``lost_at`` of the heads beyond known; infinite without one."""
        beyond = (head.lost_at for head in self.heads if head.point.position > self.known_position)
        return min(beyond, default=float("inf"))

    def window_ends(self, window: float) -> float:
        """When the oldest waiting link or head has waited for ``window`` seconds; infinite when nothing waits."""
        started = self.clock_started()
        return float("inf") if started is None else started + window

    def expires(self, window: float) -> float:
        """When the chain stops waiting: at the end of its window, or when what it waits for is known to be lost."""
        return min(self.window_ends(window), self.lost_at())

    def remember_head(self, point: Point, now: float, turn: int, lost_at: float = float("inf")) -> None:
        """Keep a hello's head that known has not reached, or is not to be compared with yet. At the maximum it replaces
        the last one: it is newer, and all before it may prove to be behind a sync's answer.
        """
        if len(self.heads) >= MAX_HEADS:
            self.heads.pop()
        self.heads.append(HelloHead(point, now, turn, lost_at))

    def turn_of(self, time: float, default: int) -> int:
        """The first turn since this time in which a link or a head that waits was received; without one ``default``."""
        turns = [head.turn for head in self.heads if head.received >= time]
        return min([*turns, *self.reorder_buffer.turns_from(time)], default=default)

    def drop_heads_before(self, turn: int) -> None:
        """Forget heads that were received before this turn."""
        self.heads = deque(head for head in self.heads if head.turn >= turn)

    def take_heads(self, turn: int) -> list[HelloHead]:
        """Remove all heads; return those that were received since this turn."""
        self.drop_heads_before(turn)
        taken, self.heads = list(self.heads), deque()
        return taken

    def drop_old_heads(self, turn: int) -> None:
        """The same, and those that known has reached, in any place: the oldest head that stays starts the clock."""
        self.drop_heads_before(turn)
        self.heads = deque(head for head in self.heads if head.point.position > self.known_position)


def steps(links: Sequence[Link]) -> Iterator[list[Link]]:
    """The links of a delta by step: one each, or all of a transaction in a chain of everything."""
    step: list[Link] = []
    for link in links:
        if step and link.point != step[0].point:
            yield step
            step = []
        step.append(link)
    if step:
        yield step
