"""The service's end of the hop: PULL."""

import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import zmq

from pubsub_ipc.batch import Batch
from pubsub_ipc.socket_path import SCHEME, SocketLock, make_folder
from pubsub_lib.api import OnConnected, OnEnvelope, Subscriber
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL
from pubsub_lib.core.sequencer import MAX_REQUESTS
from pubsub_lib.driver_state import SubscriberState, check_topic
from pubsub_lib.errors import FrameError, TransportError
from pubsub_lib.logs import logger
from pubsub_lib.zmq_frames import receive

_log = logger(__name__)

_BATCH: Final = 200
"""Messages taken at once, when so many wait."""
_BATCH_BYTES: Final = 256 * 1024
"""And bytes of them: what more unfolds to has left the processor's caches before it is sent (docs/performance.md). Four
workers' share of it fills a frame each."""
_DRAIN: Final = 1.0
"""Seconds for which ``close`` still takes what workers have pushed."""
_QUIET_MS: Final = 20
"""When nothing came for so long, everything that was pushed before is taken."""
_AGAIN: Final = 0.1
"""Seconds after an error: what lasts must not take the processor."""
_STOP: Final = 2.0


class IpcSubscriber(Subscriber):
    """Binds the socket at ``daemonize`` and takes everything that is pushed, in one blocking thread.

    What does not belong to a registered topic is counted as ``unwanted``; a service registers ``ALL``.
    """

    def __init__(self, path: Path, limits: Limits, buffer: int) -> None:
        self._path = path
        self._limits = limits
        self._buffer = buffer
        self._state = threading.Lock()
        self._topics: frozenset[str] = frozenset()
        self._asked: dict[str, None] = {}
        """Nonces of own questions, the latest last: a hello for another's is not delivered."""
        self._stop = -1
        """An eventfd that ends the thread's wait; -1 while there is no thread. Guarded by the lock."""
        self._ended = False
        """``close`` has returned: nothing may be delivered any more."""
        self._life = SubscriberState(self._state, _log, ("unwanted", "socket_errors", "receive_errors"))

    # -- the caller's side -----------------------------------------------------------------------------------

    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.initialize`. ``on_connected`` is never called: a worker that comes
        has nothing that it could be asked for."""
        self._life.initialize(on_envelope, on_connected)

    def register_topic(self, topic: str) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.register_topic`. Takes effect at once."""
        self._life.check_open()
        with self._state:
            self._topics |= {check_topic(topic)}

    def unregister_topic(self, topic: str) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.unregister_topic`."""
        self._life.check_open()
        with self._state:
            self._topics -= {check_topic(topic)}

    def register_listen_address(self, address: str) -> None:
        """Nothing to do: workers come to this socket."""
        self._life.check_open()

    def unregister_listen_address(self, address: str) -> None:
        """Nothing to do: workers come to this socket."""
        self._life.check_open()

    def request_hello(self, nonce: str, topics: Collection[str]) -> None:
        """There is no way back through the hop: workers stay silent, which the contract allows."""
        self._life.check_open()
        codec.hello_request_frame(nonce, topics)
        with self._state:
            self._asked[nonce] = None
            if len(self._asked) > MAX_REQUESTS:
                del self._asked[next(iter(self._asked))]

    def daemonize(self) -> None:
        """Lock and bind the socket, and start the thread. See :meth:`pubsub_lib.api.Subscriber.daemonize`.

        Raises TransportError, which names the holder, when another service has the socket.
        """
        self._life.start("pubsub-ipc", self._open)

    def counters(self) -> Mapping[str, int]:
        """What the API asks for, and ``unwanted``: messages of topics that are not registered; ``socket_errors`` and
        ``receive_errors``: times that the thread went on after an error, of ZeroMQ's or another.
        """
        self._life.check_process()
        return dict(self._life.counts)

    def close(self) -> None:
        """Take no further connections, deliver what was pushed already (for 1 s at most), release the socket.

        See :meth:`pubsub_lib.api.Subscriber.close`. On the receiving thread nothing more is delivered.
        """
        self._life.close(self._wake, _STOP)
        self._ended = True

    def _wake(self) -> None:
        if self._stop >= 0:
            os.eventfd_write(self._stop, 1)

    def _open(self) -> Callable[[], None]:
        """What the thread runs, on a socket that is locked and bound."""
        make_folder(self._path)
        with ExitStack() as opened:  # what raises, of whatever kind, leaves nothing open
            lock = SocketLock(self._path)
            opened.callback(lock.release)
            try:
                context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
                opened.callback(context.term)
                socket = context.socket(zmq.PULL)
                opened.callback(socket.close)
                socket.linger = 0
                socket.rcvhwm = self._buffer
                # Against a stranger's endless frame; what is a little too large arrives and is counted.
                socket.maxmsgsize = 2 * self._limits.max_frame_bytes
                socket.bind(f"{SCHEME}{self._path}")
                self._stop = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            except (zmq.ZMQError, OSError) as error:
                raise TransportError(
                    f"cannot bind the worker socket {str(self._path)!r}: {error}; set publisher_multiproc_socket"
                ) from error
            opened.pop_all()
        return partial(self._run, context, socket, lock)

    # -- the receiving thread --------------------------------------------------------------------------------

    def _run(self, context: "zmq.Context[zmq.Socket[bytes]]", socket: "zmq.Socket[bytes]", lock: SocketLock) -> None:
        poller = zmq.Poller()
        poller.register(socket, zmq.POLLIN)
        poller.register(self._stop, zmq.POLLIN)
        try:
            while not self._life.closed:
                self._guarded(poller, socket)
            self._drain(socket)
        finally:
            socket.close()
            context.term()
            with self._state:
                os.close(self._stop)
                self._stop = -1
            lock.release()

    def _guarded(self, poller: zmq.Poller, socket: "zmq.Socket[bytes]") -> None:
        try:
            poller.poll()
            self._take(socket)
        except zmq.ZMQError as error:
            # Out of files, or out of memory: the workers' buffers hold what comes, so try again.
            self._life.counts["socket_errors"] += 1
            _log.warning("the worker socket %s failed and is tried again: %s", self._path, error)
            time.sleep(_AGAIN)
        except Exception:  # noqa: BLE001 - without this thread nothing that workers push would ever leave again
            self._life.counts["receive_errors"] += 1
            _log.exception("the thread of the worker socket %s goes on after an error", self._path)
            time.sleep(_AGAIN)

    def _take(self, socket: "zmq.Socket[bytes]") -> int:
        """Deliver what is there now, in one batch; how many messages it held."""
        batch, taken, size = Batch(), 0, 0
        while taken < _BATCH and size < _BATCH_BYTES and not self._ended:
            try:
                frames = receive(socket)
            except zmq.Again:
                break
            taken += 1
            size += sum(map(len, frames))
            envelope = self._decode(frames)
            if envelope is not None:
                batch.add(envelope)
        for envelope in batch.envelopes():
            if not self._ended:
                self._life.deliver(envelope)
        return taken

    def _drain(self, socket: "zmq.Socket[bytes]") -> None:
        until = time.monotonic() + _DRAIN
        try:
            socket.unbind(f"{SCHEME}{self._path}")
            while not self._ended and time.monotonic() < until and socket.poll(_QUIET_MS):
                self._take(socket)
        except Exception as error:  # noqa: BLE001 - the thread ends anyway, and has a socket to release
            _log.warning("the worker socket %s could not be emptied at its end: %r", self._path, error)

    def _decode(self, frames: list[bytes]) -> Envelope | None:
        """The envelope, or None for what is dropped and counted."""
        try:
            envelope = codec.decode(frames, self._limits)
        except FrameError as error:
            self._life.drop(error)
            return None
        if not self._wanted(envelope):
            self._life.counts["unwanted"] += 1
            return None
        self._life.counts["received"] += 1
        return envelope

    def _wanted(self, envelope: Envelope) -> bool:
        if envelope.hello is not None and envelope.hello.nonce:
            return envelope.hello.nonce in self._asked
        return ALL in self._topics or envelope.topic in self._topics
