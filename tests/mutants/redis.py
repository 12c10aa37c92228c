"""Mistakes in the driver over Redis, and in what it shares: packing of queued messages, waits between connections."""

from functools import partial

from _mutants.table import Mutant


def _mutant(path: str, tests: str, name: str, before: str, after: str, test: str, wrong: str) -> Mutant:
    return Mutant(name, path, before, after, (f"{tests}::{test}",), wrong=wrong)


UNIT = "tests/unit/drivers/test_redis.py"
SUITE = "tests/conformance/test_redis.py::TestRedis"
WHOLE = "tests/e2e/test_redis.py"
PACKED = "tests/unit/test_send_queue.py"
DRIVER = "drivers/pubsub_redis"
QUEUE = partial(_mutant, "pubsub_lib/send_queue.py", PACKED)
PAUSE = partial(_mutant, "pubsub_lib/reconnect_pause.py", "tests/unit/test_reconnect_pause.py")
REQUESTS = partial(_mutant, "pubsub_lib/hello_requests.py", "tests/unit/test_hello_requests.py")
LIMITS = partial(_mutant, "pubsub_lib/hello_requests.py", UNIT)
PUBLISHER = partial(_mutant, f"{DRIVER}/publisher.py", UNIT)
FRAMES = partial(_mutant, f"{DRIVER}/frames.py", UNIT)
SUBSCRIBER = partial(_mutant, f"{DRIVER}/subscriber.py", SUITE)
REPLIES = partial(_mutant, f"{DRIVER}/connection.py", "tests/unit/drivers/test_redis_connection.py")
OPENING = partial(_mutant, f"{DRIVER}/opening.py", "tests/unit/drivers/test_redis_connection.py")
FILES = partial(_mutant, "pubsub_lib/config/driver_options.py", "tests/unit/drivers/test_redis_tls.py")
CONNECTION = partial(_mutant, f"{DRIVER}/connection.py", WHOLE)

