"""A worker that hands over the links of a transaction that was rolled back."""

from typing import TYPE_CHECKING, Final

from simulator.service import HandedOver
from simulator.store import ModelStore, Verb

if TYPE_CHECKING:
    from simulator.liar import Liar

WORKER: Final = "liar "
"""With the UUID of the liar behind it: the UUID of the worker."""
CHANGES: Final = "liars "
"""The same of a worker that has another UUID for each lie: the UUID of the liar is followed by a number."""


def is_changing(worker: str) -> bool:
    """Whether this is one of the UUIDs of a worker that has another one for each lie."""
    return worker.startswith(CHANGES)


def hand_over(liar: "Liar", worker: str) -> None:
    """Write into a copy of the store, which is then dropped, and hand the links over to a service."""
    world, rng = liar.world, liar.rng
    services = list(world.services.values())
    if not services:
        return
    service, copy = rng.choice(services), ModelStore(rng)
    copy.state = world.database.store.backup()
    value = b'{"lie":%d}' % rng.getrandbits(30)
    commit = copy.commit([Verb("set", "lport", "invented", value, rng.choice(world.plan.topics))], service.name, 0.0)
    if commit is None:
        return
    for link in commit.links:
        world.lies.add(link, service.sender.publishing.uuid)
        world.lies.rolled_back[link.point] = worker
    service.inbox.put(HandedOver(commit.links, world.database.store.store_id, worker))
