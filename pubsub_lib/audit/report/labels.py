"""Descriptions of verdicts, hops and blames for the page and the metrics (docs/audit.md defines them)."""

from typing import Final

from pubsub_lib.audit.report.summary import BITS, CORRUPT, DIVERGENCE, INCOMPLETE, LATE, LOSS, POLICY, Summary

VERDICTS: Final = {
    "ok": "received, or read by polling, and applied in time",
    "lost": "neither applied nor read by a sync",
    "corrupt": "received or applied with another content than was committed or sent",
    "phantom": "received, but provably never sent",
    "misrouted": "received by a replica that had not subscribed to its topic",
    "phantom_publish": "sent, but the changelog has no such commit",
    "phantom_commit": "handed over to a service and not sent, and the changelog has no such commit",
    "contradicted": "a publisher or a worker sent what the store does not contain (or a backup was restored)",
    "foreign_history": "the replica is at a position that the store, read later, does not have",
    "diverged": "the replica holds other objects than the changelog has, or lacks a change that it recorded",
    "rot": "objects were altered or lost outside the library: in the replica's memory, or in the database (store)",
    "missing": "the store has the object, the replica does not",
    "stale": "the replica holds an older version of the object than the store",
    "wrong_value": "same version with another value, or a version that the store does not have yet",
    "zombie": "the replica still holds a deleted object",
    "chain_broken": "a link of the changelog does not begin where the previous link ended",
    "late": "settled, but later than the bound allows",
    "duplicate_applied": "one message was applied more than once",
    "stale_applied": "an object was set back to an older version",
    "unknown": "the evidence is not sufficient for a verdict",
    "repaired": "the message did not arrive or was not applied; the replica got the change in another way, in time",
    "unpublished": "committed, but not published by any service",
    "reordered": "received after a later message",
    "duplicate_dropped": "received more than once, applied once",
    "excused": "the replica was not required to receive it",
    "pending": "its window is not closed yet",
    "behind": "the replica does not have it yet, but still has time",
}
"""Every verdict, the most severe first."""

BLAMES: Final = {
    "writer": "Committed; no record shows that the writer handed it over.",
    "hop": "Handed over by the writer; the service never took it.",
    "service": "Taken by the service; never sent.",
    "relay": "Applied by the relay; never sent to the replicas below.",
    "wire": "Sent; the replica never received it, or did not use its publisher's messages (kind reject).",
    "subscriber": "Received by the replica; neither applied nor settled by a sync in time.",
    "polling": "Committed; polling did not read it in time.",
}

HOPS: Final = {
    "commit_publish": "commit → publish",
    "publish_receive": "publish → receive",
    "receive_apply": "receive → apply",
    "publish_apply": "publish → apply",
    "detect": "publish → detected",
    "repair": "publish → repaired",
}

SUMS: Final = {
    "delivered": "#2f9e78",
    "repaired": "#3a6ea5",
    "lost": "#d1495b",
    "pending": "#e3a72f",
    "excused": "#a3adb8",
    "unknown": "#7d63ad",
}
"""The sums of the balance, and their colours on the page. Red marks faults that need an operator."""

_FAULTS: Final = {
    LOSS: ("loss", "a change was lost and not repaired"),
    CORRUPT: ("corrupt", "a message was corrupt, never sent, never committed, or sent to the wrong replica"),
    DIVERGENCE: ("divergence", "a replica differs from the store, or the changelog is broken"),
    LATE: ("late", "a change arrived later than the bound"),
    POLICY: ("policy", "a message was applied twice, or an older version over a newer one"),
    INCOMPLETE: ("incomplete", "the evidence is incomplete"),
}
"""Bit of the exit code -> its short name, its description."""

assert set(_FAULTS) == set(BITS)  # every bit has a description


def faults(exit_code: int) -> dict[str, bool]:
    """The faults of an exit code, by their short names."""
    return {name: bool(exit_code & bit) for bit, (name, _) in _FAULTS.items()}


def verdict(summary: Summary) -> str:
    """The result: a sentence, and one about what was not audited."""
    balances = summary.balance.values()
    expected = sum(balance.expected for balance in balances)
    unaudited = _unaudited(summary)
    if summary.exit_code:
        found = [text for bit, (_, text) in _FAULTS.items() if summary.exit_code & bit]
        return f"Of {expected} expected deliveries: {'; '.join(found)} (exit code {summary.exit_code}).{unaudited}"
    if not expected:
        return f"No fault found, but no delivery was expected.{unaudited}"
    open_ends = {
        "pending (their windows are not closed)": sum(balance.pending for balance in balances),
        "excused (their replicas were not required to receive them)": sum(balance.excused for balance in balances),
    }
    named = [f"{number} {are}" for are, number in open_ends.items() if number]
    if not named:
        return f"No fault found: all {expected} expected deliveries are accounted for.{unaudited}"
    done = expected - sum(open_ends.values())
    parts = [f"{done} were delivered or repaired", *named]
    return f"No fault found: of {expected} expected deliveries {', '.join(parts)}.{unaudited}"


def _unaudited(summary: Summary) -> str:
    """A sentence about the domains without a store, the replicas without a listing, and hosts whose clocks are not
    compared; "" without any.
    """
    without = [each for each in summary.coverage if not each.store]
    others = [each for each in summary.coverage if each.store]
    replicas, held = sum(each.replicas for each in others), sum(each.held for each in others)
    unlisted = replicas - held - sum(each.listed for each in others)
    parts = []
    if without:
        of = f" of {len(without)} of {len(summary.coverage)} domains" if len(summary.coverage) > 1 else ""
        parts.append(f"the store and the state of replicas{of} (no --store)")
    if unlisted:
        parts.append(f"the state of {unlisted} of {replicas} replicas (not closed, so without a listing)")
    if held:
        parts.append(
            f"the single objects of {held} of {replicas} replicas (not closed; count and digest of all their objects "
            "are compared)"
        )
    apart = sum(each["skew"] is None for each in summary.skews)
    if apart:
        parts.append(f"the difference of the clocks of {apart} pairs of hosts (no hello request; they count as equal)")
    return f" Not audited: {', '.join(parts[:-1])}{' and ' if parts[1:] else ''}{parts[-1]}." if parts else ""
