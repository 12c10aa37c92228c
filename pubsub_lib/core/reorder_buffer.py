"""Links of one chain that cannot be applied yet: they wait for an earlier one, or for the rest of their run."""

from collections.abc import Iterator

from pubsub_lib.core.codec import merge
from pubsub_lib.core.envelope import Message
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import Link, Point

CHANGE_OVERHEAD = 200
"""Bytes that a change needs in memory besides the text of its table, key and value: the objects around them."""


class PendingStep:
    """One step of a chain, perhaps not all of it yet: the messages that lead from ``prev`` to ``point``."""

    __slots__ = ("_needed", "_parts", "_totals", "point", "prev", "received", "size", "turn")

    def __init__(self, prev: Point, point: Point, needed: int, received: float, turn: int) -> None:
        self.prev = prev
        self.point = point
        self.received = received
        self.turn = turn
        self.size = 0
        self._needed = needed
        self._parts: dict[tuple[str, int], Message] = {}
        self._totals: dict[str, int] = {}

    def has(self, message: Message) -> bool:
        """True when this message is here already."""
        return (message.link.topic, message.part) in self._parts

    def add(self, message: Message) -> bool:
        """Take one message in. False: it is here already, or its run was cut differently from the one that is here
        (two publishers with different bounds of a frame): parts of the two together make no link.
        """
        if self.has(message) or self._totals.get(message.link.topic, message.parts) != message.parts:
            return False
        self._parts[message.link.topic, message.part] = message
        self._totals[message.link.topic] = message.parts
        self.size += size_of(message.link)
        return True

    @property
    def messages(self) -> int:
        """How many messages are here."""
        return len(self._parts)

    @property
    def complete(self) -> bool:
        """True when every link of the step is here, and of every run each part."""
        return len(self._totals) == self._needed and len(self._parts) == sum(self._totals.values())

    def links(self) -> list[Link]:
        """The whole links of the step, in the order in which the transaction wrote them."""
        whole = [
            merge([self._parts[topic, part] for part in range(1, parts + 1)]) for topic, parts in self._totals.items()
        ]
        whole.sort(key=_first_version)
        return whole


class ReorderBuffer:
    """The held steps of one chain, by the point that each waits for, oldest first; bounded."""

    __slots__ = ("_bytes", "_limits", "_messages", "_steps")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._steps: dict[Point, PendingStep] = {}
        self._messages = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def messages(self) -> int:
        """Messages held."""
        return self._messages

    @property
    def size(self) -> int:
        """Bytes of the changes held, as :func:`size_of` counts them."""
        return self._bytes

    @property
    def oldest(self) -> PendingStep | None:
        """The step that waits longest."""
        return next(iter(self._steps.values()), None)

    def hold(self, message: Message, prev: Point, needed: int, now: float, turn: int) -> bool:
        """Keep one message. False: no room; the message was not kept. A repeated one is kept once and its first
        arrival counts: the clock belongs to the oldest.
        """
        step = self._steps.get(prev)
        size = size_of(message.link)
        if self._messages >= self._limits.max_waiting_links or self._bytes + size > self._limits.max_waiting_bytes:
            return step is not None and step.point == message.link.point and step.has(message)
        received = now
        if step is not None and step.point != message.link.point:
            # Two histories meet at one point: the later message is the likelier one. The clock goes on.
            received = step.received
            self._messages -= step.messages
            self._bytes -= step.size
            step = None
        if step is None:
            step = self._steps[prev] = PendingStep(prev, message.link.point, needed, received, turn)
        if step.add(message):
            self._messages += 1
            self._bytes += size
        return True

    def take(self, known: Point) -> PendingStep | None:
        """Remove and return the step that follows ``known``, if all of it is here."""
        step = self._steps.get(known)
        if step is None or not step.complete:
            return None
        self._remove(step)
        return step

    def drop_old(self, known: Point, *, everywhere: bool) -> int:
        """Drop steps at or behind known; returns their number. Only from the oldest on, unless ``everywhere``."""
        old = []
        for step in self._steps.values():
            if step.point.position <= known.position:
                old.append(step)
            elif not everywhere:
                break
        for step in old:
            self._remove(step)
        return len(old)

    def drop_before(self, turn: int) -> int:
        """Drop steps whose first message came before this turn; returns their number."""
        early = [step for step in self._steps.values() if step.turn < turn]
        for step in early:
            self._remove(step)
        return len(early)

    def points(self) -> Iterator[Point]:
        """The points that are waited with, oldest first."""
        return (step.point for step in self._steps.values())

    def _remove(self, step: PendingStep) -> None:
        del self._steps[step.prev]
        self._messages -= step.messages
        self._bytes -= step.size


def size_of(link: Link) -> int:
    """Bytes of a link's changes: table, key and value, and what each needs besides. A delete is not for nothing.

    Names count by their characters: to encode each would cost more than the bound is exact.
    """
    return sum(
        CHANGE_OVERHEAD + len(change.table) + len(change.key) + (0 if change.value is None else len(change.value))
        for change in link.changes
    )


def _first_version(link: Link) -> int:
    return link.changes[0].version if link.changes else 0
