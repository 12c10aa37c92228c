"""The repair of a topic in the database: planned in a snapshot, written under the counter's lock, planned again when
writers were quicker.
"""

import functools
from collections.abc import Collection
from typing import Final

import msgspec

from pubsub_lib.store import repair_plan, repair_write
from pubsub_lib.store.directory import Run
from pubsub_lib.store.verbs import Identity

MAX_NAMED: Final = 10
"""Objects that are named."""
PLANS: Final = 3
"""Plans of one repair at most: one that was overtaken by writers is made again."""


class Repaired(msgspec.Struct, frozen=True):
    """What a repair did. ``wrong`` objects were altered, lost or added; ``left``: something of it could not be repaired
    (the changelog does not tell what is right, or writers were quicker each time).
    """

    topic: str
    wrong: int
    repaired: int
    left: bool
    names: tuple[Identity, ...] = ()
    read: int = 0
    """Objects that were read for the repair."""
    overtaken: int = 0
    """Fixes that were planned and not written, because the object or the head was written meanwhile."""


def repair(reading: Run, writing: Run, topic: str, suspects: Collection[Identity]) -> Repaired:
    """Repair what can be proved. ``reading`` and ``writing`` run a function in a transaction. Raises StoreError."""
    names: dict[Identity, None] = {}
    wrong = repaired = overtaken = read = 0
    for _ in range(PLANS):
        made = reading("looking for what was altered", lambda connection: repair_plan.plan(connection, topic, suspects))
        done = repair_write.Written()
        if made.fixes or made.moves_head:
            done = writing("repairing a topic", functools.partial(repair_write.write, topic=topic, plan=made))
        names |= dict.fromkeys(made.wrong)
        wrong, read = max(wrong, repaired + made.size), read + made.read
        repaired, overtaken = repaired + done.total, overtaken + done.overtaken
        if not done.overtaken:
            break
    differs = bool(reading("summing fingerprints", lambda connection: repair_plan.unfit(connection, [topic])))
    left = differs or not made.wrong.keys() <= done.idents
    return Repaired(topic, max(wrong, repaired + left), repaired, left, tuple(names)[:MAX_NAMED], read, overtaken)
