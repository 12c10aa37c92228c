"""Mistakes in the tracker, in its proofs of freshness, and in the notice of another history."""

from _mutants.table import Mutant

TRACKER = "pubsub_lib/core/tracker.py"
FRESHNESS = "pubsub_lib/core/freshness.py"
CHAIN = "pubsub_lib/core/chain.py"
BUFFER = "pubsub_lib/core/reorder_buffer.py"
QUEUE = "pubsub_lib/core/handler_queue.py"
NOTICE = "tests/unit/core/test_history_change.py"
REPLICA_STATE = "tests/unit/core/test_replica_state.py"
RULES = "tests/unit/core/test_tracker.py"
WAITING = "tests/unit/core/test_reorder_buffer.py"
PROOFS = "tests/unit/core/test_freshness.py"
VERIFIED = "tests/unit/core/test_verification.py"

MUTANTS = (
    Mutant(
        name="delta_is_not_compared",
        path=TRACKER,
        before="([Compare(delta.heads)] if compared and delta.heads else ())",
        after="()",
        tests=(f"{VERIFIED}::test_rule_14_altered_link_of_a_true_transaction_is_undone",),
        wrong="an altered link with the point of a true transaction is shown until the topic's next full sync",
    ),
    Mutant(
        name="publishers_prove_for_ever",
        path=FRESHNESS,
        before="min(fresh.proof, fresh.verified_at + self._max_unverified)",
        after="fresh.proof",
        tests=(f"{VERIFIED}::test_rule_14_proofs_of_publishers_count_for_a_limited_time",),
        wrong="a replica that cannot read the store is fresh as long as any publisher answers",
    ),
    Mutant(
        name="waiting_link_accuses_a_publisher",
        path=TRACKER,
        before="if applied and applied[-1].point == envelope.messages[-1].link.point:",
        after="if applied:",
        tests=(f"{VERIFIED}::test_rule_14_link_that_had_waited_accuses_no_publisher",),
        wrong="a forged link that waits for a true one puts the true one's publisher into quarantine",
    ),
    Mutant(
        name="quarantined_publisher_is_used",
        path="pubsub_lib/core/replica_state.py",
        before="if self.quarantine.until and self.quarantine.excludes(envelope.uuid, now):",
        after="if False:",
        tests=(f"{VERIFIED}::test_rule_14_publisher_that_is_contradicted_repeatedly_is_not_used",),
        wrong="a publisher that the store contradicts is used again after each full sync",
    ),
    Mutant(
        name="another_stores_messages_are_used",
        path="pubsub_lib/core/replica_state.py",
        before="if envelope.store_id != self.stores.own and self.stores.excludes(envelope):",
        after="if False:",
        tests=(f"{REPLICA_STATE}::test_rule_15_another_stores_first_link_is_not_applied",),
        wrong="workers of staging that share a socket path with production publish into production's replicas",
    ),
    Mutant(
        name="waiting_messages_of_another_store_are_used",
        path="pubsub_lib/core/replica_state.py",
        before="            self.tracker.forget_received(now)\n",
        after="            pass\n",
        tests=(f"{REPLICA_STATE}::test_rule_15_messages_before_the_first_sync_are_dropped_with_it",),
        wrong="a link of another store that arrives before the first sync is applied after it",
    ),
    Mutant(
        name="foreign_message_does_not_cause_a_reading",
        path="pubsub_lib/core/replica_state.py",
        before="        self.tracker.verify(now)\n        return StepResult(foreign=publisher)",
        after="        return StepResult(foreign=publisher)",
        tests=(f"{REPLICA_STATE}::test_store_that_was_created_again_is_noticed_by_its_first_message",),
        wrong="after dropall and init a replica drops its own publishers' messages until it polls",
    ),
    Mutant(
        name="reading_before_a_foreign_message_settles_it",
        path="pubsub_lib/core/replica_state.py",
        before="        if self.stores.seen_at > syncs.begun:\n            self.tracker.verify(now)\n",
        after="",
        tests=(f"{REPLICA_STATE}::test_reading_that_began_before_the_foreign_message_is_followed_by_another",),
        wrong="a reading that began before the store was created again ends the search for its new id",
    ),
    Mutant(
        name="late_answer_gives_the_stores_id",
        path="pubsub_lib/core/replica_state.py",
        before="if syncs.running and number == syncs.number and self.stores",
        after="if self.stores",
        tests=(f"{REPLICA_STATE}::test_late_answer_does_not_change_the_stores_id",),
        wrong="an answer that timed out sets the id of a store that does not exist any more",
    ),
    Mutant(
        name="unfollow_leaves_a_clock",
        path=TRACKER,
        before="        self._holding.pop(topic, None)\n",
        after="",
        tests=(f"{RULES}::test_rule_08_dropped_topic_leaves_no_clock",),
        wrong="the clock of a dropped topic runs on, and a delta is begun for a topic that is not followed",
    ),
    Mutant(
        name="hello_reply_greets_every_topic",
        path=TRACKER,
        before="for topic in [each for each in self._joining if each in request.topics]:",
        after="for topic in list(self._joining):",
        tests=(f"{RULES}::test_rule_08_hello_reply_greets_only_the_topics_of_its_request",),
        wrong="a new topic is read before its subscription is proved, so that changes sent meanwhile are lost",
    ),
    Mutant(
        name="clock_outlives_a_sync",
        path=BUFFER,
        before="            step.restart_clock()\n",
        after="            pass\n",
        tests=(
            f"{RULES}::test_rule_05_clock_of_a_link_that_the_sync_drops_ends_with_it",
            f"{WAITING}::test_rule_05_time_of_a_replaced_step_ends_with_a_sync_that_drops_it",
        ),
        wrong="a link that waits is judged by the clock of a link that a sync dropped, and a delta has no cause",
    ),
    Mutant(
        name="restarted_clock_keeps_its_place",
        path=BUFFER,
        before="        if late:\n            self._steps = {",
        after="        if not late:\n            self._steps = {",
        tests=(f"{WAITING}::test_rule_05_time_of_a_replaced_step_ends_with_a_sync_that_drops_it",),
        wrong="the clock is not that of the oldest waiting link, and a delta begins late",
    ),
    Mutant(
        name="covered_outlives_a_full_sync",
        path=FRESHNESS,
        before="        self.covered = 0\n        self.count(reading, now)",
        after="        self.count(reading, now)",
        tests=(f"{PROOFS}::test_rule_07_full_sync_resets_the_position_covered_by_an_undone_history",),
        wrong="after a restore, a wait for a position returns although the replica does not have its changes",
    ),
    Mutant(
        name="claims_outlive_a_full_sync",
        path=FRESHNESS,
        before=" if kept.time >= reading.time}",
        after="}",
        tests=(f"{PROOFS}::test_rule_07_full_sync_drops_pending_readings_of_an_undone_history",),
        wrong="a claim of an undone history counts when a second restore brings its point back",
    ),
    Mutant(
        name="points_outlive_a_full_sync",
        path=CHAIN,
        before="        self.recent.clear()\n        self.earlier.clear()\n",
        after="        self.earlier.clear()\n",
        tests=(f"{PROOFS}::test_rule_07_head_of_an_undone_history_is_no_proof_after_a_full_sync",),
        wrong="an answer from an undone history proves freshness, and a lost commit is called applied",
    ),
    Mutant(
        name="retry_passes_a_notice",
        path=QUEUE,
        before=" and not self.barriers:",
        after=":",
        tests=(f"{NOTICE}::test_retry_merged_with_later_events_comes_after_the_notice",),
        wrong="a handler gets an older version before it is notified that the history changed",
    ),
    Mutant(
        name="failed_notice_lets_pass",
        path=QUEUE,
        before="if item is None and self._barrier_due is None:",
        after="if item is None:",
        tests=(f"{NOTICE}::test_no_event_overtakes_a_failed_notice",),
        wrong="a handler whose notice of another history failed gets an older version before the next try",
    ),
    Mutant(
        name="change_is_merged_across_a_notice",
        path=QUEUE,
        before="waiting.serial < self._barrier:",
        after="waiting.serial < 0:",
        tests=(f"{NOTICE}::test_over_the_limit_no_event_is_merged_across_a_notice",),
        wrong="a slow handler gets an older version before it is notified that the history changed",
    ),
    Mutant(
        name="returned_object_is_no_other_history",
        path="pubsub_lib/core/cache.py",
        before="version <= reached if old is None else old.version >= version",
        after="old is not None and old.version >= version",
        tests=(f"{REPLICA_STATE}::test_behind_a_trimmed_changelog_versions_that_go_back_mean_another_history",),
        wrong="an object whose delete was undone comes back without a notice",
    ),
    Mutant(
        name="undone_delete_is_no_other_history",
        path="pubsub_lib/core/replica_state.py",
        before="then=StepResult(events, history=HistoryChange(changed))",
        after="then=StepResult(events)",
        tests=(f"{REPLICA_STATE}::test_object_below_an_undone_delete_of_another_topic_comes_with_a_notice",),
        wrong="an object that another topic's undone delete had hidden comes back without a notice",
    ),
    Mutant(
        name="rot_is_another_history",
        path="pubsub_lib/core/replica_state.py",
        before="return not back if answer.contains_known is None else answer.contains_known",
        after="return not back",
        tests=(f"{REPLICA_STATE}::test_repair_by_a_full_sync_makes_no_notice",),
        wrong="an object altered in memory counts as another history when it is read again",
    ),
    Mutant(
        name="known_is_not_asked_about",
        path="pubsub_lib/core/replica_state.py",
        before="        if want.after is not None:\n            return want\n",
        after="        if want.after is not None or want.buckets is None:\n            return want\n",
        tests=(f"{REPLICA_STATE}::test_repair_by_a_full_sync_makes_no_notice",),
        wrong="a full sync does not ask the store whether its history contains the known point",
    ),
    Mutant(
        name="late_answer_takes_a_proof_back",
        path=FRESHNESS,
        before="self.proof = max(self.proof, reading.time)",
        after="self.proof = reading.time",
        tests=(f"{PROOFS}::test_rule_07_late_older_reply_does_not_lower_the_proof",),
        wrong="an older answer that comes late makes the replica look staler than it is",
    ),
    Mutant(
        name="late_answer_takes_a_publishers_proof_back",
        path=FRESHNESS,
        before="self.publisher_proof = max(self.publisher_proof, reading.time)",
        after="self.publisher_proof = reading.time",
        tests=(f"{PROOFS}::test_rule_07_late_older_reply_starts_no_polling",),
        wrong="an older answer that comes late makes the replica poll the database without need",
    ),
)
