"""Mistakes in the threads and the service of a relay, and in the choice of a parent."""

from functools import partial

from _mutants.table import Mutant


def _mutant(path: str, tests: str, name: str, before: str, after: str, test: str, wrong: str) -> Mutant:
    return Mutant(name, f"pubsub_lib/{path}.py", before, after, (f"tests/unit/{tests}.py::{test}",), wrong=wrong)


CORE = partial(_mutant, "relay/core", "relay/test_core")
PARENTS = partial(_mutant, "replica/parent_subscriber", "replica/test_parent_subscriber")
DISCOVERY = partial(_mutant, "replica/discovery", "replica/test_discovery")
CHOICE = partial(_mutant, "core/parents", "core/test_parents")
COPY = partial(_mutant, "core/topic_copy", "core/test_topic_copy")
OBJECTS = partial(_mutant, "core/topic_objects", "core/test_topic_copy")
LOG = partial(_mutant, "core/topic_log", "core/test_topic_log")
CONTENTS = partial(_mutant, "core/relay_contents", "core/test_relaying")
ENGINE = partial(_mutant, "relay/engine", "relay/test_engine")
FULL = partial(_mutant, "relay/full_syncs", "relay/test_full_syncs")
LEASES = partial(_mutant, "service/leases", "service/test_leases")
SERVICE = partial(_mutant, "service/relay_service", "service/test_relay_service")
RELAY = partial(_mutant, "core/relaying", "core/test_relaying")
SEQUENCER = partial(_mutant, "core/relay_sequencer", "core/test_relaying")
SPACE = partial(_mutant, "core/log_space", "core/test_log_space")
ANSWER = partial(_mutant, "core/answer_time", "core/test_answer_time")
FRESH = partial(_mutant, "core/freshness", "core/test_freshness")

