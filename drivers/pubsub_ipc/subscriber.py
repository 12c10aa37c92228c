"""The service's end of the hop: PULL."""

import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import zmq

from pubsub_ipc.batch import Batch
from pubsub_ipc.place import SCHEME, SocketLock, make_folder
from pubsub_lib.api import OnEnvelope, Subscriber
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import Limits, check_name
from pubsub_lib.core.model import ALL
from pubsub_lib.errors import FrameError, TransportError

_log = logging.getLogger(__name__)

_QUESTIONS: Final = 64
"""Own questions that are remembered: a hello for another's is not delivered."""
_BATCH: Final = 200
"""Messages taken at once, when so many wait."""
_BATCH_BYTES: Final = 4 * 1024 * 1024
"""And bytes of them."""
_DRAIN: Final = 1.0
"""Seconds for which ``close`` still takes what workers have pushed."""
_QUIET_MS: Final = 20
"""When nothing came for so long, everything that was pushed before is taken."""
_STOP: Final = 2.0


class IpcSubscriber(Subscriber):
    """Binds the socket at ``daemonize`` and takes everything that is pushed, in one blocking thread.

    What does not belong to a registered topic is counted as ``unwanted``; a service registers ``ALL``.
    """

    def __init__(self, path: Path, limits: Limits, buffer: int) -> None:
        self._path = path
        self._limits = limits
        self._buffer = buffer
        self._pid = os.getpid()
        self._on_envelope: OnEnvelope | None = None
        self._state = threading.Lock()
        self._topics: frozenset[str] = frozenset()
        self._asked: deque[str] = deque(maxlen=_QUESTIONS)
        self._stop = -1
        """An eventfd that ends the thread's wait."""
        self._closed = False
        self._ended = False
        """``close`` has returned: nothing may be delivered any more."""
        self._thread: threading.Thread | None = None
        self._counts: Counter[str] = Counter(
            dict.fromkeys(
                ("received", "callback_errors", "truncated", "oversized", "version", "foreign", "overflow", "unwanted"),
                0,
            )
        )

    # -- the caller's side -----------------------------------------------------------------------------------

    def initialize(self, on_envelope: OnEnvelope) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.initialize`."""
        self._own()
        with self._state:
            if self._on_envelope is not None:
                raise TransportError("this subscriber was initialized before; make a new one")
            self._on_envelope = on_envelope

    def register_topic(self, topic: str) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.register_topic`. Takes effect at once."""
        self._own()
        if topic != ALL:
            check_name("topic", topic)
        with self._state:
            self._topics |= {topic}

    def unregister_topic(self, topic: str) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.unregister_topic`."""
        self._own()
        if topic != ALL:
            check_name("topic", topic)
        with self._state:
            self._topics -= {topic}

    def register_listen_address(self, address: str) -> None:
        """Nothing to do: workers come to this socket."""
        self._own()

    def unregister_listen_address(self, address: str) -> None:
        """Nothing to do: workers come to this socket."""
        self._own()

    def request_hello(self, nonce: str, topics: Collection[str]) -> None:
        """There is no way back through the hop: workers stay silent, which the contract allows."""
        self._own()
        codec.ask_frame(nonce, topics)
        self._asked.append(nonce)

    def daemonize(self) -> None:
        """Lock and bind the socket, and start the thread. See :meth:`pubsub_lib.api.Subscriber.daemonize`.

        Raises TransportError, which names the holder, when another service has the socket.
        """
        self._own()
        with self._state:
            if self._on_envelope is None:
                raise TransportError("this subscriber is not initialized; call initialize() first")
            if self._thread is not None:
                raise TransportError("this subscriber runs already; daemonize() it once")
            make_folder(self._path)
            lock = SocketLock(self._path)
            context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            socket = context.socket(zmq.PULL)
            try:
                socket.linger = 0
                socket.rcvhwm = self._buffer
                # Against a stranger's endless frame; what is a little too large arrives and is counted.
                socket.maxmsgsize = 2 * self._limits.max_frame_bytes
                socket.bind(f"{SCHEME}{self._path}")
            except zmq.ZMQError as error:
                socket.close()
                context.term()
                lock.release()
                raise TransportError(
                    f"cannot bind the worker socket {str(self._path)!r}: {error}; set publisher_multiproc_socket"
                ) from error
            self._stop = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._thread = threading.Thread(
                target=self._run, args=(context, socket, lock, self._on_envelope), name="pubsub-ipc", daemon=True
            )
            self._thread.start()

    def counters(self) -> Mapping[str, int]:
        """What the API asks for, and ``unwanted``: messages of topics that are not registered."""
        return dict(self._counts)

    def close(self) -> None:
        """Take no further connections, deliver what was pushed already (for 1 s at most), release the socket.

        See :meth:`pubsub_lib.api.Subscriber.close`. On the receiving thread nothing more is delivered.
        """
        if self._pid != os.getpid():
            return  # a fork's copy: socket and thread are the parent's
        with self._state:
            thread, first = self._thread, not self._closed
            if first and thread is not None:
                os.eventfd_write(self._stop, 1)  # before _closed: once the thread sees that, it closes this descriptor
            self._closed = True
            if thread is threading.current_thread():
                self._ended = True
        if thread is not None and thread is not threading.current_thread():
            thread.join(_STOP)
        self._ended = True

    def _own(self) -> None:
        if self._pid != os.getpid():
            raise TransportError("this subscriber belongs to the process that made it; make one after the fork")
        if self._closed:
            raise TransportError("this subscriber is closed; make a new one")

    # -- the receiving thread --------------------------------------------------------------------------------

    def _run(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        socket: "zmq.Socket[bytes]",
        lock: SocketLock,
        on_envelope: OnEnvelope,
    ) -> None:
        poller = zmq.Poller()
        poller.register(socket, zmq.POLLIN)
        poller.register(self._stop, zmq.POLLIN)
        try:
            while not self._closed:
                self._guarded(poller, socket, on_envelope)
            self._drain(socket, on_envelope)
        finally:
            socket.close()
            context.term()
            os.close(self._stop)
            lock.release()

    def _guarded(self, poller: zmq.Poller, socket: "zmq.Socket[bytes]", on_envelope: OnEnvelope) -> None:
        try:
            poller.poll()
            self._take(socket, on_envelope)
        except zmq.ZMQError as error:
            # Out of files, or out of memory: the workers' buffers hold what comes, so try again.
            self._counts["socket_errors"] += 1
            _log.warning("the worker socket %s failed and is tried again: %s", self._path, error)
            time.sleep(0.1)

    def _take(self, socket: "zmq.Socket[bytes]", on_envelope: OnEnvelope) -> int:
        """Deliver what is there now, in one batch; how many messages it held."""
        batch, taken, size = Batch(), 0, 0
        while taken < _BATCH and size < _BATCH_BYTES and not self._ended:
            try:
                frames = socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                break
            taken += 1
            size += sum(map(len, frames))
            envelope = self._decode(frames)
            if envelope is not None:
                batch.add(envelope)
        for envelope in batch.envelopes():
            self._deliver(envelope, on_envelope)
        return taken

    def _drain(self, socket: "zmq.Socket[bytes]", on_envelope: OnEnvelope) -> None:
        until = time.monotonic() + _DRAIN
        try:
            socket.unbind(f"{SCHEME}{self._path}")
            while not self._ended and time.monotonic() < until and socket.poll(_QUIET_MS):
                self._take(socket, on_envelope)
        except zmq.ZMQError as error:
            _log.warning("the worker socket %s could not be emptied at its end: %s", self._path, error)

    def _decode(self, frames: list[bytes]) -> Envelope | None:
        """The envelope, or None for what is dropped and counted."""
        try:
            envelope = codec.decode(frames, self._limits)
        except FrameError as error:
            self._counts[error.reason] += 1
            _log.debug("dropped a message of a worker: %s", error)
            return None
        if not self._wanted(envelope):
            self._counts["unwanted"] += 1
            return None
        self._counts["received"] += 1
        return envelope

    def _deliver(self, envelope: Envelope, on_envelope: OnEnvelope) -> None:
        if self._ended:
            return
        try:
            on_envelope(envelope)
        except BaseException:  # noqa: BLE001 - whatever a service raises, SystemExit too, must not end receiving
            self._counts["callback_errors"] += 1
            _log.exception("the callback failed for an envelope of %s on topic %r", envelope.service, envelope.topic)

    def _wanted(self, envelope: Envelope) -> bool:
        if envelope.hello is not None and envelope.hello.nonce:
            return envelope.hello.nonce in self._asked
        return ALL in self._topics or envelope.topic in self._topics
