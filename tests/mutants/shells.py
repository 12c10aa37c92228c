"""Mistakes in the threads around the core: engine, replica, handlers, publisher, worker and service.

Most are a wake-up that is lost, a lock that is let go too early, or an act before the journal has it. The tests run the
real threads under a controlled scheduler (docs/contributing/scheduler.md).
"""

from functools import partial

from _mutants.table import Mutant


def _mutant(path: str, tests: str, name: str, before: str, after: str, test: str, wrong: str) -> Mutant:
    return Mutant(name, path, before, after, (f"tests/scheduler/{tests}::{test}",), wrong=wrong)


ENGINE = partial(_mutant, "pubsub_lib/replica/engine.py", "test_replica.py")
REPLICA_STATE = partial(_mutant, "pubsub_lib/core/replica_state.py", "test_replica.py")
REPLICA = partial(_mutant, "pubsub_lib/replica/replica.py", "test_replica.py")
HANDLERS = partial(_mutant, "pubsub_lib/replica/handlers.py", "test_handlers.py")
LOOP = partial(_mutant, "pubsub_lib/threads/periodic_thread.py", "test_loop.py")
PUBLISHER = partial(_mutant, "pubsub_lib/publisher/publisher.py", "test_publisher.py")
WORKER = partial(_mutant, "pubsub_lib/publisher/worker.py", "test_worker.py")
OUTGOING = partial(_mutant, "pubsub_lib/service/outgoing.py", "test_service.py")
RECEIVING = partial(_mutant, "pubsub_lib/service/receiving.py", "test_service.py")
LEASES = partial(_mutant, "pubsub_lib/service/leases.py", "test_leases.py")

OPENED = "tests/unit/publisher/test_opening.py::test_the_opened_publisher_sends_commits_with_their_trace"
ALTERED = "tests/unit/replica/test_journaling.py::test_an_altered_object_is_noted_logged_and_counted_once"
MAINTENANCE = "tests/unit/service/test_maintenance.py"
RECOUNT = "tests/unit/service/test_recount.py"

