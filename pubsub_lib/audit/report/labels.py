"""What verdicts, hops and blames mean, in the sentences of the page and of the metrics (docs/audit.md defines them)."""

from typing import Final

from pubsub_lib.audit.report.summary import BITS, CORRUPT, DIVERGENCE, INCOMPLETE, LATE, LOSS, POLICY, Summary

VERDICTS: Final = {
    "ok": "received, or read by polling, and applied in time",
    "lost": "never applied, and no sync read it, although its time is over",
    "corrupt": "received with other contents than were sent",
    "phantom": "received, and provably never sent",
    "misrouted": "received by a replica that had not asked for its topic",
    "phantom_publish": "sent, although the changelog has no such commit",
    "missing": "the store has the object, the replica does not",
    "stale": "the replica holds an older version of the object than the store",
    "wrong_value": "same version, another value; or a version that the store does not have yet",
    "zombie": "the replica still holds an object that was deleted",
    "chain_broken": "a link of the changelog does not begin where the one before it ended",
    "late": "settled, but later than the bound allows",
    "duplicate_applied": "one message was applied more than once",
    "stale_applied": "an object was taken back to an older version",
    "unknown": "the evidence does not tell what became of it",
    "repaired": "the message did not arrive or was not applied; the replica got the change in another way, in time",
    "unpublished": "committed, and no service published it",
    "reordered": "came after a later one",
    "duplicate_dropped": "came more than once, and was applied once",
    "excused": "nobody was obliged to have it",
    "pending": "its window is not closed yet",
    "behind": "the replica does not have it yet, and need not",
}
"""Every verdict, the gravest first."""

BLAMES: Final = {
    "writer": "Committed; nothing shows that the writer handed it over.",
    "hop": "Handed to the hop; the service never took it.",
    "service": "Taken by the service; never sent.",
    "wire": "Sent; the replica never received it.",
    "subscriber": "Received by the replica; neither applied nor settled by a sync in time.",
    "polling": "Committed; polling did not bring it in time.",
}

HOPS: Final = {
    "commit_publish": "commit → publish",
    "publish_receive": "publish → receive",
    "receive_apply": "receive → apply",
    "publish_apply": "publish → apply",
    "detect": "missing → noticed",
    "repair": "missing → repaired",
}

SUMS: Final = {
    "delivered": "#2f9e78",
    "repaired": "#3a6ea5",
    "lost": "#d1495b",
    "pending": "#e3a72f",
    "excused": "#a3adb8",
    "unknown": "#7d63ad",
}
"""The sums of the balance, and their colours on the page. Red is for what needs a person."""

_FAULTS: Final = {
    LOSS: ("loss", "something was lost and not repaired"),
    CORRUPT: ("corrupt", "something was corrupt, never published, or sent to the wrong place"),
    DIVERGENCE: ("divergence", "a replica or the changelog is not what it should be"),
    LATE: ("late", "something came later than the bound"),
    POLICY: ("policy", "something was applied twice, or an older version over a newer one"),
    INCOMPLETE: ("incomplete", "the evidence is incomplete"),
}
"""Bit of the exit code -> its short name, its words."""

assert set(_FAULTS) == set(BITS)  # every bit has its words


def faults(exit_code: int) -> dict[str, bool]:
    """Which faults an exit code says, by their short names."""
    return {name: bool(exit_code & bit) for bit, (name, _) in _FAULTS.items()}


def verdict(summary: Summary) -> str:
    """The result in one sentence."""
    expected = sum(balance.expected for balance in summary.balance.values())
    if not summary.exit_code:
        return f"Nothing is wrong: of {expected} expected deliveries every one is accounted for."
    said = [words for bit, (_, words) in _FAULTS.items() if summary.exit_code & bit]
    return f"Of {expected} expected deliveries: {'; '.join(said)} (exit code {summary.exit_code})."
