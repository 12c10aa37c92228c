"""Lies by links. Each function sends one lie of a liar to a replica."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pubsub_lib.core.chain import Chain
from pubsub_lib.core.envelope import Envelope
from pubsub_lib.core.model import ALL, Link
from simulator.forgery import altered_link, forged_link, next_objects, with_false_digest
from simulator.invariants import content_of

if TYPE_CHECKING:
    from simulator.liar import Liar
    from simulator.replica import Replica


def forge(liar: "Liar", replica: "Replica") -> None:
    """A link that connects and has the right digest."""
    liar.send_links(replica, _forged(liar, replica, 1))


def forge_digest(liar: "Liar", replica: "Replica") -> None:
    """A link that connects and has a wrong digest."""
    liar.send_links(replica, [with_false_digest(liar.rng, link) for link in _forged(liar, replica, 1)])


def forge_unordered(liar: "Liar", replica: "Replica") -> None:
    """Two links that connect to each other, the second one first: it waits."""
    for link in reversed(_forged(liar, replica, 2)):
        liar.send_links(replica, [link])


def alter(liar: "Liar", replica: "Replica", true: Envelope) -> None:
    """A true link with another value, before the true one arrives. The point is a committed one."""
    message = true.messages[0]
    if message.parts != 1 or message.link.tx_links != 1:
        return
    if true.topic not in replica.topics and ALL not in replica.topics:
        return
    link = altered_link(liar.rng, message.link, content_of(replica, true.topic))
    if link is not None:
        liar.world.lies.altered[link.point] = None
        liar.send_altered(replica, link)


def _forged(liar: "Liar", replica: "Replica", number: int) -> list[Link]:
    """Forged links, one after the other, that connect to what the replica has now; none while it has nothing."""
    chains = [chain for chain in map(replica.replica_state.tracker.chain, replica.topics) if chain.known]
    if not chains:
        return []
    chain = liar.rng.choice(chains)
    topic = chain.name if chain.name != ALL else liar.rng.choice(liar.world.plan.topics)
    return _continued(liar, chain, topic, content_of(replica, topic), number)


def _continued(
    liar: "Liar", chain: Chain, topic: str, objects: Mapping[tuple[str, str], tuple[int, bytes]], number: int
) -> list[Link]:
    assert chain.known is not None
    tx_prev = chain.known
    prev = liar.world.database.store.head(topic).point if chain.name == ALL else chain.known
    links: list[Link] = []
    for _ in range(number):
        link = forged_link(liar.rng, topic, objects, prev, tx_prev)
        objects = next_objects(objects, link)
        prev = tx_prev = link.point
        links.append(link)
    return links
