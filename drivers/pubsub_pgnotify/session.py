"""A connection to PostgreSQL that is made again after a loss, with a wait that any thread can end."""

import math
import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import psycopg
from psycopg.errors import Diagnostic, error_from_result
from psycopg.pq import ExecStatus
from sqlalchemy import URL
from sqlalchemy.exc import SQLAlchemyError

from pubsub_lib.core.backoff import doubled
from pubsub_lib.errors import PubSubError, TransportError
from pubsub_lib.logs import logger
from pubsub_lib.store import StoreSettings, engine
from pubsub_lib.store.error_mapping import translate

_log = logger(__name__)

_FOREIGN: Final = (psycopg.Error, SQLAlchemyError, OSError)
_FIRST_BACKOFF: Final = 0.1
_MAX_WAIT: Final = 3600.0  # seconds
_QUEUE_FULL: Final = "54000"
"""The only limit of the server that these statements can exceed. Elsewhere this SQLSTATE means others."""
_ANSWERED: Final = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)

OnAnswer = Callable[[bool], None]
"""Called on the session's thread when a statement was executed (True), or its connection was lost before."""


class Session:
    """Belongs to one thread; others may call ``wake`` and ``begin``. No method raises an error of the database: it is
    logged once and counted, and the connection is made again with a wait that doubles up to ``max_backoff``.

    ``purpose`` completes the sentence "… does not work".
    """

    def __init__(self, url: URL, settings: StoreSettings, purpose: str, max_backoff: float) -> None:
        self.counts = {"connections": 0, "lost_connections": 0}
        """Any thread may copy it: the names never change."""
        self._engine = engine.make(url, settings, writes=False, primary=True)
        self._purpose = purpose
        self._max_backoff = max_backoff
        self._connection: psycopg.Connection[Any] | None = None
        self._on_answer: OnAnswer | None = None
        """Of the statement that is not answered yet."""
        self._send_error: psycopg.Error | None = None
        """Why a statement could not be sent."""
        self._connected_at = 0.0
        self._failing = False
        self._refused = False
        """Whether the server refused the last statement. Then a new connection does not show that the purpose works."""
        self._warnings: list[str] = []
        """Of the server, which are not logged yet: logging could block while the lock is held."""
        self._failures = 0
        self._retry_at = 0.0
        self._lock = threading.Lock()
        """Guards the use of the connection, and the attributes that ``begin`` uses. Never held while a call blocks."""
        self._bell = -1

    def open(self) -> None:
        """Before any other method, in the process of the thread. Raises TransportError when no file can be opened."""
        try:
            self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError as error:
            raise TransportError(f"cannot open an event's file: {error}; raise the limit of open files") from error

    def wake(self) -> None:
        """End the running wait, or the next one. Any thread."""
        with self._lock:
            self._ring()

    def _ring(self) -> None:
        if self._bell >= 0:
            os.eventfd_write(self._bell, 1)

    @property
    def connected(self) -> bool:
        """Whether there is a connection; a loss is noticed in ``execute`` and ``wait``."""
        return self._connection is not None

    @property
    def retry_in(self) -> float:
        """Seconds until ``connect`` tries again; infinite while connected."""
        return math.inf if self.connected else max(0.0, self._retry_at - time.monotonic())

    def connect(self, *statements: str) -> bool:
        """Connect and execute these statements, unless connected or before the next try. Return whether a new
        connection was made. Blocks for the connect timeout of the settings."""
        if self.retry_in:
            return False
        connection: psycopg.Connection[Any] | None = None
        try:
            pooled = self._engine.raw_connection()
            connection = pooled.driver_connection
            pooled.detach()
            assert connection is not None
            connection.autocommit = True
            connection.add_notice_handler(self._noticed)
            for each in statements:
                connection.execute(each)
        except Exception as error:  # noqa: BLE001 - an exception must not end the thread
            _close(connection)
            self._failed(error, "connecting")
            return False
        self.counts["connections"] += 1
        self._connected_at = time.monotonic()
        with self._lock:
            self._connection = connection
        if not self._refused:
            self._works()
        return True

    def begin(self, prepared: bytes, parameters: Sequence[str], on_answer: OnAnswer) -> bool:
        """Send a prepared statement to the server, and do not wait for the answer. Any thread. False, without a call of
        ``on_answer``: there is no connection, the last statement is not answered, or the connection is lost."""
        with self._lock:
            if self._connection is None or self._on_answer is not None:
                return False
            pgconn = self._connection.pgconn
            try:
                pgconn.send_query_prepared(prepared, [each.encode() for each in parameters])
                unsent = pgconn.flush()
            except psycopg.Error as error:
                self._send_error = error
                self._ring()  # the thread closes the connection
                return False
            self._on_answer = on_answer
            if unsent:
                self._ring()  # the thread waits until the socket takes the rest
        return True

    def wait(self, seconds: float) -> list[bytes]:
        """Wait for ``wake``, an answer, notifications or the loss of the connection, at most for ``seconds``. Return
        the payloads of the notifications."""
        poller = select.poll()
        poller.register(self._bell, select.POLLIN)
        try:
            with self._lock:
                if self._connection is not None:
                    unsent = self._connection.pgconn.flush()
                    # It has no socket any more when libpq ended it because of what notifies() read.
                    poller.register(self._connection.fileno(), select.POLLIN | (select.POLLOUT if unsent else 0))
        except psycopg.Error as error:
            self._lost(error)
            return []
        poller.poll(math.ceil(1000 * min(seconds, _MAX_WAIT)))
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            pass  # not woken
        found: list[bytes] = []
        on_answer = None
        try:
            with self._lock:
                if self._send_error is not None:
                    raise self._send_error
                if self._connection is not None:
                    self._connection.pgconn.consume_input()
                    on_answer = self._answered(self._connection)
                    while (each := self._connection.pgconn.notifies()) is not None:
                        found.append(each.extra)
        except Exception as error:  # noqa: BLE001 - as above
            self._lost(error)
        warnings, self._warnings = self._warnings, []
        for text in warnings:
            _log.warning("PostgreSQL warns while %s: %s", self._purpose, text)
        if on_answer is not None:
            self._refused = False
            self._works()
            on_answer(True)
        return found

    def _noticed(self, diagnostic: Diagnostic) -> None:
        """On the session's thread, perhaps with the lock held."""
        if diagnostic.severity_nonlocalized == "WARNING":
            texts = (diagnostic.message_primary, diagnostic.message_detail, diagnostic.message_hint)
            self._warnings.append(" ".join(filter(None, texts)))

    def _answered(self, connection: psycopg.Connection[Any]) -> OnAnswer | None:
        """The callback of the running statement, if the server has executed it. Raises psycopg's errors."""
        pgconn = connection.pgconn
        while self._on_answer is not None and not pgconn.is_busy():
            result = pgconn.get_result()
            if result is None:
                on_answer, self._on_answer = self._on_answer, None
                return on_answer
            if result.status not in _ANSWERED:
                self._refused = True
                raise error_from_result(result, connection.info.encoding)
        return None

    def disconnect(self) -> None:
        """Close the connection. The next ``connect`` makes a new one at once."""
        with self._lock:
            connection, self._connection = self._connection, None
            on_answer, self._on_answer, self._send_error = self._on_answer, None, None
        self._retry_at = 0.0
        _close(connection)
        if on_answer is not None:
            on_answer(False)

    def close(self) -> None:
        """Release everything. The thread's last call."""
        self.disconnect()
        with self._lock:
            bell, self._bell = self._bell, -1
        if bell >= 0:
            os.close(bell)

    def _works(self) -> None:
        if self._failing:
            self._failing = False
            _log.info("%s works again", self._purpose)

    def _lost(self, error: Exception) -> None:
        self.counts["lost_connections"] += 1
        if time.monotonic() - self._connected_at > self._max_backoff:
            self._failures = 0
        self._failed(error, "using the connection")

    def _failed(self, error: Exception, doing: str) -> None:
        self.disconnect()
        self._failures += 1
        self._retry_at = time.monotonic() + doubled(_FIRST_BACKOFF, self._failures - 1, self._max_backoff)
        if self._failing:
            return
        self._failing = True
        shown = _explained(error, doing) if isinstance(error, _FOREIGN) else error
        _log.warning(
            "%s does not work and is retried until it succeeds; changes are found by polling meanwhile: %s",
            self._purpose,
            shown,
            # The message of a PubSubError is complete; any other exception is a bug and needs its traceback.
            exc_info=None if isinstance(shown, PubSubError) else error,
        )


def _explained(error: Exception, doing: str) -> PubSubError:
    if getattr(error, "sqlstate", None) != _QUEUE_FULL:
        return translate(error, doing)
    text = str(error).partition("\n")[0]
    return TransportError(
        f"the server's queue of notifications is full ({text}); end the oldest transaction of a session that listens, "
        "which the server's log names; SELECT pg_notification_queue_usage() is then below 1"
    )


def _close(connection: "psycopg.Connection[Any] | None") -> None:
    if connection is not None:
        try:
            connection.close()
        except psycopg.Error as error:
            _log.debug("closing a connection failed: %s", error)
