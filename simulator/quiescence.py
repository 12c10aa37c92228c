"""Invariants after the faults have stopped: a replica equals the store within the bound, and has proofs of it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pubsub_lib.core.history_change import is_barrier
from pubsub_lib.core.model import ALL
from simulator.invariants import Violation, content_of
from simulator.plan import BOUND, MAX_SYNC_SECONDS, TIMING
from simulator.store import Ident

if TYPE_CHECKING:
    from simulator.replica import Handler, Replica
    from simulator.world import World

SLACK = 0.3
"""Seconds for the latencies of a network and a database without faults."""


def covered(world: "World", replica: "Replica", since: float) -> None:
    """The replica has everything that was committed a bound ago, while writers go on. Raises Violation."""
    tracker = replica.replica_state.tracker
    now = world.kernel.now
    for name in tracker.topics:
        known = tracker.chain(name).known
        if known is None or not world.history.covers(name, known, since, now):
            raise Violation("bound", f"{replica.name}: {name!r} at {known} lacks changes of {now - since:.1f} s ago")
    _fresh(world, replica)


def _fresh(world: "World", replica: "Replica") -> None:
    if not replica.replica_state.tracker.topics:
        return  # no staleness to check
    staleness = replica.replica_state.tracker.staleness(replica.clock.now())
    maximum = BOUND
    if (world.services and not world.database.blind) or replica.plan.polling:
        maximum = TIMING.max_idle_time + TIMING.reading_age + TIMING.round_trip + TIMING.message_delay_window + SLACK
        maximum += world.extra_age(replica)
    if staleness > maximum:
        raise Violation("fresh", f"{replica.name}: staleness is {staleness:.3f} s, at most {maximum:.3f} s in calm")
    interval = world.plan.timing.verify_interval
    for name in replica.replica_state.tracker.topics if interval else ():
        age = world.monitor.unverified(replica, name)
        if age > 1.75 * interval + TIMING.sync_wait + MAX_SYNC_SECONDS:
            raise Violation("verified", f"{replica.name}: {name!r} was not compared with the store for {age:.3f} s")


def _difference(there: Mapping[Ident, object], expected: Mapping[Ident, object]) -> str:
    """The first objects that differ, in words."""
    idents = dict.fromkeys((*there, *expected))
    wrong = [f"{ident} is {there.get(ident)}, not {expected.get(ident)}" for ident in idents
             if there.get(ident) != expected.get(ident)]  # fmt: skip
    return "; ".join(wrong[:3])


def _last_values(handler: "Handler") -> dict[Ident, bytes]:
    """The values of a handler's last calls; for an object that was parked after too many failures, the parked one."""
    values = dict(handler.values)
    for parked in handler.queue.parked():
        if is_barrier(parked.event):
            continue
        ident = (parked.event.table, parked.event.key)
        if parked.event.new_value is None:
            values.pop(ident, None)
        else:
            values[ident] = parked.event.new_value
    return values


def at_rest(world: "World", replica: "Replica") -> None:
    """The replica equals the store, its view and its handlers too. Raises Violation."""
    store, replica_state = world.database.store, replica.replica_state
    topics = list(store.state.heads) if ALL in replica_state.tracker.topics else list(replica_state.tracker.topics)
    expected: dict[tuple[str, str], bytes] = {}
    for topic in topics:
        objects = {(at.table, at.key): (at.version, at.value) for at in store.snapshot(topic).records}
        if content_of(replica, topic) != objects:
            raise Violation("equal", f"{replica.name}: {topic!r} {_difference(content_of(replica, topic), objects)}")
        expected.update({ident: value for ident, (_, value) in objects.items()})
    shown = {(at.table, at.key): at.value for at in replica_state.cache.iterate()}
    if shown != expected:
        raise Violation("view", f"{replica.name}: its view {_difference(shown, expected)}")
    for handler in replica.handlers:
        values = _last_values(handler)
        if values != expected:
            raise Violation("handler last", f"{replica.name}: a handler {_difference(values, expected)}")
    if replica_state.tracker.topics and not replica_state.tracker.synced:
        raise Violation("synced", f"{replica.name}: is not synced")
    _fresh(world, replica)
