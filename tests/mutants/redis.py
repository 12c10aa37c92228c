"""Mistakes in the driver over Redis: its batches, channels and connection."""

from functools import partial

from _mutants.table import Mutant


def _mutant(path: str, tests: str, name: str, before: str, after: str, test: str, wrong: str) -> Mutant:
    return Mutant(name, f"drivers/pubsub_redis/{path}.py", before, after, (f"{tests}::{test}",), wrong=wrong)


UNIT = "tests/unit/drivers/test_redis.py"
SUITE = "tests/conformance/test_redis.py::TestRedis"
WHOLE = "tests/e2e/test_redis.py"
QUEUE = partial(_mutant, "send_queue", UNIT)
FRAMES = partial(_mutant, "frames", UNIT)
SUBSCRIBER = partial(_mutant, "subscriber", SUITE)
CONNECTION = partial(_mutant, "connection", WHOLE)

MUTANTS = (
    QUEUE(
        "redis_hello_is_overtaken",
        "            yield from _packed(runs)\n            runs.clear()\n",
        "",
        "test_no_envelope_overtakes_a_hello",
        "a hello names sequences of envelopes that arrive later, and the replica reads the store without need",
    ),
    QUEUE(
        "redis_envelope_is_sent_twice_at_a_hello",
        "            runs.clear()\n",
        "",
        "test_batches_keep_every_envelope_and_the_order_of_each_channel",
        "every envelope before a hello is sent again",
    ),
    QUEUE(
        "redis_batch_grows_without_bound",
        "        elif sizes[channel] + size <= max_bytes:\n",
        "        elif True:\n",
        "test_batches_keep_every_envelope_and_the_order_of_each_channel",
        "receivers drop a batch as oversized",
    ),
    QUEUE(
        "redis_lost_envelopes_are_not_counted",
        "            self.lost += len(self._waiting)\n",
        "",
        "test_the_queue_refuses_while_there_is_no_connection_and_counts_what_a_lost_one_drops",
        "a loss shows in no counter",
    ),
    QUEUE(
        "redis_closed_queue_opens_again",
        '            if not self._closed:\n                self._refusal = ""\n',
        '            self._refusal = ""\n',
        "test_the_queue_refuses_while_there_is_no_connection_and_counts_what_a_lost_one_drops",
        "an envelope is accepted that is never sent",
    ),
    FRAMES(
        "redis_topic_comes_on_any_channel",
        '            return head[-1:] == b"\\0" and head[:-1] == channel[len(self._prefix) :]\n',
        "            return True\n",
        "test_a_topic_frame_fits_its_own_channel_alone",
        "the right to publish on one channel is the right to all topics",
    ),
    FRAMES(
        "redis_oversized_batch_is_read",
        "    if len(data) > max_bytes:\n",
        "    if False:\n",
        "test_a_batch_over_the_limit_is_oversized_before_it_is_read",
        "the memory of a batch is bounded by the sender alone",
    ),
    FRAMES(
        "redis_odd_batch_is_read",
        "    if not frames or len(frames) % 2:\n",
        "    if not frames:\n",
        "test_a_batch_without_pairs_is_foreign",
        "the receiving thread gets an error that it does not expect",
    ),
    FRAMES(
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
        "            self._everything = False\n            channels",
        "            channels",
        "test_a_topic_is_delivered_after_everything_was_unregistered_while_cut_off",
        "after a connection without the pattern no message of a topic is delivered",
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
