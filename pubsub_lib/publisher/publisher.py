"""A program that publishes what it commits by itself: the threads around the sans-I/O
:class:`~pubsub_lib.core.sequencer.Sequencer` (steps 2 and 4 of the data path).
"""

import os
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

from pubsub_lib import contract, loader
from pubsub_lib.api import Publisher as DriverPublisher
from pubsub_lib.arguments import check_function
from pubsub_lib.constructor_checks import check_limits, check_settings, check_store
from pubsub_lib.core.envelope import Envelope, HelloRequest
from pubsub_lib.core.model import ALL, Heads, Link
from pubsub_lib.core.sequencer import Sequencer
from pubsub_lib.errors import (
    ClosedError,
    ConfigError,
    NotStarted,
    PubSubError,
    StoreError,
    TransportError,
    UsageError,
)
from pubsub_lib.journal import Journal, open_journal
from pubsub_lib.journal.rows import Outcome
from pubsub_lib.logs import logger
from pubsub_lib.publisher.trace_context import TraceSource, with_trace
from pubsub_lib.settings import Settings
from pubsub_lib.threads.periodic_thread import PeriodicThread

_log = logger(__name__)

_SENT: Final[tuple[Outcome]] = ("sent",)
_TURN: Final = 0.5
"""Seconds after which a commit begins to send nothing more. A driver waits for half a second at most by default, so
that it is a second in all."""


class PublishedStore(Protocol):
    """What a publisher needs of a store."""

    def read_heads(self, topics: Collection[str]) -> Heads:
        """The heads in one consistent reading. Blocks; raises StoreError."""

    def on_commit(self, callback: Callable[[Sequence[Link]], None]) -> Callable[[], None]:
        """Call back with the links of every commit, in the writer's thread; returns how to stop that."""


