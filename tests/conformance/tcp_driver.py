"""A driver over the broker in ``tcp_broker.py``, written as docs/writing-a-driver.md describes."""

import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import ClassVar

from pubsub_lib.api import (
    Capabilities,
    Driver,
    DriverSettings,
    OnConnected,
    OnEnvelope,
    OnHelloRequest,
    Publisher,
    Subscriber,
)
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL
from pubsub_lib.driver_state import PublisherState, SubscriberState, check_topic
from pubsub_lib.errors import ConfigError, FrameError, TransportError
from pubsub_lib.threads.start import ReadyThread
from tests.conformance.tcp_broker import frames_of, message, packet, receive

_log = logging.getLogger("tcp_driver")

PAUSE = 0.02
FIRST_SECONDS = 5.0
STOP_SECONDS = 1.9
MAX_REQUESTS = 100


class Wire:
    """One connection to the broker, made again until ``stop``; a thread reads it, any thread writes to it."""

    def __init__(self, address: str) -> None:
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        self._where = host, int(port)
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self.stopped = threading.Event()

    def write(self, data: bytes) -> None:
        """Raises OSError without a connection, or when the connection has ended."""
        with self._lock:
            if self._connection is None:
                raise ConnectionResetError("the broker is unavailable")
            self._connection.sendall(data)

    def run(self, greet: Callable[[], bytes], take: Callable[[bytes, bytes], None]) -> None:
        """Repeatedly connect, write the greeting, and pass on the received packets."""
        while not self.stopped.is_set():
            try:
                with self._connected(greet) as connection:
                    while True:
                        take(*receive(connection))
            except OSError:
                self.pause()

    def pause(self) -> None:
        """Wait between two attempts."""
        self.stopped.wait(PAUSE)

    def stop(self) -> None:
        """End the connection and the thread."""
        self.stopped.set()
        with self._lock:
            if self._connection is not None:
                try:
                    self._connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # the broker ended it before

    @contextmanager
    def _connected(self, greet: Callable[[], bytes]) -> Iterator[socket.socket]:
        with socket.create_connection(self._where, 1.0) as connection:
            connection.settimeout(None)
            with self._lock:
                if self.stopped.is_set():
                    raise ConnectionAbortedError("closed meanwhile")
                # A registration from now on finds this connection, and waits for this lock.
                self._connection = connection
                connection.sendall(greet())
            try:
                yield connection
            finally:
                with self._lock:
                    self._connection = None