MUTANTS = (
    SEQUENCER(
        "relay_with_a_silent_parent_sends_no_hello",
        "self._failed = not proved and now >= self._due()",
        "self._failed = False",
        "test_rule_r1_relay_with_a_silent_parent_sends_hellos_with_their_age",
        "replicas below with parents alone do not learn the port of the relay's sync channel",
    ),
    SEQUENCER(
        "first_hello_waits_as_after_failures",
        "        self._failures = 0\n        self._read_from = min(self._read_from, now)\n",
        "        pass\n",
        "test_relay_sends_its_first_hello_soon_after_its_objects_arrived",
        "each level of a tree that starts waits up to 30 s longer",
    ),
    RELAY(
        "link_looks_at_all_topics_while_proofs_are_renewed",
        "            unproved.pop()\n        return not unproved\n",
        "            unproved.pop()\n        return all(map(contents.serves, self._refreshed)) and not unproved\n",
        "test_link_passes_without_a_look_at_all_topics_while_the_proofs_are_renewed",
        "links of a relay with many topics wait for looks at all of them",
    ),
    SPACE(
        "busy_topic_forgets_the_links_of_others_first",
        "        elif first != number:\n            heapreplace(self._oldest, (first, name, log))\n",
        "",
        "test_links_that_were_logged_first_are_forgotten_of_whatever_topic",
        "one topic's log ends long before that of another one, and its replicas read everything",
    ),
    COPY(
        "copy_has_the_version_before_the_last_change",
        ".setdefault(change.key, (entry.version, entry.value))",
        "[change.key] = (entry.version, entry.value)",
        "test_copies_have_the_objects_of_their_begin_whatever_links_change",
        "a relay's answer has objects of several points, and its digest is not that of its head",
    ),
    OBJECTS(
        "copy_misses_the_changes_of_links",
        "            copy.touch(link)\n",
        "            pass\n",
        "test_copies_have_the_objects_of_their_begin_whatever_links_change",
        "a relay's answer has objects of several points, and its digest is not that of its head",
    ),
    OBJECTS(
        "copy_ends_when_the_topic_is_replaced",
        "            copy.finish()\n",
        "            pass\n",
        "test_copy_has_its_objects_after_the_topic_was_replaced_or_dropped",
        "a relay that syncs while it answers sends objects of another point",
    ),
    OBJECTS(
        "copies_that_were_read_get_each_link",
        " is not None and copy.needs_links]",
        " is not None]",
        "test_copies_have_the_objects_of_their_begin_whatever_links_change",
        "a relay keeps the old values of all objects that change while an answer is sent",
    ),
    ENGINE(
        "objects_of_an_answer_are_read_without_a_pause",
        "pack(giving_way(self._parts(each.records)))",
        "pack(self._parts(each.records))",
        "test_objects_are_copied_once_for_replicas_that_begin_together",
        "links wait for the interpreter's lock while a relay makes an answer",
    ),
    RELAY(
        "links_count_from_the_begin_of_the_sync",
        "asked, ages = self.state.tracker.syncs.begun + answer.asked_after, answer.ages",
        "asked, ages = self.state.tracker.syncs.begun, answer.ages",
        "test_rule_r1_links_count_from_the_question_to_the_server_that_answered",
        "replicas refuse the deltas of a relay that asked a server which hung before",
    ),
    CONTENTS(
        "older_links_count_from_the_begin_of_the_question",
        "asked = begun + older.asked_after",
        "asked = begun",
        "test_relay_that_was_started_again_answers_with_older_links_that_it_read",
        "replicas refuse the older links of a relay that asked a server which hung before",
    ),
    RELAY(
        "started_relay_answers_replicas_that_are_not_connected",
        "(self._held if start.nonce and not full else self._questions)",
        "self._questions",
        "test_restarted_relay_costs_a_replica_that_connects_late_one_delta",
        "after a restart of a relay a replica reads a second delta",
    ),
    RELAY(
        "started_relay_holds_questions_for_ever",
        "            if settled or question.nonce in self._requested:\n",
        "            if question.nonce in self._requested:\n",
        "test_started_relay_holds_a_delta_for_a_bounded_time",
        "a replica that listens to another relay gets no delta from this one",
    ),
    ANSWER(
        "delta_is_used_up_to_an_older_reading",
        "        if max(at.earliest, applied, read) > latest:\n",
        "        if reading is not None or max(at.earliest, applied, read) > latest:\n",
        "test_rule_r3_reading_that_is_not_newer_than_the_proof_saves_no_delta",
        "after a restore a late delta brings back what was undone",
    ),
    ANSWER(
        "begin_of_a_delta_counts_as_of_its_answer",
        "AnswerTime(NEVER_YET, NEVER_YET, covered, ",
        "AnswerTime(at.earliest, at.latest, covered, ",
        "test_rule_r3_begin_of_a_delta_proves_no_more_than_the_reading_it_leads_to",
        "a replica that uses the begin of a delta claims to be as fresh as with all of it",
    ),
    ANSWER(
        "begin_of_a_delta_drops_what_the_answer_would_cover",
        "AnswerTime(NEVER_YET, NEVER_YET, covered, ",
        "AnswerTime(NEVER_YET, NEVER_YET, at.turn, ",
        "test_rule_r4_begin_of_a_delta_covers_nothing_after_the_reading_it_leads_to",
        "a link that no answer covers is dropped, and is missing until the next hello",
    ),
    ANSWER(
        "begin_of_a_delta_drops_nothing",
        "AnswerTime(NEVER_YET, NEVER_YET, covered, ",
        "AnswerTime(NEVER_YET, NEVER_YET, 0, ",
        "test_rule_r4_begin_of_a_delta_covers_what_was_received_before_the_reading_it_leads_to",
        "a reading proves a link that a restore has undone before it",
    ),
    ANSWER(
        "refused_delta_is_refused_as_a_whole",
        "        if reached is not None:\n",
        "        if False:\n",
        "test_rule_r3_delta_beyond_the_head_that_a_relays_hello_named_needs_no_other_delta",
        "under writes a failover costs several deltas",
    ),
    FRESH(
        "replica_polls_while_it_leaves_its_parent",
        " + self.poll_delay",
        "",
        "test_monitor_without_chains_has_nothing_due",
        "after a relay was killed a replica reads a second delta from the next one",
    ),
    CORE(
        "relay_asks_nothing_above_for_a_message",
        "        self._requests.extend(result.hello_requests)\n",
        "",
        "test_hello_requests_for_above_are_kept_until_they_are_taken",
        "replicas below a relay get no proof until the relay's own next round",
    ),
    CORE(
        "links_are_put_into_the_log_before_they_are_sent",
        "    def _out(self, step: RelayStep, now: float) -> StepResult:\n",
        "    def _out(self, step: RelayStep, now: float) -> StepResult:\n        self.relay.contents.log()\n",
        "test_link_is_sent_before_it_is_put_into_the_log_and_is_then_answered",
        "each link waits for bookkeeping before it leaves the relay",
    ),
    CONTENTS(
        "relay_answers_from_a_log_without_the_last_links",
        "        self.log()\n        return self._log_from(topic, self.head(topic).point)\n",
        "        return self._log_from(topic, self.head(topic).point)\n",
        "test_relay_answers_a_delta_from_its_log",
        "a delta ends before the head that it names",
    ),
    CORE(
        "relay_sends_after_its_goodbye",
        "        if self._closed:\n            return False\n        if self._journal",
        "        if self._journal",
        "test_nothing_is_sent_after_the_goodbye",
        "a replica that has left counts the late messages as a hole",
    ),
    CORE(
        "relay_does_not_record_what_it_sends",
        "            journal.messages(_SENT, envelope)\n",
        "            pass\n",
        "test_what_is_sent_is_in_the_journal_before",
        "the audit reports every message of the relay as unrecorded",
    ),
    CORE(
        "closing_relay_leaves_questions_waiting",
        "            waiting.set_result(None)\n        self._waiting.clear()",
        "            pass\n        self._waiting.clear()",
        "test_nothing_is_sent_after_the_goodbye",
        "the shutdown waits for each transfer's timeout",
    ),
    CORE(
        "questions_at_a_relay_are_not_bounded",
        "or len(self._waiting) >= MAX_WAITING",
        "",
        "test_question_that_was_given_up_or_is_one_too_many_gets_no_answer",
        "many replicas fill the relay's memory with questions",
    ),
    PARENTS(
        "parent_without_a_channel_counts_as_one_that_answers",
        "bool(self._serves) or not self._reads_channel",
        "True",
        "test_rule_r5_parent_without_a_channel_proves_nothing_that_is_to_be_read_from_it",
        "a replica waits sync_timeout longer for a parent that answers no syncs",
    ),
    PARENTS(
        "late_goodbye_of_the_old_parent_leaves_the_new_one",
        "        if envelope.uuid in self._left:\n            return False\n",
        "",
        "test_goodbye_of_the_parent_is_a_reason_to_leave_at_once",
        "a replica runs through all its parents when one of them stops",
    ),
    PARENTS(
        "relays_named_in_a_goodbye_are_ignored",
        "self._parents.leave(time.monotonic(), hello.instead)",
        "self._parents.leave(time.monotonic())",
        "test_goodbye_that_names_other_relays_leads_to_one_of_the_own_parents",
        "a drained relay sends its replicas to one that has no room",
    ),
    CHOICE(
        "relay_sends_replicas_to_any_address",
        "next((name for name in usable if name in instead), usable[0])",
        "next(iter(instead), usable[0])",
        "test_rule_r5_parent_that_stops_names_the_next_one_among_the_replicas_own",
        "one relay that is taken over leads all replicas below it to a publisher of false changes",
    ),
    CHOICE(
        "parent_of_an_ended_loop_is_excluded_for_long",
        "self.refused.get(name, NEVER_YET) + self._timing.stale_after <= now",
        "self.refused.get(name, NEVER_YET) + 10 * self._timing.stale_after <= now",
        "test_rule_r6_stale_relay_tries_its_other_parent_again_after_the_time_of_one",
        "two relays that may choose each other: after a loop of a moment one of them is stale for minutes",
    ),
    RELAY(
        "left_parent_stays_in_the_path",
        "        self._above.clear()\n",
        "        pass\n",
        "test_rule_r6_parent_that_was_left_leaves_the_path_at_once",
        "a relay refuses a healthy parent, which has just left it",
    ),
    RELAY(
        "loop_of_a_parent_is_kept",
        "        self._loops.clear()\n",
        "        pass\n",
        "test_rule_r6_parent_that_is_chosen_again_is_judged_by_its_next_hello",
        "a link that comes before the hello reply makes a relay leave a healthy parent",
    ),
    PARENTS(
        "relay_does_not_know_that_it_moved",
        "            self._changed()\n",
        "            pass\n",
        "test_relay_is_notified_after_the_driver_left_the_old_parent",
        "a relay names a parent that it has left",
    ),
    PARENTS(
        "first_channel_of_a_parent_is_kept",
        "self._serves = hello.serves\n",
        "self._serves = self._serves or hello.serves\n",
        "test_channel_is_that_of_the_last_hello_of_the_current_parent",
        "a replica goes on asking at the port that its parent had before its last start",
    ),
    PARENTS(
        "port_of_the_old_parent_is_kept",
        'self._publisher, self._serves = "", 0',
        'self._publisher = ""',
        "test_channel_is_that_of_the_last_hello_of_the_current_parent",
        "a replica asks its new parent at the port of the old one until the first hello",
    ),
    PARENTS(
        "uuid_of_a_parent_stays_left",
        "        if hello.nonce in self._requested:\n",
        "        if False:\n",
        "test_parent_at_another_address_of_the_same_relay_is_used",
        "a replica that moved to another address of its relay never reads a sync again",
    ),
    PARENTS(
        "late_reply_of_the_old_parent_counts_as_the_new_ones",
        "if self._left and self._listens_to == self._parents.current:",
        "if self._left:",
        "test_request_before_the_old_address_is_disconnected_proves_no_new_parent",
        "a replica asks its new parent at the port of the old one",
    ),
    CORE(
        "relay_names_no_channel",
        "        self.relay.sequencer.serves = port\n",
        "        pass\n",
        "test_port_of_the_sync_channel_is_in_every_hello_but_the_goodbye",
        "a replica with parents alone never gets its first objects",
    ),
    SERVICE(
        "directory_has_the_port_0",
        "                self._leases.address = self.address\n",
        "                pass\n",
        "test_relay_enters_the_free_port_that_it_bound",
        "a relay with a free port cannot be found",
    ),
    PARENTS(
        "both_parents_are_listened_to",
        "            self._driver.unregister_listen_address(self._listens_to)\n",
        "            pass\n",
        "test_rule_r5_first_parent_is_listened_to_and_a_silent_one_is_left",
        "after some moves every replica listens to every relay",
    ),
    PARENTS(
        "refused_address_is_tried_for_ever",
        "                self._parents.leave(now)\n                self._record(*recorded)",
        "                self._record(*recorded)",
        "test_address_that_the_driver_refuses_is_left_for_the_next_one",
        "one mistyped address among the parents leaves the replica without any",
    ),
    PARENTS(
        "late_hello_names_the_new_parent",
        "        if envelope.uuid in self._left:\n            return False\n        self._record(",
        "        self._record(self._recorded[0], (envelope.service, envelope.uuid))\n"
        "        if envelope.uuid in self._left:\n            return False\n        self._record(",
        "test_journal_gets_each_parent_and_its_publisher_once",
        "the audit expects the messages of the old parent after the replica left it",
    ),
    PARENTS(
        "refused_address_stays_the_parent_in_the_journal",
        "                self._record(*recorded)\n",
        "",
        "test_journal_gets_the_old_parent_again_when_the_new_address_is_refused",
        "the audit expects nothing of the parent that the replica still listens to",
    ),
    DISCOVERY(
        "every_replica_listens_to_relays",
        "if entry.address and entry.role != RELAY]",
        "if entry.address]",
        "test_relays_are_not_listened_to_unless_they_are_parents",
        "each relay doubles the messages of all replicas, and relays listen to each other",
    ),
    LOG(
        "older_links_count_as_of_their_reading",
        "applied = confirmed if all_confirmed else min(confirmed, self._links[0].applied)",
        "applied = confirmed",
        "test_rule_r3_older_links_that_do_not_show_the_head_are_no_newer_than_the_log",
        "a replica takes links that a restore has undone for newer than its proof",
    ),
    LOG(
        "older_links_with_a_hole_are_joined",
        "if at is None or any(link.prev != before.point for before, link in pairwise(links)):",
        "if at is None:",
        "test_older_links_that_do_not_lead_to_the_log_or_have_no_room_are_not_used",
        "a delta lacks links, and the replica reads everything again",
    ),
    ENGINE(
        "each_replica_below_causes_a_reading_of_older_links",
        "now, lacking = self.now(), self.read(lambda state: self.core.lacking(question))",
        "now, lacking = self.now(), question.wants",
        "test_links_from_before_the_start_are_read_once_for_all_replicas_below",
        "after a restart of a relay the database is read once for each replica below it",
    ),
    ENGINE(
        "each_question_causes_a_reading_that_does_not_help",
        "        self._older_again.update(dict.fromkeys(wants.keys() & lacking.keys(), again))\n",
        "",
        "test_point_that_never_was_costs_one_reading_of_older_links",
        "who asks for points that never were makes the relay read the database for each question",
    ),
    FULL(
        "each_full_sync_reads_the_database_at_once",
        "        if not any(is_full(want) for want in question.wants.values()):\n",
        "        if True:\n",
        "test_of_many_relays_two_read_all_objects_at_the_same_time",
        "all relays that start together read all objects from the database at the same time",
    ),
    FULL(
        "lease_of_a_long_full_sync_ends",
        "        renewals.start()\n",
        "",
        "test_lease_is_renewed_while_the_reading_runs",
        "a third relay reads the database while two long full syncs run",
    ),
    FULL(
        "lease_is_kept_after_the_full_sync",
        "            self._release(name)\n",
        "            pass\n",
        "test_of_many_relays_two_read_all_objects_at_the_same_time",
        "after each full sync the next relay waits until the lease expires",
    ),
    FULL(
        "sibling_is_asked_for_ever",
        "if self._siblings is None or self._sibling_answered:",
        "if self._siblings is None:",
        "test_after_a_siblings_answer_that_did_not_help_the_database_is_read",
        "a relay whose sibling is behind never gets its objects",
    ),
    SERVICE(
        "relay_with_parents_alone_announces_nothing",
        "settings.sync_url or self._relay.parent_channel",
        "settings.sync_url",
        "test_relay_with_parents_alone_reads_and_announces_itself_at_its_current_parent",
        "agents below a relay without sync_url are missing in every list",
    ),
    LEASES(
        "relay_holds_the_lease_for_orphans",
        "((ORPHANS, MAINTENANCE) if role == ORIGIN else ())",
        "(ORPHANS, MAINTENANCE)",
        "test_relay_has_an_entry_and_takes_no_work_on_the_changelog",
        "no service publishes the links of a dead one, because a relay holds the lease and does not do the work",
    ),
)
