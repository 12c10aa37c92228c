"""Descriptions of verdicts, hops and blames for the page and the metrics (docs/audit.md defines them)."""

from typing import Final

from pubsub_lib.audit.report.summary import BITS, CORRUPT, DIVERGENCE, INCOMPLETE, LATE, LOSS, POLICY, Summary

VERDICTS: Final = {
    "ok": "received, or read by polling, and applied in time",
    "lost": "neither applied nor read by a sync before its time limit",
    "corrupt": "received with other content than was sent",
    "phantom": "received, but provably never sent",
    "misrouted": "received by a replica that had not subscribed to its topic",
    "phantom_publish": "sent, but the changelog has no such commit",
    "contradicted": "a publisher or a worker sent what the store does not contain (or a backup was restored)",
    "foreign_history": "the replica is at a position that the store, read later, does not have",
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
    "wire": "Sent; the replica never received it.",
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
    """The result in one sentence."""
    expected = sum(balance.expected for balance in summary.balance.values())
    if not summary.exit_code:
        return f"No fault found: all {expected} expected deliveries are accounted for."
    found = [text for bit, (_, text) in _FAULTS.items() if summary.exit_code & bit]
    return f"Of {expected} expected deliveries: {'; '.join(found)} (exit code {summary.exit_code})."
