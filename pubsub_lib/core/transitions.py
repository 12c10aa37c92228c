"""The states of one chain in a replica, as a table. ``docs/contributing/tracker-states.md`` is generated from it.

A *chain* is one topic's links, or (for a replica of everything) all transactions. Only the state decides whether links
are applied: in the ``FULL…`` states links wait and ``known`` does not change; in all others a link that connects is
applied at once.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class State(StrEnum):
    """The state of a chain."""

    JOINING = "joining"
    """Subscribed; waits a bounded time for a hello reply before the first sync."""
    FOLLOWING = "following"
    """Every received link is applied, and known has reached every received head."""
    HOLDING = "holding"
    """A link waits for an earlier one, or a hello has a head beyond known: the clock runs."""
    DELTA_DUE = "delta due"
    """Needs the links after known; waits for its turn."""
    DELTA = "delta"
    """A delta is being read."""
    DELTA_AGAIN = "delta again"
    """A delta is being read, and a need that arose meanwhile is remembered."""
    FULL_DUE = "full due"
    """Needs all objects (or the differing buckets); waits for its turn."""
    FULL = "full"
    """All objects are being read."""
    FULL_AGAIN = "full again"
    """All objects are being read, and links that were received meanwhile were dropped because the buffer was full."""


class Trigger(StrEnum):
    """The events that change a chain's state."""

    GREETED = "greeted"
    """The first hello reply was received, or the wait for it timed out; no point is known yet."""
    RESUMED = "resumed"
    """The same, with a known point."""
    HELD = "held"
    """A link or a head waits now."""
    SETTLED = "settled"
    """No link or head waits any more."""
    EXPIRED = "expired"
    """The clock ended."""
    RECONNECTED = "reconnected"
    """A reply after a connection had a head beyond known, and the wait for messages on their way is over."""
    HISTORY_CHANGED = "history changed"
    """A hello proved that the store's history changed."""
    OVERFLOWED = "overflowed"
    """A link was dropped because too much waits."""
    POLLED = "polled"
    """No publisher proves to be fresh: read the store."""
    UNVERIFIED = "unverified"
    """The last reading of the store itself is too old."""
    MISMATCHED = "mismatched"
    """Count or digest differ from the link's or the snapshot's."""
    ASKED = "asked"
    """The caller requested that everything is read again."""
    BEGUN = "begun"
    """The sync was started."""
    CAUGHT_UP = "caught up"
    """The delta's links were applied up to its head."""
    BEHIND = "behind"
    """Known passed the delta's head before the delta was received: it is dropped."""
    BROKEN = "broken"
    """The delta was complete but does not lead to its head: known moved into another history meanwhile."""
    INCOMPLETE = "incomplete"
    """The store cannot give the links after that point."""
    REPLACED = "replaced"
    """A full sync's answer replaced the contents."""
    FAILED = "failed"
    """The sync failed or timed out."""


_S = State
_H = Trigger

