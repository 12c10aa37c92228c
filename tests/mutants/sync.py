"""Mistakes in a replica's client of the sync channel, and about parents while it reads."""

from functools import partial

from _mutants.table import Mutant


def _mutant(path: str, tests: str, name: str, before: str, after: str, test: str, wrong: str) -> Mutant:
    return Mutant(name, f"pubsub_lib/{path}.py", before, after, (f"tests/unit/{tests}.py::{test}",), wrong=wrong)


CLIENT = partial(_mutant, "sync/client", "sync/test_client")

PACKING = partial(_mutant, "sync/packing", "sync/test_packing")
SERVICE = partial(_mutant, "service/service", "service/test_syncs")
STANDBY = partial(_mutant, "service/standby_service", "service/test_standby_service")
SERVER = partial(_mutant, "sync/server", "sync/test_server")
RESUMING = partial(_mutant, "sync/resuming", "sync/test_resuming")
FRESHNESS = partial(_mutant, "core/freshness", "core/test_freshness")

PLACES = partial(_mutant, "sync/places", "sync/test_server")
SCHEDULER = partial(_mutant, "core/sync_scheduler", "core/test_sync_scheduler")
ANNOUNCER = partial(_mutant, "sync/announcer", "sync/test_announcer")
SLOW = "test_slow_client_loses_its_place_at_the_end_of_its_time"
HTTP = partial(_mutant, "http_server", "sync/test_client")

