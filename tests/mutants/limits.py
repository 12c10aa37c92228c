"""Mistakes in the limits of connections, subscriptions and files."""

from functools import partial

from _mutants.table import Mutant


def _mutant(path: str, tests: str, name: str, before: str, after: str, test: str, wrong: str) -> Mutant:
    return Mutant(name, path, before, after, (f"{tests}::{test}",), wrong=wrong)


CONNECTIONS = partial(
    _mutant, "drivers/pubsub_zmq/connection_limit.py", "tests/unit/drivers/zmq/test_connection_limit.py"
)
GUARD = partial(_mutant, "drivers/pubsub_zmq/inflow_guard.py", "tests/unit/drivers/zmq/test_inflow_guard.py")
SUBSCRIPTIONS = partial(
    _mutant, "drivers/pubsub_zmq/subscription_budget.py", "tests/unit/drivers/zmq/test_subscription_budget.py"
)
UNFINISHED = partial(_mutant, "drivers/pubsub_zmq/unfinished.py", "tests/unit/drivers/zmq/test_unfinished.py")
ENDLESS = partial(_mutant, "drivers/pubsub_zmq/endless.py", "tests/unit/drivers/zmq/test_endless.py")
ARRIVALS = partial(_mutant, "drivers/pubsub_zmq/arrivals.py", "tests/unit/drivers/zmq/test_arrivals.py")
BACKLOG = partial(_mutant, "drivers/pubsub_zmq/backlog.py", "tests/unit/drivers/zmq/test_backlog.py")
BUCKETS = partial(_mutant, "drivers/pubsub_zmq/buckets.py", "tests/unit/drivers/zmq/test_buckets.py")
PUBLISHER = partial(_mutant, "drivers/pubsub_zmq/publisher.py", "tests/unit/drivers/zmq/test_inflow_guard.py")
FILES = partial(_mutant, "pubsub_lib/service/open_files.py", "tests/unit/service/test_open_files.py")
HTTP = partial(_mutant, "pubsub_lib/http_limits.py", "tests/unit/test_http_limits.py")

