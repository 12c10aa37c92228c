"""Two services with the same lease: they never both hold it, however long the database takes."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from pubsub_lib.service.leases import MAINTENANCE, ORPHANS, Leases
from pubsub_lib.service.name_conflicts import ServiceLease
from pubsub_lib.threads.periodic_thread import PeriodicThread
from tests.scheduler.explore import World, explore

SECONDS = 3.0


class DirectoryDouble:
    """The directory in the database. ``latency``: from the call to the row's change, and again to the answer."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.latency = 0.0
        self._entries: dict[str, tuple[ServiceLease, float]] = {}
        self._leases: dict[str, tuple[str, float]] = {}
        self.registrations: list[tuple[ServiceLease, float]] = []
        """Each with its time."""
        self.granted: dict[tuple[str, str], float] = {}
        """(lease, holder) → time of the last grant."""

    def register(
        self, service: str, uuid: str, address: str, lease_seconds: float, public_key: str = "", role: str = ""
    ) -> None:
        self._take()
        until = self.world.now + lease_seconds
        entry = _Entry(service, uuid, address, round(until * 1e6))
        self._entries[uuid] = (entry, until)
        self.registrations.append((entry, self.world.now))
        self._take()

    def unregister(self, uuid: str) -> bool:
        return self._entries.pop(uuid, None) is not None

    def live(self) -> Sequence[ServiceLease]:
        self._take()
        found = [entry for entry, until in self._entries.values() if until > self.world.now]
        self._take()
        return found

    def acquire(self, name: str, holder: str, seconds: float) -> bool:
        self._take()
        mine = self.holder(name) in (None, holder)
        if mine:
            self._leases[name] = (holder, self.world.now + seconds)
            self.granted[name, holder] = self.world.now
        self._take()
        return mine

    def release(self, name: str, holder: str) -> bool:
        return self._leases.pop(name, None) is not None

    def holder(self, name: str) -> str | None:
        holder, until = self._leases.get(name, ("", 0.0))
        return holder if until > self.world.now else None

    def registered(self, uuid: str) -> bool:
        """Whether the entry exists now."""
        return uuid in self._entries and self._entries[uuid][1] > self.world.now

    def _take(self) -> None:
        self.world.sleep(self.latency)


class _Entry(NamedTuple):
    service: str
    uuid: str
    address: str
    lease_until: int
    seconds_left: float = SECONDS
    role: str = "origin"


def services(world: World, directory: DirectoryDouble) -> list[Leases]:
    """Two running services."""
    made = [
        Leases(directory, name, uuid, f"tcp://{name}", SECONDS, world.now) for name, uuid in (("a", "1"), ("b", "2"))
    ]
    for each in made:
        PeriodicThread("leases", each.step).start()
    return made


@pytest.mark.parametrize("slow", [0.0, 1.0, 2.0])
def test_lease_has_one_holder_and_no_service_uses_an_expired_entry(slow: float) -> None:
    def scenario(world: World) -> None:
        directory = DirectoryDouble(world)
        made = services(world, directory)

        def look() -> None:
            for _ in range(60):
                world.sleep(0.25)
                for name in (ORPHANS, MAINTENANCE):
                    holders = [each for each in made if each.holds(name, world.now)]
                    world.check(len(holders) <= 1, f"two services hold {name!r}")
                for each, uuid in zip(made, "12", strict=True):
                    there = directory.registered(uuid) or not each.registered(world.now)
                    world.check(there, "a service uses an expired entry")

        def grow_slow() -> None:
            world.sleep(4.0)
            directory.latency = slow
            world.sleep(6.0)
            directory.latency = 0.0

        world.together(look, grow_slow)
        world.check(any(each.holds(ORPHANS, world.now) for each in made), "no service holds the lease")

    explore(scenario, seeds=range(60))


def test_holder_of_orphans_knows_all_services_registered_before_the_grant() -> None:
    def scenario(world: World) -> None:
        directory = DirectoryDouble(world)
        directory.latency = 0.1
        first, second = (checked(world, directory, name, uuid) for name, uuid in (("a", "1"), ("b", "2")))
        PeriodicThread("leases", first.step).start()
        world.sleep(world.rng.uniform(0.0, 3.0))
        PeriodicThread("leases", second.step).start()
        world.sleep(4.0)

    explore(scenario, seeds=range(80))


def checked(world: World, directory: DirectoryDouble, service: str, uuid: str) -> Leases:
    """Leases that check after each step which services they consider live."""

    class Checked(Leases):
        def step(self, now: float) -> float:
            again = super().step(now)
            live, holds = self.orphans(world.now)
            granted = directory.granted.get((ORPHANS, uuid), 0.0)
            before = {entry.service for entry, at in directory.registrations if at < granted}
            world.check(
                not holds or before <= set(live), f"of {sorted(before)} only {sorted(live)} are considered live"
            )
            return again

    return Checked(directory, service, uuid, f"tcp://{service}", SECONDS, world.now)
