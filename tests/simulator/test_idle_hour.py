"""An hour without writes, in virtual time: no lease is lost, no replica syncs, and every replica stays fresh."""

import msgspec
import pytest

from simulator import kernel
from simulator.kernel import Kernel
from simulator.plan import LEASE_SECONDS, TIMING, Cuts, ReplicaPlan, draw
from simulator.quiescence import SLACK, at_rest
from simulator.service import SERVICE
from simulator.world import World

HOUR = 3600.0
LOOK = 0.5
"""Seconds between two checks; each lease is renewed every second."""
SETTLED = 15.0
"""Seconds after which every replica has had its first sync and has all writes."""
FRESH = TIMING.max_idle_time + TIMING.reading_age + TIMING.round_trip + SLACK

REPLICAS = (
    ReplicaPlan(topics=("",), polling=False, starts_at=0.0, changes_topics=False, queue_limit=100),
    ReplicaPlan(topics=("t0", "t1"), polling=False, starts_at=0.0, changes_topics=False, queue_limit=100),
    ReplicaPlan(topics=("t1",), polling=True, starts_at=0.0, changes_topics=False, queue_limit=100),
)


def idle_world(seed: int) -> World:
    """Two services and three replicas, one of which polls; twenty transactions in the first seconds, then nothing."""
    plan = msgspec.structs.replace(
        draw(4 * seed, Cuts(calm=SETTLED, ops=20)),  # such seeds have no faults and no small queues
        topics=("t0", "t1"),
        writers=1,
        services=(0.0, 0.0),
        replicas=REPLICAS,
        gap=0.05,
        quiet=True,
    )
    return World(plan, Kernel(seed))


def syncs_of(world: World) -> dict[str, int]:
    """Syncs begun by each replica, of both kinds."""
    counters = {name: replica.replica_state.tracker.counters for name, replica in world.replicas.items()}
    return {name: sum(each.deltas.values()) + sum(each.fulls.values()) for name, each in counters.items()}


def holders(world: World) -> list[str]:
    """Services that are certain to hold the lease for orphans."""
    return [name for name, each in world.services.items() if each.orphans.held(each.process.clock.now())]


@pytest.mark.long
def test_idle_hour_loses_no_lease_and_starts_no_sync(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "MAX_STEPS", 1_000_000)  # meant for the half minute of a seed
    world = idle_world(seed)
    world.kernel.run(SETTLED)
    for replica in world.replicas.values():
        at_rest(world, replica)
    syncs, held = syncs_of(world), holders(world)
    assert len(held) == 1
    assert world.history.transactions > 0
    while world.kernel.now < HOUR:
        world.kernel.run(world.kernel.now + LOOK)
        world.monitor.sweep(world.replicas.values())
        at = f"after {world.kernel.now:.1f} s"
        assert holders(world) == held, f"{at}: the lease changed hands"
        entered = world.database.store.live(SERVICE, world.database.clock.now())
        assert sorted(entered) == ["service0", "service1"], f"{at}: a service's entry expired"
        for each in world.services.values():
            assert each.own_lease.held(each.process.clock.now()), f"{at}: {each.name} is not certain of its entry"
        for name, replica in world.replicas.items():
            staleness = replica.replica_state.tracker.staleness(replica.clock.now())
            assert staleness <= FRESH, f"{at}: {name} may be stale by {staleness:.3f} s"
    assert syncs_of(world) == syncs
    for replica in world.replicas.values():
        at_rest(world, replica)
    assert world.kernel.now / LEASE_SECONDS > 1000  # the run lasted for more than 1,000 lease times


def test_check_of_leases_detects_a_lost_lease(seed: int) -> None:
    """The same check, when the holder is paused for longer than its lease: another service has the lease then."""
    world = idle_world(seed)
    world.kernel.run(SETTLED)
    (held,) = holders(world)
    world.services[held].process.pause(3 * LEASE_SECONDS)
    world.kernel.run(world.kernel.now + 2 * LEASE_SECONDS)
    assert holders(world) not in ([held], [])
