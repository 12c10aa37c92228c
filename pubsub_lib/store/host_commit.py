"""A worker's end of the group commit of its host: the publisher service commits for all workers (rule S1).

The service sends a transaction's point before the COMMIT, and sends no COMMIT when that message cannot be delivered.
A worker that does not wait longer first shuts its end down: from then on the service's message fails, and what it sent
before can still be read. So the worker knows that the transaction is not committed, and commits it by its own
connection; or it knows the point, and looks it up as after a lost COMMIT (rule S5). A transaction is never run twice.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sqlalchemy import URL

from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import OutcomeUnknown, PubSubError, StoreUnavailable, TransportError
from pubsub_lib.logs import logger
from pubsub_lib.settings import Settings
from pubsub_lib.socket_path import SCHEME, check_folder, path_of
from pubsub_lib.store import host_messages, sqlite, url
from pubsub_lib.store.group_commit import Attempt
from pubsub_lib.store.host_messages import Exchange
from pubsub_lib.store.writer import Work

_log = logger(__name__)

SUFFIX: Final = ".commit"
"""Of the socket file, after the workers' socket of the hop."""
FIRST_PAUSE: Final = 1.0
MAX_PAUSE: Final = 30.0
"""Seconds after a failure in which the service is not asked; they double with each failure."""
MAX_IDLE: Final = 16
"""Maximum number of unused connections that are kept open; each thread that commits uses one."""
_CHUNK: Final = 64 * 1024


def socket_of(settings: Settings) -> Path:
    """The socket file on which a service takes the transactions of its host. Raises ConfigError for a long path."""
    return path_of(f"{SCHEME}{settings.multiproc_socket}{SUFFIX}")


def database_of(database: URL) -> str:
    """The database as the workers and the service of a host compare it: without its password; of SQLite, the file."""
    if database.get_backend_name() == "sqlite":
        return f"sqlite:{sqlite.path_of(database).resolve()}"
    return url.shown(database.set(password=None))


class ConnectionLost(TransportError):
    """The connection to the service was lost, or ended after a timeout; it was shut down and read to its end."""

    timed_out = False
    unread = False
    """What the service had sent could not be read to its end: it may have announced a COMMIT."""


class _Connection:
    """One connection to the service, for one exchange at a time."""

    def __init__(self, path: Path, timeout: float) -> None:
        """Connect. Raises OSError."""
        self._timeout = timeout
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(timeout)
            self._socket.connect(str(path))
        except BaseException:
            self._socket.close()
            raise

    def exchange(self, message: bytes, feed: Callable[[bytes], bool]) -> None:
        """Send a message, and feed what is received until ``feed`` returns True. Raises ConnectionLost, after which the
        service cannot send any more, and everything that it sent was fed unless the error is ``unread``.
        """
        until = time.monotonic() + self._timeout
        try:
            self._socket.settimeout(self._timeout)
            self._socket.sendall(message, socket.MSG_NOSIGNAL)
            while not feed(self._received(until)):
                pass
        except OSError as error:
            whole = self.shut(feed)
            timed_out = isinstance(error, TimeoutError)
            lost = ConnectionLost(f"it did not answer within {self._timeout} s" if timed_out else str(error))
            lost.timed_out, lost.unread = timed_out, not whole
            raise lost from error
        except BaseException:
            self.close()
            raise

    def shut(self, feed: Callable[[bytes], bool]) -> bool:
        """End both directions, then feed what was received before. From now on, a message of the service fails. False
        when it could not be read to its end, as when another thread closed the descriptor.
        """
        with contextlib.suppress(OSError):  # the service has closed its end
            self._socket.shutdown(socket.SHUT_RDWR)
        try:
            with contextlib.suppress(ConnectionResetError):  # raised after the last byte
                while data := self._socket.recv(_CHUNK):
                    feed(data)
        except OSError:
            return False
        finally:
            self._socket.close()
        return True

    def close(self) -> None:
        """End both directions. A forked child's copy of the socket keeps nothing open."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def drop_copy(self) -> None:
        """In a forked child: close the inherited copy; the parent's connection stays."""
        self._socket.close()

    def _received(self, until: float) -> bytes:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
        data = self._socket.recv(_CHUNK)
        if not data:
            raise ConnectionResetError("it closed the connection")
        return data


