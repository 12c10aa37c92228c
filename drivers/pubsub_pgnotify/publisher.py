"""The sending half: it announces the newest committed position by NOTIFY, on a connection of its own.

The thread that commits sends the NOTIFY, which does not block, and a thread of this half receives the answer: to wake
that thread first would delay each change. It also connects, and sends what waited.

A writer's transaction never contains NOTIFY: PostgreSQL takes a lock of the whole server when such a transaction
commits, and writers would wait for each other.
"""

import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import Final

from pubsub_lib.api import OnConnected, OnHelloRequest, Publisher
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import Point
from pubsub_lib.driver_state import PublisherState
from pubsub_lib.hello_requests import HelloRequests
from pubsub_lib.threads.start import ReadyThread
from pubsub_pgnotify import announcement
from pubsub_pgnotify.session import Session

_STOP: Final = 2.0  # seconds
_NO_WAIT: Final = "SET synchronous_commit = off"
"""A notification need not survive a crash, so its COMMIT waits for no disk."""
_NAME: Final = b"announce"
_PREPARE: Final = f"PREPARE {_NAME.decode()} (text, text) AS SELECT pg_notify($1, $2)"

_Position = tuple[str, Point]
"""Channel and point."""


class NotifyingPublisher(Publisher):
    """Positions that wait while a NOTIFY runs, or while there is no connection, become one NOTIFY of the newest."""

    max_sending = 10.0  # the database announces; a busy one may need seconds to do so, or to connect

    def __init__(self, session: Session, limits: Limits) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._life = PublisherState()
        self._callbacks = HelloRequests(limits)
        self._counts = dict.fromkeys(("sent", "notifications", "unneeded"), 0)
        self._waiting: _Position | None = None
        """The newest position that is not announced yet. Threads may pass positions of one store on in another order
        than that of the changelog."""
        self._is_running = False
        """Whether a NOTIFY is not answered yet."""
        self._running_since = self._connecting_since = 0.0
        self._thread: threading.Thread | None = None

    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        """See :meth:`pubsub_lib.api.Publisher.initialize`. The database need not answer yet. ``on_hello_request`` is
        never called: each subscriber answers hello requests itself, from the store."""
        with self._lock:
            self._life.check_new()
            ready = ReadyThread("pubsub-notifying")
            try:
                self._session.open()
            except BaseException:
                ready.drop()
                raise
            self._life.begin()
            self._thread = ready.thread
            ready.run(lambda: self._run(on_connected))

    def send_event(self, envelope: Envelope) -> None:
        """See :meth:`pubsub_lib.api.Publisher.send_event`. The links are in the changelog already; the position of the
        last one is announced soon, also when there is no connection now. Hellos are not sent."""
        self._life.check_open()
        with self._lock:
            self._life.check_open()  # again: what is accepted before close() is announced
            if not envelope.messages:
                self._counts["unneeded"] += 1
                return
            point, channel = envelope.messages[-1].link.point, announcement.channel(envelope.store_id)
            waiting = self._waiting
            if waiting is None or waiting[0] != channel or waiting[1].position <= point.position:
                self._waiting = channel, point
            self._counts["sent"] += 1
            self._announce()

    def counters(self) -> Mapping[str, int]:
        """``sent``: envelopes whose position was accepted; ``notifications`` sent for them; ``unneeded``: hellos;
        ``connections`` made, ``lost_connections``, and ``callback_errors``."""
        errors = self._callbacks.counts["callback_errors"]
        return {**self._counts, **self._session.counts, "callback_errors": errors}

    def sending_for(self, now: float) -> float:
        """See :meth:`pubsub_lib.api.Publisher.sending_for`."""
        since = self._running_since or self._connecting_since
        return max(0.0, now - since) if since else 0.0

    def close(self) -> None:
        """See :meth:`pubsub_lib.api.Publisher.close`. The last position is announced before, if the database answers
        in time."""
        if self._life.inherited:
            return
        with self._lock:
            self._life.closed = True
            thread = self._thread
        self._session.wake()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_STOP)

    def _announce(self) -> None:
        """Send the waiting position, unless a NOTIFY is running, or there is no connection. With the lock held."""
        position = self._waiting
        if position is None or self._is_running:
            return
        channel, point = position
        parameters = channel, announcement.payload(point)
        if self._session.begin(_NAME, parameters, partial(self._answered, position)):
            self._is_running = True
            self._running_since = time.monotonic()

    # -- the announcing thread -------------------------------------------------------------------------------

    def _run(self, on_connected: OnConnected) -> None:
        try:
            tried = False
            while not self._has_ended(tried):
                # Once closed, it tries once more for the last position, after the answer to another one.
                tried = self._life.closed and not self._is_running
                self._connecting_since = time.monotonic()
                is_new = self._session.connect(_NO_WAIT, _PREPARE)
                self._connecting_since = 0.0
                if is_new and not tried:
                    self._callbacks.call(on_connected)
                with self._lock:
                    self._announce()
                if not tried or self._is_running:
                    self._session.wait(self._session.retry_in)
        finally:
            self._session.close()

    def _has_ended(self, tried: bool) -> bool:
        """Whether the publisher is closed, and nothing is left to announce. ``tried``: to announce what is
        left, after the close."""
        with self._lock:
            return self._life.closed and (self._waiting is None or (tried and not self._is_running))

    def _answered(self, position: _Position, executed: bool) -> None:
        with self._lock:
            self._is_running = False
            self._running_since = 0.0
            if executed:
                self._counts["notifications"] += 1
                if self._waiting is position:
                    self._waiting = None
