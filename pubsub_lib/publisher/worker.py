"""A worker process that hands its commits over to its host's publisher service (steps 2 and 3 of the data path)."""

import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Final

from pubsub_lib import contract, loader
from pubsub_lib.api import Publisher as DriverPublisher
from pubsub_lib.closing import close_all
from pubsub_lib.constructor_checks import check_limits, check_settings, check_store
from pubsub_lib.core.model import Link
from pubsub_lib.core.sequencer import Sequencer
from pubsub_lib.errors import ClosedError, ConfigError, NotStarted, TransportError, UsageError
from pubsub_lib.failpoints import hit
from pubsub_lib.journal import open_journal
from pubsub_lib.publisher.required_store import CommittingStore
from pubsub_lib.publisher.trace_context import TraceSource, check_source, with_trace
from pubsub_lib.settings import Settings

LOCK_TIMEOUT: Final = 0.5
"""Seconds that a thread waits for the others of its process, if the driver does not wait for room (``full_wait``)."""


class _Hop:
    """The connection of one process to the service, with the sequence by which the service detects lost messages."""

    def __init__(self, settings: Settings, make: Callable[[], DriverPublisher]) -> None:
        self._settings = settings
        self._make = make
        self._lock = threading.Lock()
        self._driver: DriverPublisher | None = None
        self._core: Sequencer | None = None
        self._closed = False
        self._wait = LOCK_TIMEOUT
        """Seconds for one push: for the other threads, and for room for each of its envelopes."""

    def push(self, links: Sequence[Link], store_id: bytes) -> None:
        began = time.monotonic()
        # The thread with the lock may wait for space in the buffer. Without one deadline the waits add up.
        if not self._lock.acquire(timeout=self._wait):
            raise TransportError(
                "the buffer to the publisher service is full, and other threads of this process wait for space; start "
                "the service (the change is stored and arrives later)"
            )
        try:
            now = time.monotonic()
            driver, core = self._connected(now)
            core.store_id = store_id
            for envelope in core.publish(links, now):
                driver.send_event_by(envelope, began + self._wait)
        finally:
            self._lock.release()

    def counters(self) -> Mapping[str, int]:
        return {} if self._driver is None else self._driver.counters()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            driver = self._driver
        if driver is not None:
            driver.close()

    def _connected(self, now: float) -> tuple[DriverPublisher, Sequencer]:
        if self._closed:
            raise ClosedError("this worker is closed; the change is in the changelog and reaches replicas later")
        if self._driver is None or self._core is None:
            driver = self._make()
            driver.initialize(lambda ask: None, lambda: None)  # a worker gets no hello requests and sends no hellos
            settings = self._settings
            self._core = Sequencer(settings.service_name, uuid.uuid4().hex, settings.timing, settings.limits, now)
            self._driver = driver
            self._wait = driver.full_wait or LOCK_TIMEOUT
        return self._driver, self._core


class Worker:
    """Hands over the commits of ``store`` in this process. A context manager; any thread.

    The publisher service must have the same name (``settings.service_name``). This should also be the store's
    ``origin``: then the service publishes the commits that a dead worker did not hand over. A forked child can use the
    same object: each process makes its own connection at its first commit.
    """

    def __init__(
        self,
        settings: Settings,
        store: CommittingStore,
        driver: DriverPublisher | None = None,
        *,
        trace: TraceSource | None = None,
    ) -> None:
        """``driver``: for tests, in place of the settings' driver. ``trace``: as of a Publisher. Raises ConfigError,
        DriverError.
        """
        check_settings(settings)
        check_store(store, "on_commit")
        check_source(trace)
        if not settings.service_name:
            raise ConfigError(
                "a worker needs the name of its publisher service; set service_name (Settings.service_name)"
            )
        if driver is None and not settings.multiproc_driver:
            raise ConfigError(
                "a worker needs a driver to its publisher service; set pub_sub_use_multiproc "
                "(Settings.multiproc_driver), or use a Publisher"
            )
        check_limits(settings, store)
        self._settings = settings
        self._store = store
        self._trace = trace
        self._given = None if driver is None else contract.check_publisher(driver)
        self._journal = open_journal(settings.journal, "writer", settings.service_name)
        self._hops: dict[int, _Hop] = {}
        """By process id. A lock copied by a fork may stay locked for ever, so each process uses new ones."""
        self._unsent = 0
        self._started = False
        self._closed = False
        self._stop_callback: Callable[[], None] = lambda: None
        if driver is None:
            self._load()  # so that an invalid name is reported here and not at the first commit

    def __enter__(self) -> "Worker":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Hand over every commit from now on. Connects at the first commit. Raises ClosedError, and UsageError when the
        worker was started before, because each commit would be handed over twice.
        """
        self._begin()
        # The service does not have the trace contexts of this process, and writes no record of this journal.
        by_service = self._settings.group_commit == "host" and self._trace is None and self._journal is None
        self._stop_callback = stop_callback = self._store.on_commit(
            self.hand_over, after_fork=True, unless_published=by_service
        )
        if self._closed:  # meanwhile by another thread, which did not stop the callback
            stop_callback()
            raise ClosedError("this worker was closed while it started; make a new one")

    def _begin(self) -> None:
        if self._closed:
            raise ClosedError("this worker is closed; make a new one")
        if self._started:
            raise UsageError("this worker was started already; make a new one for a second run")
        self._started = True

    def hand_over(self, links: Sequence[Link]) -> None:
        """Push one transaction's links; called by the store after each commit, in the writer's thread.

        Blocks for the driver's ``full_wait`` at most, while the buffer is full or other threads of the process wait for
        room in it, also for a transaction of several topics. Raises FrameError, NotStarted, ClosedError, and
        TransportError. The store logs and counts TransportError, but raises HandoffRejectedError (by ``when_full =
        raise``) to the writer. The change is in the changelog anyway: a running service publishes it from there. A
        service that starts later follows from the head; its hello shows replicas that changes are missing, and they
        read them from the database.
        """
        if not (self._started or self._closed):
            raise NotStarted("this worker was not started, so it cannot hand over; call start() first")
        if self._trace is not None:
            links = with_trace(links, self._trace)
        if self._journal is not None:
            self._journal.of_store(self._store.store_id)
            self._journal.links("handed", links)
        try:
            self._hop().push(links, self._store.store_id)
        except TransportError:
            self._unsent += 1
            raise
        hit("worker.after_push")

    def counters(self) -> Mapping[str, int]:
        """The driver's counters in this process, and ``unsent``: transactions that the driver did not accept. Accepted
        messages that waited for a service until ``close`` are in the driver's ``lost``.
        """
        return {**self._hop().counters(), "unsent": self._unsent}

    def close(self) -> None:
        """Stop the callback, and wait shortly until the service took the buffered messages. The driver drops the others
        and logs that. Idempotent.
        """
        self._closed = True
        close_all(self._stop_callback, self._hop().close, None if self._journal is None else self._journal.close)

    def _hop(self) -> _Hop:
        mine = os.getpid()
        # setdefault is atomic: all threads of a new child process use the same one.
        return self._hops.get(mine) or self._hops.setdefault(mine, _Hop(self._settings, self._load))

    def _load(self) -> DriverPublisher:
        if self._given is not None:
            return self._given
        settings = self._settings
        return contract.publisher(loader.load_hop(settings.multiproc_driver), settings.for_multiproc())
