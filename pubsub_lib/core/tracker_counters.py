"""The counters of a tracker and of a replica, as data."""

import msgspec


class Counters(msgspec.Struct):
    """Counters of received messages and of syncs."""

    applied: int = 0
    """Links applied."""
    old: int = 0
    """Messages at or behind known: repeated, or overtaken by a sync."""
    foreign: int = 0
    """Messages and hellos that belong to another history."""
    waited: int = 0
    """Messages that had to wait for an earlier one."""
    overflowed: int = 0
    """Messages dropped because too many waited."""
    unsubscribed: int = 0
    """Messages of topics that are not subscribed to (any more)."""
    history_changes: int = 0
    """Times that a chain was read again because the store's history changed."""
    contradicted: int = 0
    """Times that the store contradicted a message: the history does not contain its point, or has another count or
    digest there, or the store is behind the position of its own in a hello."""
    useless: int = 0
    """Readings of differing buckets that a publisher's count or digest caused and that found no difference."""
    quarantined: int = 0
    """Messages and hellos of publishers that the store had contradicted."""
    unleased: int = 0
    """Messages and hello replies that were not used, because their publisher has no live lease (rule 14)."""
    foreign_store: int = 0
    """Messages and hellos that carry another store's id, or none (rule 15)."""
    late_answers: int = 0
    """Sync answers that were received too late and ignored."""
    refused: int = 0
    """Parts of a relay's answers that were not newer than what the replica has (rule R3)."""
    syncs_failed: int = 0
    """Syncs that failed or timed out, or whose answer lacked a topic."""
    deltas: dict[str, int] = {}
    """Deltas begun, by cause."""
    fulls: dict[str, int] = {}
    """Full syncs begun, by cause."""


class Faults(msgspec.Struct):
    """Counters of faults that must never happen. Any value but zero is worth an alarm."""

    guarded: int = 0
    """Changes that were not applied because their version is older than the object's."""
    mismatches: int = 0
    """Times that a topic's count or digest differed from the store's."""
    rotted: int = 0
    """Objects that were altered or lost in this replica's memory, as found by a recount."""