class TcpPublisher(Publisher):
    def __init__(self, address: str, limits: Limits) -> None:
        self._limits = limits
        self.wire = Wire(address)
        self._life = PublisherState()
        self._connected_once = threading.Event()
        self._counts = {"sent": 0, "callback_errors": 0}
        self._count_lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def initialize(self, on_hello_request: OnHelloRequest, on_connected: OnConnected) -> None:
        self._life.check_new()
        ready = ReadyThread("tcp-publisher")
        self._life.begin()
        self._thread = ready.thread
        ready.run(partial(self.wire.run, self.greeting, partial(self._take, on_hello_request, on_connected)))
        if not self._connected_once.wait(FIRST_SECONDS):
            self.close()
            raise TransportError("the broker is unavailable; start it")

    def greeting(self) -> bytes:
        return packet(b"P") + packet(b"Y")

    def _take(self, on_hello_request: OnHelloRequest, on_connected: OnConnected, kind: bytes, data: bytes) -> None:
        if kind == b"R":
            self._connected_once.set()
            self.notify(on_connected)
        elif kind == b"A":
            try:
                ask = codec.read_hello_request(data, self._limits)
            except FrameError:
                return
            self._call(partial(on_hello_request, ask))

    def notify(self, on_connected: OnConnected) -> None:
        self._call(on_connected)

    def _call(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except BaseException:  # noqa: BLE001 - a service's error must not end this thread
            self._count("callback_errors")
            _log.exception("a callback failed")

    def send_event(self, envelope: Envelope) -> None:
        self._life.check_open()
        data = message(*codec.encode(envelope, self._limits))
        try:
            self.wire.write(data)
        except OSError as error:
            raise TransportError(f"the broker is unavailable: {error}; connecting is retried") from error
        self._count("sent")

    def _count(self, name: str) -> None:
        with self._count_lock:
            self._counts[name] += 1

    def counters(self) -> Mapping[str, int]:
        return dict(self._counts)

    def close(self) -> None:
        if self._life.inherited:
            return
        self._life.closed = True
        self.wire.stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(STOP_SECONDS)


class TcpSubscriber(Subscriber):
    def __init__(self, address: str, limits: Limits) -> None:
        self._limits = limits
        self.wire = Wire(address)
        self._lock = threading.Lock()
        self._prefixes = {codec.topic_frame(ALL)}
        self._nonces: deque[bytes] = deque(maxlen=MAX_REQUESTS)
        self.life = SubscriberState(self._lock, _log)

    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        self.life.initialize(on_envelope, on_connected)

    def register_topic(self, topic: str) -> None:
        self._change(self._prefixes.add, b"S", codec.subscription(check_topic(topic)))

    def unregister_topic(self, topic: str) -> None:
        self._change(self._prefixes.discard, b"U", codec.subscription(check_topic(topic)))

    def register_listen_address(self, address: str) -> None:
        self.life.check_open()

    def unregister_listen_address(self, address: str) -> None:
        self.life.check_open()

    def request_hello(self, nonce: str, topics: Collection[str]) -> None:
        request = packet(b"A", codec.hello_request_frame(nonce, topics))
        self._change(self._nonces.append, b"S", codec.private_frame(nonce), request)

    def _change(self, note: Callable[[bytes], None], kind: bytes, prefix: bytes, more: bytes = b"") -> None:
        self.life.check_open()
        note(prefix)
        try:
            self.wire.write(packet(kind, prefix) + more)
        except OSError:
            pass  # the greeting of the next connection contains all of them

    def greeting(self) -> bytes:
        return b"".join(packet(b"S", each) for each in (*self._prefixes, *self._nonces)) + packet(b"Y")

    def daemonize(self) -> None:
        self.life.start("tcp-subscriber", lambda: partial(self.wire.run, self.greeting, self._take))

    def _take(self, kind: bytes, data: bytes) -> None:
        if self.life.closed:
            return
        if kind == b"R":
            self.notify()
            return
        try:
            envelope = codec.decode(frames_of(data), self._limits)
        except FrameError as error:
            self.life.drop(error)
            return
        self.life.counts["received"] += 1
        self.life.deliver(envelope)

    def notify(self) -> None:
        self.life.connected()

    def counters(self) -> Mapping[str, int]:
        self.life.check_process()
        return dict(self.life.counts)

    def close(self) -> None:
        self.life.close(self.wire.stop, STOP_SECONDS)


class TcpDriver(Driver):
    name: ClassVar[str] = "tcp"
    capabilities: ClassVar[Capabilities] = Capabilities(
        bind_based=False, cross_process=True, cross_host=True, ordered=True
    )
    publisher_kind: ClassVar[type[TcpPublisher]] = TcpPublisher
    subscriber_kind: ClassVar[type[TcpSubscriber]] = TcpSubscriber

    @classmethod
    def publisher(cls, settings: DriverSettings) -> Publisher:
        return cls.publisher_kind(_address(settings), settings.limits)

    @classmethod
    def subscriber(cls, settings: DriverSettings) -> Subscriber:
        return cls.subscriber_kind(_address(settings), settings.limits)


def _address(settings: DriverSettings) -> str:
    if settings.options:
        raise ConfigError(f"the tcp driver has no options, but was given {sorted(settings.options)}; remove them")
    return settings.addresses[0] if settings.addresses else "tcp://127.0.0.1:1"
