"""The service's end of the hop: PULL."""

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import zmq

from pubsub_lib.api import OnConnected, OnEnvelope, Subscriber
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL
from pubsub_lib.driver_state import SubscriberState, check_topic
from pubsub_lib.errors import FrameError, TransportError
from pubsub_lib.logs import logger
from pubsub_lib.socket_lock import SocketLock
from pubsub_lib.socket_path import OPTION, SCHEME, make_folder
from pubsub_lib.zmq_frames import receive
from pubsub_zmq.contexts import make_context
from pubsub_zmq.multiproc.batch import Batch
from pubsub_zmq.multiproc.publisher import FILLER

_log = logger(__name__)

_BATCH: Final = 200
"""Maximum number of messages in a batch."""
_BATCH_BYTES: Final = 256 * 1024
"""Maximum bytes in a batch. The decoded objects of a larger batch leave the processor's caches before they are sent
(docs/contributing/profile.md). A quarter of it, the share of one of four workers, fills a frame."""
_DRAIN: Final = 1.0
"""Maximum seconds that ``close`` receives messages that workers have pushed already."""
_QUIET_MS: Final = 100
"""When no message arrives for this time, all messages pushed before have been received. ZeroMQ's thread reads them from
the connections, and may wait for a processor on a busy host."""
_AGAIN: Final = 0.1
"""Seconds to wait after an error, so that a lasting error does not use the processor."""
_STOP: Final = 2.0


class IpcSubscriber(Subscriber):
    """Binds the socket at ``daemonize`` and receives all pushed messages, in one blocking thread.

    Messages of topics that are not registered are counted as ``unwanted``; a service registers ``ALL``.
    """

    def __init__(self, path: Path, limits: Limits, buffer: int) -> None:
        self._path = path
        self._limits = limits
        self._buffer = buffer
        self._state = threading.Lock()
        self._topics: frozenset[str] = frozenset()
        self._stop = -1
        """An eventfd that ends the thread's wait; -1 while there is no thread. Guarded by the lock."""
        self._ended = False
        """``close`` has returned, and no further envelope may be delivered."""
        self._life = SubscriberState(self._state, _log, ("unwanted", "socket_errors", "receive_errors"))

    # -- the caller's side -----------------------------------------------------------------------------------

    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        """See :meth:`pubsub_lib.api.Subscriber.initialize`. ``on_connected`` is never called: no hello request can be
        sent to a worker."""
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

    def daemonize(self) -> None:
        """Lock and bind the socket, and start the thread. See :meth:`pubsub_lib.api.Subscriber.daemonize`.

        Raises TransportError, which names the holder, when another service has the socket.
        """
        self._life.start("pubsub-ipc", self._open)

    def counters(self) -> Mapping[str, int]:
        """The counters that the API requires, and ``unwanted``: messages of topics that are not registered;
        ``socket_errors`` and ``receive_errors``: errors of ZeroMQ and other errors that the thread survived.
        """
        self._life.check_process()
        return dict(self._life.counts)

    def close(self) -> None:
        """Refuse new connections, deliver the messages pushed already (for at most 1 s), and release the socket.

        See :meth:`pubsub_lib.api.Subscriber.close`. A call on the receiving thread delivers no further message.
        """
        self._life.close(self._wake, _STOP)
        self._ended = True

    def _wake(self) -> None:
        if self._stop >= 0:
            os.eventfd_write(self._stop, 1)

    def _open(self) -> Callable[[], None]:
        """Lock and bind the socket; return the function that the thread runs."""
        make_folder(self._path)
        with ExitStack() as opened:  # after an exception of any kind, nothing stays open
            lock = SocketLock(self._path, OPTION)
            opened.callback(lock.release)
            try:
                context = make_context()
                opened.callback(context.term)
                socket = context.socket(zmq.PULL)
                opened.callback(socket.close)
                socket.linger = 0
                socket.rcvhwm = self._buffer
                # Limits the memory for a frame of any sender; one that is a bit too large still arrives and is counted.
                socket.maxmsgsize = 2 * self._limits.max_frame_bytes
                # The folder's mode excludes other users. Their connections are closed also if it was changed later.
                for user in {0, os.geteuid()}:
                    socket.setsockopt(zmq.IPC_FILTER_UID, user)
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
        # Poll the socket's descriptor: ZeroMQ's poll of sockets makes some ten system calls more for each message. It
        # only signals a change since the last use of the socket, so that use must find that nothing waits.
        poller.register(int(socket.getsockopt(zmq.FD)), zmq.POLLIN)
        poller.register(self._stop, zmq.POLLIN)
        empty = False
        try:
            while not self._life.closed:
                empty = self._guarded(poller if empty else None, socket)
            self._drain(socket)
        finally:
            socket.close()
            context.term()
            with self._state:
                os.close(self._stop)
                self._stop = -1
            lock.release()

    def _guarded(self, poller: zmq.Poller | None, socket: "zmq.Socket[bytes]") -> bool:
        """Wait by the poller, if any, and deliver what waits; return whether nothing waits now, as far as is known."""
        try:
            if poller is not None:
                poller.poll()
            return self._take(socket)
        except zmq.ZMQError as error:
            # Out of files or memory, for example. The workers buffer their messages meanwhile, so retry.
            self._life.counts["socket_errors"] += 1
            _log.warning("the worker socket %s failed and is retried: %s", self._path, error)
            time.sleep(_AGAIN)
        except Exception:  # noqa: BLE001 - without this thread, no message of the workers would be received again
            self._life.counts["receive_errors"] += 1
            _log.exception("the thread of the worker socket %s continues after an error", self._path)
            time.sleep(_AGAIN)
        return False

    def _take(self, socket: "zmq.Socket[bytes]") -> bool:
        """Deliver messages that wait now, in one batch; return whether the last attempt found that no other waits."""
        batch, taken, size, empty = Batch(), 0, 0, False
        while taken < _BATCH and size < _BATCH_BYTES and not self._ended:
            try:
                frames = receive(socket)
            except zmq.Again:
                empty = True
                break
            taken += 1
            if len(frames) == 1 and frames[0] == FILLER:
                continue
            size += sum(map(len, frames))
            envelope = self._decode(frames)
            if envelope is not None:
                batch.add(envelope)
        for envelope in batch.envelopes():
            if not self._ended:
                self._life.deliver(envelope)
        return empty

    def _drain(self, socket: "zmq.Socket[bytes]") -> None:
        until = time.monotonic() + _DRAIN
        try:
            socket.unbind(f"{SCHEME}{self._path}")
            while not self._ended and time.monotonic() < until and socket.poll(_QUIET_MS):
                self._take(socket)
        except Exception as error:  # noqa: BLE001 - the thread ends now, and must still release the socket
            _log.warning("receiving the last messages of the worker socket %s failed: %r", self._path, error)

    def _decode(self, frames: list[bytes]) -> Envelope | None:
        """Return the envelope, or None when it is dropped and counted."""
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
        if envelope.hello is not None and envelope.hello.nonce:  # a reply, but the hop carries no hello requests
            return False
        return ALL in self._topics or envelope.topic in self._topics
