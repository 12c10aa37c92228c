"""Known answers about links that were never committed: a service took them from a program that is no worker. The
changelog has other commits in their places, so no replica was required to have them.
"""

from typing import Any

from pubsub_lib.journal.rows import Row
from tests.unit.audit.generator import BOUND
from tests.unit.audit.late_cases import Case, case
from tests.unit.audit.scenario import Scenario

CASES: dict[str, Case] = {}


def polling(world: Scenario) -> None:
    """The replica polls, and reads two commits."""
    world.follow(polls=True)
    world.poll()
    world.poll()


def lie(world: Scenario, position: int, nonce: int = 77) -> dict[str, Any]:
    """The service takes a false link, whose record has no time of a commit."""
    world.time += 1
    false = {
        "kind": "data", "topic": "t", "position": position, "nonce": nonce, "prev_position": position - 1,
        "prev_nonce": position - 1, "hash": 9, "part": 1, "parts": 1, "written": 0,
    }  # fmt: skip
    world.take(false)
    return false


@case(CASES, {("excused", "not stored", ""): 1, ("phantom_commit", "", ""): 1}, 2)
def a_polling_replica_cannot_read_what_was_never_committed(world: Scenario) -> list[Row]:
    """Another commit had the position before the service took the link."""
    polling(world)
    lie(world, world.position)
    world.poll()
    return world.rows()


@case(CASES, {("excused", "not stored", ""): 1, ("unknown", "", ""): 1}, 32)
def the_next_commit_takes_the_place_of_a_false_one(world: Scenario) -> list[Row]:
    """A database that lost its last commit would look the same, if the worker had no journal."""
    polling(world)
    lie(world, world.position + 1)
    world.poll()
    return world.rows()


@case(CASES, {("excused", "not stored", ""): 1, ("phantom_publish", "", ""): 1}, 2)
def a_false_message_is_received_and_not_applied(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(2)
    world.receive(world.send(lie(world, world.position)), "waiting")
    world.deliver(1)
    return world.rows()


@case(CASES, {("excused", "not stored", ""): 1, ("phantom_publish", "", ""): 1}, 2)
def a_replica_ends_after_a_false_message_is_sent(world: Scenario) -> list[Row]:
    """It did not stop too early: it did not have to receive the message."""
    world.follow()
    world.deliver(2)
    world.send(lie(world, world.position))
    world.deliver(1)
    world.replica.end = world.time + 500
    world.replica.record(world.time + 499, kind="close")
    return world.rows()


@case(CASES, {("repaired", "", "service"): 1, ("phantom_commit", "", ""): 1}, 2)
def a_replica_applied_what_was_never_committed(world: Scenario) -> list[Row]:
    """By a message without a record of its sending: the replica had it."""
    world.follow()
    world.deliver(2)
    false = lie(world, world.position)
    world.replica.record(world.time + 9, **false, outcome="applied")
    world.deliver(1)
    return world.rows()


@case(CASES, {("excused", "not stored", ""): 1, ("unknown", "gap", ""): 1, ("phantom_commit", "", ""): 1}, 34)
def records_are_lost_while_a_service_takes_a_false_link(world: Scenario) -> list[Row]:
    """The replica may have read the next commit. It did not have to have the false one, whatever the records show."""
    polling(world)
    lie(world, world.position)
    world.poll()
    lost = next(row.number for row in world.rows() if row.side == "replica" and row.position == 3)
    return [row for row in world.rows() if row.side != "replica" or row.number != lost]


@case(CASES, {("lost", "", "polling"): 1, ("unknown", "", ""): 1}, 33)
def polling_misses_a_commit_that_a_restore_undoes_after_the_bound(world: Scenario) -> list[Row]:
    """It had to read the commit until then."""
    polling(world)
    world.take(world.link())
    world.time += BOUND
    world.restore(2)
    world.poll()
    return world.rows()


@case(CASES, {("excused", "not stored", ""): 1, ("unknown", "", ""): 1}, 32)
def polling_misses_a_commit_that_a_restore_undoes_before_the_bound(world: Scenario) -> list[Row]:
    polling(world)
    world.take(world.link())
    world.time += BOUND - 100
    world.restore(2)
    world.poll()
    return world.rows()


@case(CASES, {("lost", "", "polling"): 1}, 1)
def what_is_beyond_the_changelog_is_expected(world: Scenario) -> list[Row]:
    """The store was read before it, or lost it: the audit cannot know."""
    polling(world)
    lie(world, world.position + 1)
    return world.rows()
