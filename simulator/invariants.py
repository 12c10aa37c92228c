"""The invariants, one small function each. A function returns a description of the violation, or None."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pubsub_lib.core.chain import MAX_HEADS, Chain
from pubsub_lib.core.freshness import MAX_PENDING
from pubsub_lib.core.model import ALL, Point
from pubsub_lib.core.reorder_buffer import ALL_CHAINS_BYTES, ALL_CHAINS_LINKS
from pubsub_lib.core.transitions import DUE, State
from simulator.plan import TIMING

if TYPE_CHECKING:
    from simulator.history import Content, History
    from simulator.replica import Handler, Replica

CLOCK_SLACK = 0.005
"""Seconds by which two drifting clocks may differ over the times measured here."""


class Violation(Exception):
    """An invariant does not hold. ``invariant`` is its name."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


def content_of(replica: "Replica", topic: str) -> "Content":
    """A replica's objects of a topic."""
    return {(at.table, at.key): (at.version, at.value) for at in replica.cache.topic_records(topic)}


def known_is_committed(history: "History", chain: Chain) -> str | None:
    """Only committed points are applied."""
    if chain.known is not None and not history.was_committed(chain.name, chain.known):
        return f"{chain.name!r} is at {chain.known}, which was never committed"
    return None


def known_never_goes_back(history: "History", chain: Chain, before: Point | None, *, replaced: bool) -> str | None:
    """Within one history a chain only goes forward, and to another history only by a full sync."""
    known = chain.known
    if before is None or known is None or before == known:
        return None
    if history.is_ancestor(chain.name, before, known):
        return None
    if history.is_ancestor(chain.name, known, before):
        # A restored store is at an older point of the same history.
        return None if replaced and history.restored_at >= 0 else f"{before} back to {known}"
    return None if replaced else f"{before} to {known} of another history without a full sync"


def notice_is_right(
    history: "History", chain: Chain, before: Point | None, *, noticed: tuple[Point, Point] | None
) -> str | None:
    """A replica notifies of a changed history if, and only if, its reached point is undone. ``noticed``: the points of
    its notice. With a trimmed changelog it need not notify, as long as no version goes back.
    """
    if noticed is not None:
        lost, found = noticed
        if lost == found == chain.known:  # a delete of another topic is undone
            return None if history.restored_at >= 0 else f"{chain.name!r}: a delete is called undone without a restore"
        if before != lost or history.is_ancestor(chain.name, lost, found):
            return f"{chain.name!r}: {lost} is called undone, and it was at {before} and is at {found}"
        return None
    if before is None or history.trims or chain.known is None or history.is_ancestor(chain.name, before, chain.known):
        return None
    return f"{chain.name!r}: {before} is undone at {chain.known}, and no notice was made"


def content_is_whole(history: "History", replica: "Replica", chain: Chain) -> str | None:
    """A replica shows exactly the objects of a chain's point: whole links, no more and no less."""
    if chain.known is None:
        return None
    if chain.name == ALL:
        expected = history.heads_at[chain.known]
        topics = {**dict.fromkeys(replica.cache.topics()), **dict.fromkeys(expected)}
        pairs = [(topic, expected.get(topic, Point(0, 0))) for topic in topics]
    else:
        pairs = [(chain.name, chain.known)]
    for topic, point in pairs:
        if content_of(replica, topic) != history.content(topic, point):
            return f"{topic!r} at {point} shows {content_of(replica, topic)}, not {history.content(topic, point)}"
    return None


def staleness_is_honest(history: "History", replica: "Replica", chain: Chain) -> str | None:
    """A proof as of T means: the replica has everything that the store had at some moment since T."""
    local = replica.clock.now()
    staleness = replica.replica_state.tracker.freshness.staleness(chain.name, local)
    if staleness == float("inf"):
        return None
    if chain.known is None:
        return f"{chain.name!r} claims {staleness:.3f} s and has no known point"
    now = replica.world.kernel.now
    since = replica.clock.true(local - staleness) - CLOCK_SLACK
    if staleness < -CLOCK_SLACK or not history.covers(chain.name, chain.known, since, now):
        shown = list(history.shown(chain.name, since, now))[:5]
        return f"{chain.name!r} at {chain.known} claims {staleness:.3f} s, the store showed since then {shown}"
    return None


