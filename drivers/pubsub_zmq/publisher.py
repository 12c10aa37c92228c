"""The sending half: an XPUB socket under a lock, a thread that sends the queue, and one that answers hello requests."""

import os
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Final

import zmq

from pubsub_lib.api import Client, OnConnected, OnHelloRequest, Publisher
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import Limits
from pubsub_lib.driver_state import PublisherState
from pubsub_lib.hello_requests import HelloRequests
from pubsub_lib.logs import logger
from pubsub_lib.send_queue import QueuedMessage, SendQueue, frames
from pubsub_lib.socket_lock import SocketLock
from pubsub_lib.threads.start import ReadyThread
from pubsub_zmq.buckets import Heads
from pubsub_zmq.connection_limit import ConnectionLimit, maximum_of
from pubsub_zmq.contexts import make_context
from pubsub_zmq.inflow_guard import InflowGuard
from pubsub_zmq.options import ZmqOptions
from pubsub_zmq.sockets import Bound, InUse, Monitor, Waker, bind, has_work, in_use, make_xpub, translated
from pubsub_zmq.subscription_budget import SubscriptionBudget, descriptor_of, request_in
from pubsub_zmq.watching import guard_of

_log = logger(__name__)

_SUBSCRIPTIONS: Final = 100
"""Maximum number of subscriptions read before the thread sends again."""
_QUIET: Final = 0.0001
"""Seconds without a message after which a sender sends the next one itself, because waking a thread takes longer than
the sending. Messages that come faster are sent by the thread, which lets them share frames. A writer whose database
syncs each transaction to disk is never that fast."""
_FEW: Final = 8
"""Messages that senders send themselves after such a pause, however fast: the topics of a group of transactions."""
_STOP, _WAITING = 2.0, float("inf")  # seconds; the sending thread waits for messages
# Plain integers, because combining or comparing the library's enumerations takes longer than sending.
_NOW, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK) | int(zmq.SNDMORE)
_POLLIN: Final = int(zmq.POLLIN)


