"""Known answers about changes that come after their horizon: participants that are frozen and go on."""

from collections.abc import Callable
from typing import Any

from pubsub_lib.journal.rows import Row
from tests.unit.audit.generator import WINDOW
from tests.unit.audit.scenario import Scenario

Kinds = dict[tuple[str, str, str], int]
Case = tuple[Callable[[Scenario], list[Row]], Kinds, int]
"""The function that builds a case, its verdicts that are not ok, and the exit code."""
CASES: dict[str, Case] = {}
"""By the name of the function."""

BELATED = 3 * WINDOW
"""More than the time from a message to its horizon, and until its window is closed."""


def case(
    cases: dict[str, Case], kinds: Kinds, code: int
) -> Callable[[Callable[[Scenario], list[Row]]], Callable[[Scenario], list[Row]]]:
    def keep(build: Callable[[Scenario], list[Row]]) -> Callable[[Scenario], list[Row]]:
        cases[build.__name__] = (build, kinds, code)
        return build

    return keep


def frozen(world: Scenario, number: int, lost: int = 0) -> list[dict[str, Any]]:
    """The replica is frozen while ``number`` messages are sent. Afterwards it receives them in order, except one."""
    sent = [world.publish() for _ in range(number)]
    thaw(world)
    for place, each in enumerate(sent, 1):
        if place != lost:
            world.receive(each, at=world.time + place)
    return sent


def thaw(world: Scenario) -> None:
    """Let so much time pass that all horizons are over."""
    world.time += BELATED