WAKE_UPS = (
    ENGINE(
        "clock_is_not_woken_when_a_link_begins_to_wait",
        "wake = restless and (envelope.hello is not None or restless > self._restless or leased.read_at < read_at)",
        "wake = restless and (envelope.hello is not None or leased.read_at < read_at)",
        "test_clock_starts_when_a_link_begins_to_wait",
        "a lost message is repaired at the next tick that has another reason",
    ),
    ENGINE(
        "clock_is_not_woken_while_a_pause_runs",
        "envelope.hello is not None or restless > self._restless or",
        "envelope.hello is not None or not self._restless or",
        "test_pause_of_one_topic_delays_no_other_topic",
        "while a topic is not read again for a time, a lost message of another topic is repaired late",
    ),
    ENGINE(
        "clock_is_not_woken_by_a_hello",
        "wake = restless and (envelope.hello is not None or restless > self._restless or leased.read_at < read_at)",
        "wake = restless and (restless > self._restless or leased.read_at < read_at)",
        "test_reply_ends_a_topics_wait_while_another_link_waits",
        "while a link waits, a hello that ends another wait has no effect before the next tick",
    ),
    ENGINE(
        "tick_leaves_the_engine_restless",
        "            self._restless = self._state.tracker.restless\n",
        "",
        "test_clock_starts_for_each_link_that_begins_to_wait",
        "the clock is woken for the first link that waits and not for the next",
    ),
    ENGINE(
        "clock_is_not_woken_after_a_sync",
        "        self._carry_out(outcome)\n        self.clock.wake()\n        self._faults.log_mismatching(",
        "        self._carry_out(outcome)\n        self._faults.log_mismatching(",
        "test_clock_starts_when_a_link_begins_to_wait",
        "links that a sync leaves waiting start no clock",
    ),
    ENGINE(
        "clock_is_not_woken_after_a_failed_sync",
        "        self.clock.wake()\n        log_failed_sync(",
        "        log_failed_sync(",
        "test_failed_sync_is_retried_after_its_backoff",
        "a sync that failed is not tried again after its backoff",
    ),
    ENGINE(
        "clock_is_not_woken_after_a_follow",
        "        self._carry_out(outcome)\n        self.clock.wake()\n\n    # -- for other",
        "        self._carry_out(outcome)\n\n    # -- for other",
        "test_clock_starts_when_a_link_begins_to_wait",
        "a new topic is not read when its wait for a hello ends",
    ),
    ENGINE(
        "clock_is_not_woken_by_a_connection",
        "            self._state.connected(self.now())\n        self.clock.wake()",
        "            self._state.connected(self.now())",
        "test_connection_leads_to_a_hello_request",
        "the replica does not ask for hello replies when it is connected again",
    ),
    ENGINE(
        "clock_is_not_woken_by_a_resync",
        "tuple(self._state.tracker.topics), self.now())\n        self.clock.wake()",
        "tuple(self._state.tracker.topics), self.now())",
        "test_resync_and_follow_start_at_once",
        "resync() does nothing before the next tick",
    ),
    ENGINE(
        "sync_thread_is_not_woken",
        "            self._syncs.wake()\n",
        "            pass\n",
        "test_resync_and_follow_start_at_once",
        "a sync that is to start waits for an hour",
    ),
    ENGINE(
        "sync_thread_is_woken_before_it_has_a_job",
        "            with self._lock:\n                self._job = outcome.sync\n"
        "                if self._journal is not None:\n"
        "                    self._journal.sync_begins(outcome.sync)\n            self._syncs.wake()\n",
        "            self._syncs.wake()\n            with self._lock:\n                self._job = outcome.sync\n"
        "                if self._journal is not None:\n                    self._journal.sync_begins(outcome.sync)\n",
        "test_resync_and_follow_start_at_once",
        "the sync thread looks for its job, finds none, and sleeps",
    ),
    ENGINE(
        "job_that_comes_during_a_reading_is_forgotten",
        "            self._sync_failed(job, error)\n            return self.now()\n        with self._lock:\n",
        "            self._sync_failed(job, error)\n            return self.now()\n"
        "        with self._lock:\n            self._job = None\n",
        "test_timed_out_sync_does_not_delay_the_next_one",
        "after a sync that took too long, the next one is not done before its own timeout",
    ),
    ENGINE(
        "waiters_are_notified_of_events_only",
        "        self._announce()  # with the lock held, so",
        "        if outcome.events:\n            self._announce()  # with the lock held, so",
        "test_wait_for_always_returns_when_the_commit_is_applied",
        "without a handler, wait_for() never returns",
    ),
    ENGINE(
        "waiters_are_not_notified_of_close",
        "            self._closing = True\n            self._announce()\n",
        "            self._closing = True\n",
        "test_replica_closed_while_it_works_ends_once",
        "wait_for() without a timeout blocks forever in a closed replica",
    ),
    ENGINE(
        "wait_lets_the_lock_go_before_it_waits",
        'why()}")\n                self._changed.wait(left)',
        'why()}")\n                self._lock.release()\n                self._lock.acquire()\n'
        "                self._changed.wait(left)",
        "test_wait_for_always_returns_when_the_commit_is_applied",
        "a change that is applied between the look and the wait is not noticed",
    ),
    LOOP(
        "loop_clears_before_it_waits",
        "            self._wake.wait(min(max(until - time.monotonic(), 0.0), MAX_SLEEP))\n"
        "            self._wake.clear()",
        "            self._wake.clear()\n"
        "            self._wake.wait(min(max(until - time.monotonic(), 0.0), MAX_SLEEP))",
        "test_loop_takes_a_step_after_every_wake_without_waiting",
        "a wake-up during a step is lost",
    ),
    LOOP(
        "loop_clears_after_its_step",
        "            until = self._once(now)\n",
        "            until = self._once(now)\n            self._wake.clear()\n",
        "test_loop_takes_a_step_after_every_wake_without_waiting",
        "a wake-up during a step is lost",
    ),
    LOOP(
        "loop_is_woken_before_it_is_closed",
        "        self._closing = True\n        self._wake.set()\n",
        "        self._wake.set()\n        self._closing = True\n",
        "test_loop_closes_at_once_and_takes_no_step_afterwards",
        "close() waits until its timeout, and the thread does not end",
    ),
    PUBLISHER(
        "loop_is_not_woken_by_a_hello_request",
        "            self._core.hello_requested(ask, time.monotonic())\n        self._send_due_hellos()\n"
        "        self._loop.wake()",
        "            self._core.hello_requested(ask, time.monotonic())\n        self._send_due_hellos()",
        "test_hello_request_is_answered_after_one_reading",
        "a hello request that needs a reading is answered at the next idle hello",
    ),
    PUBLISHER(
        "loop_is_woken_before_it_has_the_hello_request",
        "        with self._lock:\n            self._core.hello_requested(ask, time.monotonic())\n"
        "        self._send_due_hellos()\n        self._loop.wake()",
        "        self._loop.wake()\n        with self._lock:\n"
        "            self._core.hello_requested(ask, time.monotonic())\n        self._send_due_hellos()",
        "test_hello_request_wakes_the_loop",
        "the loop looks for hello requests, finds none, and sleeps until the next idle hello",
    ),
    PUBLISHER(
        "loop_is_not_woken_by_a_connection",
        "            self._core.connected(time.monotonic())\n        self._loop.wake()",
        "            self._core.connected(time.monotonic())",
        "test_connection_leads_to_a_hello",
        "a subscriber that connects gets no hello before the next idle one",
    ),
    HANDLERS(
        "handler_is_not_notified_of_events",
        "                by_sync -= 1\n            self._changed.notify_all()",
        "                by_sync -= 1",
        "test_handler_gets_the_last_version_of_every_object",
        "a handler's thread sleeps although events wait",
    ),
    HANDLERS(
        "waiters_are_not_notified_of_a_handled_event",
        "                parked = self._queue.failed(now, error, text)\n            self._changed.notify_all()",
        "                parked = self._queue.failed(now, error, text)",
        "test_wait_handled_always_returns_after_the_handler",
        "wait_handled() never returns",
    ),
    HANDLERS(
        "handler_is_not_notified_of_its_end",
        "            self._queue.clear()\n            self._changed.notify_all()\n",
        "            self._queue.clear()\n",
        "test_no_call_begins_after_remove",
        "the thread of a removed handler never ends",
    ),
    HANDLERS(
        "watchers_are_called_before_the_count",
        "else described(error)\n        with self._changed:\n            if error is None:\n",
        "else described(error)\n        self._owner.announce()\n        self._owner.watchers = ()\n"
        "        with self._changed:\n            if error is None:\n",
        "test_watcher_is_called_after_every_handled_change",
        "an asyncio program that waits for a handler checks too early, and then never again",
    ),
)

