"""Mistakes in the drivers over a broker, each caught with a private server or without any."""

from functools import partial

from _mutants.table import Mutant


def _mutant(path: str, name: str, before: str, after: str, test: str, wrong: str) -> Mutant:
    return Mutant(name, f"drivers/pubsub_nats/{path}", before, after, (f"tests/{test}",), wrong=wrong)


UNIT = "unit/drivers/nats/test_nats.py::"
SERVER = "unit/drivers/nats/test_server.py::"
LOSSES = "unit/drivers/nats/test_losses.py::"
PARSED = "unit/drivers/nats/test_parser.py::"
FAKE = "unit/drivers/nats/test_fake_server.py::"
CONFORMANCE = "conformance/test_nats.py::TestNats"
SUBJECTS = partial(_mutant, "subjects.py")
PARSER = partial(_mutant, "parser.py")
CLIENT = partial(_mutant, "client.py")
CONNECTION = partial(_mutant, "connection.py")
PUBLISHER = partial(_mutant, "publisher.py")
SUBSCRIBER = partial(_mutant, "subscriber.py")

MUTANTS = (
    SUBJECTS(
        "dots_of_a_topic_stay_in_its_subject",
        '.replace(".", "%2E")',
        "",
        f"{UNIT}test_each_legal_topic_is_one_token_and_back",
        "a topic with a dot has several tokens, and a permission on a subject is none on the topic",
    ),
    SUBJECTS(
        "a_topic_has_several_subjects",
        " or token(found) != token_:",
        ":",
        f"{UNIT}test_other_tokens_are_foreign",
        "a message on a subject that a server's permissions do not name arrives on a topic that they do",
    ),
    SUBJECTS(
        "hello_request_names_any_subject_for_its_reply",
        "if not reply.startswith(self._reply) or len(parts) != 2",
        "if len(parts) != 2",
        f"{UNIT}test_a_hello_request_cannot_name_another_subject_for_its_reply",
        "a subscriber lets a publisher send to subjects on which the subscriber may not",
    ),
    CLIENT(
        "subject_that_is_not_text_ends_receiving",
        'self._on_message(subject.decode(errors="replace")',
        "self._on_message(subject.decode()",
        f"{SERVER}test_foreign_messages_are_counted_and_do_not_end_receiving",
        "one message of any program ends the receiving of every replica of all topics",
    ),
    PARSER(
        "control_character_in_a_subject_ends_the_connection",
        ".translate(_NO_SPACES)",
        "",
        f"{PARSED}test_control_characters_in_subjects_do_not_end_a_connection",
        "one message of any program ends the connection of every replica of all topics",
    ),
    PARSER(
        "control_characters_of_data_are_replaced",
        "            part = self._rest[:end]\n        del",
        "            part = self._rest[:end].translate(_NO_SPACES)\n        del",
        f"{PARSED}test_messages_come_whole_however_their_bytes_are_divided",
        "messages arrive damaged",
    ),
    CLIENT(
        "messages_and_hellos_overtake_each_other",
        "self._on_message(subject.decode",
        "self._reading_task.get_loop().call_later(sid / 10, self._on_message, subject.decode",
        f"{FAKE}test_messages_and_hellos_do_not_overtake_each_other",
        "a hello names a sequence whose messages are not received yet, and the replica reads a delta without need",
    ),
    CLIENT(
        "server_without_encryption_gets_the_password",
        "        if (self._access.tls or",
        "        if False and (self._access.tls or",
        f"{SERVER}test_a_server_without_encryption_does_not_get_the_password",
        "a program between client and server reads the password",
    ),
    CLIENT(
        "client_retries_by_itself",
        "            raise error",
        "            return",
        f"{SERVER}test_an_unavailable_server_is_one_sentence_in_time",
        "the client tries one server in a loop, and no error names it",
    ),
    CLIENT(
        "ping_overtakes_the_subscriptions",
        "async def _send_ping(self",
        "async def _send_slow_ping(self",
        f"{FAKE}test_a_connection_is_reported_when_the_server_has_handled_the_subscriptions",
        "on_connected is called before the server has the subscriptions, and what is sent then is lost",
    ),
    CONNECTION(
        "server_may_accept_less_than_a_frame",
        "if client.max_payload < self._min_payload:",
        "if client.max_payload < 0:",
        f"{SERVER}test_a_server_that_accepts_less_than_a_frame_is_refused_with_both_numbers",
        "the server ends the connection at each large transaction",
    ),
    CONNECTION(
        "refused_publisher_waits",
        "        if any(isinstance(each, RefusedError) for each in self._failures.values()):\n"
        "            self.settled.set()\n",
        "",
        f"{SERVER}test_wrong_credentials_are_refused_at_once_without_the_password",
        "with wrong credentials the start waits for the whole connect_timeout",
    ),
    CONNECTION(
        "silent_server_stays_connected",
        "                    await _ended(ping)\n                    return\n",
        "                    continue\n",
        f"{SERVER}test_a_silent_server_is_a_lost_one",
        "a server that vanished without a FIN is never left",
    ),
    CLIENT(
        "connection_that_is_not_read_stays",
        "        self._reading_task.add_done_callback(lambda _: self.lost.set_result(None))\n",
        "",
        f"{FAKE}test_a_connection_whose_reading_failed_is_made_again",
        "after an error of the client a replica receives nothing more",
    ),
    CONNECTION(
        "other_servers_of_the_cluster_are_not_used",
        " + self._discovered)\n",
        ")\n",
        f"{SERVER}test_a_client_moves_to_another_server_of_the_cluster",
        "a client that knows one server waits for it although its cluster works",
    ),
    CONNECTION(
        "connection_that_ends_at_once_is_made_again_at_once",
        "if time.monotonic() - began > longest:",
        "if True:",
        f"{FAKE}test_a_connection_that_ends_at_once_is_retried_with_growing_waits",
        "each process connects ten times a second to a server that ends each connection",
    ),
    CONNECTION(
        "each_refused_subject_is_logged",
        '".".join(text.split(".")[: self._options.prefix.count(".") + 2])',
        "text",
        f"{FAKE}test_refused_subjects_are_counted_and_logged_once_for_each_kind",
        "a publisher without the right to reply logs an error for each hello request",
    ),
    PUBLISHER(
        "request_without_its_inbox",
        "        self._inboxes[nonce] = reply\n",
        "",
        CONFORMANCE,
        "no hello request is answered",
    ),
    PUBLISHER(
        "publisher_is_closed_before_its_queue",
        "            self._queue.close()  # first: the thread ends when a closed publisher's queue is empty\n"
        "            self._life.closed = True\n",
        "            self._life.closed = True\n            self._queue.close()\n",
        f"{LOSSES}test_an_envelope_accepted_while_the_publisher_closes_is_sent",
        "an accepted envelope is not sent",
    ),
    PUBLISHER(
        "hello_request_of_any_size_is_queued",
        "if len(data) > self._request_limits.max_frame_bytes:",
        "if False:",
        f"{LOSSES}test_only_a_hello_request_over_the_limit_of_requests_is_not_queued",
        "programs that may send hello requests fill the memory of a publisher",
    ),
    PUBLISHER(
        "envelopes_left_in_the_queue_are_not_lost",
        "        self._lose(number_lost(self._queue.take()))\n",
        "",
        f"{LOSSES}test_envelopes_that_wait_without_a_connection_are_lost_at_the_end",
        "accepted envelopes are neither sent nor counted",
    ),
    PUBLISHER(
        "lost_frames_are_counted_instead_of_envelopes",
        "left -= number",
        "left -= 1",
        f"{LOSSES}test_envelopes_that_were_sent_are_not_lost",
        "envelopes that were sent count as lost",
    ),
    CLIENT(
        "cancellation_is_swallowed",
        "if task is not None and task.cancelling():",
        "if task is None:",
        f"{LOSSES}test_a_task_that_waits_for_a_server_that_does_not_read_can_be_cancelled",
        "a publisher that closes while its server stalls logs an internal error, and counts late",
    ),
    SUBSCRIBER(
        "topics_are_subscribed_to_beside_everything",
        "wanted = {ALL} if ALL in self._topics else changed & self._topics",
        "wanted = changed & self._topics",
        f"{SERVER}test_a_topic_beside_everything_is_delivered_once",
        "a replica of everything receives the messages of a topic twice",
    ),
    SUBSCRIBER(
        "topics_are_forgotten_at_a_new_connection",
        "            self._changed = set(self._topics)\n",
        "            self._changed = set()\n",
        CONFORMANCE,
        "after a reconnection a replica receives nothing",
    ),
    SUBSCRIBER(
        "message_without_room_is_not_counted",
        '            self._life.counts["lost"] += 1\n',
        "            pass\n",
        "e2e/test_nats.py::test_slow_replica_counts_lost_messages_and_converges_by_deltas",
        "no counter shows that a replica is too slow",
    ),
    Mutant(
        "received_messages_are_not_bounded_by_size",
        "pubsub_lib/receive_queue.py",
        "or self._bytes + size > self._max_bytes",
        "",
        ("tests/unit/test_receive_queue.py::test_queue_is_bounded_by_number_and_size_and_takes_one_item_of_any_size",),
        wrong="a slow replica needs ever more memory",
    ),
    PUBLISHER(
        "hello_request_is_limited_like_an_envelope",
        "len(data) > self._request_limits.max_frame_bytes",
        "len(data) > self._limits.max_frame_bytes",
        f"{LOSSES}test_only_a_hello_request_over_the_limit_of_requests_is_not_queued",
        "with a small max_frame_bytes a replica with many topics gets no hello, and syncs again and again",
    ),
    CLIENT(
        "servers_found_by_address_need_it_in_their_certificate",
        "tls_hostname=self._tls_name or None",
        "tls_hostname=None",
        "unit/drivers/nats/test_tls_cluster.py::test_a_server_that_another_one_named_takes_over",
        "with certificates of host names, no client moves to another server of the cluster",
    ),
)
