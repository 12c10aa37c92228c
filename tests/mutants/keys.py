"""Mistakes in who may connect and receive with keys."""

from functools import partial

from _mutants.table import Mutant


def _mutant(path: str, tests: str, name: str, before: str, after: str, test: str, wrong: str) -> Mutant:
    return Mutant(name, path, before, after, (f"{tests}::{test}",), wrong=wrong)


ACCESS = partial(_mutant, "drivers/pubsub_zmq/access.py", "tests/unit/drivers/zmq/test_access.py")
BUDGET = partial(_mutant, "drivers/pubsub_zmq/keyed_budget.py", "tests/unit/drivers/zmq/test_keyed_budget.py")
PUBLISHER = partial(_mutant, "drivers/pubsub_zmq/keyed_publisher.py", "tests/unit/drivers/zmq/test_keys.py")
ZAP = partial(_mutant, "drivers/pubsub_zmq/zap.py", "tests/unit/drivers/zmq/test_keys.py")
RECEIVER = partial(_mutant, "drivers/pubsub_zmq/receiver.py", "tests/unit/drivers/zmq/test_keys.py")
HANDSHAKES = partial(_mutant, "drivers/pubsub_zmq/receiver.py", "tests/unit/drivers/zmq/test_failed_handshakes.py")
SUBSCRIBER = partial(_mutant, "drivers/pubsub_zmq/subscriber.py", "tests/unit/drivers/zmq/test_keys.py")
DISCOVERY = partial(_mutant, "pubsub_lib/replica/discovery.py", "tests/unit/replica/test_discovery.py")

