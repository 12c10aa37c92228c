"""Mistakes in the judgement of publishers that the store contradicts (rule 14)."""

from _mutants.table import Mutant

QUARANTINE = "pubsub_lib/core/quarantine.py"
FRESHNESS = "pubsub_lib/core/freshness.py"
VERIFIED = "tests/unit/core/test_verification.py"

MUTANTS = (
    Mutant(
        name="first_contradiction_has_no_effect",
        path=QUARANTINE,
        before="if not self.at_once and (not counts or len(times) + 1 < CONTRADICTIONS):",
        after="if not counts or len(times) + 1 < CONTRADICTIONS:",
        tests=(f"{VERIFIED}::test_rule_14_first_contradiction_excludes_a_publisher_with_a_lease",),
        wrong="after each verification the next lie of the same publisher is shown, three times",
    ),
    Mutant(
        name="restored_store_excludes_honest_publishers",
        path=QUARANTINE,
        before="if not seconds or self.excuses(reached):",
        after="if not seconds:",
        tests=(f"{VERIFIED}::test_rule_14_restored_store_excludes_no_publisher",),
        wrong="after a restored backup all replicas use no publisher for a minute",
    ),
    Mutant(
        name="lies_of_an_excluded_publisher_are_not_judged",
        path="pubsub_lib/core/contradictions.py",
        before="for message in envelope.messages:",
        after="for message in ():",
        tests=(f"{VERIFIED}::test_rule_14_publisher_that_lies_on_is_not_used_again",),
        wrong="a publisher that goes on to lie is believed again after a minute",
    ),
    Mutant(
        name="excluded_links_are_lost_with_a_failed_reading",
        path="pubsub_lib/core/excluded_links.py",
        before="waiting = [*self._asked, *self._received]",
        after="waiting = [*self._received]",
        tests=("tests/unit/core/test_excluded_links.py::test_reading_that_fails_judges_nothing_and_the_next_one_does",),
        wrong="a publisher that lies while the database does not answer is believed again",
    ),
    Mutant(
        name="excluded_publisher_is_missed_late",
        path="pubsub_lib/core/contradictions.py",
        before="self._tracker.freshness.distrust([*begun, *excluded], now)",
        after="pass",
        tests=(f"{VERIFIED}::test_rule_14_replica_without_its_publisher_polls_at_once",),
        wrong="a replica that uses no publisher any more polls only after 3 x max_idle_time",
    ),
    Mutant(
        name="false_position_of_the_store_is_believed",
        path=FRESHNESS,
        before="if self.stated <= store.position and (",
        after="if (",
        tests=(f"{VERIFIED}::test_rule_14_false_position_of_the_store_is_believed_until_the_next_reading",),
        wrong="a wait for a position ends too early for ever, because of a publisher's false hello",
    ),
    Mutant(
        name="withheld_change_accuses_no_publisher",
        path=FRESHNESS,
        before=" and (changed is None or changed > self.stated)",
        after="",
        tests=(f"{VERIFIED}::test_rule_14_withheld_change_contradicts_the_publisher_that_covered_it",),
        wrong="a publisher may state for ever that a topic has no change",
    ),
    Mutant(
        name="metrics_name_the_oldest_quarantined_publishers",
        path="pubsub_lib/replica/metrics.py",
        before="for each in now.quarantined[-MAX_PUBLISHERS:]:",
        after="for each in now.quarantined[:MAX_PUBLISHERS]:",
        tests=("tests/unit/replica/test_metrics.py::test_quarantined_publishers_are_named_up_to_a_maximum",),
        wrong="a program with 20 UUIDs hides those with which it lies later",
    ),
)
