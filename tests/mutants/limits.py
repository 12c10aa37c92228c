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
        " and name[1] == self._port",
        "",
        "test_connection_of_another_port_is_not_paused",
        "the connection to the database is paused",
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
