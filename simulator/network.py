"""The wire: frames from services to replicas, and hello requests back. Each way has a bounded queue and own faults."""

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from pubsub_lib.core.codec import decode, encode
from pubsub_lib.core.envelope import Envelope, HelloRequest
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL
from simulator.kernel import Kernel

LATENCY = (0.001, 0.008)
DELAY = (0.1, 3.0)
"""Seconds by which a message is delayed, together with all behind it in its queue."""
REORDER = (0.01, 0.3)
"""Seconds by which a message is delayed that others overtake."""


class Receiver(Protocol):
    """A replica, as the wire sees it."""

    name: str
    subscriptions: dict[str, None]

    def receive(self, envelope: Envelope) -> None:
        """An envelope arrived."""

    def connected(self) -> None:
        """A connection to a service was made; it has all subscriptions."""


class Answerer(Protocol):
    """A service, as the wire sees it."""

    name: str

    def ask(self, ask: HelloRequest) -> None:
        """A hello request arrived."""

    def connected(self) -> None:
        """A replica has connected."""


class Weather:
    """Probabilities of the faults of one message, and the ways that are cut."""

    def __init__(self) -> None:
        self.drop = 0.0
        self.duplicate = 0.0
        self.reorder = 0.0
        self.delay = 0.0
        self.cut: dict[tuple[str, str], str] = {}
        """(from, to) -> the fault that cut it."""
        self.refusing: set[str] = set()
        """Services whose transport refuses every message."""


class Network:
    """All links."""

    def __init__(self, kernel: Kernel, limits: Limits, hwm: int, count: Callable[[str], None]) -> None:
        self.weather = Weather()
        self.listeners: list[Callable[[Envelope], None]] = []
        """Called with each message that a service sends."""
        self.receivers: dict[str, Receiver] = {}
        self.answerers: dict[str, Answerer] = {}
        self.hwm = hwm
        self._kernel = kernel
        self._limits = limits
        self._count = count
        self._rng: random.Random = kernel.rng("network")
        self._fault_rng: random.Random = kernel.rng("network faults")
        self._last: dict[tuple[str, str], float] = {}
        self._flying: dict[tuple[str, str], int] = {}
        self._askers: dict[str, Receiver] = {}
        self.last_nonces: dict[str, str] = {}
        """The nonce of each replica's last hello request."""
        self._dice: random.Random = kernel.rng("connections")
        self.connected_at: dict[tuple[str, str], float] = {}
        """(service, replica) -> since when the service has the replica's subscriptions; missing while it has none."""

    def attach(self, name: str) -> None:
        """A service or a replica of this name was started: it is connected to all of the other kind."""
        services = [name] if name in self.answerers else list(self.answerers)
        replicas = [name] if name in self.receivers else list(self.receivers)
        for service in services:
            for replica in replicas:
                self.reconnect(service, replica)

    def cut(self, ways: Sequence[tuple[str, str]], kind: str) -> None:
        """Messages on these ways are lost from now on."""
        self.weather.cut.update(dict.fromkeys(ways, kind))

    def join(self, ways: Sequence[tuple[str, str]]) -> None:
        """These ways work again; the connections over those that were cut are made again."""
        joined = [way for way in ways if self.weather.cut.pop(way, None) is not None]
        for service, replica in dict.fromkeys(
            (source, target) if source in self.answerers else (target, source) for source, target in joined
        ):
            self.reconnect(service, replica)

    def reconnect(self, service: str, replica: str) -> None:
        """The connection ends, and the next one is made as soon as possible."""
        self.connected_at.pop((service, replica), None)
        answerer, receiver = self.answerers.get(service), self.receivers.get(replica)
        if answerer is not None and receiver is not None:
            when = self._kernel.now + self._dice.uniform(*LATENCY)
            self._kernel.at(when, self._connect, answerer, receiver)

    def _connect(self, answerer: Answerer, receiver: Receiver) -> None:
        way = answerer.name, receiver.name
        cut = self.weather.cut
        if way in cut or way[::-1] in cut:
            return  # made when both ways work
        if self.answerers.get(answerer.name) is answerer and self.receivers.get(receiver.name) is receiver:
            self._subscribe(*way)
            receiver.connected()
            answerer.connected()

    def _subscribe(self, service: str, replica: str) -> None:
        self.connected_at[service, replica] = self._kernel.now

    def send(self, sender: str, envelope: Envelope) -> None:
        """Send an envelope, as bytes, to all subscribers of its topic, and a hello reply to its requester."""
        received = decode(encode(envelope, self._limits), self._limits)
        for listener in self.listeners:
            listener(received)
        nonce = envelope.hello.nonce if envelope.hello is not None else ""
        for receiver in self._receivers(sender, nonce, envelope.topic):
            self._deliver(sender, receiver, received)

    def _receivers(self, sender: str, nonce: str, topic: str) -> Sequence[Receiver]:
        if nonce:
            asker = self._askers.get(nonce)
            return [asker] if asker is not None and self.receivers.get(asker.name) is asker else []
        # A broadcast hello has no topic.
        return [
            at
            for at in self.receivers.values()
            if (sender, at.name) in self.connected_at and (topic in (ALL, *at.subscriptions) or ALL in at.subscriptions)
        ]

    def ask(self, asker: Receiver, ask: HelloRequest) -> None:
        """Send a hello request to every service."""
        self._askers[ask.nonce] = asker
        self.last_nonces[asker.name] = ask.nonce
        for answerer in list(self.answerers.values()):
            self._fly(asker.name, answerer.name, lambda at=answerer: self._asked(at, ask))  # type: ignore[misc]

    def _asked(self, answerer: Answerer, ask: HelloRequest) -> None:
        if self.answerers.get(answerer.name) is answerer:
            answerer.ask(ask)

    def _deliver(self, sender: str, receiver: Receiver, envelope: Envelope) -> None:
        def arrive() -> None:
            # A connection ends with the process: messages on their way to the previous process are lost.
            if self.receivers.get(receiver.name) is receiver:
                receiver.receive(envelope)

        self._fly(sender, receiver.name, arrive)

    def _fly(self, source: str, target: str, arrive: Callable[[], None]) -> None:
        way = (source, target)
        cut = self.weather.cut.get(way)
        if cut is not None:
            self._count(cut)
            return
        flying = self._flying.get(way, 0)
        if flying >= self.hwm:
            self._count("overflow")
            return
        dice = self._fault_rng
        if dice.random() < self.weather.drop:
            self._count("drop")
            return
        self._launch(way, arrive)
        if dice.random() < self.weather.duplicate:
            self._count("duplicate")
            self._launch(way, arrive)

    def _launch(self, way: tuple[str, str], arrive: Callable[[], None]) -> None:
        now, dice = self._kernel.now, self._fault_rng
        when = now + self._rng.uniform(*LATENCY)
        if dice.random() < self.weather.delay:
            self._count("delay")
            when += dice.uniform(*DELAY)
        if dice.random() < self.weather.reorder:
            self._count("reorder")
            when += dice.uniform(*REORDER)
        else:
            when = max(when, self._last.get(way, 0.0))
            self._last[way] = when
        self._flying[way] = self._flying.get(way, 0) + 1
        self._kernel.at(when, self._land, way, arrive)

    def _land(self, way: tuple[str, str], arrive: Callable[[], None]) -> None:
        self._flying[way] -= 1
        arrive()