LOCKS = (
    ENGINE(
        "events_of_a_message_are_queued_without_the_lock",
        "            outcome = self._core.feed(envelope, self.now())\n            self._notify_handlers(outcome)\n"
        "            restless",
        "            outcome = self._core.feed(envelope, self.now())\n        self._notify_handlers(outcome)\n"
        "        with self._lock:\n            restless",
        "test_handler_registered_while_links_arrive_gets_all_changes",
        "events of two steps may reach a handler in the wrong order",
    ),
    ENGINE(
        "events_of_a_sync_are_queued_without_the_lock",
        "            self._notify_handlers(outcome, first=first)\n        self._carry_out(outcome)",
        "        if outcome.events:\n"
        "            self._handlers.push(outcome.events, initial=first, by_sync=outcome.by_sync)\n"
        "        with self._lock:\n"
        "            self._announce()\n        self._carry_out(outcome)",
        "test_incomplete_delta_is_followed_by_a_full_sync_at_once",
        "events of a sync and of a message may reach a handler in the wrong order",
    ),
    ENGINE(
        "events_of_an_unfollow_are_queued_without_the_lock",
        "                    self._journal.dropping(topic)\n                self._notify_handlers(outcome)\n",
        "                    self._journal.dropping(topic)\n            if outcome.events:\n"
        "                self._handlers.push(outcome.events, by_sync=outcome.by_sync)\n            with self._lock:\n"
        "                self._announce()\n",
        "test_events_of_a_dropped_topic_keep_their_order",
        "the deletes of an unsubscribe may overtake changes that came before",
    ),
    ENGINE(
        "messages_are_applied_without_the_lock",
        "            outcome = self._core.feed(envelope, self.now())\n            self._notify_handlers(outcome)\n"
        "            restless",
        "        outcome = self._core.feed(envelope, self.now())\n        with self._lock:\n"
        "            self._notify_handlers(outcome)\n            restless",
        "test_link_that_begins_to_wait_during_a_tick_starts_the_clock",
        "two threads change the tracker and the cache at the same time",
    ),
    ENGINE(
        "unsubscribes_outside_of_the_topics_lock",
        "                self._notify_handlers(outcome)\n            self._subscriber.unregister_topic(topic)\n"
        "            return True\n",
        "                self._notify_handlers(outcome)\n        self._subscriber.unregister_topic(topic)\n"
        "        return True\n",
        "test_new_topic_is_subscribed_to_before_its_hello_request",
        "a topic that is followed again meanwhile is not subscribed to",
    ),
    REPLICA(
        "handler_is_registered_after_the_lock",
        "            return self._handlers.add(chosen, handler, present, on_history_changed)\n\n"
        "        return self._engine.read(add)\n",
        "            return lambda: self._handlers.add(chosen, handler, present, on_history_changed)\n\n"
        "        return self._engine.read(add)()\n",
        "test_handler_registered_while_links_arrive_gets_all_changes",
        "a change that comes between the first look and the registration never reaches the handler",
    ),
    ENGINE(
        "history_notice_follows_the_events",
        "            self._handlers.push_history(outcome.history)\n        if outcome.events:\n"
        "            self._handlers.push(outcome.events, initial=first, by_sync=outcome.by_sync)\n",
        "        if outcome.events:\n"
        "            self._handlers.push(outcome.events, initial=first, by_sync=outcome.by_sync)\n"
        "        if outcome.history is not None:\n            self._handlers.push_history(outcome.history)\n",
        "test_handler_is_notified_of_changed_history_before_versions_go_back",
        "a handler gets a lower version without a notice and ignores it as old",
    ),
    HANDLERS(
        "handler_is_started_before_it_is_registered",
        "            self._handles = (*others, handle)  # before its thread may call it: in_handler looks for it here\n"
        "            try:\n                handle.start()\n",
        "            try:\n                handle.start()\n                self._handles = (*others, handle)\n",
        "test_in_handler_is_true_from_the_first_call",
        "a handler's first call may wait for itself forever",
    ),
    PUBLISHER(
        "links_are_numbered_under_the_lock_and_sent_outside",
        "            for envelope in self._core.publish(links, time.monotonic()):\n",
        "            numbered = self._core.publish(links, time.monotonic())\n            self._lock.release()\n"
        "            self._lock.acquire()\n            for envelope in numbered:\n",
        "test_links_are_sent_in_order_of_sequences_and_after_the_journal",
        "two commits leave in the wrong order of their sequences",
    ),
    PUBLISHER(
        "hello_is_sent_under_the_lock_of_the_numbers",
        "            if not self._send_hello(hello):\n                with self._lock:",
        "            with self._lock:\n                self._driver.send_event(hello)\n"
        "            if not hello:\n                with self._lock:",
        "test_commit_does_not_wait_for_refused_hellos",
        "a commit waits for every hello that the transport does not take",
    ),
    PUBLISHER(
        "goodbye_is_sent_beside_a_hello",
        "        with self._hello_lock:  # after the hello that is being sent now\n"
        "            self._send_hello(goodbye)",
        "        self._send_hello(goodbye)",
        "test_goodbye_is_the_last_message_and_comes_once",
        "a hello may follow the goodbye",
    ),
    PUBLISHER(
        "links_are_sent_after_close",
        '            if self._closing:\n                raise ClosedError("this publisher is closed; the change',
        "            if self._closing and not self._initialized:\n"
        '                raise ClosedError("this publisher is closed; the change',
        "test_publisher_closed_during_its_start_ends",
        "a link may follow the goodbye",
    ),
    PUBLISHER(
        "start_overlooks_a_close",
        "                closed = self._closing\n",
        "                closed = False\n",
        "test_publisher_closed_during_its_start_ends",
        "the thread of a publisher that was closed while it started never ends",
    ),
    PUBLISHER(
        "commit_waits_for_its_turn_for_ever",
        "if not self._lock.acquire(timeout=_SEND_TIMEOUT):",
        "if not self._lock.acquire():",
        "test_commit_waiting_for_the_lock_gives_up_in_time",
        "the waits of all threads that commit add up",
    ),
    WORKER(
        "worker_numbers_under_the_lock_and_pushes_outside",
        "            for envelope in core.publish(links, now):\n",
        "            numbered = core.publish(links, now)\n            self._lock.release()\n"
        "            self._lock.acquire()\n            for envelope in numbered:\n",
        "test_commits_of_several_threads_are_handed_over_in_order_of_sequences",
        "the service counts messages as lost that come later",
    ),
    WORKER(
        "each_thread_of_a_worker_has_its_own_connection",
        "return self._hops.get(mine) or self._hops.setdefault(mine, _Hop(self._settings, self._load))",
        "hop = self._hops.get(mine)\n        if hop is None:\n"
        "            hop = self._hops[mine] = _Hop(self._settings, self._load)\n        return hop",
        "test_threads_of_one_process_share_one_connection",
        "a connection is forgotten without being closed, and its buffered messages with it",
    ),
    WORKER(
        "worker_start_overlooks_a_close",
        "        if self._closed:  # meanwhile",
        "        if False:  # meanwhile",
        "test_worker_closed_during_start_and_commits_ends",
        "the store calls a closed worker at each commit",
    ),
    WORKER(
        "worker_connects_after_close",
        "        with self._lock:\n            self._closed = True\n            driver = self._driver",
        "        with self._lock:\n            driver = self._driver",
        "test_worker_closed_during_start_and_commits_ends",
        "a closed worker opens a connection that is never closed",
    ),
    OUTGOING(
        "handed_links_are_decided_under_the_lock_and_sent_outside",
        '            self._counts["repeated"] += len(links) - len(fresh)\n            self._send(fresh)',
        '            self._counts["repeated"] += len(links) - len(fresh)\n        self._send(fresh)',
        "test_links_are_sent_in_the_order_of_decisions",
        "a link that the changelog showed overtakes the one before it",
    ),
    OUTGOING(
        "due_links_are_decided_under_the_lock_and_sent_outside",
        '                hit("service.while_taking_over")\n            self._send_due(links)',
        '                hit("service.while_taking_over")\n        self._send_due(links)',
        "test_links_are_sent_in_the_order_of_decisions",
        "a link that a worker hands over overtakes the one before it",
    ),
)

