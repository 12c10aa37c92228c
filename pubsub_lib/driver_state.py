"""What the halves of all drivers have in common: the order of calls, the process they belong to, the callback.

A driver's publisher or subscriber owns one of these and asks it; nothing is inherited. The contract is
:mod:`pubsub_lib.api`'s; what is here is the part of it that has nothing to do with how bytes travel.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Final

from pubsub_lib.api import OnConnected, OnEnvelope
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import check_name
from pubsub_lib.core.model import ALL
from pubsub_lib.errors import FrameError, TransportError
from pubsub_lib.threads.start import ReadyThread

COUNTED: Final = ("received", "callback_errors", "truncated", "oversized", "version", "foreign", "overflow")
"""What every subscriber counts."""


def check_topic(topic: str) -> str:
    """Refuse what is neither ``ALL`` nor a topic's name by InvalidValueError; else return it."""
    return topic if topic == ALL else check_name("topic", topic)


def _nothing() -> None:
    """A callback that was not given yet."""


class PublisherState:
    """New, then initialized in one process, then closed."""

    def __init__(self) -> None:
        self.closed = False
        """Set by the driver's ``close``."""
        self._pid = 0  # 0: not initialized

    @property
    def inherited(self) -> bool:
        """A fork's copy: its locks, threads and sockets are the parent's, so that ``close`` leaves them alone."""
        return self._pid not in (0, os.getpid())

    def check_new(self) -> None:
        """For the beginning of ``initialize``: TransportError when it was called before, or closed."""
        if self._pid or self.closed:
            raise TransportError("this publisher was initialized before; make a new one")

    def begin(self) -> None:
        """For the end of ``initialize``: from now on it may be used, in this process alone."""
        self._pid = os.getpid()

    def check_open(self) -> None:
        """For the beginning of ``send_event``: TransportError when not initialized, in another process, or closed."""
        if self._pid != os.getpid():
            raise TransportError(
                "this publisher was initialized in another process; make one after the fork"
                if self._pid
                else "this publisher is not initialized; call initialize() first"
            )
        if self.closed:
            raise TransportError("this publisher is closed; make a new one")


class SubscriberState:
    """Made, initialized, running, closed, in the process that made it; with the one receiving thread and its callback.

    ``lock``: the driver's own, which guards whatever several threads touch. ``log``: the driver's own. ``more``: names
    of further counters.
    """

    def __init__(self, lock: AbstractContextManager[object], log: logging.Logger, more: Iterable[str] = ()) -> None:
        self.closed = False
        """Read by the receiving thread between two messages; set by :meth:`close`."""
        # The names never change, so that a copy may be made at any time. Each has one thread that counts, or a lock.
        self.counts: dict[str, int] = dict.fromkeys((*COUNTED, *more), 0)
        """By name; only the receiving thread counts, unless the driver holds its lock."""
        self._lock = lock
        self._log = log
        self._pid = os.getpid()
        self._on_envelope: OnEnvelope | None = None
        self._on_connected: OnConnected = _nothing
        self._thread: threading.Thread | None = None

    @property
    def inherited(self) -> bool:
        """A fork's copy: its locks, thread and sockets are the parent's, so that ``close`` leaves them alone."""
        return self._pid != os.getpid()

    def check_process(self) -> None:
        """TransportError in a fork's copy. For what may be asked of a closed subscriber, too."""
        if self.inherited:
            raise TransportError("this subscriber belongs to the process that made it; make one after the fork")

    def check_open(self) -> None:
        """For the beginning of every method but ``counters`` and ``close``: TransportError in a fork's copy, or when
        closed."""
        self.check_process()
        if self.closed:
            raise TransportError("this subscriber is closed; make a new one")

    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        """Remember the callbacks. Raises TransportError when it was called before. Takes the lock."""
        self.check_open()
        with self._lock:
            if self._on_envelope is not None:
                raise TransportError("this subscriber was initialized before; make a new one")
            self._on_envelope = on_envelope
            self._on_connected = on_connected

    def start(self, name: str, prepare: Callable[[], Callable[[], None]]) -> None:
        """Start the receiving thread of this name. Takes the lock.

        ``prepare`` opens what the thread needs and returns what it runs; it is called under the lock, so that a
        ``close`` that comes now finds a thread that it can join; and only when the thread is there, so that nothing
        opened is left behind without one. What it raises leaves all as it was. Raises TransportError when not
        initialized, running already, or closed, or when the system gives no thread.
        """
        self.check_open()
        with self._lock:
            if self._on_envelope is None:
                raise TransportError("this subscriber is not initialized; call initialize() first")
            if self._thread is not None:
                raise TransportError("this subscriber runs already; daemonize() it once")
            self.check_open()  # again: another thread may have closed it meanwhile
            ready = ReadyThread(name)
            try:
                target = prepare()
            except BaseException:
                ready.drop()
                raise
            ready.run(target)
            self._thread = ready.thread

    def deliver(self, envelope: Envelope) -> None:
        """Call the callback; what it raises is logged and counted as ``callback_errors``. The receiving thread."""
        assert self._on_envelope is not None
        try:
            self._on_envelope(envelope)
        except BaseException:  # noqa: BLE001 - whatever a controller raises, SystemExit too, must not end receiving
            self.counts["callback_errors"] += 1
            self._log.exception(
                "the callback failed for an envelope of %s on topic %r", envelope.service, envelope.topic
            )

    def connected(self) -> None:
        """A connection is there, for the first time or again: call the callback; what it raises is logged and counted
        as ``callback_errors``. The receiving thread."""
        try:
            self._on_connected()
        except BaseException:  # noqa: BLE001 - as above
            self.counts["callback_errors"] += 1
            self._log.exception("the callback for a new connection failed")

    def drop(self, error: FrameError) -> None:
        """Count a message that is dropped by the reason. The receiving thread."""
        self.counts[error.reason] += 1
        self._log.debug("dropped a message: %s", error)

    def close(self, wake: Callable[[], None], max_wait: float) -> None:
        """Close, ``wake`` the receiving thread (called under the lock), and wait for its end for ``maximum`` seconds.

        Idempotent, and may be called from any thread, the receiving one included, which does not wait for itself. Does
        nothing in a fork's copy, whose lock and thread are the parent's.
        """
        if self.inherited:
            return
        with self._lock:
            self.closed = True
            wake()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(max_wait)
