"""Known answers about replicas that end, and are started again."""

from pubsub_lib.journal.rows import Row
from tests.unit.audit.generator import BEGIN, BOUND, GRACE, Participant
from tests.unit.audit.late_cases import Case, case, thaw
from tests.unit.audit.scenario import STEP, Scenario

CASES: dict[str, Case] = {}
"""By the name of the function."""


def ended(world: Scenario) -> None:
    """The replica receives three messages, and ends in order."""
    world.follow()
    world.deliver(3)
    world.time += STEP
    world.replica.record(world.time, kind="close")
    world.replica.end = world.time + 1


def back(world: Scenario, after: int) -> Participant:
    """Two messages are published, and ``after`` this time the replica is there again. It reads nothing."""
    for _ in range(2):
        world.publish()
    again = world.begin("replica", "r", world.time + after)
    again.record(again.begin + 1, kind="interest", topic="t")
    world.time = again.begin + STEP
    return again


@case(CASES, {("unknown", "no sync", ""): 5}, 32)
def a_replica_is_started_again_and_never_syncs(world: Scenario) -> list[Row]:
    """Two messages come before, and three after its start."""
    ended(world)
    back(world, GRACE // 2)
    for _ in range(3):
        world.publish()
    return world.rows()


@case(CASES, {("unknown", "no sync", ""): 3}, 32)
def a_replica_follows_a_topic_again_and_never_syncs(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(3)
    world.replica.record(world.time + STEP, kind="drop", topic="t")
    world.replica.record(world.time + 2 * STEP, kind="interest", topic="t")
    world.time += 3 * STEP
    for _ in range(3):
        world.publish()
    return world.rows()


@case(CASES, {("excused", "stopped", ""): 2}, 0)
def a_replica_is_started_again_too_late_for_two_messages(world: Scenario) -> list[Row]:
    """It never syncs, but nothing is published after its start."""
    ended(world)
    back(world, BOUND + 3)
    return world.rows()


@case(CASES, {("excused", "stopped", ""): 4}, 0)
def a_replica_is_started_again_and_stopped_within_the_bound(world: Scenario) -> list[Row]:
    """It had no time to read."""
    ended(world)
    again = back(world, STEP)
    for _ in range(2):
        world.publish()
    again.record(world.time + STEP, kind="close")
    again.end = world.time + STEP + 1
    return world.rows()


@case(CASES, {("excused", "stopped", ""): 2}, 0)
def a_replica_is_started_again_and_syncs_in_time(world: Scenario) -> list[Row]:
    ended(world)
    again = back(world, STEP)
    world.sync(world.time, "t", world.position, replica=again, outcome="full")
    return world.rows()


@case(CASES, {("unknown", "no sync", ""): 2}, 32)
def a_replica_is_started_again_and_syncs_after_all_horizons(world: Scenario) -> list[Row]:
    """By then the windows are closed, so the verdict must not depend on it."""
    ended(world)
    again = back(world, STEP)
    thaw(world)
    world.sync(world.time, "t", world.position, replica=again, outcome="full")
    return world.rows()


def without_its_first_sync(world: Scenario, *, lost: bool) -> list[Row]:
    """The record of the first sync is lost, or the first sync took as long. Two messages come before the next one."""
    world.follow(at=BEGIN + 10)
    world.time += STEP
    for number in range(6):
        sent = world.publish()
        if number not in (2, 3):
            world.receive(sent)
    world.sync(world.time + BOUND + GRACE, "t", world.position, outcome="full")
    world.time += BOUND + 2 * GRACE
    world.deliver(2)
    ends = [row for row in world.rows() if row.kind in ("sync_begin", "sync_end")][:2]
    gone = {(row.run, row.number) for row in ends} if lost else set()
    return [row for row in world.rows() if (row.run, row.number) not in gone]


@case(CASES, {("late", "", "wire"): 2}, 8)
def a_replica_loses_two_messages_between_two_syncs(world: Scenario) -> list[Row]:
    return without_its_first_sync(world, lost=False)


@case(CASES, {("unknown", "gap", ""): 2}, 32)
def a_replica_loses_two_messages_and_the_record_of_its_first_sync(world: Scenario) -> list[Row]:
    return without_its_first_sync(world, lost=True)


@case(CASES, {("unknown", "gap", ""): 2}, 32)
def a_replica_that_was_started_again_loses_two_messages_and_the_record_of_its_first_sync(
    world: Scenario,
) -> list[Row]:
    """The run before it stopped in order. It is not excused for what came after the start."""
    first = world.replica
    first.record(BEGIN + 5, kind="interest", topic="t")
    world.sync(BEGIN + 7, "t", 0, outcome="full")
    first.record(BEGIN + 8, kind="close")
    first.end = BEGIN + 9
    world.replica = world.begin("replica", "r", BEGIN + 9)
    rows = without_its_first_sync(world, lost=False)
    ends = [row for row in rows if row.run == world.replica.run and row.kind in ("sync_begin", "sync_end")][:2]
    gone = {(row.run, row.number) for row in ends}
    return [row for row in rows if (row.run, row.number) not in gone]


def killed(world: Scenario) -> None:
    """The replica receives three messages, and has no end: it was killed, or its last files are missing."""
    world.follow()
    world.deliver(3)
    world.replica.end = world.time + STEP


@case(CASES, {("excused", "covered", ""): 2}, 0)
def a_replica_is_killed_and_reads_what_it_missed(world: Scenario) -> list[Row]:
    killed(world)
    again = back(world, STEP)
    world.sync(world.time, "t", world.position, replica=again, outcome="full")
    return world.rows()


@case(CASES, {("unknown", "gap", ""): 4}, 32)
def a_replica_is_killed_and_reads_nothing_afterwards(world: Scenario) -> list[Row]:
    """Of the last two messages it is known that the new run did not receive them, within the grace of its begin."""
    killed(world)
    back(world, STEP)
    for _ in range(2):
        world.publish()
    return world.rows()


@case(CASES, {("unknown", "gap", ""): 2, ("excused", "stopped", ""): 2}, 32)
def a_replica_is_killed_and_does_not_follow_the_topic_again(world: Scenario) -> list[Row]:
    """What was committed until the begin of the new run may have been lost by the killed one."""
    killed(world)
    for _ in range(2):
        world.publish()
    again = world.begin("replica", "r", world.time + STEP)
    world.follow("other", replica=again, at=again.begin + 1)
    world.time = again.begin + 2 * GRACE
    for _ in range(2):
        world.publish()
    return world.rows()