MUTANTS = (
    ACCESS(
        "access_allows_every_prefix_of_a_topic",
        "    if prefix.find(0) != len(prefix) - 1:\n        return None\n",
        "",
        "test_other_prefixes_are_denied",
        "a client receives topics whose names begin with those of its own",
    ),
    ACCESS(
        "access_allows_prefixes_of_replies_to_others",
        "        if prefix.find(0) == len(prefix) - 1 > 1:",
        "        if prefix.find(0) in (-1, len(prefix) - 1):",
        "test_other_prefixes_are_denied",
        "a client receives the hello replies to all others",
    ),
    ACCESS(
        "access_answers_about_every_topic",
        "        if everything:\n            return Decision(request=prefix)\n",
        "        return Decision(request=prefix)\n",
        "test_hello_request_keeps_only_granted_topics",
        "a client gets heads and sequences of topics that it was not granted",
    ),
    ACCESS(
        "access_leaves_the_connection_of_a_client_that_lost_a_topic",
        "_topics(old, key) - _topics(new, key) or key not in new",
        "key not in new",
        "test_connections_are_renewed_when_a_connected_client_loses_something",
        "a client receives a topic after it was revoked",
    ),
    ACCESS(
        "access_forgets_denied_clients",
        "            self._denied.add(client.public_key)\n",
        "",
        "test_connections_are_renewed_when_a_denied_client_gains_a_topic",
        "a topic that was granted later arrives only after a restart",
    ),
    PUBLISHER(
        "hello_names_all_topics",
        "        if hello is not None and not hello.nonce and hello.sequences:\n",
        "        if False:\n",
        "test_hellos_name_no_topic_that_was_not_granted",
        "every client receives the names and heads of topics that it was not granted",
    ),
    PUBLISHER(
        "publisher_reads_on_after_a_message_that_is_no_subscription",
        "                return self._distrust()\n            self._subscriptions",
        "                continue\n            self._subscriptions",
        "test_messages_between_subscriptions_do_not_shift_them_to_another_client",
        "a client receives a topic that another one was granted",
    ),
    PUBLISHER(
        "publisher_overlooks_a_peer_that_left",
        "                if not user and prefix in self._applied and self._access.is_restricted(prefix):\n",
        "                if False:\n",
        "test_subscription_of_a_client_that_left_meanwhile_ends_all_connections",
        "a client receives a topic of one that left, because it has its place in memory",
    ),
    PUBLISHER(
        "repeated_subscriptions_count_until_a_restart",
        "        if not more and self._subscriptions.is_wrong(time.monotonic()):\n",
        "        if False:\n",
        "test_size_of_repeated_subscriptions_is_forgotten_when_their_client_leaves",
        "after one client's repeated subscriptions the limit ends connections of others",
    ),
    BUDGET(
        "equal_subscriptions_of_several_clients_are_added_up",
        "            if copies == 1:\n",
        "            if True:\n",
        "test_equal_subscriptions_count_once",
        "many replicas of the same topics reach the limit, and all connections are ended again and again",
    ),
    BUDGET(
        "budget_makes_the_socket_again_without_a_pause",
        "        self._correct_at = now + self._pause\n",
        "        self._correct_at = now\n",
        "test_corrections_have_growing_pauses",
        "one client ends all connections every second",
    ),
    BUDGET(
        "client_ends_subscriptions_of_others",
        "        if descriptor is not None and self._shares[descriptor] < size:\n",
        "        if False:\n",
        "test_end_of_what_a_connection_did_not_begin_is_ignored",
        "a client keeps its own subscriptions out of the total",
    ),
    PUBLISHER(
        "renewal_keeps_the_old_socket_while_the_address_is_in_use",
        "            self._used = None\n            monitor.close()\n            xpub.close(0)\n"
        '        self._sending["disconnected"] += self._connections.renewed()  # before the address is bound again\n',
        "            monitor.close()\n        self._connections.renewed()\n",
        "test_renewal_waits_for_an_address_that_is_in_use",
        "a revoked client stays connected",
    ),
    ZAP(
        "zap_accepts_every_key",
        '        return key if self._accepts(key.decode()) else b""\n',
        "        self._accepts(key.decode())\n        return key\n",
        "test_program_without_an_accepted_key_receives_nothing",
        "any program with the public key of a publisher receives",
    ),
    RECEIVER(
        "receiver_connects_without_a_key",
        "        if self._pins is not None and expected is None:\n",
        "        if False:\n",
        "test_address_without_a_key_is_not_connected",
        "a replica connects to a publisher whose key it does not know",
    ),
    SUBSCRIBER(
        "subscriber_keeps_the_old_key",
        "            if address in self._addresses:\n                self._orders.extend",
        "            if False:\n                self._orders.extend",
        "test_new_key_at_an_address_replaces_the_connection",
        "a publisher that was restarted is never received from again",
    ),
    DISCOVERY(
        "discovery_uses_publishers_without_a_key",
        "if self._pin(entry, pins)]\n",
        "if self._pin(entry, pins) or True]\n",
        "test_with_keys_an_address_without_a_key_is_refused",
        "a replica registers a publisher that cannot prove itself",
    ),
    DISCOVERY(
        "discovery_waits_its_interval_after_a_failed_proof",
        " and (woken or unproven != self._unproven)\n",
        " and woken\n",
        "test_with_keys_a_failed_proof_causes_a_reading_soon",
        "a publisher that was restarted is found only after discovery_interval",
    ),
    DISCOVERY(
        "failed_proofs_end_connections",
        "            self._read(extra)\n",
        "            self._read(extra and woken)\n",
        "test_with_keys_readings_because_of_failed_proofs_remove_no_publisher",
        "three failed proofs within seconds drop a publisher that is restarting",
    ),
    DISCOVERY(
        "discovery_forgets_an_extra_reading_that_failed",
        "                self._woken.set()  # the reading is still wanted\n",
        "                pass\n",
        "test_extra_reading_that_failed_is_repeated",
        "a publisher that was restarted while the database failed is found only after discovery_interval",
    ),
    DISCOVERY(
        "discovery_loses_a_wake_at_the_begin_of_a_step",
        "        unproven = 0 if self._pins is None",
        "        self._woken.clear()\n        unproven = 0 if self._pins is None",
        "test_wake_at_any_line_of_a_step_is_followed_by_a_reading",
        "a replica that misses a publisher reads the directory only after discovery_interval",
    ),
    HANDSHAKES(
        "failed_handshake_at_an_address_that_left_is_kept",
        "                self._failing.discard(what)\n",
        "",
        "test_an_address_that_left_with_a_failed_handshake_is_logged_when_it_returns",
        "a frame that is too large for a later publisher at this address ends its connection without a line in the log",
    ),
    HANDSHAKES(
        "failed_handshake_hides_the_losses_of_others",
        "            if self._failing.isdisjoint(gone.addresses):\n",
        "            if not self._failing:\n",
        "test_the_loss_of_a_healthy_connection_is_logged_while_another_handshake_fails",
        "one publisher with another key, and a frame that is too large for any publisher is in no log",
    ),
)
