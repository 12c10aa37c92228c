"""A worker's end of the hop: PUSH."""

import select
import threading
import time
from collections import Counter
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Final

import zmq

from pubsub_lib.api import OnConnected, OnHelloRequest, Publisher
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import Limits
from pubsub_lib.driver_state import PublisherState
from pubsub_lib.errors import TransportError
from pubsub_lib.logs import fields, logger
from pubsub_lib.socket_path import SCHEME, check_folder
from pubsub_zmq.contexts import make_context
from pubsub_zmq.multiproc.unread import copy_of_connection, wait_until_read
from pubsub_zmq.sockets import Monitor, has_work, signal_of

_log = logger(__name__)

_RECONNECT_MS: Final = 50
_MAX_RECONNECT_MS: Final = 1000
# Plain integers, because combining the library's enumerations takes longer than sending.
_NOW: Final = int(zmq.DONTWAIT)
_MORE: Final = int(zmq.DONTWAIT) | int(zmq.SNDMORE)
_CONNECTED: Final = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
_OPENED: Final = int(zmq.EVENT_CONNECTED)
_EVENTS: Final = _OPENED | _CONNECTED | int(zmq.EVENT_DISCONNECTED)
_CLOCK: Final = 0.01
"""Seconds by which libzmq's clock and ours may differ."""
_LAST: Final = 0.05
"""Seconds for the messages that waited for a service, if it comes at the end of ``linger``."""
SLOT_BYTES: Final = 8 * 1024
"""Bytes for which a message takes one place in a queue. ZeroMQ's limits count messages and not their bytes. So after a
larger one an empty message follows for each further 8 KiB, which the service ignores. Most messages are smaller."""
FILLER: Final = b""
"""The empty message."""
_STOP: Final = 1.0
"""Maximum seconds that ``close`` waits for a thread that is sending; ``full_wait`` is smaller."""


