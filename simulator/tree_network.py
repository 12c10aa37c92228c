"""The wire of a tree: each receiver listens to its parents only, and asks its parent for syncs."""

from collections.abc import Callable, Sequence
from typing import Protocol, cast

from pubsub_lib.core.envelope import HelloRequest
from simulator.network import LATENCY, Network, Receiver


class Child(Receiver, Protocol):
    """A receiver that chooses its publishers."""

    def listens_to(self, publisher: str) -> bool:
        """Whether it listens to this publisher."""


class TreeNetwork(Network):
    """Connections along the tree."""

    def attach(self, name: str) -> None:
        """A publisher or receiver of this name was started."""
        for publisher in list(self.answerers):
            for receiver in list(self.receivers):
                if name in (publisher, receiver) and self._listens(receiver, publisher):
                    self.reconnect(publisher, receiver)

    def moved(self, name: str) -> None:
        """A receiver listens to another publisher: the old connection ends."""
        for publisher in list(self.answerers):
            self.connected_at.pop((publisher, name), None)
            if self._listens(name, publisher):
                self.reconnect(publisher, name)

    def call(self, source: str, target: str, arrive: Callable[[], None]) -> None:
        """A message of the sync channel: it arrives whole and in order, or not at all."""
        if (source, target) in self.weather.cut:
            self._count(self.weather.cut[source, target])
            return
        self._kernel.at(self._kernel.now + self._rng.uniform(*LATENCY), arrive)

    def _listens(self, receiver: str, publisher: str) -> bool:
        found = self.receivers.get(receiver)
        return found is not None and cast("Child", found).listens_to(publisher)

    def _subscribe(self, service: str, replica: str) -> None:
        if self._listens(replica, service):  # else it moved while the connection was made
            super()._subscribe(service, replica)

    def _receivers(self, sender: str, nonce: str, topic: str) -> Sequence[Receiver]:
        return [at for at in super()._receivers(sender, nonce, topic) if cast("Child", at).listens_to(sender)]

    def ask(self, asker: Receiver, ask: HelloRequest) -> None:
        """Send a hello request to the publishers that the asker listens to."""
        self._askers[ask.nonce] = asker
        self.last_nonces[asker.name] = ask.nonce
        for answerer in list(self.answerers.values()):
            if cast("Child", asker).listens_to(answerer.name):
                self._fly(asker.name, answerer.name, lambda at=answerer: self._asked(at, ask))  # type: ignore[misc]
