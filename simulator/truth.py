"""The invariants of a replica's state at a chain's point, in runs without liars."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pubsub_lib.core.chain import Chain
from pubsub_lib.core.model import Point
from simulator import invariants
from simulator.history import History

if TYPE_CHECKING:
    from simulator.replica import Replica

Judged = Iterator[tuple[str, str | None]]
"""Names of invariants, each with what is wrong."""


def judged(
    history: History, replica: "Replica", chain: Chain, before: Point | None, noticed: tuple[Point, Point] | None, *,
    changed: bool,
) -> Judged:  # fmt: skip
    """A chain was at the point ``before``. ``noticed``: the points of its notice of a changed history. ``changed``: it
    moved, or events were made.
    """
    moved = chain.known != before
    if moved or noticed is not None:
        yield "history notice", invariants.notice_is_right(history, chain, before, noticed=noticed)
    if moved:
        replaced = chain.name in replica.replaced
        yield "committed", invariants.known_is_committed(history, chain)
        yield "forward", invariants.known_never_goes_back(history, chain, before, replaced=replaced)
    if changed:
        yield "whole", invariants.content_is_whole(history, replica, chain)
    yield "staleness", invariants.staleness_is_honest(history, replica, chain)