ORDER = (
    ENGINE(
        "asks_before_it_subscribes",
        "                for topic in fresh:\n                    self._subscriber.register_topic(topic)\n"
        "                self._begin_to_subscribe(fresh)\n",
        "                self._begin_to_subscribe(fresh)\n                for topic in fresh:\n"
        "                    self._subscriber.register_topic(topic)\n",
        "test_new_topic_is_subscribed_to_before_its_hello_request",
        "messages between the reply and the subscription are lost, and the loss is not detected at once",
    ),
    ENGINE(
        "asks_before_it_receives",
        "        self._subscriber.daemonize()\n        if self._discovery is not None:\n"
        "            self._discovery.start(self.on_directory)\n"
        "        self.clock.start()\n        self._syncs.start()\n"
        "        with self._topics_lock:\n            self._begin_to_subscribe(topics)\n"
        "            self._interest.add(topics)\n",
        "        if self._discovery is not None:\n            self._discovery.start(self.on_directory)\n"
        "        self.clock.start()\n        self._syncs.start()\n"
        "        with self._topics_lock:\n            self._begin_to_subscribe(topics)\n"
        "            self._interest.add(topics)\n        self._subscriber.daemonize()\n",
        "test_clock_starts_when_a_link_begins_to_wait",
        "the replies to the first hello request are not received",
    ),
    ENGINE(
        "start_subscribes_before_the_journal_has_it",
        "        if self._journal is not None:\n"
        "            self._journal.following(topics)  # before the first message can come\n"
        "        for topic in topics:\n            self._subscriber.register_topic(topic)\n",
        "        for topic in topics:\n            self._subscriber.register_topic(topic)\n"
        "        if self._journal is not None:\n            self._journal.following(topics)\n",
        "test_clock_starts_when_a_link_begins_to_wait",
        "the audit finds messages that the replica did not expect",
    ),
    ENGINE(
        "follow_subscribes_before_the_journal_has_it",
        "                if self._journal is not None:\n                    self._journal.following(fresh)\n"
        "                for topic in fresh:\n                    self._subscriber.register_topic(topic)\n",
        "                for topic in fresh:\n                    self._subscriber.register_topic(topic)\n"
        "                if self._journal is not None:\n                    self._journal.following(fresh)\n",
        "test_new_topic_is_subscribed_to_before_its_hello_request",
        "the audit finds messages that the replica did not expect",
    ),
    ENGINE(
        "asks_before_the_journal_has_it",
        "        if self._journal is not None:\n            self._journal.asking(request)\n"
        "        send_hello_request(self._subscriber, request, lambda: self._closing)\n",
        "        send_hello_request(self._subscriber, request, lambda: self._closing)\n"
        "        if self._journal is not None:\n            self._journal.asking(request)\n",
        "test_clock_starts_when_a_link_begins_to_wait",
        "the audit finds a reply older than its hello request",
    ),
    ENGINE(
        "sync_reads_before_the_journal_has_it",
        "                if self._journal is not None:\n                    self._journal.sync_begins(outcome.sync)\n"
        "            self._syncs.wake()\n",
        "            self._syncs.wake()\n            if self._journal is not None:\n"
        "                self._journal.sync_begins(outcome.sync)\n",
        "test_clock_starts_when_a_link_begins_to_wait",
        "the audit finds a sync whose end is older than its begin",
    ),
    REPLICA_STATE(
        "messages_are_applied_before_the_journal_has_them",
        "        if self.witness is not None:\n            self.witness.received(envelope, effects, self.tracker)\n"
        "        outcome = self._carry_out(effects, now, envelope) if effects else NOTHING\n",
        "        outcome = self._carry_out(effects, now, envelope) if effects else NOTHING\n"
        "        if self.witness is not None:\n            self.witness.received(envelope, effects, self.tracker)\n",
        "test_replica_closed_while_it_works_ends_once",
        "a replica that is killed holds what its journal does not have",
    ),
    REPLICA_STATE(
        "syncs_are_applied_before_the_journal_has_them",
        "        if self.witness is not None:\n            self.witness.synced(answer, number, effects, self.tracker)\n"
        "        outcome = self._carry_out(effects, now)\n",
        "        outcome = self._carry_out(effects, now)\n        if self.witness is not None:\n"
        "            self.witness.synced(answer, number, effects, self.tracker)\n",
        "test_clock_starts_when_a_link_begins_to_wait",
        "a replica that is killed holds what its journal does not have",
    ),
    PUBLISHER(
        "links_are_sent_before_the_journal_has_them",
        "                if self._journal is not None:\n                    self._journal.messages(_SENT, envelope)\n"
        "                self._driver.send_event(envelope)\n",
        "                self._driver.send_event(envelope)\n                if self._journal is not None:\n"
        "                    self._journal.messages(_SENT, envelope)\n",
        "test_links_are_sent_in_order_of_sequences_and_after_the_journal",
        "the audit finds messages that no publisher sent",
    ),
    WORKER(
        "links_are_handed_over_before_the_journal_has_them",
        '            self._journal.links("handed", links)\n        try:\n'
        "            self._hop().push(links, self._store.store_id)\n",
        "        try:\n            self._hop().push(links, self._store.store_id)\n"
        "            if self._journal is not None:\n"
        '                self._journal.links("handed", links)\n',
        "test_commits_of_several_threads_are_handed_over_in_order_of_sequences",
        "the audit finds links that no worker handed over",
    ),
    Mutant(
        "service_publishes_links_of_another_store",
        "pubsub_lib/service/receiving.py",
        "        if envelope.store_id != own:\n",
        "        if False:\n",
        (
            "tests/unit/service/test_receiving.py::test_rule_15_links_of_another_store_are_dropped_counted_and_named_once",
        ),
        wrong="a worker of staging that finds production's socket publishes through production's service",
    ),
    RECEIVING(
        "links_are_sent_on_before_the_journal_has_them",
        '            if self._journal is not None:\n                self._journal.links("taken", links)\n'
        "            self._outgoing.handed_over(links, (envelope.service, envelope.uuid))",
        "            self._outgoing.handed_over(links, (envelope.service, envelope.uuid))\n"
        "            if self._journal is not None:\n"
        '                self._journal.links("taken", links)',
        "test_taken_link_is_in_the_journal_before_it_is_sent",
        "the audit finds links that the service sent and never got",
    ),
)