MUTANTS = (
    QUEUE(
        "hello_is_overtaken_in_the_queue",
        "            for run in runs.values():\n                yield run.frame()\n            runs.clear()\n",
        "",
        "test_no_message_overtakes_a_hello_and_no_hello_a_message",
        "a hello names sequences of messages that arrive later, and the replica reads the store without need",
    ),
    QUEUE(
        "message_is_sent_twice_at_a_hello",
        "            runs.clear()\n",
        "",
        "test_no_message_overtakes_a_hello_and_no_hello_a_message",
        "every message before a hello is sent again",
    ),
    QUEUE(
        "shared_frame_grows_without_bound",
        "if size > max_bytes or envelope.sequence",
        "if envelope.sequence",
        "test_messages_of_a_topic_share_a_frame_up_to_its_limit",
        "receivers drop a frame as oversized",
    ),
    QUEUE(
        "message_overtakes_any_number_of_others",
        "window = waiting[start : start + WINDOW]",
        "window = waiting if not start else ()",
        "test_a_message_overtakes_at_most_a_window",
        "a replica of everything buffers any number of messages",
    ),
    PAUSE(
        "wait_between_connections_does_not_grow",
        "        self._next = min(2 * self._next, self._longest)\n",
        "",
        "test_the_pause_doubles_up_to_its_maximum_and_begins_again",
        "all replicas connect to a server that is down ten times a second",
    ),
    PAUSE(
        "all_processes_connect_at_once",
        " * random.uniform(0.5, 1.0)",
        "",
        "test_processes_that_lost_a_connection_together_retry_at_different_times",
        "a server that starts again gets all connections at one moment",
    ),
    REQUESTS(
        "hello_requests_wait_without_a_limit_of_bytes",
        " and self._bytes + len(frame) <= MAX_WAITING_BYTES",
        "",
        "test_requests_beyond_the_byte_limit_are_counted_and_dropped",
        "requests of the maximum size fill 10 GB of a publisher's memory",
    ),
    REQUESTS(
        "hello_requests_that_were_taken_count_as_waiting",
        "        self._bytes -= len(frame)\n",
        "",
        "test_requests_beyond_the_byte_limit_are_counted_and_dropped",
        "after 64 MiB of requests in all, a publisher answers none",
    ),
    REQUESTS(
        "one_peer_fills_the_queue_of_hello_requests",
        "room > (0 if peer is None else len(own))",
        "room > 0",
        "test_one_peer_fills_half_of_the_queue_and_two_leave_a_third",
        "one client's hello requests drop those of the others",
    ),
    PUBLISHER(
        "redis_lost_envelopes_are_not_counted",
        "self._lost += number_lost(self._queue.take())",
        "self._queue.take()",
        "test_a_publisher_refuses_without_a_connection_and_counts_what_a_lost_one_drops",
        "a loss shows in no counter",
    ),
    PUBLISHER(
        "redis_envelope_waits_for_the_next_connection",
        "        if not self._connected:  # lost meanwhile\n            self._drop()\n",
        "",
        "test_an_envelope_that_is_queued_after_the_connection_was_lost_is_counted_as_lost",
        "an envelope is accepted and, without another connection, neither sent nor counted as lost",
    ),
    PUBLISHER(
        "redis_sender_drops_what_a_new_connection_sends",
        "            if not self._connected:\n                self._lost",
        "            if True:\n                self._lost",
        "test_a_sender_that_saw_a_lost_connection_drops_nothing_of_the_next_one",
        "envelopes are lost although there is a connection",
    ),
    PUBLISHER(
        "redis_sends_are_accepted_without_a_connection",
        "        self._check_connected()\n",
        "",
        "test_a_publisher_refuses_without_a_connection_and_counts_what_a_lost_one_drops",
        "the writer does not learn that its links are not sent",
    ),
    FRAMES(
        "redis_topic_comes_on_any_channel",
        '            return head[-1:] == b"\\0" and head[:-1] == channel[len(self._prefix) :]\n',
        "            return True\n",
        "test_a_topic_frame_fits_its_own_channel_alone",
        "the right to publish on one channel is the right to all topics",
    ),
    FRAMES(
        "redis_oversized_message_is_read",
        "    if len(data) > max_bytes:\n",
        "    if False:\n",
        "test_a_message_over_the_limit_is_oversized_before_it_is_read",
        "the memory of a message is bounded by the sender alone",
    ),
    FRAMES(
        "redis_message_of_any_length_is_read",
        "Decoder(tuple[bytes, bytes])",
        "Decoder(tuple[bytes, ...])",
        "test_a_message_that_is_no_pair_is_foreign",
        "the receiving thread gets an error that it does not expect",
    ),
    FRAMES(
        "redis_request_without_a_nonce_is_kept",
        '    if request[:1] != b"H" or request.find(b"\\0", 1, codec.MAX_NONCE_BYTES + 2) < 2:\n',
        "    if False:\n",
        "test_a_hello_request_without_a_valid_nonce_is_foreign_and_not_kept",
        "anybody who may publish hello requests makes the memory of every publisher grow by 20 GB",
    ),
    FRAMES(
        "redis_reply_of_no_request_goes_to_everybody",
        'return self.of_inbox(inbox) if inbox else b""',
        'return self.of_inbox(inbox or b"")',
        "test_a_frame_is_sent_on_the_channel_on_which_it_is_accepted",
        "a reply without a receiver is published, and not counted",
    ),
    LIMITS(
        "redis_requests_are_limited_like_messages",
        "max_frame_bytes=max(limits.max_frame_bytes, size)",
        "max_frame_bytes=limits.max_frame_bytes",
        "test_the_largest_hello_request_fits_small_frames",
        "a replica of many topics cannot ask for hellos when frames are small",
    ),
    SUBSCRIBER(
        "redis_pattern_delivers_a_second_time",
        "            if not (self._everything and self._channels.is_data(rest[0])):\n",
        "            if True:\n",
        "test_a_topic_beside_everything_is_delivered_once",
        "a replica of everything and of a topic receives each message twice",
    ),
    SUBSCRIBER(
        "redis_pattern_of_the_last_connection_counts",
        "            self._everything = False\n            return [self",
        "            return [self",
        "test_a_topic_is_delivered_after_everything_was_unregistered_while_cut_off",
        "after a connection without the pattern no message of a topic is delivered",
    ),
    REPLIES(
        "redis_refused_topic_ends_the_connection",
        "                if not self._admitted:\n                    raise\n",
        "                if not self._ready:\n                    raise\n",
        "test_a_refused_topic_does_not_end_the_connection",
        "one topic without rights ends all topics at the next connection",
    ),
    REPLIES(
        "redis_refused_channels_of_its_own_are_ignored",
        "                if not self._admitted:\n                    raise\n",
        "",
        "test_a_connection_whose_own_channels_or_ping_are_refused_ends",
        "a subscriber that can receive no hello reply reports a connection",
    ),
    REPLIES(
        "redis_each_refusal_is_logged",
        "        if reason != self._refusal or self._refused_at - before > _QUIET:\n",
        "        if True:\n",
        "test_a_refusal_is_logged_when_its_reason_changes_and_each_one_is_counted",
        "a publisher without rights for one topic writes a line for each of its messages",
    ),
    REPLIES(
        "redis_refusal_is_logged_once_for_ever",
        " or self._refused_at - before > _QUIET",
        "",
        "test_a_refusal_is_logged_when_its_reason_changes_and_each_one_is_counted",
        "rights that are lost again on the same connection show in no line",
    ),
    REPLIES(
        "redis_each_retry_is_logged",
        "        if reason != self._loss and not self._stopped.is_set():\n",
        "        if not self._stopped.is_set():\n",
        "test_a_loss_is_logged_when_its_reason_changes_and_after_a_connection",
        "each half logs a line for each retry while the server is down",
    ),
    REPLIES(
        "redis_loss_after_a_connection_is_not_logged",
        '                    self._loss = ""\n',
        "",
        "test_a_loss_is_logged_when_its_reason_changes_and_after_a_connection",
        "only the first of several outages of the server is logged",
    ),
    REPLIES(
        "redis_close_cannot_end_an_attempt_to_connect",
        "            self._socket = connecting.dup()\n",
        "            pass\n",
        "test_close_ends_an_attempt_to_connect",
        "after close() a thread and a socket stay until connect_timeout",
    ),
    REPLIES(
        "redis_closed_half_connects",
        '            if self._stopped.is_set():\n                raise OSError("closed meanwhile")\n',
        "",
        "test_a_half_that_was_closed_connects_no_more",
        "a half that is closed just before it connects stays until connect_timeout",
    ),
    REPLIES(
        "close_waits_for_name_servers",
        "        self._lookup.end()\n",
        "",
        "test_close_ends_the_wait_for_name_servers_that_do_not_answer",
        "a closed half stays as long as no name server answers",
    ),
    OPENING(
        "redis_socket_is_kept_after_it_was_connected",
        "    keep(opened)\n    if code == errno.EINPROGRESS:\n        poller = select.poll()\n"
        "        poller.register(opened, select.POLLOUT)\n        if not poller.poll(1000 * seconds):\n"
        "            raise TimeoutError\n        code = opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)\n",
        "    if code == errno.EINPROGRESS:\n        poller = select.poll()\n"
        "        poller.register(opened, select.POLLOUT)\n        if not poller.poll(1000 * seconds):\n"
        "            raise TimeoutError\n        code = opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)\n"
        "    keep(opened)\n",
        "test_close_ends_an_attempt_to_connect",
        "close() does not end the wait for a host that drops packets",
    ),
    FILES(
        "redis_ca_file_adds_to_the_authorities_of_the_system",
        "cafile=ca or None)\n",
        ")\n        if ca:\n            context.load_verify_locations(ca)\n",
        "test_only_the_authorities_of_ca_file_sign_when_it_is_set",
        "a server whose certificate any authority of the system signed gets the password",
    ),
    CONNECTION(
        "redis_topics_share_a_command",
        "[half.own(), _PING, *half.greeting(), _PING]",
        '[half.own(), _PING, ("SUBSCRIBE", *(each[1] for each in half.greeting())), _PING]',
        "test_a_topic_that_the_server_refuses_leaves_the_others_at_each_connection",
        "one topic without rights ends all topics at the next connection",
    ),
    CONNECTION(
        "redis_silent_server_is_not_asked",
        "        if not self._unanswered and silent >= self._options.ping_interval:\n",
        "        if False:\n",
        "test_a_server_that_answers_no_more_is_noticed_and_no_sender_blocks",
        "a replica without traffic stays on a dead connection",
    ),
    CONNECTION(
        "redis_answer_is_waited_for_without_end",
        "        if silent >= self._options.timeout:\n",
        "        if False:\n",
        "test_a_server_that_answers_no_more_is_noticed_and_no_sender_blocks",
        "both halves stay on a dead connection",
    ),
)
