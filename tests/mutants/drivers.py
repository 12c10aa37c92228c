"""Mistakes in the drivers' threads, each caught under a controlled scheduler (docs/contributing/scheduler.md)."""

from functools import partial

from _mutants.table import Mutant


def _mutant(path: str, tests: str, name: str, before: str, after: str, test: str, wrong: str) -> Mutant:
    return Mutant(name, path, before, after, (f"tests/scheduler/{tests}::{test}",), wrong=wrong)


RECEIVER = partial(_mutant, "drivers/pubsub_zmq/receiver.py", "test_zmq.py")
SUBSCRIBER = partial(_mutant, "drivers/pubsub_zmq/subscriber.py", "test_zmq.py")
PUBLISHER = partial(_mutant, "drivers/pubsub_zmq/publisher.py", "test_zmq.py")
OUTBOX = partial(_mutant, "pubsub_lib/send_queue.py", "test_zmq.py")
ASKS = partial(_mutant, "pubsub_lib/hello_requests.py", "test_zmq.py")
REQUESTS = partial(_mutant, "pubsub_lib/hello_requests.py", "test_memory.py")
LIFE = partial(_mutant, "pubsub_lib/driver_state.py", "test_zmq.py")
BUS = partial(_mutant, "drivers/pubsub_memory/bus.py", "test_memory.py")
MEMORY_SUBSCRIBER = partial(_mutant, "drivers/pubsub_memory/subscriber.py", "test_memory.py")
PUSHER = partial(_mutant, "drivers/pubsub_zmq/multiproc/publisher.py", "test_ipc.py")
PULLER = partial(_mutant, "drivers/pubsub_zmq/multiproc/subscriber.py", "test_ipc.py")
POLLING = partial(_mutant, "drivers/pubsub_sql/subscriber.py", "test_polling.py")
CHANGELOG = partial(_mutant, "drivers/pubsub_sql/follower.py", "test_polling.py")

