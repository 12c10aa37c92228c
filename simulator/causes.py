"""Whether a delta has the cause that it names, by the monitor's own evidence."""

from typing import TYPE_CHECKING

from simulator.evidence import Evidence
from simulator.plan import MAX_SYNC_SECONDS, TIMING

if TYPE_CHECKING:
    from simulator.replica import Replica
    from simulator.world import World

EPS = 1e-6
PROVED_IN_CALM = (
    TIMING.message_delay_window + TIMING.sync_jitter + TIMING.sync_interval + MAX_SYNC_SECONDS + TIMING.max_idle_time
    + TIMING.round_trip + TIMING.reading_age
)  # fmt: skip
"""Seconds without faults after which a publisher's proof is fresh: lost changes are read, a hello request answered."""


def no_cause(world: "World", replica: "Replica", name: str, cause: str, evidence: Evidence, now: float) -> str | None:
    """The fault in the cause of a delta of a chain; None: it has that cause. ``now``: of the replica's clock."""
    restored = world.history.restored_at >= 0
    overflowed = replica.replica_state.tracker.counters.overflowed > 0
    faultless = world.plan.faultless and world.kernel.now < world.rest_since
    polls_after_resync = cause == "polled" and evidence.resynced
    if faultless and (world.plan.services or replica.plan.polling) and not polls_after_resync:
        return f"{name!r} ({cause}) in a run without faults"
    if cause == "expired":
        oldest = evidence.oldest(now)
        if now - oldest < TIMING.message_delay_window - EPS:
            return f"{name!r} ({cause}): the oldest waiting point was received {now - oldest:.3f} s ago"
    elif cause == "reconnected":  # a sync may end at a restored point, behind a head that was not beyond known
        return None if evidence.missed or restored else f"{name!r} ({cause}) although no head was beyond known"
    elif cause == "polled":
        if now - evidence.proved < TIMING.stale_after - EPS:
            return f"{name!r} ({cause}): a publisher proved {now - evidence.proved:.3f} s ago"
        calm = PROVED_IN_CALM + restored * TIMING.max_idle_time  # the reply that shows a restore is no proof
        if world.settled_since < world.kernel.now - calm and world.publishers_are_well(replica):
            return f"{name!r} ({cause}) in calm, with a publisher that answers"
    elif cause == "unverified":
        # After a restore, links of the undone history may lead the chain away while a delta is read. This reading does
        # not verify the chain then.
        if restored or world.monitor.received_stranger(replica, evidence):
            return None
        least = world.plan.timing.verify_interval / 2
        if not least or now - evidence.verified < least - EPS:
            return f"{name!r} ({cause}): the store was read {now - evidence.verified:.3f} s ago"
    elif cause in ("history changed", "broken"):
        return None if restored else f"{name!r} ({cause}) although the history never changed"
    elif cause == "overflowed":
        return None if overflowed else f"{name!r} ({cause}) although no buffer overflowed"
    elif cause in ("caught up", "behind", "replaced"):
        return None if restored or overflowed else f"{name!r} ({cause}) although no need arose meanwhile"
    elif cause == "failed":
        failed = replica.replica_state.tracker.counters.syncs_failed
        return None if failed else f"{name!r} ({cause}) although no sync failed"
    else:
        return f"{name!r} ({cause})"
    return None
