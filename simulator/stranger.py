"""Programs of another store that publish here by mistake (rule 15): a worker at a service's socket, and a publisher at
an address that replicas listen to.

Their database is a copy of this one with a new id, made when the fault begins. So their links connect.
"""

import random
from typing import TYPE_CHECKING, Final

from pubsub_lib.core.envelope import Envelope, Hello
from pubsub_lib.core.model import ALL
from pubsub_lib.core.sequencer import Sequencer
from simulator.network import LATENCY
from simulator.plan import TIMING
from simulator.service import HandedOver
from simulator.store import ModelStore, Verb

if TYPE_CHECKING:
    from simulator.world import World

OTHER_ID: Final = bytes(range(16, 32))
NAME: Final = "stranger"


class Stranger:
    """One copy of the store, with its worker and its publisher."""

    def __init__(self, world: "World", rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._period = rng.uniform(0.02, 0.4)
        self._store = ModelStore(rng)
        self._store.store_id = OTHER_ID
        self._publishing = Sequencer(NAME, f"{rng.getrandbits(128):032x}", TIMING, world.plan.limits, 0.0)
        self._publishing.store_id = OTHER_ID
        self._running = False

    def begin(self) -> None:
        """Copy the store, and write into the copy until ``end``."""
        self._store.state = self._world.database.store.backup()
        self._world.count("foreign")
        self._running = True
        self._step()

    def end(self) -> None:
        """Stop; messages on their way still arrive."""
        self._running = False

    def _step(self) -> None:
        if not self._running:
            return
        rng, world = self._rng, self._world
        verb = Verb("set", "item", f"k{rng.randrange(4)}", b"%d" % rng.getrandbits(30), rng.choice(world.plan.topics))
        commit = self._store.commit([verb], "", 0.0)
        if commit is not None:
            for service in world.services.values():
                service.inbox.put(HandedOver(commit.links, OTHER_ID))
            for envelope in self._publishing.publish(commit.links, world.kernel.now):
                self._send(envelope)
        self._send(self._hello(""))
        for name, nonce in list(world.network.last_nonces.items()):
            if name in world.replicas:
                self._send(self._hello(nonce), name)
        world.kernel.at(world.kernel.now + self._period, self._step)

    def _hello(self, nonce: str) -> Envelope:
        heads = self._store.read_heads((ALL,))
        hello = Hello(dict.fromkeys(heads.topics, 0), heads.topics, heads.store, 0.0, nonce)
        return Envelope(NAME, self._publishing.uuid, ALL, 0, (), hello, OTHER_ID)

    def _send(self, envelope: Envelope, only: str = "") -> None:
        for name, replica in self._world.replicas.items():
            listens = envelope.topic == ALL or ALL in replica.subscriptions or envelope.topic in replica.subscriptions
            if listens and not replica.plan.polling and only in ("", name):
                delay = self._rng.uniform(*LATENCY)
                self._world.kernel.at(self._world.kernel.now + delay, self._arrive, name, envelope)

    def _arrive(self, name: str, envelope: Envelope) -> None:
        replica = self._world.replicas.get(name)
        if replica is not None:
            replica.receive(envelope)
