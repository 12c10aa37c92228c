"""Mistakes after a lost connection is made again: in hello requests, notifications and messages."""

from functools import partial

from _mutants.table import Mutant


def _mutant(path: str, tests: str, name: str, before: str, after: str, test: str, wrong: str) -> Mutant:
    return Mutant(name, path, before, after, (f"{tests}::{test}",), wrong=wrong)


CORE = partial(_mutant, "pubsub_lib/core/reconnection.py", "tests/unit/core/test_reconnection.py")
TRACKER = partial(_mutant, "pubsub_lib/core/tracker.py", "tests/unit/core/test_tracker.py")
HELLOS = partial(_mutant, "pubsub_lib/core/sequencer.py", "tests/unit/core/test_sequencer.py")
PORTIONS = partial(_mutant, "pubsub_lib/core/hello_portions.py", "tests/unit/core/test_hello_portions.py")
GREETING = partial(_mutant, "pubsub_lib/core/sequencer.py", "tests/scheduler/test_publisher.py")
SOCKETS = partial(_mutant, "drivers/pubsub_zmq/receiver.py", "tests/unit/drivers/zmq/test_sockets.py")
REQUESTS = partial(_mutant, "pubsub_lib/hello_requests.py", "tests/unit/drivers/zmq/test_sockets.py")
BUS = partial(_mutant, "drivers/pubsub_memory/bus.py", "tests/unit/drivers/test_memory.py")
LIFE = partial(_mutant, "pubsub_lib/driver_state.py", "tests/unit/test_driver_state.py")

