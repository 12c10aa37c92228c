"""A publisher that lies to replicas (rule 14).

It knows everything of the system, as an attacker who receives all messages does. So its links connect, and its hellos
prove them.
"""

import random
from typing import TYPE_CHECKING, Final

from pubsub_lib.core.codec import decode, encode
from pubsub_lib.core.envelope import Envelope, Hello, Message
from pubsub_lib.core.model import ALL, Head, Link, Point
from simulator.directory import ENTRY
from simulator.forgery import Objects, digest_of, forged_link
from simulator.invariants import content_of
from simulator.liar_plan import LiarPlan
from simulator.network import LATENCY
from simulator.plan import LEASE_SECONDS

if TYPE_CHECKING:
    from simulator.replica import Replica
    from simulator.world import World

NAME: Final = "liar"


class Liar:
    """One liar. It sends to one replica at a time, as a program at the address of its publisher can."""

    def __init__(self, world: "World", plan: LiarPlan, rng: random.Random) -> None:
        self._world = world
        self._plan = plan
        self._rng = rng
        self._uuid = f"{rng.getrandbits(128):032x}"
        self._sequences: dict[str, int] = {}
        world.kernel.at(plan.starts_at, self._step)

    def _step(self) -> None:
        world, rng = self._world, self._rng
        if world.kernel.now >= min(self._plan.ends_at, world.calm_since):
            return
        self._identify()
        replicas = [replica for replica in world.replicas.values() if not replica.plan.polling]
        if replicas:
            lie = rng.choice(self._plan.lies)
            world.count(lie)
            getattr(self, "_" + lie)(rng.choice(replicas))
        world.kernel.at(world.kernel.now + self._plan.period * rng.uniform(0.5, 1.5), self._step)

    def _identify(self) -> None:
        """Renew the lease, or take the UUID of the service that runs."""
        world = self._world
        if self._plan.identity == "leased":
            now = world.database.clock.now()
            world.database.store.acquire(ENTRY + self._uuid, self._uuid, LEASE_SECONDS, now)
        elif self._plan.identity == "stolen" and world.services:
            self._uuid = next(iter(world.services.values())).sender.publishing.uuid
            world.lies.stolen[self._uuid] = None

    # -- lies --------------------------------------------------------------------------------------------------------

    def _forged_link(self, replica: "Replica") -> None:
        """A link with a right digest."""
        link = self._link(replica)
        if link is not None:
            self._send_link(replica, link)

    def _withheld(self, replica: "Replica") -> None:
        """A reply to the replica's last hello request: the heads are what the replica has."""
        tracker = replica.replica_state.tracker
        heads: dict[str, Head] = {}
        points = [Point(0, 0)]
        for name in tracker.topics:
            known = tracker.chain(name).known
            if known is not None:
                points.append(known)
                if name != ALL:
                    heads[name] = Head(known, *digest_of(content_of(replica, name)))
        store = max(points, key=lambda point: point.position)
        self._send_hello(replica, Hello(dict.fromkeys(heads, 0), heads, store, 0.0, self._nonce(replica)))

    # -- parts of lies -----------------------------------------------------------------------------------------------

    def _link(self, replica: "Replica") -> Link | None:
        """A forged link that connects to what the replica has now; None while it has nothing."""
        chains = [chain for chain in map(replica.replica_state.tracker.chain, replica.topics) if chain.known]
        if not chains:
            return None
        chain = self._rng.choice(chains)
        assert chain.known is not None
        store = self._world.database.store
        if chain.name != ALL:
            objects: Objects = content_of(replica, chain.name)
            return forged_link(self._rng, chain.name, objects, chain.known, chain.known)
        topic = self._rng.choice(self._world.plan.topics)
        return forged_link(self._rng, topic, content_of(replica, topic), store.head(topic).point, chain.known)

    def _nonce(self, replica: "Replica") -> str:
        return self._world.network.last_nonces.get(replica.name, "")

    def _send_link(self, replica: "Replica", link: Link) -> None:
        self._world.lies.add(link, self._uuid)
        sequence = self._sequences[link.topic] = self._sequences.get(link.topic, 0) + 1
        store_id = self._world.database.store.store_id
        self._send(replica, Envelope(NAME, self._uuid, link.topic, sequence, [Message(link)], None, store_id))

    def _send_hello(self, replica: "Replica", hello: Hello) -> None:
        self._send(replica, Envelope(NAME, self._uuid, ALL, 0, (), hello, self._world.database.store.store_id))

    def _send(self, replica: "Replica", envelope: Envelope) -> None:
        limits, kernel = self._world.plan.limits, self._world.kernel
        received = decode(encode(envelope, limits), limits)
        kernel.at(kernel.now + self._rng.uniform(*LATENCY), self._arrive, replica, received)

    def _arrive(self, replica: "Replica", envelope: Envelope) -> None:
        if self._world.replicas.get(replica.name) is replica:
            replica.receive(envelope)