AGES = (
    PUBLISHER(
        "reading_of_an_unchanged_store_begins_after_it",
        "        began = time.monotonic()\n        heads: Heads | None = None\n        try:\n"
        "            point = self._store.read_heads(())\n",
        "        heads: Heads | None = None\n        try:\n            point = self._store.read_heads(())\n"
        "            began = time.monotonic()\n",
        "test_hello_of_an_unchanged_store_has_the_age_of_its_reading",
        "a hello claims to be younger than it is, and replicas report too little staleness",
    ),
    PUBLISHER(
        "reading_of_the_heads_begins_after_it",
        "                began = time.monotonic()\n                heads = self._store.read_heads([ALL])\n",
        "                heads = self._store.read_heads([ALL])\n                began = time.monotonic()\n",
        "test_hello_never_has_an_age_below_its_readings_age",
        "a hello claims to be younger than it is, and replicas report too little staleness",
    ),
    LEASES(
        "lease_counts_from_the_grant",
        "        asked = time.monotonic()\n        lease.asked(asked)\n"
        "        granted = self._directory.acquire(name, self._uuid, self._seconds)\n",
        "        lease.asked(time.monotonic())\n"
        "        granted = self._directory.acquire(name, self._uuid, self._seconds)\n"
        "        asked = time.monotonic()\n",
        "test_lease_has_one_holder_and_no_service_uses_an_expired_entry",
        "while the database is slow, two services hold one lease",
    ),
    LEASES(
        "entry_counts_from_its_registration",
        "            self._entry.granted(now)\n",
        "            self._entry.granted(time.monotonic())\n",
        "test_lease_has_one_holder_and_no_service_uses_an_expired_entry",
        "a service considers its entry in the directory valid although it has expired",
    ),
    LEASES(
        "live_services_are_read_before_the_grant",
        "        granted = self._directory.acquire(name, self._uuid, self._seconds)\n"
        "        if granted and name == ORPHANS:\n",
        "        live = self._directory.live()\n"
        "        granted = self._directory.acquire(name, self._uuid, self._seconds)\n"
        "        if granted and name == ORPHANS:\n            self._live = frozenset(each.service for each in live)\n"
        "        elif granted and name == ORPHANS:\n",
        "test_holder_of_orphans_knows_all_services_registered_before_the_grant",
        "the links of a service that has just started are treated as orphans",
    ),
)