@case(CASES, {("late", "", ""): 10}, 8)
def a_replica_is_frozen(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(3)
    frozen(world, 10)
    world.deliver(3)
    return world.rows()


@case(CASES, {("late", "", ""): 9, ("lost", "suffix", "wire"): 1}, 9)
def a_replica_is_frozen_and_one_message_is_lost(world: Scenario) -> list[Row]:
    """Until the horizon of the lost message no later one of its stream was received."""
    world.follow()
    world.deliver(3)
    frozen(world, 10, lost=5)
    world.deliver(3)
    return world.rows()


@case(CASES, {("late", "", ""): 2, ("lost", "middle", "subscriber"): 1}, 9)
def one_message_is_dropped_by_a_frozen_replica(world: Scenario) -> list[Row]:
    """It has received the message before it is frozen, and does not apply it."""
    world.follow()
    world.deliver(3)
    first = world.publish()
    world.receive(first, "dropped")
    world.deliver(1)
    frozen(world, 2)
    return world.rows()


@case(CASES, {("late", "", ""): 2}, 8)
def a_replica_is_frozen_between_receipt_and_application(world: Scenario) -> list[Row]:
    """A message waits for an earlier one, which comes belatedly. The waiting one has a second record without a
    sequence.
    """
    world.follow()
    world.deliver(1)
    first, second = world.publish(), world.publish()
    world.receive(second, "waiting")
    thaw(world)
    world.receive(first, at=world.time)
    world.receive({**second, "uuid": "", "sequence": 0}, at=world.time + 1)
    return world.rows()


@case(CASES, {("late", "", ""): 2}, 8)
def a_frozen_replica_reads_the_messages_in_another_order(world: Scenario) -> list[Row]:
    """Both are received after the horizon, and one waits."""
    world.follow()
    world.deliver(1)
    first, second = world.publish(), world.publish()
    thaw(world)
    world.receive(second, "waiting", at=world.time)
    world.receive(first, at=world.time + 1)
    world.receive({**second, "uuid": "", "sequence": 0}, at=world.time + 2)
    return world.rows()


@case(CASES, {("late", "", ""): 3}, 8)
def a_polling_replica_is_frozen(world: Scenario) -> list[Row]:
    world.follow(polls=True)
    world.poll()
    for _ in range(3):
        world.poll(after=BELATED)
    return world.rows()


@case(CASES, {("late", "", ""): 1, ("lost", "", "polling"): 1}, 9)
def a_polling_replica_is_frozen_and_misses_one(world: Scenario) -> list[Row]:
    world.follow(polls=True)
    world.poll(after=BELATED)
    world.publish()
    world.poll()
    return world.rows()


@case(CASES, {("late", "", "wire"): 1}, 8)
def a_sync_brings_a_lost_message_belatedly(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(2)
    world.publish()
    world.deliver(1)
    thaw(world)
    world.sync(world.time, "t", world.position, after=2)
    return world.rows()


def ended(world: Scenario) -> None:
    """The replica lost a message, and ends much later."""
    world.follow()
    world.deliver(2)
    world.publish()
    world.deliver(1)
    thaw(world)
    world.replica.end = world.time
    world.replica.record(world.time - 1, kind="close")


@case(CASES, {("late", "", "wire"): 1}, 8)
def a_replica_that_lost_a_message_is_started_again(world: Scenario) -> list[Row]:
    """Its new run begins with everything."""
    ended(world)
    again = world.begin("replica", "r", world.time + 50)
    world.follow(replica=again, at=world.time + 60, base=world.position)
    return world.rows()


@case(CASES, {("lost", "middle", "wire"): 1}, 1)
def a_replica_that_lost_a_message_is_started_again_and_syncs_nothing(world: Scenario) -> list[Row]:
    ended(world)
    again = world.begin("replica", "r", world.time + 50)
    again.record(world.time + 60, kind="interest", topic="t")
    return world.rows()


@case(CASES, {("late", "", "subscriber"): 2}, 8)
def a_replica_that_applied_nothing_follows_the_topic_again(world: Scenario) -> list[Row]:
    """It received two messages, and did not apply them until it left the topic."""
    world.follow()
    world.deliver(1)
    for _ in range(2):
        world.receive(world.publish(), "dropped")
    thaw(world)
    world.replica.record(world.time, kind="drop", topic="t")
    world.follow(at=world.time + 50, base=world.position)
    return world.rows()


@case(CASES, {("late", "", "polling"): 1}, 8)
def a_polling_replica_that_misses_one_is_started_again(world: Scenario) -> list[Row]:
    world.follow(polls=True)
    world.poll()
    world.publish()
    thaw(world)
    world.replica.end = world.time
    world.replica.record(world.time - 1, kind="close")
    again = world.begin("replica", "r", world.time + 50)
    world.follow(replica=again, at=world.time + 60, base=world.position, polls=True)
    return world.rows()


@case(CASES, {("lost", "middle", "wire"): 1}, 1)
def a_message_that_was_lost_comes_again_and_is_not_applied(world: Scenario) -> list[Row]:
    """The replica took it for an old one, and nothing that it recorded shows that it had it."""
    world.follow()
    world.deliver(2)
    sent = world.publish()
    world.deliver(1)
    thaw(world)
    world.receive(sent, "old", at=world.time)
    return world.rows()


@case(CASES, {("corrupt", "wire", ""): 1, ("late", "", ""): 1}, 10)
def a_belated_message_has_another_content(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(2)
    first, second = world.publish(), world.publish()
    thaw(world)
    world.receive({**first, "hash": 1}, at=world.time)
    world.receive(second, at=world.time + 1)
    return world.rows()


@case(CASES, {("corrupt", "polling", ""): 1}, 2)
def polling_brings_another_content_belatedly(world: Scenario) -> list[Row]:
    world.follow(polls=True)
    world.poll()
    sent = world.publish()
    polled = {**sent, "uuid": "polled", "service": "db-polling", "outcome": "applied", "hash": 1}
    world.replica.record(world.time + BELATED, **polled)
    return world.rows()


@case(CASES, {("duplicate_applied", "", ""): 1}, 16)
def a_belated_message_is_applied_twice(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(2)
    sent = world.publish()
    thaw(world)
    world.receive(sent, at=world.time)
    world.receive(sent, at=world.time + 1)
    return world.rows()


@case(CASES, {("stale_applied", "", ""): 1}, 16)
def a_belated_message_sets_an_object_back(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(2)
    sent = world.publish()
    world.deliver(1)
    thaw(world)
    world.receive(sent, at=world.time)
    return world.rows()


@case(CASES, {("late", "", "service"): 3}, 8)
def a_service_is_frozen(world: Scenario) -> list[Row]:
    """It sends three links after their horizons. All of them are published, and no replica is to blame."""
    world.follow()
    world.deliver(2)
    taken = []
    for _ in range(3):
        taken.append(world.link())
        world.hand(taken[-1])
        world.take(taken[-1])
    thaw(world)
    for columns in taken:
        world.time += 10
        world.receive(world.send(columns))
    return world.rows()


@case(CASES, {("late", "", "service"): 1, ("lost", "", "service"): 1, ("unpublished", "", ""): 1}, 9)
def one_link_is_forgotten_by_a_frozen_service(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(2)
    taken = []
    for _ in range(2):
        taken.append(world.link())
        world.hand(taken[-1])
        world.take(taken[-1])
    thaw(world)
    world.receive(world.send(taken[1]))
    return world.rows()


@case(CASES, {("excused", "stopped", ""): 1}, 0)
def a_replica_leaves_within_the_bound_and_comes_back(world: Scenario) -> list[Row]:
    """What comes into its next interval does not settle the message of the first one."""
    world.follow()
    world.deliver(1)
    world.publish()
    world.replica.record(world.time + 10, kind="drop", topic="t")
    thaw(world)
    world.follow(at=world.time, base=world.position)
    return world.rows()
