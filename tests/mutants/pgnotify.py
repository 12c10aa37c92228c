"""Mistakes in the driver that listens to PostgreSQL, each caught without a server."""

from functools import partial

from _mutants.table import Mutant


def _mutant(path: str, tests: str, name: str, before: str, after: str, test: str, wrong: str) -> Mutant:
    tests = f"tests/unit/drivers/pgnotify/{tests}::{test}"
    return Mutant(name, f"drivers/pubsub_pgnotify/{path}", before, after, (tests,), wrong=wrong)


GATE = partial(_mutant, "announcement.py", "test_announcement.py")
NOTIFYING = partial(_mutant, "publisher.py", "test_publisher.py")
NOTIFIED = partial(_mutant, "subscriber.py", "test_subscriber.py")
SESSION = partial(_mutant, "session.py", "test_session.py")

MUTANTS = (
    GATE(
        "gate_lets_every_forged_announcement_pass",
        "        return self._polled + self._fastest if self._useless else now\n",
        "        return now\n",
        "test_gate_bounds_the_reads_of_any_announcements",
        "any role of the database can make every replica read without a pause",
    ),
    GATE(
        "gate_forgets_a_read_without_a_change_at_the_next_one",
        "(self._caused or self._useless) and at == self._at",
        "self._caused and at != self._at",
        "test_gate_waits_after_a_read_without_a_change",
        "reads that find changes delay the next one, and reads that find none do not",
    ),
    GATE(
        "gate_reads_what_was_read",
        "        if point == self._at:\n            return math.inf\n",
        "",
        "test_gate_reads_nothing_for_the_point_that_was_read",
        "each change of two publishers costs two reads",
    ),
    GATE(
        "gate_ignores_an_earlier_position",
        "            return self._polled + self._slowest\n",
        "            return math.inf\n",
        "test_gate_reads_an_earlier_position_after_slowest",
        "changes after a restore of the database arrive with the next regular poll",
    ),
    GATE(
        "payload_is_matched_at_its_begin_only",
        "_PAYLOAD.fullmatch(given)",
        "_PAYLOAD.match(given)",
        "test_another_payload_is_no_announcement",
        "announcements of a later format are understood as ours",
    ),
    NOTIFYING(
        "announcer_forgets_a_position_that_was_not_sent",
        "            if executed:\n",
        "            if True:\n",
        "test_publisher_announces_again_what_was_not_executed",
        "changes during an outage of the connection are not announced after it",
    ),
    NOTIFYING(
        "announcer_forgets_positions_that_came_meanwhile",
        "                if self._waiting is position:\n                    self._waiting = None\n",
        "                self._waiting = None\n",
        "test_publisher_sends_one_notification_for_positions_that_wait",
        "the last change of a burst is not announced",
    ),
    NOTIFYING(
        "announcer_replaces_a_newer_position",
        "            if waiting is None or waiting[0] != channel or waiting[1].position <= point.position:\n",
        "            if True:\n",
        "test_publisher_announces_the_newest_of_positions_that_come_in_another_order",
        "the newest change waits for the next regular poll",
    ),
    NOTIFYING(
        "announcer_keeps_a_position_of_the_last_store_id",
        " or waiting[0] != channel",
        "",
        "test_publisher_announces_an_earlier_position_of_another_store",
        "after pubsub-db new-id the first changes are not announced",
    ),
    NOTIFYING(
        "announcer_drops_the_last_position_at_close",
        "(self._waiting is None or (tried and not self._is_running))",
        "(self._waiting is None or tried or not self._is_running)",
        "test_closed_publisher_has_announced_the_last_position",
        "a command that commits once and ends announces nothing",
    ),
    NOTIFYING(
        "announcer_takes_the_first_link_of_an_envelope",
        "envelope.messages[-1].link.point",
        "envelope.messages[0].link.point",
        "test_publisher_announces_the_last_position_of_an_envelope",
        "an announcement names a position before the newest one",
    ),
    NOTIFYING(
        "announcer_sends_hellos",
        "            if not envelope.messages:\n",
        "            if False:\n",
        "test_publisher_sends_no_hellos",
        "a hello raises an error, and none is counted",
    ),
    NOTIFYING(
        "announcer_leaves_it_to_its_thread",
        "            self._counts[\"sent\"] += 1\n            self._announce()\n",
        "            self._counts[\"sent\"] += 1\n            self._session.wake()\n",
        "test_the_thread_that_commits_sends_the_notification",
        "each change waits until another thread of the writer has been woken",
    ),
    NOTIFIED(
        "listener_does_not_poll_after_it_listens",
        "            self._is_new = True\n            return 0.0\n",
        "            self._is_new = True\n            return self._listening\n",
        "test_change_committed_before_it_listened_is_read_before_the_connection_is_reported",
        "a change that was committed just before LISTEN waits for the next regular poll",
    ),
    NOTIFIED(
        "listener_waits_on_after_a_loss",
        "        while self._session.connected == listens:  # at a loss: poll at once\n",
        "        while True:\n",
        "test_subscriber_polls_after_a_loss_and_listens_again",
        "after a loss of the connection no change arrives for the interval of a listener",
    ),
    NOTIFIED(
        "listener_forgets_the_growing_wait_for_an_announcement",
        "                if not self._failing:  # a changelog that cannot be read is read again after a growing wait\n",
        "                if True:\n",
        "test_announcements_do_not_shorten_the_wait_after_a_failed_reading",
        "every replica reads from a failing database as often as others commit",
    ),
    NOTIFIED(
        "listener_reads_for_a_foreign_notification",
        '            return float("inf")\n',
        "            return time.monotonic()\n",
        "test_foreign_notification_is_counted_and_causes_no_poll",
        "any notification on the channel causes a read",
    ),
    NOTIFIED(
        "listener_is_not_woken_by_its_callers",
        "        self._session.wake()\n",
        "        pass\n",
        "test_hello_request_and_topic_wake_the_thread",
        "hello requests wait for the next regular poll, and close() for its timeout",
    ),
    NOTIFIED(
        "listener_keeps_the_channel_of_the_first_store_id",
        "            self._session.disconnect()\n",
        "            pass\n",
        "test_subscriber_listens_on_the_channel_of_a_new_store_id",
        "after pubsub-db new-id no change is announced to the subscriber",
    ),
    SESSION(
        "session_expects_a_socket_of_each_connection",
        "        except psycopg.Error as error:\n            self._lost(error)\n",
        "        except ZeroDivisionError as error:\n            self._lost(error)\n",
        "test_connection_that_libpq_ended_while_parsing_is_a_loss",
        "an unreadable message of the server ends the thread, and the replica gets changes by syncs only",
    ),
    SESSION(
        "session_sends_during_a_statement",
        " or self._on_answer is not None:\n",
        ":\n",
        "test_statement_waits_for_the_answer_to_the_last_one",
        "libpq refuses the second of two announcements, and the connection is made again",
    ),
    SESSION(
        "session_takes_a_refusal_for_an_answer",
        "            if result.status not in _ANSWERED:\n",
        "            if False:\n",
        "test_statement_that_the_server_refuses_is_a_loss",
        "a change is not announced when the server's queue of notifications is full",
    ),
    SESSION(
        "session_keeps_a_connection_that_sends_nothing",
        "                    raise self._send_error\n",
        "                    self._send_error = None\n",
        "test_statement_that_cannot_be_sent_is_a_loss",
        "no change is announced until the server ends the connection",
    ),
    NOTIFIED(
        "listener_keeps_its_connection_after_close",
        "            self._session.close()\n",
        "            pass\n",
        "test_closed_subscriber_has_released_its_connection",
        "each closed replica leaves a connection to the database open",
    ),
    NOTIFYING(
        "closing_publisher_forgets_what_waits_for_an_answer",
        "self._life.closed and not self._is_running\n",
        "self._life.closed\n",
        "test_closed_publisher_announces_what_waited_for_the_answer_to_another",
        "a program that ends while a NOTIFY runs announces its last change never, and replicas wait for the next poll",
    ),
)