ZMQ = (
    RECEIVER(
        "receiver_clears_its_waker_too_late",
        "                        self._carry_out(sub)\n                        due = 0.0\n",
        "                        self._carry_out(sub)\n                        due = 0.0\n"
        "                    waker.clear()\n",
        "test_receiver_executes_orders_at_once",
        "a topic that is registered just then is not subscribed to before the next message",
    ),
    RECEIVER(
        "receiver_forgets_deadlines_after_an_order",
        "                        self._carry_out(sub)\n                        due = 0.0\n",
        "                        self._carry_out(sub)\n",
        "test_receiver_sends_hello_requests_at_once_after_subscribing_to_the_reply",
        "a hello request without a reply stays subscribed to",
    ),
    RECEIVER(
        "receiver_waits_although_a_message_is_there",
        "more = not empty and int(sub.getsockopt(zmq.EVENTS)) & _POLLIN\n",
        "more = False\n",
        "test_receiver_sends_hello_requests_at_once_after_subscribing_to_the_reply",
        "a message that arrives during an order is delivered with the next one",
    ),
    RECEIVER(
        "receiver_trusts_an_attempt_before_an_order",
        "due, empty = self._keep_up(sub), False\n",
        "due = self._keep_up(sub)\n",
        "test_receiver_sends_hello_requests_at_once_after_subscribing_to_the_reply",
        "a message that arrives during an order is delivered with the next one",
    ),
    RECEIVER(
        "receiver_looks_twice_after_a_message",
        "                    empty = self._drain(sub)\n",
        "                    self._drain(sub)\n",
        "test_receiver_looks_once_whether_more_waits_after_a_single_message",
        "a message costs one more use of the socket",
    ),
    SUBSCRIBER(
        "receiver_is_woken_before_it_has_an_order",
        "                self._orders.append((order, member))\n                self._wake()\n",
        "                self._wake()\n                self._orders.append((order, member))\n",
        "test_receiver_executes_orders_at_once",
        "a topic is not subscribed to before the next message",
    ),
    SUBSCRIBER(
        "receiver_is_woken_before_it_has_a_hello_request",
        "            self._parts.extend(parts)\n            self._wake()\n",
        "            self._wake()\n            self._parts.extend(parts)\n",
        "test_receiver_sends_hello_requests_at_once_after_subscribing_to_the_reply",
        "a hello request is not sent before the next message",
    ),
    LIFE(
        "receiver_is_woken_before_it_is_closed",
        "            self.closed = True\n            wake()\n",
        "            wake()\n            self.closed = True\n",
        "test_closed_receiver_ends_at_once_and_delivers_no_more",
        "close() waits until its timeout, and the thread does not end",
    ),
    PUBLISHER(
        "sender_clears_its_waker_too_late",
        "                    more = self._receive(xpub)\n",
        "                    more = self._receive(xpub)\n                waker.clear()\n",
        "test_publisher_sends_accepted_messages_at_once_and_in_order",
        "a message waits for the next one",
    ),
    PUBLISHER(
        "sender_overlooks_subscriptions_that_a_send_takes_in",
        "            if int(used.xpub.getsockopt(zmq.EVENTS)) & _POLLIN:\n",
        "            if False:\n",
        "test_publisher_reads_hello_requests_received_during_a_send",
        "a hello request is not answered before the next message or subscription",
    ),
    PUBLISHER(
        "sender_overlooks_what_is_left_of_many_subscriptions",
        "poller.poll(0 if more else self._budget.wait)",
        "poller.poll(self._budget.wait)",
        "test_publisher_reads_all_of_many_hello_requests",
        "of many hello requests that arrive at once the last are not answered before the next message",
    ),
    PUBLISHER(
        "sender_sends_without_the_socket_lock",
        "                with self._socket_lock:\n                    self._send(xpub, outbox)\n"
        "                    more = self._receive(xpub)\n",
        "                self._send(xpub, outbox)\n                with self._socket_lock:\n"
        "                    more = self._receive(xpub)\n",
        "test_publisher_sends_accepted_messages_at_once_and_in_order",
        "two threads use one socket, which ends the process",
    ),
    PUBLISHER(
        "sender_ends_before_the_outbox_is_closed",
        "            if self._outbox is not None:\n                self._outbox.close()\n"
        "            self._life.closed = True\n            self._stop = True\n",
        "            self._life.closed = True\n            self._stop = True\n"
        "            if self._outbox is not None:\n                self._outbox.close()\n",
        "test_closed_publisher_sends_accepted_messages_and_ends",
        "a message is accepted and never sent",
    ),
    PUBLISHER(
        "sender_leaves_the_outbox_at_its_end",
        "            with self._socket_lock:\n                self._send(xpub, outbox)\n        finally:\n",
        "        finally:\n",
        "test_closed_publisher_sends_accepted_messages_and_ends",
        "a message is accepted and never sent, also the goodbye",
    ),
    OUTBOX(
        "sender_is_woken_for_the_first_message_only",
        "            taken, self._waiting = self._waiting, []\n            self._woken = False\n",
        "            taken, self._waiting = self._waiting, []\n",
        "test_publisher_sends_accepted_messages_at_once_and_in_order",
        "messages stay in the outbox until a subscription comes",
    ),
    OUTBOX(
        "senders_are_not_notified_of_room",
        "            self._woken = False\n            self._changed.notify_all()\n",
        "            self._woken = False\n",
        "test_senders_continue_when_a_full_queue_has_room",
        "a sender waits half a second and is refused although there is room",
    ),
    OUTBOX(
        "senders_overtake_what_waits",
        "            if self._waiting or self._closed:\n                return False\n            self.accepted += 1\n",
        "            if self._closed:\n                return False\n            self.accepted += 1\n",
        "test_publisher_sends_accepted_messages_at_once_and_in_order",
        "messages of one topic leave in the wrong order",
    ),
    ASKS(
        "answering_thread_is_not_notified_of_hello_requests",
        "            self._changed.notify()\n        return dropped\n",
        "        return dropped\n",
        "test_publisher_sends_accepted_messages_at_once_and_in_order",
        "a hello request is not answered before the next connection",
    ),
    ASKS(
        "answering_thread_is_not_notified_of_arrivals",
        "            self._arrived = True\n            self._changed.notify()\n",
        "            self._arrived = True\n",
        "test_publisher_reports_connections_at_once",
        "a subscriber that connects gets no hello before the next hello request",
    ),
)

HOP = (
    PUSHER(
        "pusher_sends_without_the_lock",
        "        try:\n            self._push(frames, deadline)\n        finally:\n            self._lock.release()\n",
        "        self._lock.release()\n        self._push(frames, deadline)\n",
        "test_messages_pushed_by_several_threads_stay_whole_and_in_order",
        "the frames of two messages are mixed, and the service drops both",
    ),
    PUSHER(
        "waits_of_a_pusher_begin_with_its_turn",
        "        try:\n            self._push(frames, deadline)\n        finally:\n            self._lock.release()\n",
        "        try:\n            self._push(frames, time.monotonic() + self._wait)\n"
        "        finally:\n            self._lock.release()\n",
        "test_waits_for_room_of_several_threads_do_not_add_up",
        "a commit waits for its turn and then once more for room",
    ),
    PUSHER(
        "pusher_closes_without_the_lock",
        "        if not self._lock.acquire(timeout=_STOP):\n",
        "        if not self._lock.acquire(blocking=False) and not self._lock.locked():\n",
        "test_pusher_closed_during_pushes_ends",
        "a socket is closed while another thread sends on it, which ends the process",
    ),
    PULLER(
        "puller_leaves_what_was_pushed",
        "            self._drain(socket)\n        finally:\n",
        "        finally:\n",
        "test_closed_service_takes_only_messages_pushed_before",
        "links that workers have handed over are lost when the service stops",
    ),
)