class Publisher:
    """Sends what ``store`` commits in this process, and says hello. A context manager.

    All methods may be called from any thread. ``settings.service`` names it. After a fork make a new one: it must
    have a UUID of its own.
    """

    def __init__(
        self,
        settings: Settings,
        store: PublishedStore,
        driver: DriverPublisher | None = None,
        *,
        trace: TraceSource | None = None,
        journal: Journal | None = None,
    ) -> None:
        """``journal``: the caller's, which closes it; by default one of a writer, when the settings name a folder.
        ``trace`` (:func:`pubsub_lib.tracing.current_trace`) gives each commit's trace context, asked for in the
        writer's thread. Raises ConfigError without a service name, or for a
        store with other limits than the settings, DriverError when the driver cannot be had.
        """
        check_settings(settings)
        check_store(store, "read_heads", "on_commit")
        if trace is not None:
            check_function("trace", trace, "no argument")
        if not settings.service:
            raise ConfigError("a publisher needs a stable name; set service_name (Settings.service)")
        check_limits(settings, store)
        self._pid = os.getpid()
        self._store = store
        self._trace = trace
        self._driver = _load(settings) if driver is None else contract.check_publisher(driver)
        self._lock = threading.Lock()
        """Around numbering *and* sending links: they must leave in the order of their sequences. Hellos are made under
        it and leave without it: a commit never waits for one that the transport does not take."""
        self._hello_lock = threading.Lock()
        """Around making and sending one hello, so that the goodbye is the last. Taken before the other lock, never
        after it."""
        self._core = Sequencer(settings.service, uuid.uuid4().hex, settings.timing, settings.limits, time.monotonic())
        self._own_journal = open_journal(settings.journal, "writer", settings.service) if journal is None else None
        self._journal = journal if journal is not None else self._own_journal
        self._started = False
        self._initialized = False
        self._closing = False
        self._counts = dict.fromkeys(("unsent", "hellos", "answers"), 0)
        self._loop = PeriodicThread("publisher", self._step)
        self._stop_listening: Callable[[], None] = lambda: None

    @property
    def uuid(self) -> str:
        """This publisher's identity since its start."""
        return self._core.uuid

    def __enter__(self) -> "Publisher":
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def start(self) -> None:
        """Bind or connect, say hello, and send every commit from now on. Raises TransportError, or ClosedError when it
        was closed before or meanwhile; it is closed then.
        """
        with self._lock:
            self._check_open()
            if self._started:
                raise UsageError("this publisher was started already; make a new one for a second run")
            self._started = True
        try:
            self._driver.initialize(self._on_hello_request, self._on_connected)
            stop_listening = self._store.on_commit(self.publish)
            with self._lock:
                self._initialized = True
                self._stop_listening = stop_listening
                closed = self._closing
            if closed:  # meanwhile, by another thread, which had nothing to stop yet
                stop_listening()
                raise ClosedError("this publisher was closed while it started; make a new one")
            self._loop.start()
        except BaseException:
            self.close()  # nobody else will: a with statement whose begin fails has no end
            raise

    def _check_open(self) -> None:
        """With the lock held."""
        if self._closing:
            raise ClosedError("this publisher is closed; make a new one (what is committed is in the changelog)")

    def publish(self, links: Sequence[Link]) -> None:
        """Send these links, in this order; called by the store after each commit, in the writer's thread.

        Blocks for at most a second: half of it for its turn and all messages but the last, the other half for that
        one, as long as the driver waits for no longer (``send_wait``). Raises TransportError, FrameError, NotStarted or
        ClosedError; the change is in the changelog anyway.
        """
        if os.getpid() != self._pid:
            raise ClosedError("this publisher belongs to the process before the fork; make a new one in this process")
        if self._trace is not None:
            links = with_trace(links, self._trace)
        sent: list[Envelope] = []
        try:
            self._publish(links, sent)  # the next hello is due later by it, never sooner: nobody has to be woken
        except PubSubError:
            if self._own_journal is not None:
                # What is sent says as much, and all this twice would cost.
                self._own_journal.links("handed", _unsent(links, sent))
            raise

    def _publish(self, links: Sequence[Link], sent: list[Envelope]) -> None:
        """Number and send. ``sent`` gets what left, also when it raises."""
        until = time.monotonic() + _TURN
        if not self._lock.acquire(timeout=_TURN):
            raise TransportError(
                f"other commits of this program have been sending for {_TURN} s; this one is not sent. It is in the "
                "changelog and reaches replicas later; see why the transport takes nothing"
            )
        try:
            if self._closing:
                raise ClosedError("this publisher is closed; the change is in the changelog and reaches replicas later")
            if not self._started:
                raise NotStarted("this publisher was not started, so it cannot send; call start() first")
            for envelope in self._core.publish(links, time.monotonic()):
                if sent and time.monotonic() > until:
                    raise TransportError(
                        f"sending a commit took longer than {_TURN} s, so the rest of it is not sent. It is in the "
                        "changelog and reaches replicas later; see why the transport takes so little"
                    )
                if self._journal is not None:
                    self._journal.messages(_SENT, envelope)
                self._driver.send_event(envelope)
                sent.append(envelope)
        finally:
            self._lock.release()

    def counters(self) -> Mapping[str, int]:
        """The driver's counters, and ``hellos`` that were sent to everybody, ``answers`` to questions, and ``unsent``
        ones of both kinds.
        """
        return {**self._driver.counters(), **self._counts}

    def running_for(self, now: float) -> float:
        """Seconds that the step of the hello thread which runs has taken so far; see
        :meth:`.PeriodicThread.running_for`.
        """
        return self._loop.running_for(now)

    def close(self) -> None:
        """Say goodbye, stop and release everything, within about 3 s. Idempotent."""
        if os.getpid() != self._pid:
            return
        self._stop_listening()
        with self._lock:
            if self._closing:
                return
            self._closing = True
            goodbye = self._core.goodbye(time.monotonic()) if self._initialized else None
        if goodbye is not None:
            with self._hello_lock:  # after the hello that is being sent now
                self._send_hello(goodbye)
        self._stop_listening()  # once more: start() may have begun to listen since
        self._loop.close(1.0)
        self._driver.close()
        if self._own_journal is not None:
            self._own_journal.close()

    def _on_hello_request(self, ask: HelloRequest) -> None:
        with self._lock:
            self._core.hello_requested(ask, time.monotonic())
        self._say_hellos()
        self._loop.wake()

    def _on_connected(self) -> None:
        with self._lock:
            self._core.connected(time.monotonic())
        self._loop.wake()

    def _step(self, now: float) -> float:
        self._say_hellos()
        with self._lock:
            reading = self._core.wants_reading(now)
            if reading:
                self._core.begin_reading()
        if reading:
            self._read_heads()
            self._say_hellos()
        with self._lock:
            return self._core.next_time()

    def _read_heads(self) -> None:
        began = time.monotonic()
        heads: Heads | None = None
        try:
            store = self._store.read_heads(()).store
            with self._lock:
                heads = self._core.heads_at(store, began)
            if heads is None:
                began = time.monotonic()
                heads = self._store.read_heads([ALL])
        except StoreError as error:
            _log.warning("cannot read the heads for hellos, trying again: %s", error)
        except Exception:  # noqa: BLE001 - this thread says hello: it lives whatever happens
            _log.exception("reading the heads broke; please report this")
        with self._lock:
            now = time.monotonic()
            if heads is None:
                self._core.heads_failed(now)
            else:
                self._core.heads_read(heads, began, now)

    def _say_hellos(self) -> None:
        """Send what is due. One that fails is not worth more than a count, the next comes soon; the rest would fail
        too, and takes as long.
        """
        while self._say_hello():
            pass

    def _say_hello(self) -> bool:
        """Send one, if one is due and nothing speaks against another."""
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

    def _send_hello(self, envelope: Envelope) -> bool:
        """Send it, without the lock; whether the transport took it."""
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


def _unsent(links: Sequence[Link], sent: Sequence[Envelope]) -> list[Link]:
    """The links that these envelopes do not hold whole: a large one left whole when its last part did."""
    whole = {
        (message.link.topic, message.link.point)
        for envelope in sent
        for message in envelope.messages
        if message.part == message.parts
    }
    return [link for link in links if (link.topic, link.point) not in whole]


def _load(settings: Settings) -> DriverPublisher:
    return contract.publisher(loader.load(settings.driver, settings.needs()), settings.for_driver())
