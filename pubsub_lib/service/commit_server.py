"""The service's end of the host's group commit: workers' transactions, committed together (rule S1).

One thread receives and commits, so that requests gather while it commits. Before the COMMIT each worker is sent its
transaction's point (:mod:`pubsub_lib.store.host_commit`). A transaction whose worker cannot be sent that message is
taken out: the others are executed again without it.
"""

import contextlib
import os
import selectors
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from pubsub_lib.core.model import Link
from pubsub_lib.errors import FrameError, PubSubError, TransportError
from pubsub_lib.failpoints import hit
from pubsub_lib.logs import logger
from pubsub_lib.service.commit_client import CommitClient
from pubsub_lib.settings import Settings
from pubsub_lib.socket_lock import SocketLock
from pubsub_lib.socket_path import OPTION, make_folder
from pubsub_lib.store import url
from pubsub_lib.store.group_commit import Announce, Attempt, Candidate, first_group
from pubsub_lib.store.host_commit import database_of, socket_of
from pubsub_lib.store.host_messages import hello
from pubsub_lib.store.links import Commit
from pubsub_lib.store.writer import Work
from pubsub_lib.threads.start import ReadyThread

_log = logger(__name__)

ACCEPT_PAUSE: Final = 1.0
"""Seconds without a new connection after one could not be accepted."""
GATHER: Final = 0.002
"""Maximum seconds after an answer to wait for the next requests of the workers that were answered."""
MAX_CLIENTS: Final = 512
"""Maximum number of connections; a worker without one commits by its own connection to the database."""
_AGAIN: Final = 0.1
"""Seconds to wait after an error, so that a lasting error does not use the processor."""
_STOP: Final = 2.0


class CommitsGroups(Protocol):
    """The method of a store that the server uses."""

    def commit_group(self, works: Sequence[Work], announce: Announce) -> list[Attempt]:
        """Make one attempt to commit works in one transaction; ``announce`` is called right before the COMMIT."""


class _Waiting(Candidate):
    """A request that was received, of a client that waits for its answer."""

    def __init__(self, client: CommitClient, work: Work) -> None:
        super().__init__(work)
        self.client = client


class _LeftError(PubSubError):
    """Workers of a group are gone; the group is rolled back."""