OTHERS = (
    BUS(
        "halves_that_join_together_do_not_meet",
        "            self._desks += (desk,)\n            inboxes = () if self._is_cut else self._inboxes\n",
        "            inboxes = () if self._is_cut else self._inboxes\n            self._lock.release()\n"
        "            self._lock.acquire()\n            self._desks += (desk,)\n",
        "test_both_halves_report_the_connection_in_any_order_of_joining",
        "neither half reports that it is connected",
    ),
    MEMORY_SUBSCRIBER(
        "memory_receiver_is_not_notified_of_messages",
        "            self._enqueue(self._link.push(frames, time.monotonic()))\n"
        "            self._changed.notify_all()\n",
        "            self._enqueue(self._link.push(frames, time.monotonic()))\n",
        "test_messages_of_one_sender_arrive_at_once_and_in_order",
        "a message waits until a publisher joins",
    ),
    MEMORY_SUBSCRIBER(
        "memory_subscriber_asks_before_it_listens",
        "            self._subscriptions.add_replies(nonce)\n        self._bus.ask(frame)\n",
        "            pass\n        self._bus.ask(frame)\n        with self._changed:\n"
        "            self._subscriptions.add_replies(nonce)\n",
        "test_hello_request_is_answered_at_once_and_the_reply_is_received",
        "the reply may come before the subscriber listens for it",
    ),
    REQUESTS(
        "memory_publisher_is_not_notified_of_hello_requests",
        "            self._changed.notify()\n        return dropped\n",
        "        return dropped\n",
        "test_hello_request_is_answered_at_once_and_the_reply_is_received",
        "a hello request is not answered before a subscriber joins",
    ),
    POLLING(
        "poller_forgets_a_wake_up_during_a_poll",
        "        self._succeeded()\n        return",
        "        self._succeeded()\n        self._poll_now = False\n        return",
        "test_poller_answers_every_hello_request_at_once",
        "a hello request that comes during a poll waits for the next regular one",
    ),
    POLLING(
        "poller_forgets_hello_requests_that_came_during_a_poll",
        "        self._succeeded()\n        return",
        "        self._succeeded()\n        self._asks.clear()\n        return",
        "test_poller_answers_every_hello_request_at_once",
        "a hello request that comes during a poll is never answered",
    ),
    POLLING(
        "poller_is_not_woken_by_a_hello_request",
        "            self._asks.append(HelloRequest(nonce, tuple(topics)))\n            self._wake()\n",
        "            self._asks.append(HelloRequest(nonce, tuple(topics)))\n",
        "test_poller_answers_every_hello_request_at_once",
        "a hello request waits for the next regular poll",
    ),
    POLLING(
        "poller_delivers_after_close",
        "                if self._life.closed:\n                    return 0.0\n",
        "",
        "test_closed_poller_delivers_no_more_and_ends",
        "a callback is called after close() has returned",
    ),
    CHANGELOG(
        "reading_of_a_poll_begins_after_it",
        "        began = clock()\n        asked = {topic for ask in asks for topic in ask.topics if topic != ALL}\n"
        "        heads = store.read_heads(sorted(asked))\n",
        "        asked = {topic for ask in asks for topic in ask.topics if topic != ALL}\n"
        "        heads = store.read_heads(sorted(asked))\n        began = clock()\n",
        "test_poller_answers_every_hello_request_at_once",
        "an answer claims to be younger than it is, and the replica reports too little staleness",
    ),
    CHANGELOG(
        "reading_of_a_jump_begins_after_it",
        "        began = clock()\n"
        "        heads = store.read_heads(sorted(topic for topic in topics() if topic != ALL))\n",
        "        heads = store.read_heads(sorted(topic for topic in topics() if topic != ALL))\n"
        "        began = clock()\n",
        "test_poller_that_jumps_reports_the_true_age_of_its_reading",
        "an answer claims to be younger than it is, and the replica reports too little staleness",
    ),
)

MUTANTS = (*ZMQ, *HOP, *OTHERS)
