"""A program that publishes its commits directly: the threads around :class:`~pubsub_lib.core.sequencer.Sequencer`,
which has no I/O (steps 2 and 4 of the data path).
"""

import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pubsub_lib import contract, loader
from pubsub_lib.api import Publisher as DriverPublisher
from pubsub_lib.closing import close_all
from pubsub_lib.constructor_checks import check_limits, check_settings, check_store
from pubsub_lib.core.envelope import Envelope, HelloRequest
from pubsub_lib.core.model import ALL, Heads, Link
from pubsub_lib.core.sequencer import Progress, Sequencer
from pubsub_lib.errors import ClosedError, ConfigError, NotStarted, PubSubError, TransportError, UsageError
from pubsub_lib.journal import Journal, open_journal
from pubsub_lib.journal.rows import Outcome
from pubsub_lib.latency import NO_LATENCIES, Latencies, LatencyHistogram
from pubsub_lib.logs import logger
from pubsub_lib.publisher.admission import admission_of
from pubsub_lib.publisher.required_store import PublishedStore
from pubsub_lib.publisher.trace_context import TraceSource, check_source, with_trace
from pubsub_lib.publisher.unsent import note_unsent
from pubsub_lib.settings import Settings
from pubsub_lib.threads.periodic_thread import PeriodicThread

_log = logger(__name__)

_SENT: Final[tuple[Outcome]] = ("sent",)
_SEND_TIMEOUT: Final = 0.5
"""Seconds after which a commit starts no further send. A driver waits half a second by default: one second in all."""
_INHERITED: Final = "this publisher belongs to the process before the fork; make a new one in this process"