MUTANTS = (
    CONNECTIONS(
        "connections_above_the_maximum_are_accepted",
        "wanted = self._limited or self._held",
        "wanted = self._held",
        "test_connections_above_the_maximum_are_dropped_and_accepted_again_below",
        "strangers use up the open files, and the next worker ends the service",
    ),
    CONNECTIONS(
        "connections_are_accepted_while_held",
        "wanted = self._limited or self._held",
        "wanted = self._limited",
        "test_new_connections_are_dropped_while_held_and_open_ones_continue",
        "a client that connects and leaves again and again keeps the publisher from sending",
    ),
    GUARD(
        "paused_connection_brings_data",
        'struct.pack("HBBI", 6, 0, 0, 1)',
        'struct.pack("HBBI", 6, 0, 0, 65_535)',
        "test_paused_connection_brings_nothing_takes_everything_and_loses_nothing",
        "one client's hello requests keep the publisher from sending for as long as it likes",
    ),
    GUARD(
        "guard_pauses_the_smallest",
        "key=lambda each: -brought[each]",
        "key=lambda each: brought[each]",
        "test_connections_that_brought_most_are_chosen_until_the_others_brought_little",
        "replicas are paused for the data of a stranger",
    ),
    GUARD(
        "guard_pauses_connections_of_other_ports",
        " and name[1] == port",
        "",
        "test_connection_of_another_port_is_not_paused",
        "the connection to the database is paused",
    ),
    UNFINISHED(
        "endless_message_is_not_ended",
        "if was_empty and left - read > FREE:",
        "if was_empty and left - read > 1000 * MAX_TOGETHER:",
        "test_bytes_count_when_all_that_waited_was_read_without_a_message_of_them",
        "one client's message without an end takes all memory",
    ),
    UNFINISHED(
        "message_proves_nothing_about_those_before",
        "if self._progress.last_of(descriptor) > self._emptied:",
        "if self._progress.last_of(descriptor) < -1:",
        "test_connection_that_sends_whole_messages_is_not_ended",
        "replicas that subscribe to what others have are ended for it",
    ),
    UNFINISHED(
        "messages_give_credit",
        "self._open[descriptor] = max(0, left + grown - read)",
        "self._open[descriptor] = left + grown - read",
        "test_messages_give_no_credit_for_later_bytes",
        "a client that first sends many subscriptions may send a long message without an end",
    ),
    ENDLESS(
        "endless_message_to_a_replica_is_not_ended",
        "if size > self.maximum}",
        "if size > 1000 * self.maximum}",
        "test_endless_message_is_found_and_no_honest_connection_after_any_steps",
        "a program at a publisher's address takes all memory of a replica",
    ),
    ENDLESS(
        "message_that_waited_proves_those_that_came_later",
        "            proves = False\n",
        "            proves = descriptor in self._counted\n",
        "test_message_that_was_held_before_proves_nothing_and_one_after_it_does",
        "a message without an end after some whole ones takes memory without a bound",
    ),
    ENDLESS(
        "messages_that_wait_count_as_none",
        "        if self._left:\n            return {}\n",
        "",
        "test_bytes_of_messages_that_still_wait_do_not_count",
        "a replica that reads slowly ends its connections to publishers",
    ),
    ENDLESS(
        "busy_replica_ends_no_connection",
        "        if not empty:\n            self._count",
        "        if empty:\n            self._count",
        "test_endless_message_is_found_while_messages_always_wait",
        "beside a publisher that sends much, a message without an end takes all memory",
    ),
    ARRIVALS(
        "bytes_in_the_system_count_as_taken",
        "Brought(before - waiting, after - waiting)",
        "Brought(before, after)",
        "test_bytes_that_wait_in_the_system_were_not_taken",
        "a replica that stalls ends its connections to publishers",
    ),
    ARRIVALS(
        "socket_that_has_the_number_of_a_closed_one_is_ended",
        "own = identity_of(connection.fileno()) == watched.identity",
        "own = True",
        "test_other_socket_with_the_descriptor_is_not_ended",
        "a replica ends its process's connection to the database",
    ),
    ARRIVALS(
        "messages_of_any_number_of_parts_are_kept",
        "elif number == MAX_PARTS + 1:",
        "elif number == 0:",
        "test_parts_above_the_maximum_are_not_kept",
        "ZeroMQ holds as many messages of millions of parts as of two",
    ),
    BACKLOG(
        "unread_subscriptions_have_no_limit",
        "if self.waiting <= MAX_WAITING:",
        "if self.waiting < 10**12:",
        "test_connections_that_bring_most_are_paused_while_much_waits",
        "ten clients let the queue of subscriptions grow until no memory is left",
    ),
    BUCKETS(
        "subscriptions_have_more_nodes_than_buckets",
        "return bytes((_BUCKET, 0x40 | number >> 8, number & 0xFF))",
        'return b"B%03x" % number',
        "test_rule_w7_any_number_of_topics_has_few_nodes",
        "connections that end together silence all others for longer",
    ),
    BUCKETS(
        "subscriptions_use_few_of_the_buckets",
        "zlib.crc32(topic) % BUCKETS",
        "len(topic) % BUCKETS",
        "test_rule_w7_any_number_of_topics_has_few_nodes",
        "a replica of one topic receives the messages of most others",
    ),
    BUCKETS(
        "subscriber_takes_its_whole_bucket",
        "return head[_HEADER:] in self._frames or ALL in self._topics",
        "return True",
        "test_topics_of_one_bucket_are_independent",
        "a replica decodes messages of topics that it does not follow",
    ),
    BUCKETS(
        "subscriber_uses_buckets_alone",
        "        self.named = True\n",
        "        return []\n",
        "test_subscriber_receives_from_publishers_of_both_versions_once",
        "a replica receives nothing of a publisher of an older version",
    ),
    BUCKETS(
        "second_copies_are_used",
        "return not self._exact and",
        "return self._exact and",
        "test_subscriber_receives_from_publishers_of_both_versions_once",
        "a replica gets each message twice while an older publisher runs",
    ),
    BUCKETS(
        "publisher_uses_buckets_alone",
        "(bucketed(head), head) if self.named else (bucketed(head),)",
        "(bucketed(head),)",
        "test_subscriber_of_an_older_version_receives_everything_once",
        "a replica of an older version receives nothing",
    ),
    BUCKETS(
        "end_of_a_subscription_to_a_name_is_used",
        """if frame[:1] != b"\\1" or""",
        """if frame[:1] == b"\\0":\n            self.named = False\n        if frame[:1] != b"\\1" or""",
        "test_names_are_sent_from_the_first_subscriber_to_a_name_on",
        "a client that reports the end of another one's subscription silences it",
    ),
    BUCKETS(
        "publisher_with_keys_uses_buckets",
        "if self._exact or not _is_data(head):",
        "if not _is_data(head):",
        "test_names_are_sent_from_the_first_subscriber_to_a_name_on",
        "a client receives topics that it was not granted",
    ),
    PUBLISHER(
        "sender_does_the_work_for_clients",
        " and not has_work(used.signal)",
        "",
        "test_sender_leaves_work_for_clients_to_the_sockets_thread",
        "the first call of a client's burst keeps a writer for longer than send_wait",
    ),
    CONNECTIONS(
        "connections_may_use_all_files",
        "min(wanted, files // _SHARE_OF_FILES)",
        "min(wanted, files)",
        "test_connections_get_at_most_half_of_the_files",
        "no file is left for workers and the database",
    ),
    CONNECTIONS(
        "ended_connection_is_not_verified",
        "if _local(connection) != self._bound_to:",
        "if False:",
        "test_only_an_open_connection_of_this_socket_is_ended",
        "a connection to the database that got the number of a closed one is ended",
    ),
    SUBSCRIPTIONS(
        "budget_ends_the_smallest_shares",
        "self._shares.most_common()",
        "reversed(self._shares.most_common())",
        "test_budget_ends_the_largest_shares_until_the_rest_fits",
        "replicas are ended for a stranger's subscriptions",
    ),
    SUBSCRIPTIONS(
        "budget_does_not_wait_for_ended_connections",
        "self._not_before = now + PAUSE",
        "self._not_before = now",
        "test_budget_waits_until_the_subscriptions_of_ended_connections_are_gone",
        "more connections are ended while the subscriptions of the first ones are removed",
    ),
    SUBSCRIPTIONS(
        "tables_of_the_tree_do_not_count",
        "cost = size + TABLE if kind == b\"\\1\" else -size - TABLE",
        "cost = size if kind == b\"\\1\" else -size",
        "test_memory_of_the_sparsest_subscriptions_is_within_40_bytes_for_each_counted_one",
        "short prefixes within the maximum take 300 times its memory",
    ),
    FILES(
        "soft_limit_stays",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))",
        "test_soft_limit_is_raised_to_the_hard_one",
        "a service has room for half of 1,024 connections",
    ),
    HTTP(
        "http_request_that_waited_has_only_the_rest_of_its_time",
        "self._place(peer, now + waited)",
        "self._place(peer, now)",
        "test_waiting_connection_for_ready_gets_its_whole_time",
        "a supervisor gets no answer from a busy service, and restarts it",
    ),
    HTTP(
        "http_request_that_waits_ignores_ordinary_places",
        "if len(self._ordinary) < MAX_CONNECTIONS - KEPT_FOR_READY:",
        "if len(self._ordinary) < MAX_CONNECTIONS - KEPT_FOR_READY and not (self._kept and self._ordinary):",
        "test_place_that_is_free_at_the_end_of_the_wait_is_taken",
        "a request is refused while a place is free",
    ),
)
