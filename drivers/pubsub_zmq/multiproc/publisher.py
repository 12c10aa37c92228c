"""A worker's end of the hop: PUSH."""

import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import zmq

from pubsub_lib.api import OnConnected, OnHelloRequest, Publisher
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import Limits
from pubsub_lib.driver_state import PublisherState
from pubsub_lib.errors import TransportError
from pubsub_lib.logs import logger
from pubsub_lib.socket_path import SCHEME, check_folder
from pubsub_zmq.contexts import make_context

_log = logger(__name__)

_RECONNECT_MS: Final = 50
_MAX_RECONNECT_MS: Final = 1000
# Plain integers, because combining the library's enumerations takes longer than sending.
_NOW: Final = int(zmq.DONTWAIT)
_MORE: Final = int(zmq.DONTWAIT) | int(zmq.SNDMORE)
_STOP: Final = 1.0
"""Maximum seconds that ``close`` waits for a thread that is sending; ``full_wait`` is smaller."""


class IpcPublisher(Publisher):
    """Pushes in the caller's thread. libzmq's own I/O thread connects, reconnects and buffers up to ``buffer`` messages
    while the service is down. A further message waits ``wait`` seconds for room, then raises; it is never dropped
    silently.
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
        self._wait = wait
        self._linger = linger
        self._refusal = refusal
        self._life = PublisherState()
        self._lock = threading.Lock()
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._socket: zmq.Socket[bytes] | None = None
        self._counts: Counter[str] = Counter(sent=0, waited=0, refused=0)

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
        try:
            socket = context.socket(zmq.PUSH)
            socket.sndhwm = self._buffer
            # Also for a process that exits without close(): by default it would wait for the service without limit.
            socket.linger = round(self._linger * 1000)
            socket.reconnect_ivl = _RECONNECT_MS
            socket.reconnect_ivl_max = _MAX_RECONNECT_MS
            socket.connect(f"{SCHEME}{self._path}")
        except zmq.ZMQError as error:
            if socket is not None:
                socket.close(0)
            context.term()
            raise TransportError(
                f"cannot connect to the worker socket {str(self._path)!r}: {error}; set publisher_multiproc_socket"
            ) from error
        self._context, self._socket = context, socket
        self._life.begin()

    def send_event(self, envelope: Envelope) -> None:
        """Push one envelope. See :meth:`pubsub_lib.api.Publisher.send_event`; blocks for at most ``full_wait`` seconds.

        Raises TransportError (HandoffRejectedError with ``when_full = raise``) when the buffer stays full: the service
        is down, or slower than its workers.
        """
        self._usable()
        frames = codec.encode(envelope, self._limits)
        deadline = time.monotonic() + self._wait
        # The lock is nearly always free, and an attempt without a timeout costs less.
        if not self._lock.acquire(blocking=False) and not self._lock.acquire(timeout=self._wait or -1):
            raise self._full()
        try:
            self._push(frames, deadline)
        finally:
            self._lock.release()

    def counters(self) -> Mapping[str, int]:
        """``sent``, ``waited`` (sends that had to wait for room) and ``refused`` (sends that found no room)."""
        return dict(self._counts)

    def close(self) -> None:
        """Wait up to ``linger`` seconds until the buffered messages are sent, then release everything.

        Messages that were not sent are in the changelog.
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
        finally:
            self._lock.release()
        if socket is not None:
            socket.close()  # lingers
        if context is not None:
            context.term()

    def _push(self, frames: tuple[bytes, bytes], deadline: float) -> None:
        socket = self._usable()
        waited = False
        while True:
            try:
                socket.send(frames[0], _MORE)  # a queue that has room for the first frame takes the second, too
                socket.send(frames[1], _NOW)
                self._counts["sent"] += 1
                return
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
