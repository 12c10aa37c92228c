"""Known answers about a store that is restored from a backup: its positions go back, and its nonces differ."""

from collections.abc import Callable
from typing import Any

from pubsub_lib.journal.rows import Row
from tests.unit.audit.generator import Participant
from tests.unit.audit.scenario import Scenario

Kinds = dict[tuple[str, str, str], int]
CASES: dict[str, tuple[Callable[[Scenario], list[Row]], Kinds, int]] = {}
"""name -> (the function that builds the case, verdicts that are not ok, exit code)."""


def case(kinds: Kinds, code: int) -> Callable[[Callable[[Scenario], list[Row]]], Callable[[Scenario], list[Row]]]:
    def keep(build: Callable[[Scenario], list[Row]]) -> Callable[[Scenario], list[Row]]:
        CASES[build.__name__] = (build, kinds, code)
        return build

    return keep


def syncing(world: Scenario, cause: str, outcome: str, known: int = 0, position: int = 0) -> None:
    """A sync of the replica, with the records of a real one: only a delta's begin has the known position."""
    number = len(world.replica.events)
    common: dict[str, Any] = {"topic": "t", "sequence": number}
    world.replica.record(world.time + 1, kind="sync_begin", cause=cause, prev_position=known, **common)
    world.replica.record(world.time + 2, kind="sync_end", outcome=outcome, position=position, nonce=position, **common)
    world.time += 10


def read_again(world: Scenario, known: int, position: int) -> None:
    """The replica finds out by a delta that the store does not contain its point, and reads everything."""
    syncing(world, "unverified", "incomplete", known)
    syncing(world, "incomplete", "full", position=position)


def start_again(world: Scenario, base: int) -> Participant:
    """The replica is closed, and its next run begins."""
    world.replica.end = world.time + 200
    world.time += 500
    world.replica = world.begin("replica", "r", world.time)
    world.follow(at=world.time + 10, base=base)
    return world.replica


@case({("unknown", "", ""): 3}, 32)
def the_database_was_away_while_it_was_restored(world: Scenario) -> list[Row]:
    """No sync has the cause of a changed history, because no hello showed it."""
    world.follow()
    world.deliver(6)
    syncing(world, "polled", "failed", 6)
    world.restore(3)
    read_again(world, 6, 3)
    world.deliver(5)
    return world.rows()


@case({("unknown", "", ""): 3}, 32)
def everything_was_stopped_while_it_was_restored(world: Scenario) -> list[Row]:
    """No run of a replica goes on, so none could notice the restore."""
    world.follow()
    world.deliver(6)
    world.restore(3)
    start_again(world, 3)
    world.deliver(5)
    return world.rows()


@case({("phantom_publish", "", ""): 3, ("stale_applied", "", ""): 2}, 18)
def a_replica_that_went_on_did_not_notice_a_restore(world: Scenario) -> list[Row]:
    """So there was none: these messages are not those of commits."""
    world.follow()
    world.deliver(6)
    world.restore(3)
    world.deliver(5)
    return world.rows()


@case({("phantom_publish", "", ""): 1, ("unpublished", "", ""): 1, ("repaired", "", "service"): 1}, 2)
def a_message_has_a_false_nonce_before_a_restore(world: Scenario) -> list[Row]:
    """The changelog has a commit of the same time at this position, so the restore did not undo it."""
    world.follow()
    world.deliver(2)
    columns = world.link()
    world.hand(columns)
    world.take(columns)
    world.receive(world.send({**columns, "nonce": 77}))
    read_again(world, 3, 3)
    world.deliver(2)
    return world.rows()