class IpcPublisher(Publisher):
    """Pushes in the caller's thread. libzmq's own I/O thread connects, reconnects and buffers up to ``buffer`` messages
    of ``SLOT_BYTES`` while the service is down; a larger one takes several places, and the last one may exceed them. A
    further message waits ``wait`` seconds for room, then raises. ``close`` drops the messages that no service takes
    within ``linger`` seconds.
    """

    def __init__(
        self,
        path: Path,
        limits: Limits,
        buffer: int,
        wait: float,
        linger: float,
        refusal: type[TransportError] = TransportError,
    ) -> None:
        """``refusal``: the exception to raise when the buffer is still full after ``wait`` seconds."""
        self._path = path
        self._limits = limits
        self._buffer = buffer
        self.full_wait = wait
        self._linger = linger
        self._refusal = refusal
        self._life = PublisherState()
        self._lock = threading.Lock()
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: Monitor | None = None
        self._signal = select.poll()
        """Whether the monitor has events."""
        self._connected = False
        self._descriptor = -1
        """Of the last connection that libzmq made."""
        self._unconnected = 0
        """Messages that were pushed since the last connection was lost: they wait for the next one."""
        self._owed = 0
        """Empty messages that the last large one still needs; they precede the next message. Guarded by the lock."""
        self._counts: Counter[str] = Counter(sent=0, waited=0, refused=0, lost=0)

    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        """Connect; the service need not run yet. Neither callback is ever called: no hello request reaches a worker,
        and a worker only continues to send when the service is back.

        Raises TransportError when called again, or when other users can access the socket's folder.
        """
        self._life.check_new()
        check_folder(self._path)
        # A context belongs to one process: a send on an inherited context reports success, but the message is lost.
        context = make_context()
        socket: zmq.Socket[bytes] | None = None
        monitor: Monitor | None = None
        try:
            socket = context.socket(zmq.PUSH)
            monitor = Monitor(socket, _EVENTS)
            self._signal = signal_of(monitor.socket)
            socket.sndhwm = self._buffer
            # Also for a process that exits without close(): by default it would wait for the service without limit.
            socket.linger = round(self._linger * 1000)
            socket.reconnect_ivl = _RECONNECT_MS
            socket.reconnect_ivl_max = _MAX_RECONNECT_MS
            socket.connect(f"{SCHEME}{self._path}")
            self._watch(monitor)  # libzmq signals only events after a look
        except zmq.ZMQError as error:
            if monitor is not None:
                monitor.close()
            if socket is not None:
                socket.close(0)
            context.term()
            raise TransportError(
                f"cannot connect to the worker socket {str(self._path)!r}: {error}; set publisher_multiproc_socket"
            ) from error
        self._context, self._socket, self._monitor = context, socket, monitor
        self._life.begin()

    def send_event(self, envelope: Envelope) -> None:
        """Push one envelope. See :meth:`pubsub_lib.api.Publisher.send_event`; blocks for at most ``full_wait`` seconds.

        Raises TransportError (HandoffRejectedError with ``when_full = raise``) when the buffer stays full: the service
        is down, or slower than its workers.
        """
        self.send_event_by(envelope, inf)

    def send_event_by(self, envelope: Envelope, deadline: float) -> None:
        """As :meth:`send_event`, but wait until the deadline at most."""
        self._usable()
        frames = codec.encode(envelope, self._limits)
        now, wait = time.monotonic(), self.full_wait
        deadline = min(deadline, now + wait)
        limit = max(deadline - now, 0.0) if wait else -1
        # The lock is nearly always free, and an attempt without a timeout costs less.
        if not self._lock.acquire(blocking=False) and not self._lock.acquire(timeout=limit):
            raise self._full()
        try:
            self._push(frames, deadline)
        finally:
            self._lock.release()

    def counters(self) -> Mapping[str, int]:
        """``sent`` (messages that the buffer took), ``waited`` (sends that had to wait for room), ``refused`` (sends
        that found no room). ``lost``: messages that were pushed while no service was connected, and that ``close``
        dropped, because none came; they are not in ``sent`` any more. What a connected service did not take is unknown.
        """
        return dict(self._counts)

    def close(self) -> None:
        """Wait up to ``linger`` seconds until the buffered messages are sent, then release everything.

        Messages that were not sent are dropped, which is logged; the changes are in the changelog. Those that waited
        for a service are counted as ``lost``.
        """
        if self._life.inherited:
            return
        self._life.closed = True
        if not self._lock.acquire(timeout=_STOP):
            _log.warning("the worker socket %s is still in use at its end", self._path)
            return
        try:
            socket, self._socket = self._socket, None
            context, self._context = self._context, None
            monitor, self._monitor = self._monitor, None
        finally:
            self._lock.release()
        if socket is None or context is None or monitor is None:
            return
        left = self._linger
        connection = None
        try:
            left = self._connection(monitor, left)
            connection = copy_of_connection(self._descriptor) if self._connected else None
        finally:
            monitor.close()
            socket.linger = round(left * 1000)
            socket.close()
            began = time.monotonic()
            context.term()  # lingers
            if connection is not None:
                wait_until_read(connection, began + left)
        if self._unconnected and not self._connected:
            self._dropped(self._unconnected)
        elif _CLOCK < left <= time.monotonic() - began + _CLOCK:
            _log.warning(
                "the publisher service did not take all messages at the worker socket %s within %g s, and the rest was "
                "dropped; check whether it works (the changes are stored and arrive later)",
                self._path,
                self._linger,
            )

    def _connection(self, monitor: Monitor, seconds: float) -> float:
        """Wait for a service, if messages wait for it. Returns how many of the ``seconds`` are left; 0 without it."""
        until = time.monotonic() + seconds
        self._watch(monitor)
        while self._unconnected and not self._connected:
            left = until - time.monotonic()
            if left <= 0:
                return 0.0
            self._signal.poll(max(1, round(left * 1000)))
            self._watch(monitor)
        return max(min(seconds, _LAST), until - time.monotonic())

    def _dropped(self, number: int) -> None:
        self._counts["lost"] += number
        self._counts["sent"] -= number
        _log.warning(
            "%d messages to the worker socket %s were dropped at the end: no publisher service took them within %g s; "
            "start the publisher service (the changes are stored and arrive later)",
            number,
            self._path,
            self._linger,
            extra=fields(messages=number),
        )

    def _watch(self, monitor: Monitor) -> None:
        """Note whether a service is connected. At the connection libzmq begins to send the messages that waited."""
        for event, _, value in monitor.events():
            if event == _OPENED:
                self._descriptor = value
            self._connected = event == _CONNECTED
            if self._connected:
                self._unconnected = 0

    def _push(self, frames: tuple[bytes, bytes], deadline: float) -> None:
        socket = self._usable()
        waited = False
        while True:
            try:
                while self._owed:
                    socket.send(FILLER, _NOW)
                    self._owed -= 1
                socket.send(frames[0], _MORE)  # a queue that has room for the first frame takes the second, too
                socket.send(frames[1], _NOW)
                break
            except zmq.Again:
                left = deadline - time.monotonic()
                if left <= 0 or self._life.closed:
                    raise self._full() from None
                if not waited:
                    waited = True
                    self._counts["waited"] += 1
                self._room(socket, left)
            except zmq.ZMQError as error:
                raise TransportError(
                    f"cannot push to the worker socket {str(self._path)!r}: {error}; make a new publisher"
                ) from error
        self._counts["sent"] += 1
        self._owed = len(frames[1]) // SLOT_BYTES
        if self._monitor is not None and has_work(self._signal):
            self._watch(self._monitor)
        self._unconnected += not self._connected

    def _room(self, socket: "zmq.Socket[bytes]", seconds: float) -> None:
        try:
            socket.poll(max(1, round(seconds * 1000)), zmq.POLLOUT)
        except zmq.ZMQError as error:
            raise TransportError(f"cannot wait for the worker socket {str(self._path)!r}: {error}") from error

    def _full(self) -> TransportError:
        self._counts["refused"] += 1
        return self._refusal(
            f"the buffer of {self._buffer} messages to the worker socket {str(self._path)!r} is full; "
            "start the publisher service or raise [pubsub_ipc] buffer (the change is stored and arrives later)"
        )

    def _usable(self) -> "zmq.Socket[bytes]":
        self._life.check_open()
        socket = self._socket
        if socket is None:  # close() was called meanwhile
            raise TransportError("this publisher is closed; make a new one")
        return socket