OPENING = (
    Mutant(
        "opened_worker_has_no_trace",
        "pubsub_lib/publisher/opening.py",
        "return Worker(settings, store, trace=trace)",
        "return Worker(settings, store)",
        (f"{OPENED}[Worker]",),
        wrong="the links of a program that hands over have no trace context",
    ),
    Mutant(
        "opened_publisher_has_no_trace",
        "pubsub_lib/publisher/opening.py",
        "return Publisher(settings, store, trace=trace)",
        "return Publisher(settings, store)",
        (f"{OPENED}[Publisher]",),
        wrong="the links of a program that sends by itself have no trace context",
    ),
)

FAULTS = (
    Mutant(
        "altered_objects_are_not_journalled",
        "pubsub_lib/replica/fault_log.py",
        "            journal.rotted(rot)\n",
        "            pass\n",
        (ALTERED,),
        wrong="the audit has no record of objects that were altered in a replica's memory",
    ),
    Mutant(
        "altered_objects_are_not_logged",
        "pubsub_lib/replica/fault_log.py",
        "        log_rot(rot)\n",
        "",
        (ALTERED,),
        wrong="no line in the log names the host whose memory is faulty",
    ),
    Mutant(
        "altered_objects_are_not_counted",
        "pubsub_lib/core/replica_state.py",
        "            self.faults.rotted += rot.objects\n",
        "",
        (ALTERED,),
        wrong="no metric shows that objects in a replica's memory were altered",
    ),
    Mutant(
        "recount_of_the_store_has_no_journal",
        "pubsub_lib/service/service.py",
        "service.recount_time, self._journal\n",
        "service.recount_time\n",
        ("tests/unit/service/test_service.py::test_service_recounts_while_it_holds_the_lease",),
        wrong="the audit has no record of rows that were altered in the database and repaired",
    ),
    Mutant(
        "one_step_trims_all",
        "pubsub_lib/service/maintenance.py",
        "            if self._clock() >= until:\n",
        "            if False:\n",
        (f"{MAINTENANCE}::test_step_trims_for_a_bounded_time_and_is_then_due_at_once",),
        wrong="the watchdog ends one service after the other while millions of links are removed",
    ),
    Mutant(
        "failed_trimming_is_taken_for_a_finished_one",
        "pubsub_lib/service/maintenance.py",
        "        self._unfinished = None  # a step",
        "        pass  # a step",
        (f"{MAINTENANCE}::test_trimming_that_failed_begins_again",),
        wrong="after an error the rest of the links stays until the next interval",
    ),
    Mutant(
        "one_step_repairs_all_topics",
        "pubsub_lib/service/recount.py",
        "            if self._clock() >= until:\n",
        "            if False:\n",
        (f"{RECOUNT}::test_step_repairs_for_a_bounded_time_and_then_the_next_one_does",),
        wrong="the watchdog ends one service after the other while many topics are repaired",
    ),
    Mutant(
        "round_ends_before_its_last_repairs",
        "pubsub_lib/service/recount.py",
        "        if self._rows or self._topics or self._suspects:\n",
        "        if self._rows or self._topics:\n",
        (f"{RECOUNT}::test_step_repairs_for_a_bounded_time_and_then_the_next_one_does",),
        wrong="altered objects wait for the next round",
    ),
    Mutant(
        "recount_finds_more_while_repairs_wait",
        "pubsub_lib/service/recount.py",
        "            if not self._behind:\n                self._look()\n",
        "            self._look()\n",
        (f"{RECOUNT}::test_no_more_rows_are_read_while_topics_wait_for_their_repair",),
        wrong="after much damage the names of all altered objects are in the service's memory",
    ),
)

MUTANTS = (*WAKE_UPS, *LOCKS, *ORDER, *AGES, *OPENING, *FAULTS)
