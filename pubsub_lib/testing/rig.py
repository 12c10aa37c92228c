"""The base of the conformance suite: the driver under test, its senders and listeners, and waits with deadlines."""

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from pubsub_lib import contract
from pubsub_lib.api import Driver, DriverSettings, Publisher, Subscriber
from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope, Hello, HelloRequest
from pubsub_lib.core.model import ZERO, Change, Link, Point
from pubsub_lib.errors import TransportError
from pubsub_lib.testing.collector import Collector, Connections

FIRST_PAUSE: Final = 0.01
"""Seconds between two probes of ``settle``: the first pause, because the first probe is often sent too early."""
MAX_PAUSE: Final = 0.25
"""The longest pause; each one is twice the one before."""


@dataclass
class Rig:
    """A driver under test. The author of a driver writes only a fixture that returns it.

    ``inject``: send raw frames, as any process could, to every subscriber of the topic in the first frame.
    ``write``: for a driver with ``carries_envelopes=False``, change the database: (topic, {key: value}) -> its link.
    ``cut``: for a driver with ``connections``, end every connection between the halves (or to the broker) and refuse
    new ones. ``restore``: accept connections again. Both return when that is done. The halves must detect both.
    :class:`pubsub_lib.testing.stream_proxy.StreamProxy` has both for TCP and for Unix sockets.
    ``ask``: send a raw hello request, as any process could, to every publisher: the bytes that
    :func:`pubsub_lib.core.codec.read_hello_request` reads, in whatever the driver puts around them. Optional.
    ``stall``: let the peers of all connections read nothing, without an end of the connections, until ``resume``.
    Optional; StreamProxy has both.
    ``patience``: seconds after which a check fails when the expected event did not happen; read at the start of each
    wait, so that a rig may change it.
    """

    driver: type[Driver]
    settings: DriverSettings
    inject: Callable[..., object] | None = None
    write: Callable[[str, Mapping[str, str]], Link] | None = None
    cut: Callable[[], object] | None = None
    restore: Callable[[], object] | None = None
    patience: float = 30.0
    ask: Callable[[bytes], object] | None = None
    stall: Callable[[], object] | None = None
    resume: Callable[[], object] | None = None


@dataclass
class Listener:
    """A subscriber and what it received."""

    subscriber: Subscriber
    received: Collector
    connected: Connections = field(default_factory=Connections)


@dataclass
class Sender:
    """A publisher with the state that a service keeps: its UUID, its sequences, and the hello requests that came."""

    publisher: Publisher
    asks: list[HelloRequest] = field(default_factory=list)
    connected: Connections = field(default_factory=Connections)
    uuid: str = field(default_factory=lambda: uuid.uuid4().hex)
    _sequences: Counter[str] = field(default_factory=Counter)

    def envelopes(self, link: Link, settings: DriverSettings) -> list[Envelope]:
        """Make one envelope for each message of the link."""
        made = []
        for message in codec.split(link, settings.limits):
            self._sequences[link.topic] += 1
            made.append(Envelope("conformance", self.uuid, link.topic, self._sequences[link.topic], [message]))
        return made

    def hello(self, nonce: str = "", topic: str = "") -> Envelope:
        """Make an empty hello, with the port of a sync channel; with a nonce, a hello reply."""
        return Envelope("conformance", self.uuid, topic, 0, [], Hello({}, {}, ZERO, 0.0, nonce, serves=8867))