MUTANTS = (
    TRACKER(
        "point_once_covered_outlives_a_full_sync",
        "        chain.jump(full.head, now)\n        self._reached_store = None\n",
        "        chain.jump(full.head, now)\n",
        "test_rule_06_covered_point_is_checked_again_after_a_full_sync",
        "after two restores a hello that shows a later store leads to no hello request",
    ),
    TRACKER(
        "idle_hellos_look_at_each_topic",
        "            self._reached_store = hello.store\n",
        "            pass\n",
        "test_rule_06_idle_hellos_do_not_check_each_topic",
        "each idle hello holds the engine's lock while it checks every topic",
    ),
    GREETING(
        "refused_greeting_waits_for_idle_time",
        "            self._hello_at = min(self._hello_at, self._broadcast_at + pause)\n",
        "",
        "test_refused_hello_to_a_new_subscriber_is_retried_soon",
        "a subscriber whose hello was refused gets none before the idle time",
    ),
    HELLOS(
        "refused_broadcasts_come_at_an_even_pace",
        "            self._refusals += 1\n",
        "",
        "test_rule_06_refused_broadcast_is_retried_after_growing_pauses",
        "a publisher whose transport refuses everything tries a broadcast each second, without end",
    ),
    PORTIONS(
        "hellos_ignore_small_frames",
        "or used + size > room",
        "or used > room",
        "test_longest_names_fill_a_frame_and_do_not_exceed_it",
        "a hello about topics with long names is refused as oversized",
    ),
    CORE(
        "replicas_ask_together_after_a_connection",
        "        self.ask_at = min(self.ask_at, now + self._jitter())",
        "        self.ask_at = min(self.ask_at, now)",
        "test_request_is_due_within_the_jitter_at_different_times_per_replica",
        "all replicas that a restart disconnected ask at the same moment",
    ),
    CORE(
        "each_connection_delays_the_hello_request",
        "        self.ask_at = min(self.ask_at, now + self._jitter())",
        "        self.ask_at = now + self._timing.connect_jitter",
        "test_several_connections_within_the_jitter_lead_to_one_request_for_all_chains",
        "publishers that connect one after the other prevent a replica's hello request",
    ),
    CORE(
        "second_connection_is_not_asked_about_again",
        "        self._asked = False\n        self.ask_at = min",
        "        self.ask_at = min",
        "test_second_connection_leads_to_two_requests_too",
        "after the second connection an answer from an old reading is the last one",
    ),
    CORE(
        "old_reading_ends_the_hello_requests",
        "        if began >= self._since:\n",
        "        if True:\n",
        "test_chains_without_a_reading_since_the_connection_are_requested_once_more",
        "a reading from before the cut counts as one that shows the changes lost in it",
    ),
    CORE(
        "second_hello_request_comes_while_readings_may_be_old",
        "self.ask_at = max(now, self._since + self._timing.reading_age) + self._jitter() if again else NEVER",
        "self.ask_at = now + self._jitter() if again else NEVER",
        "test_chains_without_a_reading_since_the_connection_are_requested_once_more",
        "the second hello request may be answered from the same old reading as the first",
    ),
    CORE(
        "hello_requests_go_on_when_all_was_read",
        "        again = first and bool(self._unproved)\n",
        "        again = first\n",
        "test_no_request_is_due_when_all_chains_were_read",
        "a healthy connection costs two hello requests",
    ),
    CORE(
        "relays_answer_replaces_the_hello_request",
        "            if not relayed:\n                self._unproved",
        "            if True:\n                self._unproved",
        "test_relays_answer_to_a_sync_replaces_no_request_and_shortens_no_wait_any_more",
        "a replica below a restarted relay polls it until the next periodic hello request",
    ),
    CORE(
        "hello_request_from_before_the_connection_counts",
        " if chain in self._unread and asked >= self._since else NEVER",
        " if chain in self._unread else NEVER",
        "test_only_a_request_after_the_connection_shortens_the_wait",
        "a delta is read although the messages of the new connection were never waited for",
    ),
    CORE(
        "what_is_under_way_is_not_waited_for",
        "        return now + (now - asked) if",
        "        return now if",
        "test_only_a_request_after_the_connection_shortens_the_wait",
        "a message that is under way is read from the database as well",
    ),
    TRACKER(
        "connection_leads_to_no_hello_request",
        "        self._reconnection.connected(self._chains, now)\n",
        "        self._reconnection.connected((), now)\n",
        "test_rule_06_change_lost_before_a_connection_is_read_one_round_trip_after_the_reply",
        "a connection leads to no hello request: the change is received one max_idle_time later",
    ),
    HELLOS(
        "hello_comes_before_the_subscriptions",
        "max(now + HELLO_DELAY, self._broadcast_at + HELLO_SPACING)",
        "max(now, self._broadcast_at + HELLO_SPACING)",
        "test_rule_06_first_connection_after_the_start_hello_makes_another_hello",
        "the hello that a connection causes is sent before the subscriber can receive it",
    ),
    HELLOS(
        "late_comer_gets_no_hello_of_its_own",
        "        again = self._connected_at > now - HELLO_DELAY\n",
        "        again = False\n",
        "test_connection_right_before_a_hello_makes_another_hello",
        "a subscriber that connects right before a hello receives none for max_idle_time",
    ),
    SOCKETS(
        "subscriber_reports_the_first_connection_only",
        '        if self._health.counts["connected"] > connected:\n',
        '        if self._health.counts["connected"] > connected == 0:\n',
        "test_on_connected_is_called_at_both_halves_for_each_connection",
        "a reconnection triggers nothing in a replica",
    ),
    SOCKETS(
        "receiver_never_connects_to_a_publisher_that_was_given_up",
        "                self._disconnect(sub, address)\n                self._connect(sub, address)\n",
        "                self._disconnect(sub, address)\n",
        "test_driver_reconnects_within_two_seconds_after_an_oversized_frame",
        "after one frame that is too large a replica polls forever",
    ),
    REQUESTS(
        "publisher_answers_no_connection",
        "                self.call(on_connected)\n",
        "                pass\n",
        "test_on_connected_is_called_at_both_halves_for_each_connection",
        "a publisher sends no hello when a subscriber connects",
    ),
    BUS(
        "restored_bus_notifies_publishers_only",
        "        if desks:\n            for inbox in inboxes:\n                inbox.meet()\n",
        "",
        "test_cut_bus_delivers_no_messages_and_no_hello_requests",
        "replicas of a test are never notified that the network works again",
    ),
    BUS(
        "cut_bus_still_asks",
        "        if self._is_cut:\n            return\n        for desk",
        "        for desk",
        "test_cut_bus_delivers_no_messages_and_no_hello_requests",
        "a cut network of a test lets hello requests through",
    ),
    LIFE(
        "on_connected_may_end_the_thread",
        "            self._on_connected()\n        except BaseException:",
        "            self._on_connected()\n        except ZeroDivisionError:",
        "test_an_exception_of_the_connection_callback_is_counted_and_caught",
        "an error of the replica at a connection ends its receiving thread",
    ),
)
