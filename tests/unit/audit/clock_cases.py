"""Known answers about clocks: small journals of hosts whose clocks are far apart, or step."""

from collections.abc import Callable

import msgspec

from pubsub_lib.journal.rows import Row
from tests.unit.audit.generator import BEGIN, DAY, GRACE, HOUR, Participant
from tests.unit.audit.scenario import Scenario

Kinds = dict[tuple[str, str, str], int]
SECOND = 1_000_000
LOST: Kinds = {("lost", "middle", "wire"): 1}
CASES: dict[str, tuple[Callable[[Scenario], list[Row]], Kinds, int]] = {}
"""name -> (the function that builds the case, verdicts that are not ok, exit code)."""


def case(kinds: Kinds, code: int) -> Callable[[Callable[[Scenario], list[Row]]], Callable[[Scenario], list[Row]]]:
    def keep(build: Callable[[Scenario], list[Row]]) -> Callable[[Scenario], list[Row]]:
        CASES[build.__name__] = (build, kinds, code)
        return build

    return keep


def far(world: Scenario, skew: int, steps: tuple[tuple[int, int], ...] = ()) -> Participant:
    """The world's replica on a host of its own, whose clock is ahead by ``skew``."""
    world.replica.host, world.replica.skew, world.replica.steps = "h-far", skew, steps
    return world.replica


def one_of_ten_is_lost(world: Scenario, *, asks: bool = True) -> list[Row]:
    world.follow()
    if asks:
        world.ask(BEGIN + 300)
    world.deliver(5)
    world.publish()
    world.deliver(4)
    return world.rows()


@case(LOST, 1)
def the_clock_of_a_replica_is_an_hour_ahead(world: Scenario) -> list[Row]:
    far(world, HOUR)
    return one_of_ten_is_lost(world)


@case(LOST, 1)
def the_clock_of_a_replica_is_an_hour_behind(world: Scenario) -> list[Row]:
    far(world, -HOUR)
    return one_of_ten_is_lost(world)


@case(LOST, 1)
def the_clock_of_a_service_is_20_seconds_behind(world: Scenario) -> list[Row]:
    world.service.host, world.service.skew = "h-service", -20 * SECOND
    return one_of_ten_is_lost(world)


@case({}, 0)
def nothing_is_lost_by_a_service_20_seconds_behind(world: Scenario) -> list[Row]:
    world.service.host, world.service.skew = "h-service", -20 * SECOND
    world.follow()
    world.ask(BEGIN + 300)
    world.deliver(10)
    return world.rows()


@case(LOST, 1)
def the_clock_of_a_replica_is_set_back_by_30_seconds(world: Scenario) -> list[Row]:
    """Between two messages. No hello request compares the clocks after that."""
    far(world, 7, ((BEGIN + 1350, -30 * SECOND),))
    return one_of_ten_is_lost(world)


@case(LOST, 1)
def the_clock_of_a_replica_is_set_ahead_by_a_day(world: Scenario) -> list[Row]:
    far(world, 7, ((BEGIN + 1350, DAY),))
    return one_of_ten_is_lost(world)


@case(LOST, 1)
def the_clock_of_a_service_is_set_back_by_30_seconds(world: Scenario) -> list[Row]:
    """The clock of its host, which the writer has, too; the times of commits are by the same clock."""
    far(world, HOUR)
    at = BEGIN + 1350
    for each in (world.service, world.writer):
        each.steps = ((at, -30 * SECOND),)
    rows = one_of_ten_is_lost(world)
    return [with_written(row, lambda written: written - 30 * SECOND if written >= at else written) for row in rows]


@case(LOST, 1)
def the_host_of_a_replica_was_suspended(world: Scenario) -> list[Row]:
    """Its monotonic clock stood still, and its wall clock was set right. A hello request shows that."""
    far(world, 7)
    world.ask(BEGIN + 1400)
    return [suspended(row) for row in one_of_ten_is_lost(world)]


