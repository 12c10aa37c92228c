"""Known answers about a store that is restored from a backup: its positions go back, and its nonces differ."""

from collections.abc import Callable
from typing import Any

from pubsub_lib.journal.rows import Row
from tests.unit.audit.generator import GRACE, Participant
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


def listed_before(world: Scenario) -> None:
    """A replica is closed, with a listing; then the store is restored, and new commits pass the old position."""
    world.follow()
    world.deliver(6)
    world.held({"k": (6, 1006), "undone": (5, 1005)}, world.time + 100, 6)
    world.restore(3)
    start_again(world, 3)
    world.deliver(5)
    world.stored({"k": (8, 101_008), "new": (4, 101_004)})


@case({("unknown", "", ""): 4}, 32)
def a_listing_is_of_a_history_that_was_undone(world: Scenario) -> list[Row]:
    """Nothing is compared with the store: it has other versions below the listing's position."""
    listed_before(world)
    return world.rows()


@case({("unknown", "", ""): 3}, 32)
def a_replica_holds_what_the_restored_store_has(world: Scenario) -> list[Row]:
    """Its later run shows that; the listing is out of date."""
    listed_before(world)
    world.hold(8, 1, 7008, nonce=100_008)
    return world.rows()


@case({("unknown", "", ""): 3, ("missing", "", ""): 2}, 36)
def a_replica_misses_objects_after_a_restore(world: Scenario) -> list[Row]:
    """The listing is of the later run."""
    listed_before(world)
    world.held({}, world.time + 100, 8)
    return world.rows()


def undone_before_a_delta(world: Scenario) -> None:
    """Two messages are lost. The store does not contain them any more, so no delta can bring them."""
    world.follow()
    world.deliver(1)
    world.publish()
    world.publish()
    world.time += 10
    world.restore(1)
    syncing(world, "history changed", "delta", 1, 1)
    for _ in range(2):
        world.hand(world.link())
    world.sync(world.time + 50, "t", 3, after=1)


@case(
    {
        ("excused", "not stored", ""): 2, ("repaired", "", "hop"): 2, ("unpublished", "", ""): 2,
        ("unknown", "", ""): 2,
    },
    32,
)  # fmt: skip
def messages_are_lost_and_undone_before_a_delta_could_bring_them(world: Scenario) -> list[Row]:
    undone_before_a_delta(world)
    return world.rows()


@case({("repaired", "", "wire"): 2, ("repaired", "", "hop"): 2}, 0)
def messages_are_lost_and_undone_before_a_delta_and_there_is_no_store(world: Scenario) -> list[Row]:
    undone_before_a_delta(world)
    return world.rows(store=False)


@case({("reordered", "", ""): 2, ("unknown", "", ""): 2}, 32)
def messages_of_an_undone_history_arrive_after_the_restore(world: Scenario) -> list[Row]:
    """They are old there, and no sync ever had them."""
    world.follow()
    world.deliver(1)
    late = [world.publish(), world.publish()]
    world.time += 10
    world.restore(1)
    syncing(world, "history changed", "full", position=1)
    world.deliver(3)
    for each in late:
        world.receive(each, "old", at=world.time + 20)
    return world.rows()


def lose_after_restore(world: Scenario, delta: bool = False) -> None:
    """The store is restored below the replica's base, or below what a delta brought; a message is lost after that."""
    for _ in range(3):
        world.publish()
    world.follow(at=world.time + 100, base=1 if delta else 3)
    world.time += 100
    if delta:
        world.sync(world.time + 50, "t", 3, after=1)
    world.time += 200
    world.restore(1)
    read_again(world, 3, 1)
    world.time += GRACE
    world.receive(world.publish("t", "a"))
    world.publish("t", "b")
    world.deliver(3)


@case({("excused", "covered", ""): 3, ("unknown", "", ""): 2, ("lost", "middle", "wire"): 1}, 33)
def a_message_is_lost_below_the_position_of_the_first_sync(world: Scenario) -> list[Row]:
    lose_after_restore(world)
    return world.rows()


@case(
    {
        ("excused", "covered", ""): 1, ("repaired", "", "wire"): 2, ("unknown", "", ""): 2,
        ("lost", "middle", "wire"): 1,
    },
    33,
)  # fmt: skip
def a_message_is_lost_below_the_position_of_a_delta(world: Scenario) -> list[Row]:
    """That delta ended before the commit, so it cannot have brought the change."""
    lose_after_restore(world, delta=True)
    return world.rows()
