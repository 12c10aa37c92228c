"""The repair of a topic in the database: planned in a snapshot, written under the counter's lock, planned again when
writers overtook the plan.
"""

import functools
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from pubsub_lib.core import digest
from pubsub_lib.store import repair_plan, repair_write
from pubsub_lib.store.repair_plan import Mark
from pubsub_lib.store.retry import Run
from pubsub_lib.store.verbs import Identity

PLANS: Final = 3
"""Maximum number of plans of one repair: a plan that was overtaken by writers is made again."""


class Repaired(msgspec.Struct, frozen=True):
    """The result of a repair. ``wrong`` objects were altered, lost or added."""

    topic: str
    wrong: int
    repaired: int
    found: frozenset[Mark] = frozenset()
    """The damage that was found."""
    remaining: frozenset[Mark] = frozenset()
    """The damage that could not be repaired: the changelog proves no right value, or writers overtook every plan."""
    read: int = 0
    """Number of objects that were read for the repair."""
    overtaken: int = 0
    """Number of planned fixes that were not written, because the object or the head was written meanwhile."""

    @property
    def left(self) -> bool:
        """Whether some damage could not be repaired."""
        return bool(self.remaining)

    @property
    def names(self) -> list[Identity]:
        """The objects that were wrong."""
        return names(self.found)


def names(marks: Iterable[Mark]) -> list[Identity]:
    """The objects among the marks, sorted."""
    return sorted((table, key) for table, key, *_ in marks if key)


def repair(reading: Run, writing: Run, topic: str, suspects: Collection[Identity]) -> Repaired:
    """Repair the provable damage. ``reading`` and ``writing`` run a function in a transaction. Raises StoreError."""
    found: set[Mark] = set()
    wrong = repaired = overtaken = read = 0
    for _ in range(PLANS):
        made = reading("searching for altered rows", lambda connection: repair_plan.plan(connection, topic, suspects))
        done = repair_write.Written()
        if made.fixes or made.moves_head:
            done = writing("repairing a topic", functools.partial(repair_write.write, topic=topic, plan=made))
        found |= {made.mark(ident) for ident in made.wrong}
        if done.head:
            moved = made.lost_head or made
            found.add(("", "", -moved.count, digest.subtract(0, moved.digest)))
        wrong, read = max(wrong, repaired + made.size), read + made.read
        repaired, overtaken = repaired + done.total, overtaken + done.overtaken
        if not done.overtaken:
            break
    remaining = reading("summing fingerprints", lambda connection: repair_plan.difference(connection, topic))
    remaining |= {made.mark(ident) for ident in made.wrong if ident not in done.idents}
    wrong = max(wrong, repaired + bool(remaining))
    return Repaired(topic, wrong, repaired, frozenset(found | remaining), remaining, read, overtaken)