class HostCommit:
    """Lets the host's service commit. Any thread; each exchange has a connection of its own."""

    def __init__(self, path: Path, database: URL, limits: Limits, timeout: float, typed: Callable[[str], bool]) -> None:
        """``timeout``: seconds to wait for the service's answer. ``typed``: whether a table has a type, against which
        only this process can check a merged value.
        """
        self._path = path
        self._hello = host_messages.encode(host_messages.hello(database_of(database), limits))
        self._timeout = timeout
        self._typed = typed
        self._lock = threading.RLock()  # a signal handler may write while its thread is here
        self._all: set[_Connection] = set()
        self._idle: list[_Connection] = []
        self._closed = False
        self._pause = 0.0
        self._again_at = 0.0

    def run(self, work: Work) -> Attempt | None:
        """One attempt by the service. None: nothing was written, and the caller commits by its own connection.

        An attempt in doubt may be committed; the caller looks it up. Blocks for at most the timeout, twice for the
        first exchange of a connection.
        """
        request = self._request(work)
        if request is None:
            return None
        while True:
            connection, fresh = self._take()
            if connection is None:
                return None
            exchange = Exchange(work)
            try:
                connection.exchange(request, exchange.feed)
            except ConnectionLost as error:
                self._forget(connection)
                self._forget_idle()  # of the same service
                if error.unread:
                    text = "the service's answer could not be read and it is unknown whether it has committed"
                    raise OutcomeUnknown(f"{text}; call committed({work.nonce}) later ({error})", work.nonce) from error
                found = _known(exchange, error)
                if fresh or error.timed_out:
                    self._failed(error)
                if fresh or error.timed_out or found is not None:
                    return found
                # An idle connection ends with its service; another service may run by now.
            except BaseException:
                self._forget(connection)
                raise
            else:
                if exchange.invalid:
                    self._forget(connection)
                else:
                    self._put(connection)
                return exchange.attempt

    def after_fork(self) -> None:
        """In a forked child: leave the parent's connections to it."""
        inherited, self._all, self._idle = self._all, set(), []
        self._lock = threading.RLock()
        for each in inherited:
            each.drop_copy()

    def close(self) -> None:
        """Close the connections; one in use is closed after its exchange. Idempotent."""
        self._closed = True
        self._forget_idle()

    def _request(self, work: Work) -> bytes | None:
        """The message; None when the service cannot check a merged value, or when the transaction is large."""
        if any(each.verb == "update" and self._typed(each.table) for each in work.operations):
            return None
        if sum([len(each.value or b"") for each in work.operations]) > host_messages.MAX_REQUEST:
            return None
        try:
            request = host_messages.encode(host_messages.request_of(work))
        except OverflowError:  # an expected version that no object has: the own connection finds that out
            return None
        return request if len(request) <= host_messages.MAX_REQUEST else None

    def _take(self) -> tuple[_Connection | None, bool]:
        """A connection, and whether it is new; None when the service is not there, or refuses this program."""
        with self._lock:
            if self._idle:
                return self._idle.pop(), False
            if time.monotonic() < self._again_at:
                return None, False
        connection = None
        try:
            check_folder(self._path)
            connection = _Connection(self._path, self._timeout)
            with self._lock:
                self._all.add(connection)
            self._greet(connection)
        except (OSError, PubSubError) as error:
            if connection is not None:
                self._forget(connection)
            self._failed(error)
            return None, False
        return connection, True

    def _greet(self, connection: _Connection) -> None:
        frames = host_messages.Frames(host_messages.MAX_REPLY)
        replies: list[host_messages.Reply] = []

        def feed(data: bytes) -> bool:
            replies.extend(map(host_messages.decode_reply, frames.feed(data)))
            return bool(replies)

        connection.exchange(self._hello, feed)
        refusal = host_messages.refusal_in(replies[0])
        if refusal:
            raise TransportError(refusal)

    def _put(self, connection: _Connection) -> None:
        with self._lock:
            back = self._pause
            self._pause = 0.0
            keep = not self._closed and connection in self._all and len(self._idle) < MAX_IDLE
            if keep:
                self._idle.append(connection)
        if not keep:
            self._forget(connection)
        if back:
            _log.info("the publisher service commits for this process again, by %s", self._path)

    def _forget(self, connection: _Connection) -> None:
        with self._lock:
            self._all.discard(connection)
        connection.close()

    def _forget_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for each in idle:
            self._forget(each)

    def _failed(self, error: Exception) -> None:
        with self._lock:
            first = not self._pause
            self._pause = min(2 * self._pause or FIRST_PAUSE, MAX_PAUSE)
            self._again_at = time.monotonic() + self._pause
        if first:
            _log.warning(
                "the publisher service at %s does not commit for this process, which commits by its own connection: %s",
                self._path,
                error,
            )


def opened(given: Settings | str, database: URL, typed: Callable[[str], bool]) -> HostCommit | None:
    """The service that commits for a store with these settings; None for a store that commits by itself. Raises
    ConfigError.
    """
    if not isinstance(given, Settings) or given.group_commit != "host":
        return None
    return HostCommit(socket_of(given), database, given.limits, given.store.lock_timeout, typed)


def _known(exchange: Exchange, error: ConnectionLost) -> Attempt | None:
    """The attempt of an exchange whose connection was lost. None: the service has not sent a COMMIT, and never will."""
    if exchange.ended:
        return exchange.attempt
    if exchange.prepared is None:
        return None
    lost = StoreUnavailable(f"the publisher service was lost before it answered whether it has committed: {error}")
    return Attempt(error=lost, doubt=exchange.prepared)
