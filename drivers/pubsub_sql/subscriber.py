"""The receiving half of the polling driver: one thread that polls the database, on request or at intervals."""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Final

from pubsub_lib.api import OnConnected, OnEnvelope, Subscriber
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import HelloRequest
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.sequencer import MAX_REQUESTS
from pubsub_lib.driver_state import SubscriberState, check_topic
from pubsub_lib.errors import PubSubError
from pubsub_lib.logs import logger
from pubsub_sql.follower import ChangelogFollower, ChangelogReader, Pace

_log = logger(__name__)

_STOP: Final = 2.0  # seconds


class PollingSubscriber(Subscriber):
    """Owns the store that it opens: only its thread uses the store, and closes it at the end."""

    def __init__(
        self,
        open_store: Callable[[], ChangelogReader],
        limits: Limits,
        *,
        fastest: float,
        slowest: float,
        batch: int,
        max_backoff: float,
    ) -> None:
        self._open_store = open_store
        self._changed = threading.Condition()
        self._topics: frozenset[str] = frozenset()
        self._asks: deque[HelloRequest] = deque(maxlen=MAX_REQUESTS)
        self._poll_now = False
        self._life = SubscriberState(self._changed, _log, ("store_errors",))
        self._follower = ChangelogFollower(limits, batch)
        self._pace = Pace(fastest, slowest, max_backoff)
        self._store: ChangelogReader | None = None
        self._failing = False

    # -- the caller's side -----------------------------------------------------------------------------------

    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.initialize`. ``on_connected`` is never called."""
        self._life.initialize(on_envelope, on_connected)

    def register_topic(self, topic: str) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.register_topic`. Changes committed after this call arrive."""
        self._life.check_open()
        with self._changed:
            self._topics |= {check_topic(topic)}
            self._wake()

    def unregister_topic(self, topic: str) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.unregister_topic`."""
        self._life.check_open()
        with self._changed:
            self._topics -= {topic}

    def request_hello(self, nonce: str, topics: Collection[str]) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.request_hello`. The reply's reading of the store begins after this
        call."""
        self._life.check_open()
        codec.check_nonce(nonce)
        for topic in topics:
            check_topic(topic)
        with self._changed:
            self._asks.append(HelloRequest(nonce, tuple(topics)))
            self._wake()

    def daemonize(self) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.daemonize`. The database need not answer yet."""
        self._life.start("pubsub-polling", lambda: self._run)

    def counters(self) -> Mapping[str, int]:
        """The counters that the API requires; ``polls``, ``reads`` and ``links`` of the changelog, ``jumps`` over
        trimmed links, and ``store_errors``."""
        self._life.check_process()
        with self._changed:
            return {**self._life.counts, **self._follower.counts}

    def close(self) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.close`. Does not wait for a database that does not answer: the thread
        then ends later by itself, without another call of ``on_envelope``."""
        self._life.close(self._notify, _STOP)

    def _wake(self) -> None:
        self._poll_now = True
        self._notify()

    def _notify(self) -> None:
        """End the wait of the polling thread. With the lock held."""
        self._changed.notify_all()

    # -- the polling thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._life.closed:
                self._wait(self._poll())
        finally:
            self._close_store()

    def _wait(self, pause: float) -> None:
        """Wait until the next poll is due, at most for ``pause`` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._poll_now or self._life.closed, pause)

    def _poll(self) -> float:
        """Poll once. Return the seconds until the next poll. Raises nothing."""
        with self._changed:
            self._poll_now = False
            # When this poll fails, these hello requests stay unanswered, and the replica asks again.
            asks = list(self._asks)
            self._asks.clear()
        before = self._follower.at
        try:
            if self._store is None:
                self._store = self._open_store()
            for envelope in self._follower.poll(self._store, lambda: self._topics, asks, time.monotonic):
                if self._life.closed:
                    return 0.0
                self._life.counts["received"] += 1
                self._life.deliver(envelope)
        except Exception as error:  # noqa: BLE001 - an exception must not end this thread: that would go unnoticed
            self._failed(error)
            return self._pace.failed()
        self._succeeded()
        return self._pace.idle() if self._follower.at == before else self._pace.changed()

    def _failed(self, error: Exception) -> None:
        self._life.counts["store_errors"] += 1
        if not self._failing:
            self._failing = True
            _log.warning(
                "reading the changelog failed and is retried until it succeeds: %s",
                error,
                # The message of a PubSubError is complete; any other exception is a bug and needs its traceback.
                exc_info=None if isinstance(error, PubSubError) else error,
            )

    def _succeeded(self) -> None:
        if self._failing:
            self._failing = False
            _log.info("reading the changelog works again")

    def _close_store(self) -> None:
        if self._store is not None:
            try:
                self._store.close()
            except PubSubError as error:
                _log.warning("closing the changelog's connection failed: %s", error)
