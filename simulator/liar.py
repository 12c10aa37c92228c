"""A publisher that lies to replicas (rule 14).

It knows everything of the system, as an attacker who receives all messages does. So its links connect, and its hellos
prove them.
"""

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pubsub_lib.core.codec import decode, encode
from pubsub_lib.core.envelope import Envelope, Hello, Message
from pubsub_lib.core.model import ALL, Link
from simulator import hello_lies, link_lies, worker_lies
from simulator.directory import ENTRY
from simulator.liar_plan import LiarPlan
from simulator.network import LATENCY
from simulator.plan import LEASE_SECONDS

if TYPE_CHECKING:
    from simulator.replica import Replica
    from simulator.world import World

NAME: Final = "liar"
RECORDED: Final = 60
"""Maximum number of true messages that a liar keeps, to send them again."""
INVENTIONS: Final[Mapping[str, Callable[["Liar", "Replica"], None]]] = {
    "forged_link": link_lies.forge,
    "forged_digest": link_lies.forge_digest,
    "forged_unordered": link_lies.forge_unordered,
    "withheld": hello_lies.withhold,
    "hello_ahead": hello_lies.claim_ahead,
    "hello_another": hello_lies.claim_another,
    "hello_behind": hello_lies.claim_behind,
    "hello_digest": hello_lies.claim_digest,
    "hello_covered": hello_lies.claim_covered,
}
"""The lies that need no true message."""


class Liar:
    """One liar. It sends to one replica at a time, as a program at the address of its publisher can."""

    def __init__(self, world: "World", plan: LiarPlan, rng: random.Random) -> None:
        self.world = world
        self.rng = rng
        self._plan = plan
        self._uuid = f"{rng.getrandbits(128):032x}"
        world.lies.liars[self._uuid] = None
        if plan.identity == "own":
            world.lies.unleased[self._uuid] = None
        self._worker = self._uuid
        self._handed_over = 0
        self._sequences: dict[str, int] = {}
        self._recorded: deque[Envelope] = deque(maxlen=RECORDED)
        self._alters = 0
        """The number of true links that it alters next."""
        world.network.listeners.append(self._listen)
        world.kernel.at(plan.starts_at, self._step)

    def _step(self) -> None:
        world, rng = self.world, self.rng
        if world.kernel.now >= min(self._plan.ends_at, world.calm_since):
            self._alters = 0
            return
        self._identify()
        replicas = [replica for replica in world.replicas.values() if not replica.plan.polling]
        if replicas:
            self._lie(rng.choice(self._plan.lies), rng.choice(replicas))
        world.kernel.at(world.kernel.now + self._plan.period * rng.uniform(0.5, 1.5), self._step)

    def _lie(self, lie: str, replica: "Replica") -> None:
        self.world.count(lie)
        if lie == "replayed":
            for envelope in self.rng.sample(self._recorded, min(len(self._recorded), 3)):
                self._accuse(envelope)
                self._send(replica, envelope)
        elif lie == "rolled_back":
            worker_lies.hand_over(self, self._next_worker())
        elif lie == "altered":
            self._alters = 1
        else:
            INVENTIONS[lie](self, replica)

    def _identify(self) -> None:
        """Renew the lease, or take the UUID of the service that runs."""
        world = self.world
        if self._plan.identity == "leased":
            now = world.database.clock.now()
            world.database.store.acquire(ENTRY + self._uuid, self._uuid, LEASE_SECONDS, now)
        elif self._plan.identity == "stolen" and world.services:
            self._uuid = next(iter(world.services.values())).sender.publishing.uuid
            world.lies.stolen[self._uuid] = None

    def _accuse(self, envelope: Envelope) -> None:
        """A message that is sent again contradicts its publisher if the store does not contain its links any more."""
        history, head = self.world.history, self.world.database.store.state.point
        if not all(history.is_ancestor(ALL, message.link.point, head) for message in envelope.messages):
            self.world.lies.stolen[envelope.uuid] = None

    def _listen(self, envelope: Envelope) -> None:
        """A service sends a message."""
        self._recorded.append(envelope)
        if self._alters and envelope.messages and envelope.messages[0].link.point not in self.world.lies.forged:
            self._alters -= 1
            for replica in self.world.replicas.values():
                if not replica.plan.polling:
                    link_lies.alter(self, replica, envelope)

    # -- sending -----------------------------------------------------------------------------------------------------

    def send_links(self, replica: "Replica", links: Sequence[Link]) -> None:
        """Send links that were never committed, in one message."""
        if links:
            self._change()
            for link in links:
                self.world.lies.add(link, self._uuid)
            self._send(replica, self._envelope(links))

    def send_altered(self, replica: "Replica", link: Link) -> None:
        """Send an altered link at once: the true one arrives later."""
        self._change()
        self.world.kernel.at(self.world.kernel.now, self._arrive, replica, self._coded(self._envelope([link])))

    def send_hello(self, replica: "Replica", hello: Hello) -> None:
        """Send a hello."""
        self._change()
        self._send(replica, Envelope(NAME, self._uuid, ALL, 0, (), hello, self.world.database.store.store_id))

    def _change(self) -> None:
        """A liar that changes its UUID takes the next one. The checks of a publisher's exclusion need not know it."""
        if self._plan.identity == "changing":
            self._uuid = f"{self.rng.getrandbits(128):032x}"
            self._sequences.clear()
            self.world.lies.unleased[self._uuid] = None

    def _next_worker(self) -> str:
        """The UUID of the worker that hands over."""
        if self._plan.identity != "changing":
            return worker_lies.WORKER + self._worker
        self._handed_over += 1
        return f"{worker_lies.CHANGES}{self._worker} {self._handed_over}"

    def _envelope(self, links: Sequence[Link]) -> Envelope:
        topic = links[0].topic
        sequence = self._sequences.get(topic, 0) + 1
        self._sequences[topic] = sequence + len(links) - 1
        messages = [Message(link) for link in links]
        return Envelope(NAME, self._uuid, topic, sequence, messages, None, self.world.database.store.store_id)

    def _coded(self, envelope: Envelope) -> Envelope:
        limits = self.world.plan.limits
        return decode(encode(envelope, limits), limits)

    def _send(self, replica: "Replica", envelope: Envelope) -> None:
        kernel = self.world.kernel
        kernel.at(kernel.now + self.rng.uniform(*LATENCY), self._arrive, replica, self._coded(envelope))

    def _arrive(self, replica: "Replica", envelope: Envelope) -> None:
        if self.world.replicas.get(replica.name) is replica:
            replica.receive(envelope)
