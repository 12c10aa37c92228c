"""One connection to the server, made again until it is stopped. One thread connects, sends and receives.

The protocol is RESP3, in which one connection subscribes and publishes, so that the server handles both in order.
"""

import logging
import os
import select
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

import redis
from redis.exceptions import AuthenticationError, InvalidResponse, RedisError, ResponseError

from pubsub_lib.errors import ConfigError, TransportError
from pubsub_lib.reconnect_pause import ReconnectPause
from pubsub_lib.threads.name_lookup import NameLookup
from pubsub_redis.opening import made
from pubsub_redis.options import RedisOptions, Server

Command = tuple[bytes | str, ...]

_BURST: Final = 500
"""Maximum number of messages received before commands are sent again."""
_PING: Final[Command] = ("PING",)
_ANSWERED: Final = ("PUBLISH", "PING")
"""The commands that have one ordinary reply; a subscription is confirmed by a message."""
_GOODBYE: Final = 0.5
"""Maximum time that a stopped connection waits until the server has taken the last commands. In seconds."""
_QUIET: Final = 60.0
"""Seconds without a refusal, after which the same one is logged again: rights were corrected meanwhile."""


class Half(Protocol):
    """The publisher or the subscriber, for its connection. The connection's thread calls everything."""

    def own(self) -> Command:
        """The subscription without which a connection is of no use: when the server refuses it, the connection ends."""

    def greeting(self) -> list[Command]:
        """The other subscriptions of a new connection, each a command of its own: the server may refuse some of them.
        From now on, ``orders`` gives what follows them."""

    def orders(self) -> list[Command]:
        """The commands to send now."""

    def connected(self) -> None:
        """The greeting is in effect, except what the server refused."""

    def disconnected(self, reason: str, final: bool) -> None:
        """The connection was lost, or could not be made; ``reason`` is a sentence. ``final``: retries are of no use."""

    def message(self, kind: bytes, rest: Sequence[bytes]) -> None:
        """A message of the server arrived: one that was published, or the confirmation of a subscription."""

    def refused(self, reason: str) -> None:
        """The server refused a command. Called when the reason changes, and again after a time without refusals."""


