"""The receiving half of the polling driver: one thread that asks the database, at once or after a while."""

import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from typing import Final

from pubsub_lib.api import OnEnvelope, Subscriber
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope, HelloAsk
from pubsub_lib.core.limits import Limits, check_name
from pubsub_lib.core.model import ALL
from pubsub_lib.errors import PubSubError, TransportError
from pubsub_sql.follower import ChangelogFollower, ChangelogReader, Pace

_log = logging.getLogger(__name__)

_QUESTIONS: Final = 64
"""Questions that wait for the next poll; an older one's asker has asked again since."""
_STOP: Final = 2.0  # seconds


class PollingSubscriber(Subscriber):
    """Owns the store it opens: only its thread touches it, and closes it in the end."""

    def __init__(
        self,
        open_store: Callable[[], ChangelogReader],
        limits: Limits,
        *,
        fastest: float,
        slowest: float,
        batch: int,
        backoff_most: float,
    ) -> None:
        self._open_store = open_store
        self._pid = os.getpid()
        self._on_envelope: OnEnvelope | None = None
        self._changed = threading.Condition()
        self._topics: frozenset[str] = frozenset()
        self._asks: deque[HelloAsk] = deque(maxlen=_QUESTIONS)
        self._poll_now = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._follower = ChangelogFollower(limits, batch)
        self._pace = Pace(fastest, slowest, backoff_most)
        self._store: ChangelogReader | None = None
        self._failing = False
        names = ("received", "callback_errors", "truncated", "version", "foreign", "overflow", "store_errors")
        self._counts: Counter[str] = Counter(dict.fromkeys(names, 0))

    # -- the caller's side -----------------------------------------------------------------------------------

    def initialize(self, on_envelope: OnEnvelope) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.initialize`."""
        self._own()
        with self._changed:
            if self._on_envelope is not None:
                raise TransportError("this subscriber was initialized before; make a new one")
            self._on_envelope = on_envelope

    def register_topic(self, topic: str) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.register_topic`. What is committed from now on arrives."""
        self._own()
        if topic != ALL:
            check_name("topic", topic)
        with self._changed:
            self._topics |= {topic}
            self._wake()

    def unregister_topic(self, topic: str) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.unregister_topic`."""
        self._own()
        with self._changed:
            self._topics -= {topic}

    def register_listen_address(self, address: str) -> None:
        """Nothing to do: the store's URL is the only address."""
        self._own()

    def unregister_listen_address(self, address: str) -> None:
        """Nothing to do: the store's URL is the only address."""
        self._own()

    def request_hello(self, nonce: str, topics: Collection[str]) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.request_hello`. Answered by a reading that begins after this call."""
        self._own()
        codec.check_nonce(nonce)
        for topic in topics:
            if topic != ALL:
                check_name("topic", topic)
        with self._changed:
            self._asks.append(HelloAsk(nonce, tuple(topics)))
            self._wake()

    def daemonize(self) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.daemonize`. The database need not answer yet."""
        self._own()
        with self._changed:
            if self._on_envelope is None:
                raise TransportError("this subscriber is not initialized; call initialize() first")
            if self._thread is not None:
                raise TransportError("this subscriber runs already; daemonize() it once")
            self._thread = threading.Thread(
                target=self._run, args=(self._on_envelope,), name="pubsub-polling", daemon=True
            )
            # Under the lock: a close() that comes now finds a thread that it can join.
            self._thread.start()

    def counters(self) -> Mapping[str, int]:
        """What the API asks for; ``polls``, ``reads`` and ``links`` of the changelog, ``jumps`` over what is gone
        from it, and ``store_errors``."""
        self._own(closed_too=True)
        with self._changed:
            return {**self._counts, **self._follower.counts}

    def close(self) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.close`. A database that does not answer cannot hold it up: the thread
        then ends by itself, without another call of ``on_envelope``."""
        if self._pid != os.getpid():
            return  # a fork's copy: the lock, the thread and the connections are the parent's
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_STOP)

    def _own(self, closed_too: bool = False) -> None:
        if self._pid != os.getpid():
            raise TransportError("this subscriber belongs to the process that made it; make one after the fork")
        if self._closed and not closed_too:
            raise TransportError("this subscriber is closed; make a new one")

    def _wake(self) -> None:
        self._poll_now = True
        self._changed.notify_all()

    # -- the polling thread ----------------------------------------------------------------------------------

    def _run(self, on_envelope: OnEnvelope) -> None:
        try:
            while not self._closed:
                pause = self._poll(on_envelope)
                with self._changed:
                    self._changed.wait_for(lambda: self._poll_now or self._closed, pause)
        finally:
            self._close_store()

    def _poll(self, on_envelope: OnEnvelope) -> float:
        """One poll, whatever happens; returns the seconds until the next."""
        with self._changed:
            self._poll_now = False
            # Taken for good: when this poll fails they stay unanswered, and their asker asks again.
            asks = list(self._asks)
            self._asks.clear()
        before = self._follower.at
        try:
            if self._store is None:
                self._store = self._open_store()
            for envelope in self._follower.poll(self._store, lambda: self._topics, asks, time.monotonic):
                if self._closed:
                    return 0.0
                self._deliver(on_envelope, envelope)
        except Exception as error:  # noqa: BLE001 - a poller that dies of its first exception looks healthy
            self._failed(error)
            return self._pace.failed()
        self._succeeded()
        return self._pace.idle() if self._follower.at == before else self._pace.changed()

    def _deliver(self, on_envelope: OnEnvelope, envelope: Envelope) -> None:
        self._count("received")
        try:
            on_envelope(envelope)
        except BaseException:  # noqa: BLE001 - whatever a controller raises, SystemExit too, must not end polling
            self._count("callback_errors")
            _log.exception("the callback failed for an envelope on topic %r", envelope.topic)

    def _failed(self, error: Exception) -> None:
        self._count("store_errors")
        if not self._failing:
            self._failing = True
            _log.warning(
                "following the changelog is interrupted, and tried again until it works: %s",
                error,
                # One of ours says all in its sentence; anything else is a fault whose place must be known.
                exc_info=None if isinstance(error, PubSubError) else error,
            )

    def _succeeded(self) -> None:
        if self._failing:
            self._failing = False
            _log.info("following the changelog goes on")

    def _close_store(self) -> None:
        if self._store is not None:
            try:
                self._store.close()
            except PubSubError as error:
                _log.warning("closing the changelog's connection failed: %s", error)

    def _count(self, name: str) -> None:
        with self._changed:
            self._counts[name] += 1
