"""Links of one chain that cannot be applied yet: they wait for an earlier one, or for the rest of their run."""

from collections.abc import Iterator
from operator import attrgetter

from pubsub_lib.core.envelope import Message, merge
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import Link, Point

CHANGE_OVERHEAD = 200
"""Bytes that a change needs in memory besides the text of its table, key and value: its Python objects."""
ALL_CHAINS_LINKS = 10
"""Links of all chains of a replica that may wait together: 10 times as many as those of one chain."""
ALL_CHAINS_BYTES = 2
"""Bytes of all of them: twice those of one chain, so that their number of topics does not multiply the memory."""
_RECEIVED = attrgetter("received")


class PendingStep:
    """One step of a chain, perhaps incomplete: the messages that lead from ``prev`` to ``point``."""

    __slots__ = (
        "_needed", "_parts", "_totals", "arrived", "clock_turn", "point", "prev", "publishers", "received", "size",
        "source", "turn",
    )  # fmt: skip

    def __init__(self, prev: Point, point: Point, needed: int, received: float, turn: int) -> None:
        self.prev = prev
        self.point = point
        self.received = self.arrived = received
        """When the clock of this step started: its first message, or that of the step which it replaced."""
        self.turn = turn
        """The turn of its first message."""
        self.clock_turn = turn
        """The turn in which its clock started."""
        self.size = 0
        self.source: tuple[str, str] | None = None
        """Service name and UUID of the publisher of the message that was added last."""
        self.publishers: dict[str, tuple[str, str] | None] = {}
        """By topic, the publisher of its link; None when several publishers sent parts of it."""
        self._needed = needed
        self._parts: dict[tuple[str, int], Message] = {}
        self._totals: dict[str, int] = {}

    def replaces(self, step: "PendingStep") -> None:
        """This step takes the place of another one, whose clock goes on."""
        self.received, self.clock_turn = step.received, step.clock_turn

    def restart_clock(self) -> None:
        """A sync has covered the step that this one replaced: the clock is that of the first message."""
        self.received, self.clock_turn = self.arrived, self.turn

    def has(self, message: Message) -> bool:
        """True when the step has this message already."""
        return (message.link.topic, message.part) in self._parts

    def add(self, message: Message) -> bool:
        """Add one message. False: the step has it already, or its run was cut differently from the run of the other
        messages (two publishers with different ``max_frame_bytes``): the parts of the two do not make a link.
        """
        if self.has(message) or self._totals.get(message.link.topic, message.parts) != message.parts:
            return False
        self._parts[message.link.topic, message.part] = message
        self._totals[message.link.topic] = message.parts
        self.size += size_of(message.link)
        return True

    @property
    def messages(self) -> int:
        """Number of messages of the step that were received."""
        return len(self._parts)

    @property
    def complete(self) -> bool:
        """True when every link of the step was received, and every part of each run."""
        return len(self._totals) == self._needed and len(self._parts) == sum(self._totals.values())

    def links(self) -> list[Link]:
        """The whole links of the step, in the order in which the transaction wrote them."""
        whole = [
            merge([self._parts[topic, part] for part in range(1, parts + 1)]) for topic, parts in self._totals.items()
        ]
        whole.sort(key=_first_version)
        return whole


class WaitingSpace:
    """The limits of each chain's pending steps, and what is left for those of all chains of one replica."""

    __slots__ = ("bytes", "limits", "messages")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.messages = ALL_CHAINS_LINKS * limits.max_waiting_links
        self.bytes = ALL_CHAINS_BYTES * limits.max_waiting_bytes


class ReorderBuffer:
    """The pending steps of one chain, by the point that each waits for, oldest first; bounded, and together with the
    chains that share its ``space``.
    """

    __slots__ = ("_bytes", "_messages", "_space", "_steps")

    def __init__(self, space: WaitingSpace) -> None:
        self._space = space
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

    def hold(
        self, message: Message, prev: Point, needed: int, now: float, turn: int, source: tuple[str, str] | None = None
    ) -> bool:
        """Keep one message. False: the buffer is full; the message was not kept. A repeated message is kept once, with
        the time of its first arrival, because the clock runs from the oldest. ``source``: service name and UUID of its
        publisher.
        """
        step = self._steps.get(prev)
        size = size_of(message.link)
        if not self._has_room(size):
            return step is not None and step.point == message.link.point and step.has(message)
        if step is None or step.point != message.link.point:
            fresh = PendingStep(prev, message.link.point, needed, now, turn)
            if step is not None:
                # Two histories continue from one point: the later message is more likely right.
                fresh.replaces(step)
                self._count(-step.messages, -step.size)
            step = self._steps[prev] = fresh
        if step.add(message):
            step.source = source
            if step.publishers.setdefault(message.link.topic, source) != source:
                step.publishers[message.link.topic] = None
            self._count(1, size)
        return True

    def take(self, known: Point) -> PendingStep | None:
        """Remove and return the step that follows ``known``, if it is complete."""
        step = self._steps.get(known)
        if step is None or not step.complete:
            return None
        self._remove(step)
        return step

    def drop_old(self, known: Point, *, everywhere: bool) -> int:
        """Drop steps at or behind known; returns their number. Stops at the first later step, unless ``everywhere``."""
        old = []
        for step in self._steps.values():
            if step.point.position <= known.position:
                old.append(step)
            elif not everywhere:
                break
        for step in old:
            self._remove(step)
        return len(old)

    def drop_all(self) -> int:
        """Drop everything; returns the number of messages."""
        messages = self._messages
        self._count(-messages, -self._bytes)
        self._steps.clear()
        return messages

    def drop_before(self, turn: int) -> int:
        """Drop steps whose first message was received before this turn; returns their number. The clock of a step that
        was replaced before this turn ends, too.
        """
        early = [step for step in self._steps.values() if step.turn < turn]
        for step in early:
            self._remove(step)
        late = [step for step in self._steps.values() if step.clock_turn < turn]
        for step in late:
            step.restart_clock()
        if late:
            self._steps = {step.prev: step for step in sorted(self._steps.values(), key=_RECEIVED)}
        return len(early)

    def turns_from(self, time: float) -> Iterator[int]:
        """The turns of the first messages, and of the clocks, that are not before this time."""
        for step in self._steps.values():
            if step.received >= time:
                yield step.clock_turn
            if step.arrived >= time:
                yield step.turn

    def points(self) -> Iterator[Point]:
        """The points of the pending steps, oldest first."""
        return (step.point for step in self._steps.values())

    def _remove(self, step: PendingStep) -> None:
        del self._steps[step.prev]
        self._count(-step.messages, -step.size)

    def _has_room(self, size: int) -> bool:
        space = self._space
        limits = space.limits
        own = self._messages < limits.max_waiting_links and self._bytes + size <= limits.max_waiting_bytes
        return own and space.messages > 0 and size <= space.bytes

    def _count(self, messages: int, size: int) -> None:
        self._messages += messages
        self._bytes += size
        self._space.messages -= messages
        self._space.bytes -= size


def size_of(link: Link) -> int:
    """Bytes of a link's changes: table, key, value and ``CHANGE_OVERHEAD`` of each. So a delete has a size too.

    Names count by their characters: encoding each is too expensive for an approximate limit.
    """
    return sum(
        CHANGE_OVERHEAD + len(change.table) + len(change.key) + (0 if change.value is None else len(change.value))
        for change in link.changes
    )


def _first_version(link: Link) -> int:
    return link.changes[0].version if link.changes else 0
