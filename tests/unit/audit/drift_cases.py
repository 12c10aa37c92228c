"""Known answers about clocks that drift: long journals of two hosts, one of which has a clock that is fast or slow.

Hello requests compare the clocks all the time.
"""

import random
from collections.abc import Callable

import msgspec

from pubsub_lib.journal.rows import Row
from tests.unit.audit.generator import BEGIN, BOUND, GRACE, HOUR, SILENCE, Participant
from tests.unit.audit.scenario import Scenario

Kinds = dict[tuple[str, str, str], int]
CASES: dict[str, tuple[Callable[[Scenario], list[Row]], Kinds, int]] = {}
"""name -> (the function that builds the case, verdicts that are not ok, exit code)."""

RATE, WILD = 400, 2000
"""Parts in a million. At the end the clocks are further apart than the bound, and than the time to a horizon."""
LENGTH, BETWEEN, COMPARED = 10_000_000, 250_000, 100_000
"""The time of a journal, between two messages, and between two hello requests."""
assert RATE * LENGTH // 1_000_000 > BOUND
assert WILD * LENGTH // 1_000_000 > BOUND + 2 * GRACE


def case(kinds: Kinds, code: int) -> Callable[[Callable[[Scenario], list[Row]]], Callable[[Scenario], list[Row]]]:
    def keep(build: Callable[[Scenario], list[Row]]) -> Callable[[Scenario], list[Row]]:
        CASES[build.__name__] = (build, kinds, code)
        return build

    return keep


def drifting(world: Scenario, rate: int, *ones: Participant) -> None:
    """These participants have a host of their own, whose clock drifts."""
    for one in ones:
        one.host, one.rate = "h-drifting", rate
    world.last, world.every = BEGIN + LENGTH, SILENCE - 5000


def messages(world: Scenario, late: int = 0, lost: int = 0, *, polls: bool = False) -> list[Row]:
    """The last messages but one are late, or lost. The first hello request has the shortest round trip. The others come
    a little before the times at which clocks are compared again, by the drifting clock.
    """
    world.follow(polls=polls)
    world.ask(BEGIN + 300, half=9)
    number = LENGTH // BETWEEN
    rate = world.replica.rate or world.service.rate
    for at in range(COMPARED, LENGTH, COMPARED):
        world.ask(BEGIN + (at - 2 * GRACE) * 1_000_000 // (1_000_000 + rate))
    for place in range(number):
        world.time = BEGIN + place * BETWEEN + 2000
        if polls:
            world.poll()
            continue
        sent = world.publish()
        if place + 1 not in range(number - late - lost, number):
            world.receive(sent)
        elif late:
            world.receive(sent, after=BOUND + 1000)
    gained = world.writer.gained  # the times of commits are by the writer's clock
    return [
        msgspec.structs.replace(row, written=row.written + gained(row.written)) if row.written else row
        for row in world.rows()
    ]


@case({}, 0)
def the_clock_of_a_replica_is_fast(world: Scenario) -> list[Row]:
    drifting(world, RATE, world.replica)
    return messages(world)


@case({}, 0)
def the_clock_of_a_replica_is_slow(world: Scenario) -> list[Row]:
    drifting(world, -RATE, world.replica)
    return messages(world)


@case({("late", "", ""): 2}, 8)
def a_replica_with_a_slow_clock_is_late(world: Scenario) -> list[Row]:
    drifting(world, -RATE, world.replica)
    return messages(world, late=2)


@case({("lost", "suffix", "wire"): 2}, 1)
def a_replica_with_a_fast_clock_loses_messages(world: Scenario) -> list[Row]:
    """The next message is received after their horizons."""
    drifting(world, RATE, world.replica)
    return messages(world, lost=2)


@case({}, 0)
def the_clock_of_a_service_is_fast(world: Scenario) -> list[Row]:
    drifting(world, RATE, world.service, world.writer)
    return messages(world)


@case({}, 0)
def the_clock_of_a_polling_replica_is_fast(world: Scenario) -> list[Row]:
    drifting(world, RATE, world.replica)
    return messages(world, polls=True)


@case({}, 0)
def the_clock_of_a_replica_is_very_fast(world: Scenario) -> list[Row]:
    drifting(world, WILD, world.replica)
    return messages(world)


@case({("late", "", ""): 2}, 8)
def a_replica_with_a_very_slow_clock_is_late(world: Scenario) -> list[Row]:
    drifting(world, -WILD, world.replica)
    return messages(world, late=2)


@case({("lost", "suffix", "wire"): 2}, 1)
def a_service_with_a_very_fast_clock_loses_messages(world: Scenario) -> list[Row]:
    drifting(world, WILD, world.service, world.writer)
    return messages(world, lost=2)


def random_drift(rng: random.Random, domain: str) -> list[Row]:
    """Journals without messages: services and replicas on hosts whose clocks drift, step, and are compared at random,
    also by round trips that are too long to count.
    """
    world = Scenario(domain)
    world.last, world.every = BEGIN + rng.randrange(1_000_000, 4_000_000), SILENCE - 5000
    services, replicas = [world.service], [world.replica]
    services += [world.begin("service", f"s{number}") for number in range(rng.randrange(2))]
    replicas += [world.begin("replica", f"r{number}") for number in range(rng.randrange(3))]
    for number, one in enumerate([*services, *replicas]):
        one.host, one.rate, one.skew = f"h{number}", rng.randrange(-WILD, WILD), rng.randrange(HOUR)
        if rng.random() < 0.2:
            one.steps = [(rng.randrange(BEGIN + 50_000, world.last), rng.choice((-HOUR, 150_000)))]
    for replica in replicas:
        asked = [each for each in services if rng.random() < 0.8]
        every = rng.choice((5000, 40_000))
        for service in asked:
            for at in range(BEGIN + rng.randrange(200, every), world.last, every):
                if rng.random() < 0.8:
                    world.ask(at + rng.randrange(100), replica, service, half=rng.choice((5, 50, GRACE // 16, GRACE)))
    return world.rows(close=rng.random() < 0.5)