class CommitServer:
    """Takes transactions of this host's workers. ``start`` and ``close`` are called by one thread."""

    def __init__(
        self, settings: Settings, store: CommitsGroups, publish: Callable[[Sequence[Link]], None] | None = None
    ) -> None:
        """``publish``: publishes links, in this order; None: the workers publish what is committed. Raises ConfigError
        for a path that is too long.
        """
        self._path: Path = socket_of(settings)
        self._store = store
        self._publish = publish
        self._own = hello(database_of(url.parse(settings.store_url)), settings.limits)
        self._selector = selectors.DefaultSelector()
        self._clients: set[CommitClient] = set()
        self._queue: list[_Waiting] = []
        self._expected = 0
        """Number of requests of the last group: the same workers are likely to send the next ones."""
        self._answered_at = 0.0
        self._accept_again: tuple[socket.socket, float] | None = None
        """The listener that is not watched, and until when."""
        self._busy_since = float("inf")
        self._closing = False
        self._thread: threading.Thread | None = None
        self._wake = -1
        self._counts: Counter[str] = Counter(
            requests=0, groups=0, declined=0, withdrawn=0, refused=0, invalid=0, errors=0
        )

    def start(self) -> None:
        """Lock and bind the socket, and start the thread. Raises TransportError, which names the holder when another
        service has the socket.
        """
        ready = ReadyThread("pubsub-commits")
        try:
            run = self._open()
        except BaseException:
            ready.drop()
            raise
        self._thread = ready.thread
        ready.run(run)

    def close(self) -> None:
        """Answer the group that is being committed, close all connections, and release the socket. Waits for at most
        2 s. Requests that wait are not executed; their workers commit by their own connections. Idempotent.
        """
        self._closing = True
        thread, self._thread = self._thread, None
        if thread is None:
            return
        os.eventfd_write(self._wake, 1)
        thread.join(_STOP)
        if thread.is_alive():
            _log.warning("the thread that commits for workers still waits for the database at shutdown")
        else:
            os.close(self._wake)

    def counters(self) -> Mapping[str, int]:
        """``requests`` that were executed and ``groups`` (transactions of the database); requests that were
        ``declined`` (too large to announce) and ``withdrawn`` (their worker was gone before the COMMIT); ``refused``
        workers; ``invalid`` messages; ``errors`` that the thread survived.
        """
        return dict(self._counts)

    def running_for(self, now: float) -> float:
        """Seconds since the current group's execution began; 0.0 between two groups. Any thread, does not block."""
        return max(0.0, now - self._busy_since)

    # -- the thread ------------------------------------------------------------------------------------------

    def _open(self) -> Callable[[], None]:
        make_folder(self._path)
        with contextlib.ExitStack() as opened:  # after an exception of any kind, nothing stays open
            lock = SocketLock(self._path, OPTION)
            opened.callback(lock.release)
            try:
                self._path.unlink(missing_ok=True)  # of a dead service, whose lock is free
                listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                opened.callback(listener.close)
                listener.bind(str(self._path))
                self._path.chmod(0o600)
                listener.listen(MAX_CLIENTS)
                listener.setblocking(False)
                self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            except OSError as error:
                raise TransportError(
                    f"cannot bind the commit socket {str(self._path)!r}: {error.strerror}; set {OPTION}"
                ) from error
            opened.callback(self._path.unlink, missing_ok=True)
            self._selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener))
            self._selector.register(self._wake, selectors.EVENT_READ, lambda: None)
            release = opened.pop_all()
        return lambda: self._run(release)

    def _run(self, release: contextlib.ExitStack) -> None:
        with release:
            while not self._closing:
                try:
                    self._step()
                except Exception:  # noqa: BLE001 - without this thread, no worker would be answered again
                    self._counts["errors"] += 1
                    _log.exception("the thread that commits for workers continues after an error; please report this")
                    time.sleep(_AGAIN)
            for client in list(self._clients):
                self._drop(client)
            self._selector.close()

    def _step(self) -> None:
        """Receive what there is; execute a group when there is one."""
        if self._accept_again is not None and time.monotonic() >= self._accept_again[1]:
            (listener, _), self._accept_again = self._accept_again, None
            self._selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener))
        wait = self._wait()
        if wait is None and self._accept_again is not None:
            wait = ACCEPT_PAUSE
        for key, _ in self._selector.select(wait):
            key.data()
        if self._queue and not self._closing and self._wait() == 0.0:
            self._execute(first_group(self._queue))

    def _wait(self) -> float | None:
        """Seconds to wait for further requests, None: without end."""
        if not self._queue:
            return None
        if len(self._queue) >= min(self._expected, len(self._clients)):
            return 0.0
        return max(0.0, self._answered_at + GATHER - time.monotonic())

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except BlockingIOError:  # the worker has gone again
            return
        except OSError as error:  # no free descriptor; the worker stays in the queue, and commits by itself meanwhile
            self._counts["errors"] += 1
            _log.error("a worker's connection cannot be accepted (%s); raise the limit of open files", error.strerror)
            self._selector.unregister(listener)
            self._accept_again = listener, time.monotonic() + ACCEPT_PAUSE
            return
        _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if user not in (0, os.geteuid()) or len(self._clients) >= MAX_CLIENTS:
            self._counts["refused"] += 1
            connection.close()
            return
        client = CommitClient(connection, self._own)
        self._clients.add(client)
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._read(client))

    def _read(self, client: CommitClient) -> None:
        try:
            work = client.receive()
        except FrameError:
            self._counts["invalid"] += 1
            self._drop(client)
            return
        if client.refused:
            self._counts["refused"] += 1
        if client.closed:
            self._drop(client)
        elif work is not None:
            self._queue.append(_Waiting(client, work))

    def _drop(self, client: CommitClient) -> None:
        """Close a connection: from now on its worker knows that a request which was not announced is not executed."""
        self._queue = [each for each in self._queue if each.client is not client]
        self._clients.discard(client)
        with contextlib.suppress(KeyError):
            self._selector.unregister(client.socket)
        client.close()

    def _execute(self, group: Sequence[_Waiting]) -> None:
        self._queue = [each for each in self._queue if each not in group]
        self._expected = len(group)
        self._busy_since = time.monotonic()
        try:
            rest = self._committed(group)
        except BaseException:
            for each in group:
                self._drop(each.client)
            raise
        finally:
            self._busy_since = float("inf")
        links: list[Link] = []
        for each, attempt in rest:
            publishes = (
                self._publish is not None and not self._closing and each.work.publish and attempt.commit is not None
            )
            each.client.finish(attempt, publishes)
            if publishes and attempt.commit is not None:
                links += attempt.commit.links
        for each in group:
            if each.client.closed:
                self._drop(each.client)
        self._answered_at = time.monotonic()
        if links and self._publish is not None:
            self._publish(links)  # while the workers prepare their next transactions

    def _committed(self, group: Sequence[_Waiting]) -> list[tuple[_Waiting, Attempt]]:
        """The works of the workers that are still there, and their attempts."""
        while group:
            attempts, left = self._attempted(group)
            if not left:
                self._counts["requests"] += len(group)
                hit("service.before_answer")
                return list(zip(group, attempts, strict=True))
            for each in left:
                self._counts["withdrawn" if each.client.closed else "declined"] += 1
            group = [each for each in group if each not in left]
        return []

    def _attempted(self, group: Sequence[_Waiting]) -> tuple[list[Attempt], list[_Waiting]]:
        """Their attempts, and those of them because of which the group was rolled back."""
        left: list[_Waiting] = []

        def announce(commits: Sequence[Commit | None]) -> None:
            for each, commit in zip(group, commits, strict=True):
                if commit is not None and not each.client.prepare(commit):
                    left.append(each)
            if left:
                raise _LeftError("workers of the group are gone")
            hit("service.after_prepared")

        self._counts["groups"] += 1
        return self._store.commit_group([each.work for each in group], announce), left