def suspended(row: Row) -> Row:
    if row.host == "h-far" and row.wall > BEGIN + 1350:
        return msgspec.structs.replace(row, mono=row.mono - 40 * SECOND)
    return row


def with_written(row: Row, change: Callable[[int], int]) -> Row:
    return msgspec.structs.replace(row, written=change(row.written)) if row.written else row


@case(LOST, 1)
def the_clocks_of_two_replicas_are_two_hours_apart(world: Scenario) -> list[Row]:
    """One of them loses a message."""
    far(world, HOUR)
    other = world.begin("replica", "r2", skew=-HOUR, host="h-other")
    world.follow()
    world.follow(replica=other)
    world.ask(BEGIN + 300)
    world.ask(BEGIN + 400, other)
    for number in range(5):
        sent = world.publish()
        world.receive(sent)
        if number != 2:
            world.receive(sent, replica=other)
    return world.rows()


@case(LOST, 1)
def a_replica_compares_the_clocks_of_two_services(world: Scenario) -> list[Row]:
    """The second service's clock is an hour ahead. The other replica asked only the first one."""
    second = world.begin("service", "s2", skew=HOUR, host="h-second")
    other = world.begin("replica", "r2", skew=-HOUR, host="h-other")
    world.follow()
    world.follow(replica=other)
    world.ask(BEGIN + 300)
    world.ask(BEGIN + 400, service=second)
    world.ask(BEGIN + 500, other)
    world.replica.host, world.replica.skew = "h-far", 20 * SECOND
    for number in range(5):
        sent = world.publish(service=second)
        world.receive(sent)
        if number != 2:
            world.receive(sent, replica=other)
    return world.rows()


@case({("lost", "", "polling"): 1}, 1)
def a_polling_replica_is_20_seconds_behind_and_misses_one(world: Scenario) -> list[Row]:
    far(world, -20 * SECOND)
    world.follow(polls=True)
    world.ask(BEGIN + 300)
    world.poll()
    world.publish()
    world.poll()
    return world.rows()


@case({}, 0)
def a_pair_of_hosts_never_exchanged_anything(world: Scenario) -> list[Row]:
    """The other replica follows a topic without messages, and no hello request was answered."""
    other = world.begin("replica", "r2", skew=HOUR, host="h-other")
    world.follow()
    world.follow("empty", replica=other)
    world.deliver(5)
    return world.rows()


def read_elsewhere(world: Scenario, skew: int, *, at: int, position: int) -> list[Row]:
    """The store is read on a host of its own, after 90 milliseconds. At some time the replica held a position."""
    world.store.host, world.store.skew = "h-audit", skew
    ahead = skew - world.service.skew
    world.compared = {"peer": "database", "cause": "s", "count": ahead}
    world.follow()
    world.ask(BEGIN + 300)
    world.deliver(3)
    world.stored({"k": (3, 1003)})
    world.held({"k": (position, 7)}, at, position)
    return world.rows()


@case({("foreign_history", "", ""): 1}, 4)
def the_auditing_host_is_an_hour_behind(world: Scenario) -> list[Row]:
    """The store was read after the replica's listing, and does not have its position."""
    return read_elsewhere(world, -HOUR, at=BEGIN + 50_000, position=9)


@case({("unknown", "", ""): 1}, 32)
def the_auditing_host_is_an_hour_ahead(world: Scenario) -> list[Row]:
    """The replica's listing may be later than the reading of the store."""
    return read_elsewhere(world, HOUR, at=BEGIN + 90_002 - GRACE, position=9)


@case({("foreign_history", "", ""): 1}, 4)
def the_auditing_host_and_the_service_are_an_hour_apart_from_the_replica(world: Scenario) -> list[Row]:
    world.service.host, world.service.skew = "h-service", -HOUR
    return read_elsewhere(world, HOUR, at=BEGIN + 90_001 - GRACE, position=9)
