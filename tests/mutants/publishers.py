"""Mistakes in the defence against publishers and workers that send what the store does not contain (rule 14)."""

from _mutants.table import Mutant

TRACKER = "pubsub_lib/core/tracker.py"
VERIFIED = "tests/unit/core/test_verification.py"
LEASED = "tests/unit/core/test_leased_publishers.py"
UNLEASED = "pubsub_lib/core/unleased_messages.py"
UNLEASED_TESTS = "tests/unit/core/test_unleased_messages.py"
ENGINE = "pubsub_lib/replica/engine.py"
ENGINE_TESTS = "tests/unit/replica/test_engine.py"
ADMISSION = "tests/unit/publisher/test_admission.py"
PROVOKED = "tests/unit/core/test_provoked_reads.py"
HANDOFFS = "tests/unit/core/test_handoffs.py"
OUTGOING = "tests/unit/service/test_outgoing.py"
READER = "tests/unit/service/test_changelog_reader.py"

MUTANTS = (
    Mutant(
        name="undone_link_costs_all_objects",
        path=TRACKER,
        before="chain.repair = chain.undone = chain.source is not None and chain.synced",
        after="chain.repair = chain.undone = False",
        tests=(f"{VERIFIED}::test_rule_05_only_differing_buckets_are_read_to_undo_a_publishers_link",),
        wrong="each invented message of 150 bytes makes every replica read whole topics",
    ),
    Mutant(
        name="links_after_an_undone_point_are_applied",
        path=TRACKER,
        before="if chain.repair and chain.known is not None and not chain.undone:",
        after="if chain.repair and chain.known is not None:",
        tests=(f"{VERIFIED}::test_rule_05_links_that_wait_for_an_undone_point_are_not_applied_before_the_reading",),
        wrong="links that continue an invented one are applied, and no publisher is contradicted",
    ),
    Mutant(
        name="contradicted_worker_is_used",
        path="pubsub_lib/service/outgoing.py",
        before="if worker is not None and self._handoffs.excludes(worker[1]):",
        after="if False:",
        tests=(f"{OUTGOING}::test_worker_that_hands_over_what_was_never_committed_is_not_used",),
        wrong="a program of the host publishes what is in no database, again and again",
    ),
    Mutant(
        name="trimmed_link_accuses_its_worker",
        path="pubsub_lib/core/handoffs.py",
        before="if asked is None or there is not False:",
        after="if asked is None or there:",
        tests=(f"{HANDOFFS}::test_trimmed_links_accuse_no_worker",),
        wrong="the messages of a true worker are not used, because the changelog was trimmed",
    ),
    Mutant(
        name="restored_store_accuses_workers",
        path="pubsub_lib/service/changelog_reader.py",
        before="            self.jumps += 1\n            self._outgoing.history_changed()\n",
        after="            self.jumps += 1\n",
        tests=(f"{READER}::test_reader_jumps_to_the_head_of_another_history",),
        wrong="after a restored backup the messages of true workers are not used",
    ),
    Mutant(
        name="invented_link_hides_links_of_the_changelog",
        path="pubsub_lib/service/changelog_reader.py",
        before="            links, head, complete = self._store.read_links(begin, MAX_LINKS)\n",
        after="            pass\n",
        tests=(f"{READER}::test_reader_skips_no_links_after_a_point_that_was_never_committed",),
        wrong="a worker that hands over an invented link prevents the publication of others from the changelog",
    ),
    Mutant(
        name="publisher_without_a_lease_proves",
        path="pubsub_lib/core/leased_publishers.py",
        before="if not self.required or uuid in self.live:",
        after="if True:",
        tests=(f"{LEASED}::test_rule_14_replies_without_a_lease_prove_nothing",),
        wrong="a program at a dead publisher's address proves that a replica is fresh",
    ),
    Mutant(
        name="links_without_a_lease_are_applied",
        path="pubsub_lib/core/replica_state.py",
        before="used = envelope if live else self.unleased.hold(envelope, now)",
        after="used = envelope",
        tests=(f"{LEASED}::test_rule_14_changing_uuids_change_nothing",),
        wrong="a program that takes a new UUID for each link changes replicas without end",
    ),
    Mutant(
        name="hello_announces_links_that_wait_for_a_lease",
        path=UNLEASED,
        before="return msgspec.structs.replace(envelope, hello=msgspec.structs.replace(envelope.hello, sequences={}))",
        after="return envelope",
        tests=(f"{LEASED}::test_rule_14_links_that_waited_are_neither_lost_nor_repeated",),
        wrong="after each restart of a service its first messages are counted as repeated",
    ),
    Mutant(
        name="links_that_waited_for_a_lease_are_lost",
        path="pubsub_lib/core/replica_state.py",
        before="for envelope in self.unleased.taken(self.leased, now)]",
        after="for envelope in self.unleased.taken(self.leased, now)[:0]]",
        tests=(f"{LEASED}::test_rule_14_links_of_a_restarted_publisher_are_applied_when_its_lease_is_read",),
        wrong="each restart of a service costs each replica a delta",
    ),
    Mutant(
        name="messages_that_waited_are_used_in_reverse",
        path=UNLEASED,
        before="held, self._held = self._held, deque()",
        after="held, self._held = deque(reversed(self._held)), deque()",
        tests=(f"{UNLEASED_TESTS}::test_rule_14_messages_are_returned_in_the_order_of_their_arrival",),
        wrong="after a restart of a service its messages have to wait for each other",
    ),
    Mutant(
        name="unleased_messages_are_not_counted",
        path=UNLEASED,
        before="while self.messages > MAX_MESSAGES or self.size > MAX_BYTES:",
        after="while self.size > MAX_BYTES:",
        tests=(f"{UNLEASED_TESTS}::test_oldest_messages_are_dropped_when_there_are_too_many",),
        wrong="small forged messages use up the memory of a replica",
    ),
    Mutant(
        name="unleased_messages_are_not_measured",
        path=UNLEASED,
        before="while self.messages > MAX_MESSAGES or self.size > MAX_BYTES:",
        after="while self.messages > MAX_MESSAGES:",
        tests=(f"{UNLEASED_TESTS}::test_oldest_messages_are_dropped_when_they_are_too_large",),
        wrong="large forged messages use up the memory of a replica",
    ),
    Mutant(
        name="first_reading_drops_what_waits_for_a_lease",
        path=UNLEASED,
        before="elif now - arrived < KEPT:",
        after="elif False:",
        tests=(f"{LEASED}::test_rule_14_link_before_the_lease_is_stored_waits_for_a_later_reading",),
        wrong="what a service sends before its lease is stored is read from the store by each replica",
    ),
    Mutant(
        name="message_that_waits_causes_no_second_reading",
        path=UNLEASED,
        before="                leased.may_be_used(envelope.uuid, now)\n",
        after="                pass\n",
        tests=(f"{LEASED}::test_rule_14_link_before_the_lease_is_stored_waits_for_a_later_reading",),
        wrong="the first change after the start of a service waits for the next regular reading",
    ),
    Mutant(
        name="messages_that_waited_reach_no_handler",
        path=ENGINE,
        before="self._core.directory_read(uuids, self.now()):\n                self._notify_handlers(outcome)",
        after="self._core.directory_read(uuids, self.now()):\n                pass",
        tests=(f"{ENGINE_TESTS}::test_rule_14_link_that_waited_for_a_lease_reaches_handlers",),
        wrong="handlers are not called for what a service sent right after its start",
    ),
    Mutant(
        name="busy_clock_reads_no_lease",
        path=ENGINE,
        before=" or leased.read_at < read_at)",
        after=")",
        tests=(f"{ENGINE_TESTS}::test_rule_14_link_without_a_lease_wakes_a_clock_that_waits_for_something_else",),
        wrong="a link of a service that just started waits for an unrelated deadline",
    ),
    Mutant(
        name="own_publisher_has_no_lease",
        path="pubsub_lib/publisher/admission.py",
        before="if not own_uuid or directory is None or not loader.load(",
        after="if True or not loader.load(",
        tests=(f"{ADMISSION}::test_publisher_without_keys_is_in_the_directory_while_it_runs",),
        wrong="the changes of a program that publishes by itself are read from the store by each replica",
    ),
    Mutant(
        name="reply_without_a_lease_is_a_reading",
        path="pubsub_lib/core/tracker.py",
        before="began = request.asked - hello.age if request is not None and proves else None",
        after="began = request.asked - hello.age if request is not None else None",
        tests=(f"{LEASED}::test_rule_14_position_of_a_publisher_without_a_lease_covers_nothing",),
        wrong="wait_for returns at a position that a program without a lease invented",
    ),
    Mutant(
        name="lease_that_appears_causes_no_hello_request",
        path="pubsub_lib/core/replica_state.py",
        before="            effects += self.tracker.request_hellos(now)\n",
        after="            pass\n",
        tests=(f"{LEASED}::test_rule_14_restarted_publisher_proves_at_once",),
        wrong="a restarted publisher proves nothing before the next round of hello requests",
    ),
    Mutant(
        name="replica_that_was_wrong_accuses_a_publisher",
        path="pubsub_lib/core/provoked_reads.py",
        before="each.buckets is None or each.buckets or differs(topic, each.head)",
        after="each.buckets is None or each.buckets",
        tests=(f"{PROVOKED}::test_digest_that_shows_a_true_difference_accuses_no_publisher",),
        wrong="a publisher whose digests are right is not used, because the replica's own was wrong",
    ),
    Mutant(
        name="false_digests_are_compared_without_pause",
        path="pubsub_lib/core/replica_state.py",
        before="if envelope is not None and not self.provoked.may_compare(envelope.uuid, now):",
        after="if False:",
        tests=(f"{PROVOKED}::test_rule_14_false_digests_cause_few_readings_within_a_moment",),
        wrong="each false hello costs the database the bucket digests of a topic",
    ),
    Mutant(
        name="false_digests_accuse_no_publisher",
        path="pubsub_lib/core/replica_state.py",
        before="                quarantined += self.provoked.answered(",
        after="                self.provoked.answered(",
        tests=(f"{PROVOKED}::test_rule_14_publisher_with_false_digests_is_quarantined",),
        wrong="a publisher with false digests is excluded and no line of the log names it",
    ),
    Mutant(
        name="waiting_link_accuses_another_publisher",
        path="pubsub_lib/core/provoked_reads.py",
        before="publisher = waited[link.topic, link.point]",
        after="publisher = None if envelope is None else (envelope.service, envelope.uuid)",
        tests=(f"{PROVOKED}::test_rule_14_link_that_had_waited_accuses_its_own_publisher",),
        wrong="a false link that waits for a true one accuses the true one's publisher",
    ),
    Mutant(
        name="waiting_link_after_an_altered_one_accuses",
        path="pubsub_lib/core/provoked_reads.py",
        before="if head is None or head.point != cause.claim.point or head == cause.claim:",
        after="if head is None:",
        tests=(f"{PROVOKED}::test_rule_14_link_after_an_altered_one_accuses_no_publisher",),
        wrong="a liar alters true transactions, and the publisher of the next ones is excluded",
    ),
    Mutant(
        name="waiting_parts_accuse_the_first_publisher",
        path="pubsub_lib/core/reorder_buffer.py",
        before="                step.publishers[message.link.topic] = None\n",
        after="                pass\n",
        tests=(f"{PROVOKED}::test_rule_14_link_whose_parts_came_from_two_publishers_accuses_none",),
        wrong="a link is completed by another publisher, and its first one is accused of the result",
    ),
    Mutant(
        name="waiting_links_are_read_without_pause",
        path="pubsub_lib/core/tracker.py",
        before="if waited and not self._pauses.may_read(chain.name, now):",
        after="if False:",
        tests=(
            f"{PROVOKED}::test_rule_14_pauses_between_readings_grow_while_links_of_many_publishers_wait_for_them",
            f"{PROVOKED}::test_rule_14_pauses_between_readings_grow_when_links_arrive_in_the_wrong_order",
        ),
        wrong="false links that wait cause one reading of buckets after the other, without end",
    ),
)