class Link:
    """Any thread may call ``wake``, ``stop`` and ``cut``; ``run`` is the thread's function. Raises TransportError."""

    def __init__(self, options: RedisOptions, server: Server, log: logging.Logger) -> None:
        self._options = options
        self._server = server
        self._log = log
        try:
            self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except OSError as error:
            raise TransportError(f"cannot open a descriptor: {error}; raise the limit of open files") from error
        self._lock = threading.Lock()
        """Held while the descriptor of the waker and the socket are used by other threads, or closed."""
        self._stopped = threading.Event()
        self._lookup = NameLookup(server.host, server.port)
        self._socket: socket.socket | None = None
        """A copy of the connection's socket, made as soon as the socket connects; the library replaces its own for TLS.
        """
        self._shutdown = socket.SHUT_RD
        """How ``cut`` ends it. While connecting only for reading: ``ssl`` leaves a socket open that was shut down both
        ways before the handshake."""
        self._unanswered = 0
        self._admitted = False
        """Whether the server has accepted the half's own subscription."""
        self._since = 0.0
        """When the server was last known to be alive, or was asked for a sign of life."""
        self._ready = False
        self._loss = ""
        """Why there is no connection, as logged last."""
        self._refusal, self._refused_at = "", 0.0
        """Why the server refused a command last, and when."""
        self.busy_since = float("inf")
        """When the thread began the step in which it is; infinite while it waits."""
        self.counts = {"connected": 0, "disconnected": 0, "failed": 0, "unanswered": 0, "refused": 0, "errors": 0}
        """``failed``: attempts to connect. ``unanswered``: commands without a reply when the connection was lost.
        ``refused``: commands, by the server. ``errors``: of this driver. Changed by the thread only. The names
        never change, so any thread may copy it."""

    def wake(self) -> None:
        """Make the thread ask for orders. Any thread."""
        with self._lock:
            if self._waker >= 0:
                os.eventfd_write(self._waker, 1)

    def stop(self) -> None:
        """End the thread, after it has sent the orders that are left. Any thread; idempotent."""
        self._stopped.set()
        self._lookup.end()
        self.wake()

    def cut(self) -> None:
        """End the connection at once, also while the thread connects or sends. Any thread."""
        with self._lock:
            if self._socket is not None:
                with suppress(OSError):  # the server ended it before
                    self._socket.shutdown(self._shutdown)

    # -- the thread ---------------------------------------------------------------------------------------------------

    def run(self, half: Half) -> None:
        """Connect and serve until ``stop``."""
        longest = self._options.max_reconnect_interval
        pause = ReconnectPause(self._options.reconnect_interval, longest)
        try:
            while not self._stopped.is_set():
                began = time.monotonic()
                try:
                    self._once(half)
                except (RedisError, OSError, ConfigError) as error:
                    self._lost(half, error)
                except Exception as error:  # noqa: BLE001 - without this thread, nothing would connect again
                    self.counts["errors"] += 1
                    self._log.exception("the thread of %s continues after an error", self._server.url)
                    self._lost(half, error)
                if time.monotonic() - began > longest:
                    pause.reset()
                self.busy_since = float("inf")
                self._stopped.wait(pause.next())
        finally:
            with self._lock:
                os.close(self._waker)
                self._waker = -1

    def _lost(self, half: Half, error: Exception) -> None:
        reason = explained(error, self._server)
        self.counts["disconnected" if self._ready else "failed"] += 1
        self.counts["unanswered"] += self._unanswered
        if reason != self._loss and not self._stopped.is_set():
            self._log.warning("%s; connecting is retried", reason)
        self._loss = reason
        half.disconnected(reason, isinstance(error, ResponseError | AuthenticationError | InvalidResponse))

    def _once(self, half: Half) -> None:
        self._admitted = self._ready = False
        self._unanswered = 0
        connection = made(self._options, self._server, self._lookup, self._keep)
        try:
            self._shutdown = socket.SHUT_RD
            connection.connect()
            self._shutdown = socket.SHUT_RDWR
            if self._stopped.is_set():
                return
            # Otherwise the library makes a text of each message, for its own log.
            connection._parser.set_pubsub_push_handler(_unchanged)
            self._send(connection, [half.own(), _PING, *half.greeting(), _PING])
            self._serve(connection, half)
        finally:
            with self._lock:
                self._drop_copy()
            connection.disconnect()

    def _keep(self, connecting: socket.socket) -> None:
        """Let ``cut`` end this socket, or raise OSError when it is too late to connect."""
        with self._lock:
            self._drop_copy()
            if self._stopped.is_set():
                raise OSError("closed meanwhile")
            self._socket = connecting.dup()

    def _drop_copy(self) -> None:
        """The lock is held."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _serve(self, connection: Any, half: Half) -> None:
        poller = select.poll()
        poller.register(connection._sock, select.POLLIN)
        poller.register(self._waker, select.POLLIN)
        while not self._stopped.is_set():
            more = self._receive(connection, half)
            self._send(connection, half.orders())
            wait = 0.0 if more else self._until_ping(connection)
            self.busy_since = float("inf")
            ready = poller.poll(1000 * wait)
            self.busy_since = time.monotonic()
            if (self._waker, select.POLLIN) in ready:
                os.eventfd_read(self._waker)
        self._finish(connection, half)

    def _finish(self, connection: Any, half: Half) -> None:
        """Send the last orders, and wait until the server has taken them: data that the system still holds is lost
        when a socket with unread replies is closed."""
        self._send(connection, half.orders())
        until = time.monotonic() + _GOODBYE
        while self._ready and self._unanswered and (left := until - time.monotonic()) > 0:
            if connection.can_read(left):
                self._receive(connection, half)

    def _send(self, connection: Any, commands: Sequence[Command]) -> None:
        if not commands:
            return
        if not self._unanswered:
            self._since = time.monotonic()
        self._unanswered += sum(command[0] in _ANSWERED for command in commands)
        packed = connection.pack_commands(commands)
        self.busy_since = time.monotonic()  # packing a long burst is no hang
        connection.send_packed_command(packed, check_health=False)

    def _receive(self, connection: Any, half: Half) -> bool:
        """Read what arrived; return True when there may be more."""
        for _ in range(_BURST):
            if not connection.can_read(0):
                return False
            try:
                reply = connection.read_response(disable_decoding=True, push_request=True)
            except ResponseError as error:
                self._answered()
                if not self._admitted:
                    raise
                self._refused(half, explained(error, self._server))
                continue
            if isinstance(reply, list):
                self._since = time.monotonic()
                half.message(reply[0], reply[1:])
            else:
                self._answered()
                if not self._admitted:
                    self._admitted = True
                elif not self._ready:
                    self._ready = True
                    self.counts["connected"] += 1
                    self._loss = ""
                    half.connected()
        return True

    def _refused(self, half: Half, reason: str) -> None:
        self.counts["refused"] += 1
        before, self._refused_at = self._refused_at, time.monotonic()
        if reason != self._refusal or self._refused_at - before > _QUIET:
            self._refusal = reason
            half.refused(reason)

    def _answered(self) -> None:
        self._since = time.monotonic()
        self._unanswered = max(0, self._unanswered - 1)

    def _until_ping(self, connection: Any) -> float:
        """Seconds until the connection must be looked at again, after everything that arrived was read. Raises
        TimeoutError when the server owes an answer for too long."""
        silent = time.monotonic() - self._since
        if not self._unanswered and silent >= self._options.ping_interval:
            self._send(connection, [_PING])
            silent = 0.0
        if not self._unanswered:
            return self._options.ping_interval - silent
        if silent >= self._options.timeout:
            raise redis.TimeoutError(f"no answer for {self._options.timeout} s")
        return self._options.timeout - silent


def _unchanged(message: Any) -> Any:
    return message


def explained(error: Exception, server: Server) -> str:
    """One sentence: what failed, why, and what to do."""
    if isinstance(error, ConfigError):  # a TLS file that was removed or replaced
        return str(error)
    reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    where = f"the Redis server {server.url}"
    if isinstance(error, AuthenticationError) or reason.startswith(("WRONGPASS", "NOAUTH")):
        return f"{where} refused the user or the password ({reason}); correct user and password in [pubsub_redis]"
    if "unknown command" in reason and "HELLO" in reason.upper():
        return f"{where} is older than Redis 6.0 ({reason}); upgrade it"
    if isinstance(error, ResponseError):
        return f"{where} refused a command ({reason}); correct the rights of its user, or its configuration"
    if isinstance(error, InvalidResponse):
        return f"{where} does not use the protocol of Redis ({reason}); correct url in [pubsub_redis]"
    if isinstance(error, RedisError | OSError):
        return f"{where} is unavailable ({reason}); start it, or correct url in [pubsub_redis]"
    return f"the connection to {where} failed ({type(error).__name__}: {reason}); see the log"
