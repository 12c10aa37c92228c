"""Known answers about polling replicas of programs that publish directly, without records of the store: only what was
sent shows what they must have.
"""

from typing import Any

from pubsub_lib.journal.rows import Row
from tests.unit.audit.late_cases import BELATED, Case, case
from tests.unit.audit.scenario import WAY, Scenario

CASES: dict[str, Case] = {}


def committed(world: Scenario, after: int = WAY, **changed: Any) -> None:
    """A commit of the writer, which sends it; the replica reads it from the changelog. ``after`` 0: never."""
    sent = world.send(world.link(), world.writer)
    polled = {**sent, "uuid": "polled", "service": "db-polling", "outcome": "applied"}
    if after:
        world.replica.record(world.time + after, **{**polled, **changed})


@case(CASES, {("lost", "", "polling"): 1}, 1)
def a_polling_replica_misses_what_a_writer_sent(world: Scenario) -> list[Row]:
    world.follow(polls=True)
    committed(world)
    committed(world, after=0)
    committed(world)
    return world.rows(store=False)


@case(CASES, {("late", "", ""): 2}, 8)
def a_polling_replica_reads_late_what_a_writer_sent(world: Scenario) -> list[Row]:
    world.follow(polls=True)
    committed(world)
    committed(world, after=BELATED)
    committed(world, after=BELATED)
    return world.rows(store=False)


@case(CASES, {("corrupt", "polling", ""): 1}, 2)
def a_polling_replica_reads_another_content_than_a_writer_sent(world: Scenario) -> list[Row]:
    world.follow(polls=True)
    committed(world)
    committed(world, hash=1)
    return world.rows(store=False)


@case(CASES, {("excused", "covered", ""): 1}, 0)
def a_polling_replica_begins_after_what_a_writer_sent(world: Scenario) -> list[Row]:
    committed(world, after=0)
    world.follow(polls=True, at=world.time + 50, base=world.position)
    committed(world)
    return world.rows(store=False)


@case(CASES, {("lost", "", "polling"): 1}, 1)
def what_a_service_sent_and_took_is_expected_once(world: Scenario) -> list[Row]:
    world.follow(polls=True)
    world.poll()
    world.publish()
    return world.rows(store=False)
