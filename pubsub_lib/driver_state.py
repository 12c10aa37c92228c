"""The state that publishers and subscribers of all drivers share: order of calls, owning process, callback.

A driver's publisher or subscriber owns one of these objects; they are not base classes. The contract is in
:mod:`pubsub_lib.api`; this module has the part of it that does not depend on the transport.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Final

from pubsub_lib.api import OnConnected, OnEnvelope
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import Limits, check_name
from pubsub_lib.core.model import ALL
from pubsub_lib.errors import FrameError, TransportError
from pubsub_lib.threads.start import ReadyThread

COUNTED: Final = ("received", "callback_errors", "truncated", "oversized", "version", "foreign", "overflow")
"""Names of the counters of every subscriber."""


def check_topic(topic: str) -> str:
    """Return the topic. Raises InvalidValueError unless it is ``ALL`` or a valid topic name."""
    return topic if topic == ALL else check_name("topic", topic)


def _nothing() -> None:
    """Placeholder for a callback that is not set yet."""


class PublisherState:
    """New, then initialized in one process, then closed."""

    def __init__(self) -> None:
        self.closed = False
        """Set by the driver's ``close``."""
        self.process = 0
        """The process in which the publisher was initialized; 0: not initialized."""

    @property
    def inherited(self) -> bool:
        """Whether this is a fork's copy: its locks, threads and sockets are the parent's, so ``close`` ignores them."""
        return self.process not in (0, os.getpid())

    def check_new(self) -> None:
        """For the start of ``initialize``: raises TransportError when it was called before, or closed."""
        if self.process:
            raise TransportError("this publisher was initialized before; make a new one")
        if self.closed:
            raise TransportError("this publisher is closed; make a new one")

    def begin(self) -> None:
        """For ``initialize``, before a thread can call back: from now on the publisher may send, only in this process.
        A callback may send at once.
        """
        self.process = os.getpid()

    def check_open(self) -> None:
        """For the start of ``send_event``: TransportError when not initialized, in another process, or closed."""
        if self.process != os.getpid():
            raise TransportError(
                "this publisher was initialized in another process; make one after the fork"
                if self.process
                else "this publisher is not initialized; call initialize() first"
            )
        if self.closed:
            raise TransportError("this publisher is closed; make a new one")


class SubscriberState:
    """Made, initialized, running, closed, in the process that made it; with the receiving thread and its callback.

    ``lock``: the driver's lock, which guards the state that several threads use. ``log``: the driver's logger.
    ``more``: names of further counters.
    """

    def __init__(self, lock: AbstractContextManager[object], log: logging.Logger, more: Iterable[str] = ()) -> None:
        self.closed = False
        """Read by the receiving thread between two messages; set by :meth:`close`."""
        # The names never change, so any thread may copy it. Each counter is changed by one thread, or under a lock.
        self.counts: dict[str, int] = dict.fromkeys((*COUNTED, *more), 0)
        """By name. Only the receiving thread changes the counters, unless the driver holds its lock."""
        self._lock = lock
        self._log = log
        self._pid = os.getpid()
        self._on_envelope: OnEnvelope | None = None
        self._on_connected: OnConnected = _nothing
        self._thread: threading.Thread | None = None

    @property
    def inherited(self) -> bool:
        """Whether this is a fork's copy: its locks, thread and sockets are the parent's, so ``close`` ignores them."""
        return self._pid != os.getpid()

    def check_process(self) -> None:
        """Raises TransportError in a fork's copy. For methods that a closed subscriber allows, too."""
        if self.inherited:
            raise TransportError("this subscriber belongs to the process that made it; make one after the fork")

    def check_open(self) -> None:
        """For the start of every method except ``counters`` and ``close``: raises TransportError in a fork's copy, or
        when closed."""
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

        ``prepare`` opens the thread's resources and returns the thread's function. It is called under the lock, so that
        a concurrent ``close`` finds a thread that it can join. It is called only after the thread was started, so that
        no resources stay open without a thread. If it raises, nothing is changed. Raises TransportError when not
        initialized, running already, or closed, or when the system cannot start a thread.
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

    def receive(self, frames: Sequence[bytes], limits: Limits) -> None:
        """Decode a message and deliver it, or count why it was dropped. The receiving thread."""
        try:
            envelope = codec.decode(frames, limits)
        except FrameError as error:
            self.drop(error)
            return
        self.counts["received"] += 1
        self.deliver(envelope)

    def deliver(self, envelope: Envelope) -> None:
        """Call the callback; its exceptions are logged and counted as ``callback_errors``. The receiving thread."""
        assert self._on_envelope is not None
        try:
            self._on_envelope(envelope)
        except BaseException:  # noqa: BLE001 - no exception of a controller, SystemExit included, may end receiving
            self.counts["callback_errors"] += 1
            self._log.exception(
                "the callback failed for an envelope of %s on topic %r", envelope.service, envelope.topic
            )

    def connected(self) -> None:
        """A connection was made, for the first time or again: call the callback; its exceptions are logged and counted
        as ``callback_errors``. The receiving thread."""
        try:
            self._on_connected()
        except BaseException:  # noqa: BLE001 - as above
            self.counts["callback_errors"] += 1
            self._log.exception("the callback for a new connection failed")

    def drop(self, error: FrameError) -> None:
        """Count a dropped message by its reason. The receiving thread."""
        self.counts[error.reason] += 1
        self._log.debug("dropped a message: %s", error)

    def close(self, wake: Callable[[], None], max_wait: float) -> None:
        """Close, wake the receiving thread by ``wake`` (under the lock), and wait at most ``max_wait`` seconds for it.

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
