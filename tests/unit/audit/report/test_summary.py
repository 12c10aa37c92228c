"""The exit code is the sum of its bits; docs/audit.md names them."""

import pytest

from pubsub_lib.audit.report.labels import verdict
from pubsub_lib.audit.report.report import text
from pubsub_lib.audit.report.summary import Balance, category, exit_code, nothing
from pubsub_lib.audit.settings import AuditSettings

BITS = [
    ("lost", 1), ("corrupt", 2), ("phantom", 2), ("misrouted", 2), ("phantom_publish", 2), ("phantom_commit", 2),
    ("missing", 4), ("stale", 4), ("wrong_value", 4), ("zombie", 4), ("foreign_history", 4), ("chain_broken", 4),
    ("diverged", 4), ("rot", 4), ("late", 8), ("duplicate_applied", 16),
    ("stale_applied", 16), ("unknown", 32), ("ok", 0), ("repaired", 0), ("excused", 0), ("pending", 0),
    ("reordered", 0), ("duplicate_dropped", 0), ("unpublished", 0), ("behind", 0),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "bit"), BITS)
def test_the_bit_of_a_verdict(kind: str, bit: int) -> None:
    assert exit_code({kind, "ok"}, AuditSettings(), incomplete=False, problems=()) == bit


def test_bits_add_up() -> None:
    assert exit_code({kind for kind, _ in BITS}, AuditSettings(), incomplete=True, problems=()) == 63


@pytest.mark.parametrize("kind", ["reordered", "duplicate_dropped"])
def test_strict_audit_counts_reordered_and_repeated_messages_as_faults(kind: str) -> None:
    assert exit_code({kind}, AuditSettings(strict=True), incomplete=False, problems=()) == 16


def test_problems_make_the_evidence_incomplete() -> None:
    assert exit_code(set(), AuditSettings(), incomplete=False, problems=("a file",)) == 32
    assert nothing(()).exit_code == 32


def test_balance_holds_only_when_its_sums_add_up() -> None:
    assert Balance(6, 1, 1, 1, 1, 1, 1).holds
    assert not Balance(7, 1, 1, 1, 1, 1, 1).holds


def test_the_category_of_a_row() -> None:
    assert category("late", "message") == category("ok", "polling") == "delivered"
    assert category("late", "repair") == category("repaired", "repair") == "repaired"
    assert category("lost", "") == "lost"
    assert category("excused", "") == "excused"


def test_the_verdict_is_one_sentence() -> None:
    assert verdict(nothing(["no journals in x"])) == (
        "Of 0 expected deliveries: the evidence is incomplete (exit code 32)."
    )
    assert "problem: no journals in x" in list(text(nothing(["no journals in x"])))