MUTANTS = (
    PLACES(
        "links_share_the_places_of_objects",
        "self._links if all(",
        "self._objects if all(",
        "test_links_and_objects_have_places_of_their_own",
        "slow first syncs keep out replicas that miss a few links",
    ),
    PLACES(
        "questions_are_received_without_bound",
        "min(2 * places + RECEIVED, MAX_REQUESTS)",
        "1000",
        "test_question_that_cannot_be_received_gets_503_at_once",
        "clients that send half a question each use up memory and connections",
    ),
    SCHEDULER(
        "failure_at_the_old_source_delays_the_new_one",
        "        self._source_changed = self.running\n",
        "",
        "test_sync_at_the_old_source_that_fails_later_delays_none_at_the_new_one",
        "a dead parent's backoff delays the first sync from the next parent",
    ),
    ANNOUNCER(
        "agent_is_announced_before_it_knows_its_parent",
        "        if not named and now < self._patience:\n",
        "        if False:\n",
        "test_agent_waits_for_the_name_of_its_parent_and_is_announced_with_it",
        "the tree shows an agent without its parent until its next announcement",
    ),
    HTTP(
        "slow_client_keeps_its_place",
        "            self._limit(until)\n            self.wfile.write(part)",
        "            self.wfile.write(part)",
        SLOW,
        "a client that takes one part in each 10 s keeps a place of the sync channel for hours",
    ),
    HTTP(
        "silent_client_keeps_its_place_too_long",
        "settimeout(min(left, http_limits.ANSWER_TIMEOUT))",
        "settimeout(http_limits.ANSWER_TIMEOUT)",
        SLOW,
        "a client that takes nothing keeps its place beyond sync_timeout",
    ),
    CLIENT(
        "server_that_hangs_takes_the_whole_time",
        "asked + begin)",
        "asked + inf)",
        "test_next_server_is_asked_when_one_does_not_begin_its_answer",
        "a relay that hangs delays each replica below it by sync_timeout, while another one could answer",
    ),
    CLIENT(
        "answer_counts_from_the_begin_of_the_sync",
        "asked_after=now - begun)",
        "asked_after=0.0)",
        "test_answer_has_the_time_after_which_its_server_was_asked",
        "a replica refuses every answer of the other relay while one that hangs is asked before it (rule R3)",
    ),
    CLIENT(
        "server_that_hangs_is_asked_each_second_time",
        "self._failing.get(url, begun) > begun or (url",
        "(url",
        "test_server_that_hung_is_not_asked_first_for_as_long_as_that_took",
        "each answer that is refused costs the wait for the relay that hangs",
    ),
    CLIENT(
        "parent_that_was_left_is_asked_first",
        " or (url.host, url.port) == left)",
        ")",
        "test_server_of_the_parent_that_was_left_is_asked_last",
        "a replica asks the relay that hangs, which it has just left, for what it missed",
    ),
    CLIENT(
        "slow_server_is_given_up",
        "self._slow[url] = min(2 * begin, self._timeout)",
        "pass",
        "test_slow_server_has_longer_each_time",
        "a replica of a large store never gets its first sync, because the service reads for longer",
    ),
    CLIENT(
        "server_of_the_old_parent_is_asked",
        "            self._urls, self._answered = list(known), None\n",
        "            self._urls = self._urls or list(known)\n",
        "test_server_that_is_known_at_the_time_of_the_question_is_asked",
        "a replica with parents alone asks the first one for ever",
    ),
    CLIENT(
        "parent_that_hangs_takes_the_whole_time",
        "self._others or len(self._urls) > 1",
        "len(self._urls) > 1",
        "test_single_server_that_hangs_is_given_up_when_others_may_be_known_later",
        "a replica goes on waiting for a parent that it has left",
    ),
    FRESHNESS(
        "parent_is_left_because_a_sync_hangs",
        "min(fresh.head_known_at, until)",
        "0.0",
        "test_rule_r5_parent_that_knows_a_newer_head_counts_for_as_long_as_a_sync_may_hang",
        "replicas move from parent to parent while a sync hangs, and back to the one that hangs",
    ),
    FRESHNESS(
        "parent_with_an_invented_head_is_kept",
        "min(fresh.head_known_at, until)",
        "fresh.head_known_at",
        "test_rule_r5_parent_that_knows_a_newer_head_counts_for_as_long_as_a_sync_may_hang",
        "a relay that names a head which never was keeps its replicas for ever",
    ),
    CLIENT(
        "silent_server_is_asked_first_again",
        "                self._ask_last(url)  # also when",
        "                # also when",
        "test_server_that_hangs_until_the_timeout_is_asked_last_next_time",
        "a hanging server takes the whole time of every sync, and no other one is ever asked",
    ),
    CLIENT(
        "relay_that_did_not_help_is_asked_again",
        "question.refresh or self._asks_again(question.wants)",
        "self._asks_again(question.wants)",
        "test_server_whose_answer_did_not_help_is_asked_last",
        "a relay that is cut off refuses nothing, so the replica never gets a newer answer",
    ),
    CLIENT(
        "relay_without_links_is_asked_again",
        "question.refresh or self._asks_again(question.wants)",
        "question.refresh",
        "test_relay_that_has_nothing_for_what_is_asked_again_is_asked_last",
        "a relay that lags has nothing for an announced change, and the replica asks no other one",
    ),
    CLIENT(
        "busy_server_is_asked_at_once",
        "        self._not_before[url] = self._now() + seconds\n",
        "",
        "test_busy_server_is_not_asked_before_the_time_that_it_named",
        "replicas that were sent away come back at once, together",
    ),
    CLIENT(
        "demanded_pause_is_not_bounded",
        "        seconds = min(seconds, self._max_pause)\n",
        "",
        "test_retry_after_is_bounded",
        "one wrong header keeps a replica from its syncs for years",
    ),
    RESUMING(
        "transfer_that_breaks_off_begins_again",
        "                self._topics[topic] = snapshot, size\n",
        "",
        "test_after_a_cut_only_the_missing_topics_are_requested",
        "a replica whose connection breaks in each sync never gets its objects",
    ),
    RESUMING(
        "topic_that_lacks_a_page_is_kept",
        "(len(records), records.digest) != (head.count, head.digest)",
        "False",
        "test_only_first_syncs_and_whole_topics_are_kept",
        "after a transfer that lost a page, objects are missing until the repair of their buckets",
    ),
    RESUMING(
        "relay_proves_nothing_for_kept_topics",
        "return SyncQuestion({**wants, **after}, refresh=True)",
        "return SyncQuestion({**wants, **after}, question.refresh)",
        "test_after_a_cut_only_the_missing_topics_are_requested",
        "the answer is older than the hello that the replica received meanwhile, and is refused",
    ),
    RESUMING(
        "answer_of_a_relay_that_is_behind_counts_for_newer_objects",
        "    elif head.point != kept.head.point:\n        return None\n",
        "",
        "test_relay_behind_a_kept_topic_is_asked_for_its_objects",
        "the objects of one point have the head of another one, and are repaired by a further sync",
    ),
    RESUMING(
        "links_from_another_point_are_applied_to_kept_objects",
        "if part.links[0].prev != kept.head.point:",
        "if False:",
        "test_relay_behind_a_kept_topic_is_asked_for_its_objects",
        "changes between the kept point and the first link are missing",
    ),
    PACKING(
        "page_that_is_not_full_is_not_sent",
        "    _close(opened, found)\n    return found\n",
        "    return found\n",
        "test_rows_may_come_in_any_order_and_in_other_types",
        "the last objects of each table are missing, and each replica repairs buckets after its first sync",
    ),
    PACKING(
        "pages_of_many_topics_wait_without_a_bound",
        "        if waiting > MAX_OPEN:\n",
        "        if False:\n",
        "test_pages_of_many_topics_are_closed_before_they_are_full",
        "a service reads all objects of many small topics into its memory",
    ),
    SERVICE(
        "service_reads_objects_as_a_replica_does",
        "read_sync(question.wants, read_packed)",
        "read_sync(question.wants)",
        "test_service_reads_objects_as_the_pages_that_it_sends",
        "each full sync takes four times the memory at the service",
    ),
    STANDBY(
        "standby_counts_as_the_primary",
        "read_packed), ages={})",
        "read_packed), ages=None)",
        "test_answers_have_no_age_and_nothing_is_written",
        "the objects of a copy that is behind replace newer ones",
    ),
    SERVER(
        "standby_answers_deltas",
        "if want == FIRST}",
        "if want is not None}",
        "test_route_of_first_syncs_leaves_out_what_another_server_must_answer",
        "a copy that is behind does not contain the replica's point, which then reads all objects from the primary",
    ),
)