TRANSITIONS: Mapping[State, Mapping[Trigger, State]] = MappingProxyType(
    {
        _S.JOINING: {
            _H.GREETED: _S.FULL_DUE,
            _H.RESUMED: _S.DELTA_DUE,
            _H.HELD: _S.JOINING,
            _H.OVERFLOWED: _S.JOINING,
            _H.HISTORY_CHANGED: _S.JOINING,
            _H.MISMATCHED: _S.FULL_DUE,
        },
        _S.FOLLOWING: {
            _H.HELD: _S.HOLDING,
            _H.HISTORY_CHANGED: _S.DELTA_DUE,
            _H.OVERFLOWED: _S.DELTA_DUE,
            _H.POLLED: _S.DELTA_DUE,
            _H.UNVERIFIED: _S.DELTA_DUE,
            _H.MISMATCHED: _S.FULL_DUE,
            _H.ASKED: _S.FULL_DUE,
        },
        _S.HOLDING: {
            _H.HELD: _S.HOLDING,
            _H.SETTLED: _S.FOLLOWING,
            _H.EXPIRED: _S.DELTA_DUE,
            _H.RECONNECTED: _S.DELTA_DUE,
            _H.HISTORY_CHANGED: _S.DELTA_DUE,
            _H.OVERFLOWED: _S.DELTA_DUE,
            _H.POLLED: _S.DELTA_DUE,
            _H.UNVERIFIED: _S.DELTA_DUE,
            _H.MISMATCHED: _S.FULL_DUE,
            _H.ASKED: _S.FULL_DUE,
        },
        _S.DELTA_DUE: {
            _H.HELD: _S.DELTA_DUE,
            _H.HISTORY_CHANGED: _S.DELTA_DUE,
            _H.OVERFLOWED: _S.DELTA_DUE,
            _H.MISMATCHED: _S.FULL_DUE,
            _H.ASKED: _S.FULL_DUE,
            _H.BEGUN: _S.DELTA,
        },
        _S.DELTA: {
            _H.HELD: _S.DELTA,
            _H.HISTORY_CHANGED: _S.DELTA_AGAIN,
            _H.OVERFLOWED: _S.DELTA_AGAIN,
            _H.MISMATCHED: _S.FULL_DUE,
            _H.ASKED: _S.FULL_DUE,
            _H.CAUGHT_UP: _S.FOLLOWING,
            _H.BEHIND: _S.FOLLOWING,
            _H.BROKEN: _S.DELTA_DUE,
            _H.INCOMPLETE: _S.FULL_DUE,
            _H.FAILED: _S.DELTA_DUE,
        },
        _S.DELTA_AGAIN: {
            _H.HELD: _S.DELTA_AGAIN,
            _H.HISTORY_CHANGED: _S.DELTA_AGAIN,
            _H.OVERFLOWED: _S.DELTA_AGAIN,
            _H.MISMATCHED: _S.FULL_DUE,
            _H.ASKED: _S.FULL_DUE,
            _H.CAUGHT_UP: _S.DELTA_DUE,
            _H.BEHIND: _S.DELTA_DUE,
            _H.BROKEN: _S.DELTA_DUE,
            _H.INCOMPLETE: _S.FULL_DUE,
            _H.FAILED: _S.DELTA_DUE,
        },
        _S.FULL_DUE: {
            _H.HELD: _S.FULL_DUE,
            _H.OVERFLOWED: _S.FULL_DUE,
            # The rest of a run of links that was applied together with the one that did not match.
            _H.MISMATCHED: _S.FULL_DUE,
            _H.BEGUN: _S.FULL,
        },
        _S.FULL: {
            _H.HELD: _S.FULL,
            _H.OVERFLOWED: _S.FULL_AGAIN,
            _H.REPLACED: _S.FOLLOWING,
            _H.FAILED: _S.FULL_DUE,
        },
        _S.FULL_AGAIN: {
            _H.HELD: _S.FULL_AGAIN,
            _H.OVERFLOWED: _S.FULL_AGAIN,
            _H.REPLACED: _S.DELTA_DUE,
            _H.FAILED: _S.FULL_DUE,
        },
    }
)

FROZEN = frozenset({State.FULL_DUE, State.FULL, State.FULL_AGAIN})
"""States in which links wait and known does not change."""
DUE = frozenset({State.DELTA_DUE, State.FULL_DUE})
"""States that wait for a sync to begin."""
SYNCING = frozenset({State.DELTA, State.DELTA_AGAIN, State.FULL, State.FULL_AGAIN})
"""States in which a sync runs for the chain."""
DONE = frozenset({Trigger.CAUGHT_UP, Trigger.BEHIND, Trigger.REPLACED})
"""Triggers that complete a sync."""


def after(state: State, trigger: Trigger) -> State:
    """The state after ``trigger``. KeyError: the trigger is not possible in this state, so the caller has a bug."""
    return TRANSITIONS[state][trigger]