class Scene:
    """The endpoints of one test and the history that they share. Closes all endpoints that it opened."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self._open: list[Publisher | Subscriber] = []
        self._heads: dict[str, Point] = {}
        self._last = ZERO
        self._sender: Sender | None = None
        self._writing = threading.Lock()

    @property
    def sender(self) -> Sender:
        """The publisher that ``send`` uses."""
        if self._sender is None:
            self._sender = self.publisher()
        return self._sender

    def publisher(self, on_hello_request: Callable[[HelloRequest], None] | None = None) -> Sender:
        """Make a new initialized publisher; by default it only stores hello requests."""
        sender = Sender(contract.publisher(self.rig.driver, self.rig.settings))
        self._open.append(sender.publisher)
        sender.publisher.initialize(on_hello_request or sender.asks.append, sender.connected)
        return sender

    def answering(self) -> Sender:
        """Make a publisher that answers every hello request; ``send`` uses it from now on."""
        there = threading.Event()

        def answer(ask: HelloRequest) -> None:
            there.wait(self.rig.patience)  # a request may be earlier than the return of ``initialize``
            made.asks.append(ask)
            made.publisher.send_event(made.hello(ask.nonce))

        made = self._sender = self.publisher(answer)
        there.set()
        return made

    def subscriber(self, *topics: str, start: bool = True) -> Listener:
        """Make a new subscriber of these topics; running if ``start``."""
        made = contract.subscriber(self.rig.driver, self.rig.settings)
        self._open.append(made)
        listener = Listener(made, Collector(lambda: self.rig.patience))
        made.initialize(listener.received, listener.connected)
        for topic in topics:
            made.register_topic(topic)
        if start:
            made.daemonize()
        return listener

    def link(self, topic: str, values: Mapping[str, str] | None = None) -> Link:
        """Make the next link of this scene's history, without sending it. Any thread: the history has one order."""
        with self._writing:
            position = self._last.position
            changes = [
                Change("conformance", key, "set", position + number, value.encode())
                for number, (key, value) in enumerate((values or {"key": '"value"'}).items(), 1)
            ]
            point = Point(position + len(changes), position + 1000)
            link = Link(topic, self._heads.get(topic, ZERO), point, changes, len(changes), 0, self._last, 1)
            self._heads[topic] = self._last = point
            return link

    def send(self, topic: str, values: Mapping[str, str] | None = None) -> Link:
        """Publish a change to the subscribers of this topic, in the driver's way: by a message, or by the database."""
        if self.rig.write is not None:
            return self.rig.write(topic, values or {"key": f'"{time.monotonic_ns()}"'})
        link = self.link(topic, values)
        for envelope in self.sender.envelopes(link, self.rig.settings):
            self.sender.publisher.send_event(envelope)
        return link

    def try_send(self, topic: str) -> Link | None:
        """Send one change; return None when the transport refuses it by TransportError."""
        try:
            return self.send(topic)
        except TransportError:
            return None

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """Cut all connections inside the block, and restore them at its end."""
        assert self.rig.cut is not None
        assert self.rig.restore is not None
        self.rig.cut()
        try:
            yield
        finally:
            self.rig.restore()

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Let the peers of all connections read nothing inside the block."""
        assert self.rig.stall is not None
        assert self.rig.resume is not None
        self.rig.stall()
        try:
            yield
        finally:
            self.rig.resume()

    def listening(self, *topics: str) -> Listener:
        """Make a running subscriber that already receives all these topics."""
        listener = self.subscriber(*topics)
        self.settle(listener, *topics)
        return listener

    def settle(self, listener: Listener, *topics: str) -> None:
        """Wait until the listener receives these topics: send probes until one arrives ("within a bounded time").

        For ``ALL``, a probe on any topic is enough. The transport may refuse probes, as it may after a cut.
        """
        for topic in topics:
            self._settle(listener, topic or "conformance-probe")

    def _settle(self, listener: Listener, topic: str) -> None:
        probes: set[Point] = set()

        def arrived() -> bool:
            return not probes.isdisjoint(listener.received.points(topic))

        deadline = time.monotonic() + self.rig.patience
        pause = FIRST_PAUSE
        while not arrived():
            if time.monotonic() > deadline:
                raise AssertionError(f"a subscriber of {topic!r} received nothing on it in {self.rig.patience} s")
            probe = self.try_send(topic)
            if probe is not None:
                probes.add(probe.point)
            listener.received.waits(arrived, pause)
            pause = min(2 * pause, MAX_PAUSE)

    def wait_for(self, listener: Listener, link: Link) -> None:
        """Wait until the listener has received the whole link."""
        listener.received.until(
            lambda: link.point in listener.received.points(link.topic),
            f"the link {link.point} on {link.topic!r} came",
        )

    def fence(self, listener: Listener, topic: str) -> None:
        """Send a link on this topic and wait for it. A link sent before that has not arrived then never will."""
        self.wait_for(listener, self.send(topic))

    def close(self) -> None:
        """Close every endpoint."""
        for endpoint in self._open:
            endpoint.close()


@contextmanager
def scene(rig: Rig) -> Iterator[Scene]:
    """Make a scene and close it at the end."""
    made = Scene(rig)
    try:
        yield made
    finally:
        made.close()


__all__ = ["FIRST_PAUSE", "MAX_PAUSE", "Collector", "Connections", "Listener", "Rig", "Scene", "Sender", "scene"]