def buffers_are_bounded(replica: "Replica", chain: Chain) -> str | None:
    """Each buffer is within its limit, and those of all chains together within theirs."""
    limits, tracker = replica.world.plan.limits, replica.replica_state.tracker
    pending = len(tracker.freshness.of[chain.name].pending)
    if chain.reorder_buffer.messages > limits.max_waiting_links:
        return f"{chain.reorder_buffer.messages} messages wait in {chain.name!r}"
    if chain.reorder_buffer.size > limits.max_waiting_bytes:
        return f"{chain.reorder_buffer.size} bytes wait in {chain.name!r}"
    buffers = [tracker.chain(topic).reorder_buffer for topic in tracker.topics]
    messages, size = sum(each.messages for each in buffers), sum(each.size for each in buffers)
    if messages > ALL_CHAINS_LINKS * limits.max_waiting_links or size > ALL_CHAINS_BYTES * limits.max_waiting_bytes:
        return f"{messages} messages of {size} bytes wait in all chains"
    if len(chain.heads) > MAX_HEADS or pending > MAX_PENDING:
        return f"{len(chain.heads)} heads and {pending} proofs wait in {chain.name!r}"
    return None


def handlers_are_bounded(handler: "Handler", objects: int) -> str | None:
    """A handler's queue never holds more than its limit and, of each object, one change and one delete. Each notice of
    a changed history holds back what follows it, and adds as much again, and itself.
    """
    once = handler.queue.policy.queue_limit + 2 * objects
    if len(handler.queue) > once + handler.queue.barriers * (once + 1):
        return f"{len(handler.queue)} events wait for a handler"
    return None


def syncs_end(replica: "Replica") -> str | None:
    """A running sync ends or times out."""
    syncs = replica.replica_state.tracker.syncs
    if syncs.running and replica.clock.now() > syncs.begun + TIMING.sync_timeout + 0.1:
        return f"sync {syncs.number} runs since {replica.clock.now() - syncs.begun:.3f} s"
    return None


def late_answer_is_ignored(replica: "Replica", running: int) -> str | None:
    """An answer that is received too late does not end the sync that runs now."""
    syncs = replica.replica_state.tracker.syncs
    now_running = syncs.number if syncs.running else 0
    return None if now_running == running else f"a late answer ended sync {running}"


def needs_are_remembered(replica: "Replica", chain: Chain) -> str | None:
    """A chain that needs a sync gets one."""
    syncs = replica.replica_state.tracker.syncs
    if chain.state in DUE and not syncs.waits and not syncs.running:
        return f"{chain.name!r} is {chain.state.value} ({chain.cause}) and no sync is planned"
    return None


def clock_runs(replica: "Replica", chain: Chain, received: Mapping[Point, float]) -> str | None:
    """A received point that known has not reached waits at most for the window before a delta is due."""
    if chain.state not in (State.FOLLOWING, State.HOLDING):
        return None
    waits = [when for point, when in received.items() if point.position > chain.known_position]
    waited = replica.clock.now() - min(waits, default=replica.clock.now())
    if waited > TIMING.message_delay_window + 0.1:
        return f"{chain.name!r} is {chain.state.value} and a point waits for {waited:.3f} s"
    return None


def is_asked_about(replica: "Replica", chain: Chain, hinted: tuple[int, float] | None) -> str | None:
    """A chain that may be behind the store's point of a broadcast gets a hello request, or reaches the point anyway."""
    if hinted is None or chain.state is not State.FOLLOWING:
        return None
    position, due = hinted
    late = replica.clock.now() - due
    if late > 0.1:
        return f"{chain.name!r} at {chain.known}, store at {position}: its hello request is late by {late:.3f} s"
    return None


def is_back(history: "History", chain: Chain, since: float, now: float) -> str | None:
    """After a connection the replica has everything that was committed before it."""
    if chain.known is not None and history.covers(chain.name, chain.known, since, now):
        return None
    return f"{chain.name!r} at {chain.known} lacks changes from before a connection {now - since:.3f} s ago"


def guard_never_fires(replica: "Replica") -> str | None:
    """No older version tries to replace a newer one."""
    guarded = replica.replica_state.faults.guarded
    return f"{guarded} changes were refused by their versions" if guarded else None
