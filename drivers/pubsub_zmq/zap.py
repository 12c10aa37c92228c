"""Answers ZeroMQ's questions whether a key may connect (ZAP, the protocol of https://rfc.zeromq.org/spec/27)."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

import zmq
from zmq.utils import z85

from pubsub_lib.logs import logger
from pubsub_lib.threads.start import ReadyThread
from pubsub_zmq.sockets import Waker, translated

_log = logger(__name__)

_ADDRESS: Final = "inproc://zeromq.zap.01"
_VERSION: Final = b"1.0"
_FRAMES: Final = 7
"""Version, request id, domain, address, identity, mechanism, the client's public key."""
_KEY_BYTES: Final = 32


class ZapHandler:
    """One thread for the sockets of one context. While it does not run, no program can connect."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", accepts: Callable[[str], bool]) -> None:
        """``accepts`` is called on the thread, with a key that the connecting program proved to have. Raises
        TransportError.
        """
        self._accepts = accepts
        with ExitStack() as undo:
            waker = Waker()
            undo.callback(waker.close)
            thread = ReadyThread("pubsub-zmq-zap")
            undo.callback(thread.drop)
            try:
                answering = context.socket(zmq.REP)
                undo.callback(answering.close, 0)
                answering.setsockopt(zmq.LINGER, 0)
                answering.bind(_ADDRESS)
            except zmq.ZMQError as error:
                raise translated(
                    error,
                    "cannot decide for ZeroMQ which clients may connect",
                    "raise this process's limit of open files",
                ) from error
            undo.pop_all()
        self._waker, self._thread, self._socket = waker, thread, answering
        self._closed = False
        self._thread.run(self._run)

    def close(self) -> None:
        """Stop and close the socket; the context can be ended then. Idempotent."""
        self._closed = True
        self._waker.wake()
        self._thread.thread.join()

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._waker.fileno(), zmq.POLLIN)
        try:
            while not self._closed:
                poller.poll()
                if self._socket.poll(0):
                    self._answer(self._socket.recv_multipart())
        finally:
            self._socket.close(0)
            self._waker.close()

    def _answer(self, request: list[bytes]) -> None:
        user = b""
        try:
            user = self._user(request)
        except Exception:  # noqa: BLE001 - without an answer, no program could connect again
            _log.exception("deciding whether a client may connect failed; it is refused")
        status = [b"200", b"OK"] if user else [b"400", b"unknown key"]
        number = request[1] if len(request) > 1 else b""
        self._socket.send_multipart([_VERSION, number, *status, user, b""])

    def _user(self, request: list[bytes]) -> bytes:
        """The key that becomes the name of this client's messages; b"" for a client that may not connect."""
        if len(request) != _FRAMES or request[0] != _VERSION or request[5] != b"CURVE" or len(request[6]) != _KEY_BYTES:
            return b""
        key = z85.encode(request[6])
        return key if self._accepts(key.decode()) else b""