class ZmqPublisher(Publisher):
    """Senders encode, and send themselves when messages are rare. Otherwise they queue, and the sending thread packs
    the queued messages (:mod:`pubsub_lib.send_queue`). One thread at a time uses the socket, under ``_socket_lock``.
    """

    def __init__(self, bind_address: str, limits: Limits, options: ZmqOptions) -> None:
        self._address = bind_address
        self._limits = limits
        self._options = options
        self._life = PublisherState()
        self._lock = threading.Lock()
        self._socket_lock = threading.Lock()
        """Held during every use of the socket; acquired before the send queue's own lock, never after it."""
        self._used: InUse | None = None  # None: senders only queue
        self._sent_at = 0.0
        self._few = 0  # number of messages that senders have sent themselves since the last pause
        self._waker: Waker | None = None
        self._outbox: SendQueue | None = None
        self._ipc_lock: SocketLock | None = None
        self._threads: tuple[threading.Thread, ...] = ()
        self._connections = ConnectionLimit(bind_address, maximum_of(options.max_connections))
        self._budget = SubscriptionBudget(bind_address, options.max_subscription_bytes)
        self._asks = HelloRequests(limits, options.questions_per_second)
        self._linger = 0.0
        self._stop = False  # ends _serve(); set by close()
        self._heads = Heads(exact=False)
        self._busy_since = self._direct_since = _WAITING
        self._guard: InflowGuard | None = None
        self.endpoint = ""
        # Changed by the socket's user only, so that it needs no lock of its own.
        self._sending = dict.fromkeys(("frames", "send_errors", "connected", "disconnected", "overflow"), 0)

    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        """Bind. See :meth:`pubsub_lib.api.Publisher.initialize`. It may be called again after a failure."""
        with self._lock, ExitStack() as undo:
            self._life.check_new()
            sending = ReadyThread("pubsub-zmq-send")
            undo.callback(sending.drop)
            answering = ReadyThread("pubsub-zmq-asks")
            undo.callback(answering.drop)
            watching = ReadyThread("pubsub-zmq-guard")
            undo.callback(watching.drop)
            waker = Waker()
            undo.callback(waker.close)
            bound = self._bind()
            undo.pop_all()
            self._waker = waker
            self._used = in_use(bound[1], waker)
            self._outbox = outbox = SendQueue(self._options.send_queue, waker.wake, "pubsub_zmq")
            self._life.begin()
            self._threads = (sending.thread, answering.thread, watching.thread)
            sending.run(partial(self._run, bound, waker, outbox))
            answering.run(partial(self._asks.answer, on_hello_request, on_connected))
            self._guard = guard_of(self.endpoint, self.sending_for, self._connections, self._budget.progress, waker)
            if self._guard is not None:
                watching.run(self._guard.run)
            else:
                watching.drop()

    def send_event(self, envelope: Envelope) -> None:
        """Encode and send, or queue for the sending thread. See :meth:`pubsub_lib.api.Publisher.send_event`.

        A message is sent past the queue, in the caller's thread, unless others are sending, are waiting, or many were
        sent just now, or the socket has work to do for its clients. Waits at most ``send_wait`` seconds, and only when
        the queue is full; longer only when a client brings much work within the microseconds of a call.
        """
        if self._life.closed or self._life.process != os.getpid():
            self._life.check_open()
        outbox = self._outbox
        assert outbox is not None  # initialize() made it
        head, body = codec.encode(envelope, self._limits)
        now = time.monotonic()
        quiet = now - self._sent_at >= _QUIET
        rare = envelope.hello is None and (quiet or self._few < _FEW)
        alarmed = self._guard is not None and self._guard.alarmed
        if rare and not alarmed and self._socket_lock.acquire(blocking=False):
            try:
                self._direct_since = now
                self._few = 1 if quiet else self._few + 1
                used = self._used
                if used is not None and not has_work(used.signal) and outbox.pass_by():
                    self._send_frames(used.xpub, ((head, body),))
                    # It may have received a subscription without a signal on the descriptor that the thread polls.
                    if int(used.xpub.getsockopt(zmq.EVENTS)) & _POLLIN:
                        used.waker.wake()
                    return
            finally:
                self._direct_since = _WAITING
                self._socket_lock.release()
        outbox.put(QueuedMessage(envelope, head, body), self._options.send_wait)

    def counters(self) -> Mapping[str, int]:
        """The counters that the API requires, and: ``frames`` (fewer than ``sent`` when messages shared frames),
        ``send_errors`` (frames that ZeroMQ refused), ``accepted`` connections, ``connected`` (with a handshake) and
        ``disconnected`` ones, ``limited`` (times that ``max_connections`` was reached), ``ended`` (connections with too
        many subscriptions), ``paused``, ``unread`` and ``unfinished`` ones (:mod:`.watching`), ``asks`` (hello
        requests) and their errors. What is dropped at a slow subscriber's high-water mark is not visible here.
        """
        outbox = self._outbox
        sent = 0 if outbox is None else outbox.accepted
        paused = 0 if self._guard is None else self._guard.paused
        return {"sent": sent, "paused": paused, **self._sending, **self._connections.counts, **self._asks.counts}

    def sending_for(self, now: float) -> float:
        """See :meth:`pubsub_lib.api.Publisher.sending_for`."""
        since = max(min(self._busy_since, self._direct_since), self._sent_at)
        return 0.0 if self._life.closed else max(0.0, now - since)

    def bound_address(self) -> str:
        """See :meth:`pubsub_lib.api.Publisher.bound_address`."""
        return self.endpoint

    def public_key(self) -> str:
        """Empty, because this publisher has no keys; the other kind is :class:`.keyed_publisher.KeyedPublisher`."""
        return ""

    def admit(self, clients: Collection[Client]) -> None:
        """Nothing: this publisher has no keys."""

    def close(self) -> None:
        """Send the queued messages and release everything. See :meth:`pubsub_lib.api.Publisher.close`."""
        if self._life.inherited:
            if self._ipc_lock is not None:
                self._ipc_lock.drop_copy()
            return
        with self._lock:
            # Close the queue first: the thread empties it for the last time when it finds ``_stop``.
            if self._outbox is not None:
                self._outbox.close()
            self._life.closed = True
            self._stop = True
            if self._waker is not None:
                self._waker.wake()
        self._asks.close()
        if self._guard is not None:
            self._guard.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_STOP / 2)

    def _bind(self) -> Bound:
        bound, self._ipc_lock = bind(self._address, self._new_context, self._make_socket, self._end_context)
        self.endpoint = self._connections.address = self._budget.address = bound[1].getsockopt_string(zmq.LAST_ENDPOINT)
        return bound

    def _new_context(self) -> "zmq.Context[zmq.Socket[bytes]]":
        return make_context()

    def _make_socket(self, context: "zmq.Context[zmq.Socket[bytes]]") -> "zmq.Socket[bytes]":
        return make_xpub(context, self._options)

    def _end_context(self, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
        context.term()  # waits only for a goodbye's linger

    # -- the sending thread ------------------------------------------------------------------------------------------

    def _run(self, bound: Bound, waker: Waker, outbox: SendQueue) -> None:
        _, xpub, monitor = bound
        try:
            self._serve(xpub, monitor, waker, outbox)
            with self._socket_lock:
                self._send(xpub, outbox)
        finally:
            self._release(bound, waker)

    def _serve(self, xpub: "zmq.Socket[bytes]", monitor: Monitor, waker: Waker, outbox: SendQueue) -> None:
        """Send and receive until ``_stop``."""
        poller = zmq.Poller()
        # Poll the socket's descriptor and not the socket, which other threads may use meanwhile. The descriptor only
        # signals a change since the last use of the socket; so each user of the socket checks for events afterwards.
        for each in (xpub.getsockopt(zmq.FD), monitor.socket, waker.fileno()):
            poller.register(each, zmq.POLLIN)
        more = True
        while not self._stop:
            try:
                self._busy_since = _WAITING
                poller.poll(0 if more else self._budget.wait)
                self._busy_since = time.monotonic()
                waker.clear()
                with self._socket_lock:
                    self._send(xpub, outbox)
                    more = self._receive(xpub)
                self._watch(monitor)
                self._budget.enforce(time.monotonic(), self._connections)
            except Exception:  # noqa: BLE001 - without this thread, no message would be sent again
                self._sending["send_errors"] += 1
                _log.exception("the sending thread of %s continues after an error", self.endpoint)

    def _release(self, bound: Bound, waker: Waker) -> None:
        context, xpub, monitor = bound
        with self._socket_lock:
            self._used = None
            self._connections.close()
            monitor.close()
            xpub.close(round(self._linger * 1000))
        self._end_context(context)
        if self._ipc_lock is not None:
            self._ipc_lock.release()
        waker.close()

    def _send(self, xpub: "zmq.Socket[bytes]", outbox: SendQueue) -> None:
        waiting = outbox.take()
        if not waiting:
            return
        last = waiting[-1].envelope.hello
        self._linger = self._options.goodbye_linger if last is not None and last.goodbye else 0.0
        self._few = _FEW  # until the next pause
        self._send_frames(xpub, frames(waiting, self._limits))

    def _send_frames(self, xpub: "zmq.Socket[bytes]", pairs: Iterable[tuple[bytes, bytes]]) -> None:
        for head, body in pairs:
            try:
                for each in self._heads.of(head):
                    xpub.send(each, _MORE)  # send_multipart() checks every part before and takes three times as long
                    xpub.send(body, _NOW)
                self._sending["frames"] += 1
            except zmq.ZMQError as error:
                self._sending["send_errors"] += 1
                _log.warning("a frame was lost: %s", translated(error, "ZeroMQ refused it", "replicas will recover"))
            self._sent_at = time.monotonic()  # for each frame: a long burst is no hang

    def _receive(self, xpub: "zmq.Socket[bytes]") -> bool:
        """Queue the received hello requests and new connections; return True when there may be more."""
        arrived, more = False, True
        for _ in range(_SUBSCRIPTIONS):
            try:
                received = xpub.recv(_NOW, copy=False)
            except zmq.Again:
                more = False
                self._budget.progress.found_empty()
                break
            frame = received.bytes
            if not self._budget.received(received, frame):
                continue
            request = request_in(frame)
            if request:
                self._sending["overflow"] += self._asks.put((request,), descriptor_of(received))
            arrived = self._heads.subscribed(frame) or arrived
        if arrived:
            self._asks.connected()
        return more

    def _watch(self, monitor: Monitor) -> None:
        for event, _, descriptor in monitor.events():
            self._connections.event(event, descriptor)
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._sending["connected"] += 1
                # Its subscriptions may arrive later. Then _receive() finds them, unless another subscriber has the same
                # ones. The subscribers that were connected before get one hello more than needed.
                self._asks.connected()
            elif event == zmq.EVENT_DISCONNECTED:
                self._budget.disconnected(descriptor)
                self._sending["disconnected"] += 1