class Publisher:
    """Sends the commits of ``store`` in this process, and hellos. A context manager.

    All methods may be called from any thread. Its name is ``settings.service_name``. After a fork make a new
    publisher: it must have its own UUID.
    """

    def __init__(
        self,
        settings: Settings,
        store: PublishedStore,
        driver: DriverPublisher | None = None,
        *,
        trace: TraceSource | None = None,
        journal: Journal | None = None,
        entered: bool = False,
        measured: bool = False,
    ) -> None:
        """``journal``: the caller's, which closes it; by default a writer's journal, when the settings name a folder.
        ``trace`` (:func:`pubsub_lib.tracing.current_trace`) returns each commit's trace context; it is called in the
        writer's thread. ``entered``: the caller enters this publisher in the directory; by default one that binds an
        address does that itself. ``measured``: count for :meth:`commit_to_sent`. Raises ConfigError without a service
        name, or for a store with other limits than the settings, DriverError when the driver is unavailable.
        """
        check_settings(settings)
        check_store(store, "read_heads", "on_commit")
        check_source(trace)
        if not settings.service_name:
            raise ConfigError("a publisher needs a stable name; set service_name (Settings.service_name)")
        check_limits(settings, store)
        self._pid = os.getpid()
        self._store = store
        self._trace = trace
        self._driver = loader.load_publisher(settings) if driver is None else contract.check_publisher(driver)
        self._lock = threading.Lock()
        """Held while links are numbered *and* sent: they must be sent in the order of their sequences. Hellos are made
        under this lock and sent without it, so a commit never waits for a hello that the transport does not take."""
        self._hello_lock = threading.Lock()
        """Held while one hello is made and sent, so that the goodbye is the last. Taken before the other lock, never
        after it."""
        self._core = Sequencer(
            settings.service_name, uuid.uuid4().hex, settings.timing, settings.limits, time.monotonic()
        )
        self._own_journal = open_journal(settings.journal, "writer", settings.service_name) if journal is None else None
        self._journal = journal if journal is not None else self._own_journal
        self._started = False
        self._initialized = False
        self._closing = False
        self._counts = dict.fromkeys(("unsent", "hellos", "answers"), 0)
        self._latencies = LatencyHistogram() if measured else None
        self._loop = PeriodicThread("publisher", self._step)
        self._stop_callback: Callable[[], None] = lambda: None
        self.admission = admission_of(settings, store, self._driver, "" if entered else self._core.uuid)
        """Renews the entry in the directory, and reads the clients of a publisher with keys; None without both."""

    @property
    def uuid(self) -> str:
        """This publisher's identity, new for each publisher object."""
        return self._core.uuid

    def __enter__(self) -> "Publisher":
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def start(self) -> None:
        """Bind or connect, send a hello, and send every commit from now on. Raises TransportError, or ClosedError when
        the publisher was closed before or meanwhile, or made before a fork. After an error it is closed.
        """
        if os.getpid() != self._pid:  # a copy would have the UUID and the driver's connections of the parent
            raise ClosedError(_INHERITED)
        with self._lock:
            closed = self._closing
            if closed:
                raise ClosedError("this publisher is closed; make a new one (committed changes are in the changelog)")
            if self._started:
                raise UsageError("this publisher was started already; make a new one for a second run")
            self._started = True
        try:
            self._core.store_id = self._store.store_id or self._store.read_heads(()).store_id
            self._driver.initialize(self._on_hello_request, self._on_connected)
            stop_callback = self._store.on_commit(self.publish)
            with self._lock:
                self._initialized = True
                self._stop_callback = stop_callback
                closed = self._closing
            if closed:  # meanwhile by another thread, which did not stop the callback
                stop_callback()
                raise ClosedError("this publisher was closed while it started; make a new one")
            self._loop.start()
            if self.admission is not None:
                self.admission.start()
        except BaseException:
            self.close()  # __exit__ is not called when __enter__ raises
            raise

    def serve_syncs_at(self, port: int) -> None:
        """Name this port in all later hellos: the sync channel at this host. 0: there is none. Any thread."""
        self._core.serves = port

    def publish(self, links: Sequence[Link], sent: list[Envelope] | None = None) -> None:
        """Send these links, in this order; called by the store after each commit, in the writer's thread.

        Blocks for at most one second, if the driver's ``send_wait`` is at most half a second: half a second for other
        commits and all messages but the last, and as long for the last one. Adds the sent envelopes to ``sent``. Raises
        TransportError, FrameError, NotStarted or ClosedError; the change is in the changelog anyway.
        """
        if os.getpid() != self._pid:
            raise ClosedError(_INHERITED)
        if self._trace is not None:
            links = with_trace(links, self._trace)
        sent = [] if sent is None else sent
        try:
            self._publish(links, sent)  # it delays the next hello and never advances it, so no thread has to wake
        except PubSubError:
            note_unsent(self._own_journal, links, sent)
            raise

    def _publish(self, links: Sequence[Link], sent: list[Envelope]) -> None:
        """Number and send. The sent envelopes are added to ``sent``, also when an error is raised."""
        until = time.monotonic() + _SEND_TIMEOUT
        if not self._lock.acquire(timeout=_SEND_TIMEOUT):
            raise TransportError(
                f"other commits of this program have been sending for {_SEND_TIMEOUT} s; this one is not sent. It is "
                "in the changelog and reaches replicas later; check why the transport does not take messages"
            )
        try:
            if self._closing:
                raise ClosedError("this publisher is closed; the change is in the changelog and reaches replicas later")
            if not self._started:
                raise NotStarted("this publisher was not started, so it cannot send; call start() first")
            self._core.store_id = self._store.store_id
            for envelope in self._core.publish(links, time.monotonic()):
                if sent and time.monotonic() > until:
                    raise TransportError(
                        f"sending a commit took longer than {_SEND_TIMEOUT} s, so the rest of it is not sent. It is in "
                        "the changelog and reaches replicas later; check why the transport is slow"
                    )
                if self._journal is not None:
                    self._journal.messages(_SENT, envelope)
                self._driver.send_event(envelope)
                sent.append(envelope)
                if self._latencies is not None:
                    whole = [each.link for each in envelope.messages if each.part == each.parts]
                    self._latencies.observe(whole, time.time())
        finally:
            self._lock.release()

    def counters(self) -> Mapping[str, int]:
        """The driver's counters, and ``hellos`` (to all), ``answers`` (hello replies), ``unsent`` (of both kinds)."""
        return {**self._driver.counters(), **self._counts}

    def commit_to_sent(self) -> Latencies:
        """The time from each link's commit until the driver had accepted all of it. Any thread, does not block."""
        return NO_LATENCIES if self._latencies is None else self._latencies.taken()

    def progress(self, timeout: float) -> Progress | None:
        """What was sent, and the last reading of the heads; None when the lock is still held after ``timeout`` s."""
        if not self._lock.acquire(timeout=timeout):
            return None
        try:
            return self._core.progress()
        finally:
            self._lock.release()

    def busy(self, now: float) -> Mapping[str, float]:
        """Seconds since the running step of each thread began, by its name; see :meth:`.PeriodicThread.running_for`."""
        return {"publisher": self._loop.running_for(now), "sending": self._driver.sending_for(now)}

    def close(self) -> None:
        """Send a goodbye, stop and release everything, within about 3 s. Idempotent."""
        if os.getpid() != self._pid:
            return
        self._stop_callback()
        with self._lock:
            if self._closing:
                return
            self._closing = True
            goodbye = self._core.goodbye(time.monotonic()) if self._initialized else None
        close_all(
            lambda: None if goodbye is None else self._send_goodbye(goodbye),
            lambda: self._stop_callback(),  # again: start() may have registered the callback since
            lambda: self._loop.close(1.0),
            None if self.admission is None else self.admission.close,
            self._driver.close,
            None if self._own_journal is None else self._own_journal.close,
        )

    def _on_hello_request(self, ask: HelloRequest) -> None:
        with self._lock:
            self._core.hello_requested(ask, time.monotonic())
        self._send_due_hellos()
        self._loop.wake()

    def _on_connected(self) -> None:
        with self._lock:
            self._core.connected(time.monotonic())
        self._loop.wake()

    def _step(self, now: float) -> float:
        self._send_due_hellos()
        with self._lock:
            reading = self._core.wants_reading(now)
            if reading:
                self._core.begin_reading()
        if reading:
            self._read_heads()
            self._send_due_hellos()
        with self._lock:
            return self._core.next_time()

    def _read_heads(self) -> None:
        began = time.monotonic()
        heads: Heads | None = None
        try:
            point = self._store.read_heads(())
            with self._lock:
                self._core.store_id = point.store_id
                heads = self._core.heads_at(point.store, began)
            if heads is None:
                began = time.monotonic()
                heads = self._store.read_heads([ALL])
        except PubSubError as error:
            _log.warning("cannot read the heads for hellos, trying again: %s", error)
        except Exception:  # noqa: BLE001 - no exception may end this thread, which sends the hellos
            _log.exception("internal error while reading the heads; please report this")
        with self._lock:
            now = time.monotonic()
            if heads is None:
                self._core.heads_failed(now)
            else:
                self._core.heads_read(heads, began, now)

    def _send_due_hellos(self) -> None:
        """Send the hellos that are due. After a failure the others are not sent: they would fail too, after the same
        wait. A failure is counted and logged, and the next hello is due soon.
        """
        while self._send_due_hello():
            pass

    def _send_due_hello(self) -> bool:
        """Send one hello, if one is due. False when none is due or sending failed."""
        with self._hello_lock:
            with self._lock:
                hello = None if self._closing else self._core.next_hello(time.monotonic())
            if hello is None:
                return False
            if not self._send_hello(hello):
                with self._lock:
                    self._counts["unsent"] += self._core.refused()
                return False
            return True

    def _send_goodbye(self, goodbye: Envelope) -> None:
        with self._hello_lock:  # after the hello that is being sent now
            self._send_hello(goodbye)

    def _send_hello(self, envelope: Envelope) -> bool:
        """Send this hello, without the lock. Returns whether the transport took it."""
        asker = envelope.hello.nonce if envelope.hello is not None else ""
        if self._journal is not None and asker:
            self._journal.note("hello", peer=asker, service=envelope.service, uuid=envelope.uuid)
        try:
            self._driver.send_event(envelope)
        except PubSubError as error:
            what = "unsent"
            _log.warning("a hello could not be sent: %s", error)
        else:
            what = "answers" if asker else "hellos"
        with self._lock:
            self._counts[what] += 1
        return what != "unsent"
