"""A driver over the broker in ``tcp_broker.py``, written as docs/writing-a-driver.md describes."""

import logging
import threading
from collections.abc import Callable, Collection, Mapping
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
from pubsub_lib.driver_state import PublisherState, SubscriberState
from pubsub_lib.errors import ConfigError, TransportError
from pubsub_lib.hello_requests import HelloRequests
from pubsub_lib.subscriptions import Subscriptions
from pubsub_lib.threads.start import ReadyThread
from tests.conformance.tcp_broker import frames_of, message, packet
from tests.conformance.tcp_client import Wire

_log = logging.getLogger("tcp_driver")

FIRST_SECONDS = 5.0
STOP_SECONDS = 1.9


class TcpPublisher(Publisher):
    def __init__(self, address: str, limits: Limits) -> None:
        self._limits = limits
        self.wire = Wire(address)
        self._life = PublisherState()
        self._connected_once = threading.Event()
        self._asks = HelloRequests(limits)
        self._sent = 0
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
            self._asks.pass_on(data, on_hello_request)

    def notify(self, on_connected: OnConnected) -> None:
        self._asks.call(on_connected)

    def send_event(self, envelope: Envelope) -> None:
        self._life.check_open()
        data = message(*codec.encode(envelope, self._limits))
        try:
            self.wire.write(data)
        except OSError as error:
            raise TransportError(f"the broker is unavailable: {error}; connecting is retried") from error
        with self._count_lock:
            self._sent += 1

    def counters(self) -> Mapping[str, int]:
        return {"sent": self._sent, **self._asks.counts}

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
        self._subscriptions = Subscriptions()
        self.life = SubscriberState(self._lock, _log)

    def initialize(self, on_envelope: OnEnvelope, on_connected: OnConnected) -> None:
        self.life.initialize(on_envelope, on_connected)

    def register_topic(self, topic: str) -> None:
        self._change(lambda: packet(b"S", self._subscriptions.add(topic)))

    def unregister_topic(self, topic: str) -> None:
        self._change(lambda: packet(b"U", self._subscriptions.discard(topic)))

    def request_hello(self, nonce: str, topics: Collection[str]) -> None:
        request = packet(b"A", codec.hello_request_frame(nonce, topics))

        def change() -> bytes:
            prefix, ended = self._subscriptions.add_replies(nonce)
            return packet(b"S", prefix) + request + (packet(b"U", ended) if ended is not None else b"")

        self._change(change)

    def _change(self, change: Callable[[], bytes]) -> None:
        self.life.check_open()
        with self._lock:
            order = change()
        try:
            self.wire.write(order)
        except OSError:
            pass  # the greeting of the next connection contains all of them

    def greeting(self) -> bytes:
        with self._lock:
            prefixes = self._subscriptions.prefixes()
        return b"".join(packet(b"S", each) for each in prefixes) + packet(b"Y")

    def daemonize(self) -> None:
        self.life.start("tcp-subscriber", lambda: partial(self.wire.run, self.greeting, self._take))

    def _take(self, kind: bytes, data: bytes) -> None:
        if self.life.closed:
            return
        if kind == b"R":
            self.notify()
            return
        self.life.receive(frames_of(data), self._limits)

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

    @classmethod
    def publisher(cls, settings: DriverSettings) -> Publisher:
        return TcpPublisher(_address(settings), settings.limits)

    @classmethod
    def subscriber(cls, settings: DriverSettings) -> Subscriber:
        return TcpSubscriber(_address(settings), settings.limits)


def _address(settings: DriverSettings) -> str:
    if settings.options:
        raise ConfigError(f"the tcp driver has no options, but was given {sorted(settings.options)}; remove them")
    return settings.addresses[0] if settings.addresses else "tcp://127.0.0.1:1"
