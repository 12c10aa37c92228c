"""The pipeline follows the definitions: on known answers, and on journals with random planted faults."""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pytest
from pyspark.sql import functions as F  # noqa: N812

from pubsub_lib.audit.report import anomalies
from pubsub_lib.audit.report.aggregates import aggregate
from pubsub_lib.audit.report.collect import collect
from pubsub_lib.audit.report.latency import counted, percentiles
from pubsub_lib.audit.report.summary import Balance, Coverage, Summary
from pubsub_lib.audit.report.times import moment
from pubsub_lib.journal.rows import Row
from tests.scale import scaled
from tests.unit.audit import clock_cases, drift_cases, late_cases, lie_cases, polled_cases, restart_cases, restore_cases
from tests.unit.audit.conftest import LITTLE, MUCH, SETTINGS, Audit
from tests.unit.audit.generator import BEGIN, BOUND, GRACE, HOUR, SILENCE, TORN, WINDOW, Generator, Participant
from tests.unit.audit.oracle import Difference, Oracle, StoreFinding, Stray, Verdict
from tests.unit.audit.scenario import STEP, WAY, Scenario
from tests.unit.audit.trails import trail

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pubsub_lib.audit.report.aggregates import Aggregates
    from pubsub_lib.audit.rules.pipeline import Tables

T = TypeVar("T", Verdict, Stray, StoreFinding, Difference)
Kinds = dict[tuple[str, str, str], int]

SAME = 100
"""Number of generated journals that are the same in each run of the tests."""
NUMBER = SAME + scaled(50)
"""Number of generated journals of a long run: the first ones are those of each run."""

CLOCKS = 5
"""The remainder of numbers of journals whose clocks are far apart and step."""

CASES: dict[str, tuple[Callable[[Scenario], list[Row]], Kinds, int]] = {}
"""name -> (the function that builds the case, verdicts that are not ok, exit code)."""


def case(kinds: Kinds, code: int) -> Callable[[Callable[[Scenario], list[Row]]], Callable[..., Any]]:
    def keep(build: Callable[[Scenario], list[Row]]) -> Callable[..., Any]:
        CASES[build.__name__] = (build, kinds, code)
        return build

    return keep


@case({}, 0)
def clean(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(200)
    world.stored({"k": (200, 1200)})
    world.held({"k": (200, 1200)}, BEGIN + 50_000, 200)
    return world.rows()


def lose(world: Scenario, lost: int, of: int = 5) -> list[Row]:
    world.follow()
    for number in range(1, of + 1):
        sent = world.publish()
        if number != lost:
            world.receive(sent)
    return world.rows()


@case({("lost", "middle", "wire"): 1}, 33)
def retention_deleted_the_begin_of_a_replica(world: Scenario) -> list[Row]:
    """One of five messages is lost. Those before and after it show that the replica followed the topic."""
    rows = lose(world, 4)
    begin = max(row.number for row in rows if row.side == "replica" and row.kind in ("interest", "sync_end"))
    return [row for row in rows if row.side != "replica" or row.number > begin]


@case({}, 32)
def a_replica_lost_its_subscriptions(world: Scenario) -> list[Row]:
    """One of five messages is lost, too. The first record is there, and the subscription is not."""
    return [row for row in lose(world, 4) if row.kind != "interest"]


@case({}, 32)
def a_replica_lost_one_of_its_subscriptions(world: Scenario) -> list[Row]:
    """One of five messages is lost, too. The replica follows another topic by its records, and holds this one."""
    world.follow("other", at=BEGIN + 5)
    world.follow()
    world.deliver(3)
    world.publish()
    world.deliver(1)
    world.hold(5, 1, 7005)
    return [row for row in world.rows() if (row.kind, row.topic) != ("interest", "t")]


@case({("rot", "", ""): 1}, 4)
def objects_were_altered_in_the_database(world: Scenario) -> list[Row]:
    """The service found them twice, and could repair them once. The replica is not at fault."""
    world.follow()
    world.deliver(3)
    for at in (100, 200):
        world.service.record(world.time + at, kind="rot", topic="t", cause="store", count=1, size=at // 200)
    return world.rows(store=False)


def send_directly(world: Scenario, missing: int, sync: bool = True) -> list[Row]:
    """A program sends its commits itself, and there is no service. One of five cannot be sent."""
    world.follow()
    for number in range(1, 6):
        columns = world.link()
        if number == missing:
            world.hand(columns)
        else:
            world.receive(world.send(columns, world.writer))
    if sync:
        world.sync(world.time + 10, "t", world.position)
    return [row for row in world.rows() if row.run != world.service.run]


@case({("repaired", "", "hop"): 1, ("unpublished", "", ""): 1}, 0)
def a_program_without_a_service_cannot_send_a_commit(world: Scenario) -> list[Row]:
    return send_directly(world, 3)


@case({("lost", "", "hop"): 1, ("unpublished", "", ""): 1}, 1)
def a_program_without_a_service_cannot_send_a_commit_and_nothing_repairs_it(world: Scenario) -> list[Row]:
    return send_directly(world, 3, sync=False)


@case({}, 32)
def a_service_lost_the_only_message_of_a_topic(world: Scenario) -> list[Row]:
    """No other participant has a record of it, so nothing is expected."""
    world.follow("t")
    world.follow("quiet", at=BEGIN + 5)
    world.deliver(3)
    gone = world.publish("quiet")
    world.deliver(3)
    return [row for row in world.rows(store=False) if row.topic != "quiet" or row.position != gone["position"]]


@case({}, 32)
def a_polling_replica_lost_the_begin_of_its_journal(world: Scenario) -> list[Row]:
    """Nothing shows that it polls. What it read from the changelog is no message of an unknown publisher."""
    world.follow(polls=True)
    other = world.begin("replica", "other")
    world.follow(replica=other)
    for _ in range(3):
        sent = world.publish()
        world.receive(sent, replica=other)
        polled = {**sent, "uuid": "polled", "service": "db-polling", "outcome": "applied"}
        world.replica.record(world.time + WAY, **polled)
    return [row for row in world.rows() if row.run != world.replica.run or row.number > 2]


def with_ids(world: Scenario, of_replica: str, of_service: str, *, again: bool) -> list[Row]:
    """The store's id in the marks and ends of two runs. ``again``: a run has both, because the database was made again
    while it went on.
    """
    world.follow()
    world.deliver(3)
    rows = []
    for row in world.rows():
        peer = {world.replica.run: of_replica, world.service.run: of_service}.get(row.run, "")
        if row.run == world.writer.run and again:
            peer = of_replica if row.kind == "mark" else of_service
        rows.append(msgspec.structs.replace(row, peer=peer) if row.kind in ("mark", "close") else row)
    return rows


@case({}, 32)
def journals_of_two_databases_in_one_folder(world: Scenario) -> list[Row]:
    return with_ids(world, "aa", "bb", again=False)


@case({}, 0)
def the_database_got_another_id_while_a_program_ran(world: Scenario) -> list[Row]:
    return with_ids(world, "aa", "bb", again=True)


@case({}, 32)
def no_replica_has_a_journal(world: Scenario) -> list[Row]:
    """Nothing is expected, so nothing is lost."""
    return [row for row in lose(world, 3) if row.side != "replica"]


@case({}, 32)
def only_the_sending_half_of_a_relay_has_a_journal(world: Scenario) -> list[Row]:
    relay = world.begin("relay", "relay-1")
    relay.record(BEGIN + 2000, kind="hello", peer="n1", uuid="u")
    relay.record(BEGIN + 60_000, kind="mark")
    return [row for row in world.rows() if row.run == relay.run]


@case({}, 32)
def one_of_two_replicas_has_no_journal(world: Scenario) -> list[Row]:
    """Only the replies to its hello requests show that it was there."""
    lost = world.begin("replica", "lost")
    lost.record(BEGIN + 1990, kind="ask", peer="n1")
    world.service.record(BEGIN + 2000, kind="hello", peer="n1", uuid="u")
    world.service.record(BEGIN + 2500, kind="hello", peer="n1", uuid="u")
    world.service.record(BEGIN + 3000, kind="hello", peer="observer-1", uuid="u")
    world.ask(BEGIN + 2200)
    world.follow()
    world.deliver(5)
    return [row for row in world.rows() if row.run != lost.run]


@case({}, 32)
def requests_around_lost_records(world: Scenario) -> list[Row]:
    """The disk of the replica is full between two marks. The first request and the last one cannot be its own."""
    for answered in (1899, 1900, 2000, 2100 + GRACE, 2101 + GRACE):
        world.service.record(BEGIN + answered, kind="hello", peer=f"n{answered}", uuid="u")
    world.replica.record(BEGIN + 1900, kind="mark")
    world.replica.record(BEGIN + 1990, kind="ask", peer="n2000")
    world.replica.record(BEGIN + 2100, kind="mark")
    world.follow()
    world.deliver(5)
    return [row for row in world.rows() if row.side != "replica" or row.peer != "n2000"]


@case({("pending", "", ""): 5}, 32)
def unknown_hello_requests_count_in_closed_windows_only(world: Scenario) -> list[Row]:
    """The journal of a running replica may have been read before the reply to its request was written."""
    world.service.record(BEGIN + 2000, kind="hello", peer="n1", uuid="u")
    world.follow()
    for _ in range(5):
        world.publish()
    return world.rows(close=False)


@case({}, 32)
def two_replicas_share_a_name(world: Scenario) -> list[Row]:
    """One of them loses a message, which the other one receives: the two are judged as one replica."""
    other = world.begin("replica", "r")
    other.end = BEGIN + 40_000
    world.follow()
    world.follow(replica=other)
    for _ in range(5):
        sent = world.publish()
        world.receive(sent)
        world.receive(sent, replica=other)
    world.receive(world.publish())
    return world.rows()


def moved(world: Scenario) -> list[Row]:
    """A replica moves to another host. By its clock the new run begins before the old one ended, within the grace."""
    world.replica.end = BEGIN + 20_000
    world.replica.record(BEGIN + 19_999, kind="close")
    again = world.begin("replica", "r", BEGIN + 20_100, skew=-GRACE // 2)
    world.follow()
    world.deliver(5)
    world.follow(replica=again, at=BEGIN + 20_200, base=world.position)
    return world.rows()


@case({("unknown", "gap", ""): 2}, 32)
def the_journal_of_a_replica_is_torn(world: Scenario) -> list[Row]:
    """The replica may have applied two more messages before it was started again."""
    return torn_replica(world)


@case({("excused", "covered", ""): 2}, 0)
def a_replica_is_killed(world: Scenario) -> list[Row]:
    return torn_replica(world, torn=False)


def torn_replica(world: Scenario, *, torn: bool = True) -> list[Row]:
    world.follow()
    world.deliver(3)
    world.replica.end = world.time + 50
    for _ in range(2):
        world.publish()
    again = world.begin("replica", "r", world.time + 50)
    world.follow(replica=again, at=world.time + 60, base=world.position)
    sent = world.publish()
    world.receive(sent, replica=again)
    rows = world.rows()
    if torn:
        TORN.add((world.replica.run, max(row.number for row in rows if row.run == world.replica.run)))
    return rows


def killed_for_good(world: Scenario, side: str, name: str) -> Participant:
    """One more participant, which is killed and never comes back."""
    dead = world.begin(side, name)
    dead.end = BEGIN + 12_000
    return dead


@case({("unknown", "gap", ""): 5, ("lost", "middle", "wire"): 1}, 33)
def no_window_waits_for_a_dead_replica(world: Scenario) -> list[Row]:
    """One of two replicas is killed for good. Long after that, the other one loses a message."""
    dead = killed_for_good(world, "replica", "dead")
    world.follow()
    world.follow(replica=dead)
    for number in range(10):
        if number == 5:
            world.time = BEGIN + 50_000
        sent = world.publish()
        if number != 7:
            world.receive(sent)
        if number < 5:
            world.receive(sent, replica=dead)
    return world.rows()


@case({("unknown", "gap of a publisher", ""): 1, ("lost", "", "service"): 1, ("unpublished", "", ""): 1}, 33)
def no_window_waits_for_a_dead_service(world: Scenario) -> list[Row]:
    """It may have sent the first commit after its last record. It expired before the second one, which is lost."""
    killed_for_good(world, "service", "dead")
    world.follow()
    world.deliver(3)
    world.time = BEGIN + 20_000
    world.hand(world.link())
    world.time = BEGIN + 12_000 + SILENCE
    columns = world.link()
    world.hand(columns)
    world.take(columns)
    world.deliver(1)
    return world.rows()


def killed_and_back(world: Scenario, after: int, skew: int = 0) -> list[Row]:
    """A replica is killed, misses two messages, and comes back; with a ``skew`` on another host."""
    world.follow()
    world.deliver(3)
    world.replica.end = BEGIN + 12_000
    world.time = world.replica.end + after // 2
    for _ in range(2):
        world.publish()
    again = world.begin("replica", "r", world.replica.end + after, skew)
    world.time = again.begin + GRACE
    world.follow(replica=again, at=again.begin + 10, base=world.position)
    for _ in range(3):
        world.receive(world.publish(), replica=again)
    return world.rows()


@case({("unknown", "gap", ""): 2}, 32)
def a_replica_is_killed_and_comes_back_after_the_silence(world: Scenario) -> list[Row]:
    """The windows are closed before it comes back, so the verdict must not depend on it."""
    return killed_and_back(world, SILENCE + 1000)


@case({("unknown", "gap of a publisher", ""): 1, ("lost", "", "service"): 1, ("unpublished", "", ""): 1}, 33)
def the_journal_of_a_service_is_torn(world: Scenario) -> list[Row]:
    """It may have sent the commit before its end; the one after the begin of its successor is lost."""
    world.follow()
    world.deliver(3)
    world.service.end = world.time + 50
    world.hand(world.link())
    world.time += GRACE + STEP
    again = world.begin("service", "s", world.time)
    world.time += GRACE + STEP
    again.record(world.time + 1, **{**world.link(), "outcome": "taken", "cause": "s"})
    rows = world.rows()
    TORN.add((world.service.run, max(row.number for row in rows if row.run == world.service.run)))
    return rows


@case({("lost", "prefix", "wire"): 1}, 1)
def the_first_is_lost(world: Scenario) -> list[Row]:
    return lose(world, 1)


@case({("lost", "middle", "wire"): 1}, 1)
def one_in_the_middle_is_lost(world: Scenario) -> list[Row]:
    return lose(world, 3)


@case({("lost", "suffix", "wire"): 1}, 1)
def the_last_is_lost(world: Scenario) -> list[Row]:
    return lose(world, 5)


@case({("lost", "suffix", "wire"): 1, ("missing", "", ""): 1}, 5)
def the_tail_of_an_idle_topic_is_lost(world: Scenario) -> list[Row]:
    world.follow("t")
    world.follow("idle")
    world.publish("idle")
    world.deliver(20)
    world.stored({"k": (1, 1001)}, "idle")
    world.held({}, BEGIN + 50_000, 0, "idle")
    return world.rows()


@case({("reordered", "", ""): 1}, 0)
def three_comes_after_four(world: Scenario) -> list[Row]:
    world.follow()
    sent = [world.publish() for _ in range(5)]
    for place, number in enumerate((1, 2, 4, 3)):
        world.receive(sent[number - 1], "waiting" if number == 4 else "applied", at=world.time + 10 + place)
    world.receive({**sent[3], "uuid": "", "sequence": 0}, at=world.time + 14)
    world.receive(sent[4], at=world.time + 15)
    return world.rows()


@case({("duplicate_dropped", "", ""): 1}, 0)
def a_duplicate_is_dropped(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(2)
    sent = world.publish()
    world.receive(sent)
    world.receive(sent, "old", after=50)
    world.deliver(2)
    return world.rows()


@case({("duplicate_applied", "", ""): 1}, 16)
def a_duplicate_is_applied(world: Scenario) -> list[Row]:
    world.follow()
    sent = world.publish()
    world.receive(sent)
    world.receive(sent, after=50)
    world.deliver(2)
    return world.rows()


@case({("stale_applied", "", ""): 1, ("reordered", "", ""): 0}, 16)
def an_older_version_is_applied_over_a_newer_one(world: Scenario) -> list[Row]:
    world.follow()
    first, second = world.publish(), world.publish()
    world.receive(second, after=1)
    world.receive(first, after=2)
    return world.rows()


@case({}, 0)
def a_service_restarts(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(5)
    world.service.end = world.time + 50  # killed: no close
    again = world.begin("service", "s", world.time + 60)
    world.service = again
    world.deliver(5)
    return world.rows()


@case({("repaired", "", "wire"): 1}, 0)
def a_loss_is_repaired_by_a_sync(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(2)
    world.publish()
    world.sync(world.time + BOUND, "t", world.position)
    world.deliver(2)
    return world.rows()


@case({("lost", "middle", "wire"): 1}, 1)
def a_delta_that_begins_behind_a_loss_repairs_nothing(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(2)
    world.publish()
    world.deliver(2)
    world.sync(world.time + 50, "t", world.position, count=0, after=world.position)
    return world.rows()


@case({}, 0)
def a_replica_that_polls(world: Scenario) -> list[Row]:
    world.follow(polls=True)
    for _ in range(5):
        world.poll()
    return world.rows()


@case({("late", "", ""): 1}, 8)
def polling_brings_something_late(world: Scenario) -> list[Row]:
    world.follow(polls=True)
    world.poll(after=BOUND + 1)
    world.poll(after=BOUND)
    return world.rows()


@case({("repaired", "", "polling"): 1}, 0)
def a_commit_missed_by_polling_is_repaired_by_a_sync(world: Scenario) -> list[Row]:
    world.follow(polls=True)
    world.poll()
    world.publish()
    world.sync(world.time + 50, "t", world.position, outcome="full")
    return world.rows()


@case({("lost", "", "polling"): 1}, 1)
def polling_misses_a_commit(world: Scenario) -> list[Row]:
    world.follow(polls=True)
    world.poll()
    world.publish()
    world.poll()
    return world.rows()


@case({}, 0)
def a_needless_sync(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(2)
    world.sync(world.time + 50, "t", world.position, count=0)
    return world.rows()


@case({("late", "", "wire"): 1}, 8)
def a_loss_is_repaired_too_late(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(2)
    world.publish()
    world.sync(world.time + BOUND + 4, "t", world.position)
    return world.rows()


@case({("late", "", ""): 1}, 8)
def a_message_comes_late(world: Scenario) -> list[Row]:
    world.follow()
    world.receive(world.publish(), after=BOUND + 1)
    world.receive(world.publish(), after=BOUND)
    return world.rows()


@case({("excused", "covered", ""): 5}, 0)
def a_subscriber_joins_late(world: Scenario) -> list[Row]:
    for _ in range(5):
        world.publish()
    world.follow(at=world.time + 20, base=5)
    world.deliver(3)
    return world.rows()


@case({("excused", "stopped", ""): 4}, 0)
def a_subscriber_leaves(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(3)
    world.replica.record(world.time + 20, kind="drop", topic="t")
    for _ in range(4):
        world.publish()
    return world.rows()


@case({("excused", "covered", ""): 3}, 0)
def a_replica_is_killed_and_comes_back(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(3)
    world.replica.end = world.time + 20
    for _ in range(3):
        world.publish()
    again = world.begin("replica", "r", world.time + 10)
    world.follow(replica=again, at=world.time + 20, base=6)
    world.replica = again
    world.time += 100
    world.deliver(3)
    return world.rows()


@case({("unknown", "gap", ""): 1}, 32)
def a_hole_in_the_subscribers_journal(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(5)
    rows = world.rows()
    gone = next(row for row in rows if row.side == "replica" and row.sequence == 3 and row.kind == "data")
    return [row for row in rows if row is not gone]


@case({("unknown", "gap", ""): 1, ("lost", "middle", "wire"): 1}, 33)
def a_loss_long_before_a_hole_in_the_subscribers_journal(world: Scenario) -> list[Row]:
    """The loss is certain: the hole begins after its horizon."""
    world.follow()
    world.deliver(2)
    world.publish()
    world.deliver(2)
    world.time += BOUND + 4 * GRACE
    world.deliver(2)
    hidden = world.publish()
    world.receive(hidden)
    world.deliver(2)
    return [
        row
        for row in world.rows()
        if row.run != world.replica.run or row.kind != "data" or row.position != hidden["position"]
    ]


@case({("unknown", "gap", ""): 1}, 32)
def a_hole_hides_the_sync_before_a_late_publication(world: Scenario) -> list[Row]:
    """The service was stopped: it sent the change when the replica had read it; the record of that is lost."""
    world.follow()
    world.deliver(2)
    columns = world.link()
    world.hand(columns)
    world.take(columns)
    world.sync(world.time + 20, "t", world.position, after=world.position - 1)
    world.time += 2 * STEP
    world.send(columns)
    world.deliver(3)
    rows = world.rows()
    return [row for row in rows if row.side != "replica" or row.kind != "sync_end" or row.outcome == "full"]


@case({("unknown", "gap of a publisher", ""): 1}, 32)
def a_hole_in_the_services_journal(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(5)
    rows = world.rows()
    gone = next(row for row in rows if row.outcome == "sent" and row.sequence == 3)
    return [row for row in rows if row is not gone]


@case({("unknown", "gap of a publisher", ""): 2}, 32)
def a_hole_in_the_services_journal_over_what_was_lost(world: Scenario) -> list[Row]:
    """One of the two messages was not received, so no receipt shows which commit its sequence carried."""
    world.follow()
    world.deliver(2)
    world.publish()
    world.deliver(3)
    rows = world.rows()
    return [row for row in rows if not (row.outcome == "sent" and row.sequence in (3, 4))]


@case({("unknown", "unrecorded", ""): 2}, 32)
def a_hole_in_the_services_journal_of_an_unknown_commit(world: Scenario) -> list[Row]:
    """Neither the writer nor the store has a journal: only the sequences are known."""
    world.follow()
    world.deliver(2)
    world.publish()
    world.deliver(3)
    rows = world.rows(store=False)
    gone = [row for row in rows if row.position in (3, 4) and row.side == "service"]
    return [row for row in rows if row not in gone and row.side != "writer"]


@case({("unknown", "unrecorded", ""): 3, ("lost", "", "service"): 1, ("unpublished", "", ""): 4}, 33)
def one_of_two_services_has_no_journal(world: Scenario) -> list[Row]:
    """The message without a receipt is lost; the received ones were not repaired."""
    other = world.begin("service", "s2")
    world.follow()
    world.deliver(2)
    for number in range(4):
        sent = world.publish(service=other)
        if number != 1:
            world.receive(sent)
    return [row for row in world.rows() if row.run != other.run]


@case({("corrupt", "wire", ""): 1}, 2)
def one_sequence_has_two_hashes(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(2)
    world.receive({**world.publish(), "hash": 1})
    return world.rows()


@case({("corrupt", "publisher", ""): 1}, 2)
def a_publisher_sends_one_sequence_with_two_hashes(world: Scenario) -> list[Row]:
    world.follow()
    sent = world.publish()
    world.service.record(world.time + 4, **{**sent, "hash": 1})
    world.receive(sent)
    return world.rows()


def changed(world: Scenario, at: str) -> list[Row]:
    """The second of three messages has another content from one place on; each later record agrees with it."""
    world.follow()
    world.deliver(1)
    columns = world.link()
    for place, record in (("writer", world.hand), ("hop", world.take), ("publisher", None)):
        if place == at:
            columns = {**columns, "hash": 1}
        if record is not None:
            record(columns)
    world.receive(world.send(columns))
    world.deliver(1)
    return world.rows()


@case({("corrupt", "writer", ""): 1}, 2)
def the_changelog_has_another_content_than_all_others(world: Scenario) -> list[Row]:
    return changed(world, "writer")


@case({("corrupt", "hop", ""): 1}, 2)
def the_hop_changes_a_content(world: Scenario) -> list[Row]:
    return changed(world, "hop")


@case({("corrupt", "publisher", ""): 1}, 2)
def the_publisher_changes_a_content(world: Scenario) -> list[Row]:
    return changed(world, "publisher")


@case({("corrupt", "hop", ""): 1}, 2)
def a_content_is_changed_and_the_store_is_not_audited(world: Scenario) -> list[Row]:
    return [row for row in changed(world, "hop") if row.side != "store"]


@case({("corrupt", "polling", ""): 1}, 2)
def polling_brings_another_content(world: Scenario) -> list[Row]:
    world.follow(polls=True)
    world.poll()
    world.poll()
    world.replica.events[-1][1]["hash"] = 1
    world.poll()
    return world.rows()


@case({("corrupt", "sync", "wire"): 1}, 2)
def a_delta_brings_another_content(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(1)
    lost = world.publish()
    world.receive({**lost, "uuid": "", "sequence": 0, "hash": 1}, at=world.time + BOUND // 2)
    world.sync(world.time + BOUND // 2 + 10, "t", world.position, after=1)
    return world.rows()


@case({("repaired", "", "wire"): 1}, 0)
def a_part_of_a_large_link_is_not_compared_with_the_whole(world: Scenario) -> list[Row]:
    world.follow()
    columns = world.link()
    world.hand(columns)
    world.take(columns)
    world.send({**columns, "parts": 2, "hash": 1})
    world.receive({**columns, "cause": "delta"}, at=world.time + 50)
    return world.rows()


@case({("zombie", "", ""): 1}, 4)
def a_delete_is_missed(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(1)
    columns = world.link(action="delete")
    world.hand(columns)
    world.take(columns)
    world.receive(world.send(columns))
    world.stored({})
    world.held({"k": (1, 1001)}, BEGIN + 50_000, 2)
    return world.rows()


@case({("zombie", "", ""): 1}, 4)
def an_object_that_never_was(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(3)
    world.stored({"k": (3, 1003)})
    world.held({"k": (3, 1003), "ghost": (2, 7)}, BEGIN + 50_000, 3)
    return world.rows()


@case({("missing", "", ""): 1, ("stale", "", ""): 1, ("wrong_value", "", ""): 1}, 4)
def objects_differ(world: Scenario) -> list[Row]:
    world.follow()
    for key in ("a", "b", "c", "b", "d"):
        world.receive(world.publish(key=key))
    world.stored({"a": (1, 1001), "b": (4, 1004), "c": (3, 1003), "d": (5, 1005)})
    world.held({"b": (2, 1002), "c": (3, 7), "d": (5, 1005)}, BEGIN + 50_000, 5)
    return world.rows()


@case({}, 32)
def a_replica_recorded_nothing_of_what_it_held(world: Scenario) -> list[Row]:
    """Neither at a mark nor at its end, although it read and applied objects."""
    world.follow()
    world.receive(world.publish())
    world.stored({"k": (1, 1001)})
    return world.rows()


@case({}, 0)
def a_replica_holds_what_the_changelog_has(world: Scenario) -> list[Row]:
    """Also when the transaction that it has reached changed another topic, and at a point of a replaced history."""
    world.follow("")
    world.hold(0, 0, 0)
    world.deliver(3)
    world.hold(3, 1, 7003)
    world.deliver(1, "other")
    world.hold(4, 1, 7003)
    world.hold(4, 9, 9, nonce=77)
    world.hold(4, 1, 7004, topic="other")
    return world.rows()


@case({("lost", "middle", "subscriber"): 5, ("diverged", "", ""): 1}, 5)
def a_replica_applies_nothing(world: Scenario) -> list[Row]:
    """It records that it had every message before."""
    world.follow()
    for _ in range(5):
        world.receive(world.publish(), "old")
    world.hold(0, 0, 0)
    return world.rows()


@case({("diverged", "", ""): 1}, 4)
def a_replica_applies_nothing_and_moves_its_point(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(5)
    world.hold(5, 0, 0)
    return world.rows()


@case({("lost", "middle", "subscriber"): 1}, 1)
def one_message_was_old_although_the_replica_was_not_so_far(world: Scenario) -> list[Row]:
    """Another topic is further, and the message before and the one after it are applied."""
    world.follow()
    world.follow("u", at=BEGIN + 40)
    world.deliver(2)
    sent = world.publish()
    world.deliver(1, "u")
    world.receive(sent, "old", at=world.time + 20)
    world.deliver(2)
    return world.rows()


@case({("lost", "middle", "subscriber"): 1}, 1)
def old_because_a_delta_claims_its_link(world: Scenario) -> list[Row]:
    """The delta brings the link behind it, and not this one. Its message arrives after the delta."""
    world.follow()
    world.deliver(1)
    sent = world.publish()
    after = world.publish()
    world.receive({**after, "service": "", "uuid": "", "sequence": 0, "cause": "delta"}, at=world.time + 19)
    world.sync(world.time + 20, "t", 3, count=0, after=1)
    world.receive(sent, "old", at=world.time + 30)
    world.receive(after, "old", at=world.time + 31)
    return world.rows(store=False)


@case({("lost", "middle", "subscriber"): 3}, 1)
def from_the_middle_on_all_messages_were_old(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(3)
    for _ in range(3):
        world.receive(world.publish(), "old")
    return world.rows(store=False)


@case({("late", "", ""): 1}, 8)
def a_message_was_old_before_a_sync_brought_it(world: Scenario) -> list[Row]:
    """What the replica records later does not show that it was so far then."""
    world.follow()
    world.deliver(2)
    world.receive(world.publish(), "old")
    world.sync(world.time + BOUND + 500, "t", world.position, outcome="full")
    return world.rows()


@case({}, 0)
def messages_were_old_after_a_sync_of_the_topic_or_of_everything(world: Scenario) -> list[Row]:
    """A replica of everything has one chain for all topics."""
    other = world.begin("replica", "other")
    world.follow()
    world.follow("", replica=other)
    first = world.publish()
    second = world.publish("u")
    world.sync(world.time, "", 1, replica=other, outcome="full")
    world.receive(second, replica=other)
    world.receive(first, "old", replica=other, at=world.time + 10)
    world.sync(world.time + 10, "t", 1, outcome="full")
    world.receive(first, "old", at=world.time + 20)
    return world.rows()


@case({("lost", "middle", "subscriber"): 5, ("diverged", "", ""): 1}, 5)
def a_replica_claims_without_a_store_that_everything_was_old(world: Scenario) -> list[Row]:
    """It applies nothing. Its own records fit together, and the publishers' counts and digests do not."""
    world.follow()
    for _ in range(5):
        world.receive(world.publish(), "old")
    world.hold(5, 0, 0)
    return world.rows(store=False)


@case({("lost", "suffix", "wire"): 1, ("diverged", "", ""): 1}, 5)
def delta_without_a_link_and_there_is_no_store(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(1)
    world.publish()
    world.sync(world.time + 30, "t", world.position, count=0, after=1)
    world.hold(2, 1, 7001)
    return world.rows(store=False)


@case({("diverged", "", ""): 1}, 4)
def a_replica_of_everything_diverged_and_there_is_no_store(world: Scenario) -> list[Row]:
    """Its point is that of a link of another topic. The next link of the topic shows which one was the last."""
    world.follow("")
    world.deliver(2)
    world.deliver(1, "u")
    world.hold(3, 1, 7001)
    world.hold(3, 1, 7003, topic="u")
    world.deliver(1)
    return world.rows(store=False)


@case({}, 0)
def contents_of_which_no_publisher_shows_the_last_link(world: Scenario) -> list[Row]:
    """After the point there is no link of the topic that names the one before it, or the point is unknown."""
    world.follow("")
    world.deliver(2)
    world.deliver(1, "u")
    world.hold(3, 1, 9999)
    world.hold(3, 1, 9999, nonce=77, topic="u")
    return world.rows(store=False)


@case({("lost", "middle", "wire"): 1, ("diverged", "", ""): 1}, 5)
def delta_without_a_link(world: Scenario) -> list[Row]:
    """It claims to have read everything up to the head. Later messages do not repair the topic."""
    world.follow()
    world.deliver(1)
    world.publish()
    world.sync(world.time + 30, "t", world.position, count=0, after=1)
    world.hold(2, 1, 7001)
    world.deliver(1)
    world.hold(3, 1, 7001)
    return world.rows()


@case({("lost", "suffix", "wire"): 1, ("repaired", "", "wire"): 1}, 1)
def delta_ends_at_the_head_without_one_of_two_links(world: Scenario) -> list[Row]:
    """Nothing shows what the replica holds: the end of the delta is its only record of the second link."""
    world.follow()
    world.deliver(1)
    sent = world.publish()
    world.publish()
    applied = {**sent, "service": "", "uuid": "", "sequence": 0, "cause": "delta"}
    world.receive(applied, at=world.time + 29)
    world.sync(world.time + 30, "t", world.position, count=0, after=1)
    return world.rows(store=False)


@case({("diverged", "", ""): 1, ("unknown", "gap", ""): 1}, 36)
def a_killed_replica_is_compared_at_its_marks(world: Scenario) -> list[Row]:
    """It is killed for good. Another replica is as it should be."""
    other = world.begin("replica", "other")
    world.follow()
    world.follow(replica=other)
    for number in range(5):
        sent = world.publish()
        world.receive(sent, replica=other)
        if number < 4:
            world.receive(sent)
        if number == 3:
            world.hold(4, 2, 7004)
    world.replica.end = BEGIN + 5_000
    return world.rows()


@case({("rot", "", ""): 2}, 4)
def memory_of_a_replica_rots_and_the_database(world: Scenario) -> list[Row]:
    """One row of the replica, and one of the store."""
    world.follow()
    world.deliver(2)
    world.replica.record(world.time + 60, kind="rot", topic="t", cause="memory", count=1)
    world.replica.record(world.time + 70, kind="rot", topic="t", cause="memory", count=2)
    world.service.record(world.time + 60, kind="rot", topic="u", cause="store", count=1)
    world.hold(2, 1, 7002)
    return world.rows()


@case({}, 0)
def a_full_sync_leads_back(world: Scenario) -> list[Row]:
    """Of a store that is behind."""
    world.follow()
    world.deliver(3)
    world.sync(world.time + 30, "t", 2, outcome="full")
    world.hold(2, 1, 7002)
    return world.rows()


def everything(world: Scenario, at: int = BEGIN + 10) -> None:
    """A replica of everything receives messages of two topics, and lists the objects of one at its end."""
    world.follow("", at=at)
    world.deliver(2)
    world.deliver(2, "u")
    world.stored({"k": (2, 1002)})
    world.stored({"k": (4, 1004), "l": (3, 1003)}, "u")
    world.stored({}, "emptied")
    world.held({"k": (2, 1002)}, BEGIN + 50_000, 4)


@case({("missing", "", ""): 2}, 4)
def a_replica_of_everything_lacks_a_whole_topic(world: Scenario) -> list[Row]:
    everything(world)
    return world.rows()


def emptied(world: Scenario) -> None:
    """A replica of everything held a topic, whose last object was deleted before a full sync."""
    world.follow("")
    world.deliver(1, "u")
    world.hold(1, 1, 7001, topic="u")
    world.deliver(1)
    world.send(world.link("u", action="delete"))
    world.sync(world.time + 60, "", 3, outcome="full")
    world.stored({"k": (2, 1002)})
    world.held({"k": (2, 1002)}, BEGIN + 50_000, 3)


@case({("repaired", "", "wire"): 1}, 0)
def a_replica_of_everything_does_not_list_a_topic_that_a_full_sync_did_not_have(world: Scenario) -> list[Row]:
    emptied(world)
    return world.rows()


@case({("repaired", "", "wire"): 1}, 0)
def a_replica_of_everything_does_not_list_a_topic_without_objects(world: Scenario) -> list[Row]:
    """It records the topic as empty, after a message that came late."""
    emptied(world)
    world.time += 100
    world.hold(3, 0, 0, nonce=77, topic="u")
    return world.rows()


@case({("missing", "", ""): 2}, 4)
def a_replica_of_everything_had_a_topic_before_it_was_started_again(world: Scenario) -> list[Row]:
    """The listing of the run before does not count."""
    world.follow("")
    world.held({"k": (4, 1004), "l": (3, 1003)}, BEGIN + 500, 4, "u")
    world.replica.record(BEGIN + 501, kind="close")
    world.replica.end = BEGIN + 502
    world.replica = world.begin("replica", "r", BEGIN + 510)
    everything(world, BEGIN + 520)
    return world.rows()


@case({("excused", "stopped", ""): 1}, 0)
def a_replica_that_had_followed_everything_lists_its_topic(world: Scenario) -> list[Row]:
    world.follow("t")
    world.follow("", at=BEGIN + 40)
    world.replica.record(BEGIN + 80, kind="drop", topic="")
    world.deliver(2)
    world.publish("u")
    world.stored({"k": (2, 1002)})
    world.stored({"k": (3, 1003)}, "u")
    world.held({"k": (2, 1002)}, BEGIN + 50_000, 3)
    return world.rows()


@case({("foreign_history", "", ""): 1}, 4)
def a_replica_is_at_a_point_that_was_never_committed(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(3)
    world.stored({"k": (3, 1003)})
    world.held({"k": (9, 7)}, BEGIN + 50_000, 9)
    return world.rows()


@case({("unknown", "", ""): 1}, 32)
def a_replica_is_ahead_of_a_store_that_was_read_before(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(3)
    world.stored({"k": (3, 1003)})
    world.held({"k": (9, 7)}, BEGIN + 90_002 - GRACE, 9)
    return world.rows()


@case({("behind", "", ""): 1}, 0)
def a_replica_is_behind_within_the_bound(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(1)
    world.receive(world.publish(), after=40)
    world.stored({"k": (2, 1002)})
    world.held({"k": (1, 1001)}, world.time + 30, 1)
    return world.rows()


@case({("lost", "", "hop"): 1, ("unpublished", "", ""): 1}, 1)
def a_loss_in_the_ipc_hop(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(2)
    world.hand(world.link())
    return world.rows()


@case({("lost", "", "service"): 1, ("unpublished", "", ""): 1}, 1)
def a_loss_in_the_service(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(2)
    columns = world.link()
    world.hand(columns)
    world.take(columns)
    return world.rows()


@case({("lost", "", "writer"): 1, ("unpublished", "", ""): 1}, 1)
def a_commit_without_a_handover(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(2)
    world.link()
    return world.rows()


@case({("lost", "middle", "subscriber"): 1}, 1)
def a_loss_in_the_subscriber(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(2)
    world.receive(world.publish(), "dropped")
    world.deliver(2)
    return world.rows()


@case({("lost", "suffix", "wire"): 30}, 1)
def a_wire_is_cut(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(1)
    for _ in range(30):
        world.publish()
    return world.rows()


@case({}, 0)
def another_topic_makes_no_holes(world: Scenario) -> list[Row]:
    world.follow("t")
    for _ in range(5):
        world.publish("other")
        world.deliver(1, "t")
    return world.rows()


@case({}, 0)
def a_replica_of_everything(world: Scenario) -> list[Row]:
    world.follow("")
    world.deliver(3, "t")
    world.deliver(3, "u")
    return world.rows()


@case({("phantom", "", ""): 1}, 2)
def a_message_that_was_not_published(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(2)
    sent = world.publish()
    world.receive(sent)
    world.receive({**sent, "sequence": 77})
    world.deliver(2)
    return world.rows()


@case({("misrouted", "", ""): 1}, 2)
def a_message_of_a_neighbouring_topic(world: Scenario) -> list[Row]:
    world.follow("tenant-1")
    world.receive(world.publish("tenant-1"))
    world.receive(world.publish("tenant-10"))
    return world.rows()


@case({("pending", "", ""): 1}, 32)
def nothing_is_lost_in_an_open_window(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(2)
    world.publish()
    return world.rows(close=False)


@case({("unknown", "no sync", ""): 1}, 32)
def a_replica_that_never_synced(world: Scenario) -> list[Row]:
    world.replica.record(BEGIN + 10, kind="interest", topic="t")
    world.publish()
    rows = world.rows()
    closing = max(row.wall for row in rows if row.side == "replica")
    return [row for row in rows if not (row.side == "replica" and row.kind == "close" and row.wall == closing)]


def roll_back(world: Scenario) -> None:
    """Publish a commit that the changelog does not have."""
    world.follow()
    world.deliver(2)
    before = dict(world.heads)
    world.receive(world.publish())
    world.store.events = [each for each in world.store.events if each[1].get("position") != world.position]
    world.heads = before
    world.deliver(1)


def change_history(world: Scenario, at: int) -> None:
    """A replica notices a changed history."""
    world.replica.record(at, kind="sync_begin", topic="t", sequence=99, cause="history changed")


@case({("phantom_publish", "", ""): 1}, 2)
def a_publication_that_was_rolled_back(world: Scenario) -> list[Row]:
    roll_back(world)
    return world.rows()


@case({("unknown", "", ""): 1}, 32)
def a_publication_that_a_restored_backup_does_not_hold(world: Scenario) -> list[Row]:
    """The same, but a replica noticed a changed history: the commit may have existed before the backup was restored."""
    roll_back(world)
    change_history(world, world.time + BOUND + 2 * GRACE - 1)
    return world.rows()


@case({("phantom_publish", "", ""): 1}, 2)
def a_publication_that_was_rolled_back_long_before_a_backup_was_restored(world: Scenario) -> list[Row]:
    """The backup holds later commits, so it would also hold this one."""
    roll_back(world)
    change_history(world, world.time + BOUND + 2 * GRACE)
    return world.rows()


@case({("phantom_publish", "", ""): 1}, 2)
def a_publication_that_was_rolled_back_after_a_backup_was_restored(world: Scenario) -> list[Row]:
    change_history(world, BEGIN + 2_000)
    world.time += 1_000 + GRACE
    roll_back(world)
    return world.rows()


@case({("chain_broken", "", ""): 1}, 4)
def a_chain_is_broken(world: Scenario) -> list[Row]:
    world.follow()
    world.deliver(2)
    world.heads["t"] = (1, 1)
    world.deliver(1)
    return world.rows()


def skewed(skew: int, asks: bool) -> list[Row]:
    world = Scenario(f"skew{skew}{'' if asks else '-unasked'}", skew)
    world.follow()
    if asks:
        world.ask(BEGIN + 300)
    world.deliver(3)
    world.publish()
    world.deliver(3)
    world.publish()
    world.sync(world.time + BOUND - 10, "t", world.position)
    world.receive(world.publish(), after=BOUND + WAY + 1)  # without hello requests the quickest message counts as 0
    world.replica.record(world.time + BOUND + 100, kind="drop", topic="t")
    world.time += BOUND + 300
    world.publish()
    return world.rows()


SKEWED: Kinds = {
    ("repaired", "", "wire"): 1, ("late", "", "wire"): 1, ("late", "", ""): 1, ("excused", "stopped", ""): 1
}  # fmt: skip


KILLED_AND_MOVED: Kinds = {("excused", "covered", ""): 2}


KNOWN = {
    **CASES,
    **clock_cases.CASES,
    **drift_cases.CASES,
    **late_cases.CASES,
    **polled_cases.CASES,
    **lie_cases.CASES,
    **restart_cases.CASES,
    **restore_cases.CASES,
}


def all_cases() -> dict[str, list[Row]]:
    found = {name: build(Scenario(name)) for name, (build, _, _) in KNOWN.items()}
    for skew in (-5000, 0, 5000):
        found[f"skew{skew}"] = skewed(skew, asks=True)
    found["skew-5000-unasked"] = skewed(-5000, asks=False)
    found["moved"] = moved(Scenario("moved"))
    # By the clock of the other host its run begins before the last record of the killed one, within the grace.
    found["killed-and-moved"] = killed_and_back(Scenario("killed-and-moved"), 300, -GRACE // 2)
    return found


def generate(seeds: Sequence[int]) -> dict[str, list[Row]]:
    found = {
        f"d{seed}": Generator(
            random.Random(seed), 0.0 if seed % 5 == 0 else 1.0, f"d{seed}", clocks=seed % 7 == CLOCKS
        ).rows()
        for seed in seeds
    }
    for seed in seeds:
        if seed % 7 == 3:
            found[f"d{seed}"] = torn(found[f"d{seed}"], random.Random(seed))
    return found


def torn(rows: list[Row], rng: random.Random) -> list[Row]:
    """The rows without the end of a run, whose file is damaged there."""
    run = rng.choice(sorted({row.run for row in rows if row.side != "store"}))
    numbers = sorted(row.number for row in rows if row.run == run)
    last = numbers[rng.randrange(len(numbers))]
    TORN.add((run, last))
    return [row for row in rows if row.run != run or row.number <= last]


def verdicts(one: Oracle) -> list[Counter[Any]]:
    return [Counter(each) for each in (one.delivery(), one.strays(), one.store(), one.state())]


def shifted(one: Oracle, rows: list[Row], host: str, by: int) -> list[Row]:
    """The journals of a host as with another wall clock. The times of commits are of the writers' host."""
    of_host = {each for each, clock in one.clocks.of.items() if clock.host == host and clock in one.clocks.first_mono}
    return [
        msgspec.structs.replace(
            row,
            wall=row.wall + (by if (row.run, row.number) in of_host else 0),
            written=row.written + (by if row.written and host == "h0" else 0),
        )
        for row in rows
    ]


def comparable(one: Oracle, host: str) -> bool:
    """Whether every clock is compared with the others, and every commit is of the writers' host."""
    return (
        any(clock.host == host for clock in one.clocks.measured)
        and len({one.clocks.group[clock] for clock in one.clocks.first_mono}) == 1
        and {row.host for row in one.rows if row.name in {each.cause for each in one.rows if each.written}} == {"h0"}
    )


@pytest.mark.long
def test_no_verdict_changes_when_the_clock_of_a_host_is_shifted() -> None:
    rng = random.Random(20261126)
    compared: Counter[str] = Counter()
    for seed in range(300):
        rows = Generator(random.Random(seed), 1.0, f"d{seed}", clocks=seed % 2 == 0).rows()
        one = oracle(rows)
        if {one.clocks.of[row.run, row.number] for row in rows if row.side == "store"} - one.clocks.first_mono.keys():
            rows = [row for row in rows if row.side != "store"]  # it was read by another clock
            one = oracle(rows)
        for host in ("h0", "h1", "h2"):
            if not comparable(one, host):
                continue
            by = WINDOW * rng.choice((1, -2, 123_457, -2077, -345_678, 7_654_321, rng.randrange(-(10**6), 10**6)))
            assert verdicts(oracle(shifted(one, rows, host, by))) == verdicts(one), (seed, host, by)
            compared[host] += 1
    assert min(compared[host] for host in ("h0", "h1", "h2")) >= 5, compared


@pytest.mark.long
@pytest.mark.parametrize(
    ("names", "most"),
    [
        ([name for name in CASES if "relay" not in name], 75),
        (["clean"], 58),
        (list(clock_cases.CASES), 80),
        (list(late_cases.CASES), 75),
    ],
    ids=["faults", "clean", "clocks", "late"],
)
def test_audit_of_little_data_runs_few_jobs(spark: "SparkSession", audit: Audit, names: list[str], most: int) -> None:
    """Each job costs planning, whatever it computes. The numbers, up to the summary, may only be lowered."""
    every = all_cases()
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()
    before = scheduler.numTotalJobs()
    tables = audit({name: every[name] for name in names}, LITTLE)
    collect(tables, aggregate(tables, SETTINGS), SETTINGS)
    assert scheduler.numTotalJobs() - before <= most


@pytest.mark.parametrize(("size", "number"), [pytest.param(MUCH, NUMBER, marks=pytest.mark.long), (LITTLE, SAME)])
def test_known_answers_and_hundreds_of_journals(audit: Audit, size: int, number: int, rng: random.Random) -> None:
    """One test for all checks: with parallel tests, several processes would each compute the same tables."""
    drawn = rng.sample(range(SAME, 2**32), number - SAME)
    cases, generated = all_cases(), generate([*range(SAME), *drawn])
    by_oracle = {name: oracle(rows) for name, rows in {**cases, **generated}.items()}
    of_generated = {name: by_oracle[name] for name in generated}
    tables = audit({**cases, **generated}, size)  # all together: Spark's overhead occurs only once
    derived = aggregate(tables, SETTINGS)
    summary = collect(tables, derived, SETTINGS)
    kinds: dict[str, Kinds] = defaultdict(dict)
    for each in summary.counts:
        kind = (each.verdict, each.detail, each.blame)  # rot may be of the state and of the store
        kinds[each.domain][kind] = kinds[each.domain].get(kind, 0) + each.count
    for name in KNOWN:
        known_answer(name, kinds)
    for name in ("skew-5000", "skew0", "skew5000", "skew-5000-unasked"):
        five_seconds_of_skew_change_no_verdict(name, kinds, by_oracle)
    assert wrong(kinds["killed-and-moved"]) == KILLED_AND_MOVED
    for name, way in (("skew-5000", WAY), ("skew5000", WAY), ("skew-5000-unasked", 0)):
        latencies_are_free_of_skew(name, way, summary)
    skew_is_measured(summary)
    a_repair_shows_when_it_was_detected_and_when_done(tables)
    needless_syncs_are_marked(tables)
    journals_with_planted_faults(tables, of_generated)
    the_balance_of_each_journal_holds(summary, of_generated)
    replicas_windows_and_streams_add_up_to_the_balance(derived, summary, generated)
    a_window_has_what_was_published_in_it(derived)
    polled_commits_are_delivered(tables, summary)
    losses_show_where_a_stream_was_cut(derived, summary)
    repaired_messages_make_no_worst_key(tables, derived)
    each_hop_has_its_latency(summary)
    percentiles_are_nearest_ranks_by_replica_and_of_all(tables.delivery.sparkSession)
    a_trail_ends_where_the_message_was_last_seen(summary)
    trails_are_those_of_the_oracle(summary, by_oracle)
    runs_are_those_of_the_oracle(summary, by_oracle)
    the_first_of_many_anomalies_are_named(summary, derived)
    the_detector_counts_missed_holes_and_needless_syncs(summary)
    the_course_of_time_adds_up(summary, derived)
    missing_participants_are_reported(summary, by_oracle)
    what_was_not_audited_is_counted(summary, {**cases, **generated})


def oracle(rows: list[Row]) -> Oracle:
    return Oracle(rows, WINDOW, GRACE, BOUND, SILENCE, TORN)


def kinds_of(one: Oracle) -> Kinds:
    found = Counter((row.verdict, row.detail, row.blame) for row in one.delivery())
    for table in (one.strays(), one.store(), one.state()):
        found.update((row.verdict, "", "") for row in table)
    return dict(found)


def wrong(found: Kinds) -> Kinds:
    return {kind: number for kind, number in found.items() if kind[0] != "ok" and number}


@pytest.mark.parametrize("name", KNOWN)
def test_known_answer_of_the_oracle(name: str) -> None:
    build, expected, code = KNOWN[name]
    one = oracle(build(Scenario(name)))
    assert wrong(kinds_of(one)) == wrong(expected)
    assert one.bits() == code


def test_replica_that_was_killed_and_comes_back_on_another_host_is_excused() -> None:
    one = oracle(all_cases()["killed-and-moved"])
    assert wrong(kinds_of(one)) == KILLED_AND_MOVED
    assert one.bits() == 0


def known_answer(name: str, kinds: Mapping[str, Kinds]) -> None:
    assert wrong(kinds[name]) == wrong(KNOWN[name][1]), name


def five_seconds_of_skew_change_no_verdict(
    name: str, kinds: Mapping[str, Kinds], by_oracle: Mapping[str, Oracle]
) -> None:
    assert wrong(kinds_of(by_oracle[name])) == SKEWED, name
    assert wrong(kinds[name]) == SKEWED, name


def skew_is_measured(summary: Summary) -> None:
    found = {(row["domain"], row["replica_host"]): row["skew"] for row in summary.skews}
    assert (found["skew-5000", "h-far"], found["skew5000", "h-far"]) == (-5000, 5000)
    assert found["skew-5000-unasked", "h-far"] == -5000 + 5  # the quickest message took 5
    assert found["the_clock_of_a_replica_is_an_hour_ahead", "h-far"] == HOUR
    assert found["the_clock_of_a_replica_is_set_back_by_30_seconds", "h-far"] == 7 - 30_000_000
    assert found["the_host_of_a_replica_was_suspended", "h-far"] == 7
    assert found["a_pair_of_hosts_never_exchanged_anything", "h-other"] is None


def a_repair_shows_when_it_was_detected_and_when_done(tables: "Tables") -> None:
    name = "a_loss_is_repaired_by_a_sync"
    (row,) = tables.delivery.filter(f"domain = '{name}' and verdict = 'repaired'").collect()
    assert row["settled"] - row["p"] == BOUND - 3  # the sending is 3 after the commit
    assert row["settled"] - row["detected"] == 5


def needless_syncs_are_marked(tables: "Tables") -> None:
    found = {
        name: [
            (row["outcome"], row["needless"], row["took"])
            for row in tables.syncs.filter(f"domain = '{name}'").orderBy("began").collect()
        ]
        for name in ("a_loss_is_repaired_by_a_sync", "a_needless_sync")
    }
    assert found == {
        "a_loss_is_repaired_by_a_sync": [("full", False, 5), ("delta", False, 5)],
        "a_needless_sync": [("full", False, 5), ("delta", True, 5)],
    }


def by_domain(table: "DataFrame", kind: type[T]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = defaultdict(list)
    for domain, *values in table.select("domain", *kind._fields).collect():
        found[domain].append(kind(*values))
    return found


def journals_with_planted_faults(tables: "Tables", generated: Mapping[str, Oracle]) -> None:
    delivery, strays = by_domain(tables.delivery, Verdict), by_domain(tables.strays, Stray)
    store, state = by_domain(tables.store, StoreFinding), by_domain(tables.state, Difference)
    seen: Counter[str] = Counter()
    for domain, one in generated.items():
        for mine, theirs in (
            (delivery[domain], one.delivery()),
            (strays[domain], one.strays()),
            (store[domain], one.store()),
            (state[domain], one.state()),
        ):
            pipeline, brute = Counter(mine), Counter(theirs)
            assert pipeline == brute, (domain, list(pipeline - brute)[:3], list(brute - pipeline)[:3])
            seen.update(row.verdict for row in theirs)
    assert seen.keys() >= EVERY


EVERY = {
    "ok", "reordered", "duplicate_dropped", "duplicate_applied", "late", "repaired", "lost", "corrupt", "phantom",
    "misrouted", "stale_applied", "pending", "excused", "unknown", "unpublished", "phantom_publish",
    "chain_broken", "missing", "zombie", "stale", "wrong_value", "behind", "diverged", "rot",
}  # fmt: skip


@pytest.mark.long
def test_a_thousand_journals_have_each_verdict_many_times() -> None:
    """By the oracle alone."""
    seen: Counter[str] = Counter()
    for rows in generate(range(1000)).values():
        one = oracle(rows)
        seen.update(row.verdict for table in (one.delivery(), one.strays(), one.store(), one.state()) for row in table)
        seen.update(f"corrupt {row.detail}" for row in one.delivery() if row.verdict == "corrupt")
    places = {"corrupt writer", "corrupt hop", "corrupt publisher", "corrupt wire", "corrupt polling", "corrupt sync"}
    assert min(seen[place] for place in places) >= 5, seen
    assert min(seen[kind] for kind in EVERY) >= 20, seen


def the_balance_of_each_journal_holds(summary: Summary, generated: Mapping[str, Oracle]) -> None:
    assert all(balance.holds for balance in summary.balance.values())
    for domain, one in generated.items():
        brute = one.balance()
        if brute["expected"]:
            assert {name: getattr(summary.balance[domain], name) for name in brute} == brute


def replicas_windows_and_streams_add_up_to_the_balance(
    derived: "Aggregates", summary: Summary, generated: dict[str, list[Row]]
) -> None:
    assert len(summary.balance) > len(generated) / 2
    names = Balance.__struct_fields__
    for table in (derived.balance, derived.window):
        sums: dict[str, Counter[str]] = defaultdict(Counter)
        for row in table.collect():
            sums[row["domain"]].update({name: row[name] for name in names})
        assert {domain: [each[name] for name in names] for domain, each in sums.items()} == {
            domain: [getattr(balance, name) for name in names] for domain, balance in summary.balance.items()
        }


def a_window_has_what_was_published_in_it(derived: "Aggregates") -> None:
    """The first of 200 messages, a hundred microseconds apart, is published 1103 after the begin."""
    found = derived.window.filter("domain = 'clean'").orderBy("window").collect()
    assert [(row["window"] - BEGIN, row["expected"], row["delivered"], row["closed"]) for row in found] == [
        (0, 89, 89, True), (WINDOW, 100, 100, True), (2 * WINDOW, 11, 11, True)
    ]  # fmt: skip


def polled_commits_are_delivered(tables: "Tables", summary: Summary) -> None:
    found = {
        name: Counter(row["way"] for row in tables.delivery.filter(f"domain = '{name}'").collect())
        for name in ("a_replica_that_polls", "a_commit_missed_by_polling_is_repaired_by_a_sync", "clean")
    }
    assert found == {
        "a_replica_that_polls": {"polling": 5},
        "a_commit_missed_by_polling_is_repaired_by_a_sync": {"polling": 1, "repair": 1},
        "clean": {"message": 200},
    }
    assert summary.balance["a_replica_that_polls"] == Balance(expected=5, delivered=5)
    assert summary.balance["polling_misses_a_commit"] == Balance(expected=3, delivered=2, lost=1)
    missed = summary.balance["a_commit_missed_by_polling_is_repaired_by_a_sync"]
    assert missed == Balance(expected=2, delivered=1, repaired=1)


def losses_show_where_a_stream_was_cut(derived: "Aggregates", summary: Summary) -> None:
    (row,) = derived.stream.filter("domain = 'a_wire_is_cut'").collect()
    assert (row["lowest"], row["highest"], row["expected"], row["lost"], row["repaired"]) == (1, 31, 31, 30, 0)
    everywhere, *worst = summary.losses
    (cut,) = [each for each in worst if each.stream[0] == "a_wire_is_cut"]
    assert cut.lost[0] == 0, "the first message arrived"
    assert sum(cut.lost) == 30
    assert cut.lost[48] == 1, "the last of 31 begins at 30/31 of the stream, in the part before the last of 50"
    assert sum(everywhere.lost) >= sum(sum(each.lost) for each in worst)
    assert ("a_wire_is_cut", "k", 30) in [(each["domain"], each["key"], each["anomalies"]) for each in summary.keys]


def repaired_messages_make_no_worst_key(tables: "Tables", derived: "Aggregates") -> None:
    def keys(verdict: str) -> list[dict[str, Any]]:
        some = derived.anomaly.filter((F.col("verdict") == verdict) & (F.col("domain") == name))
        assert not some.isEmpty()
        return anomalies.worst_keys(some, tables.rows, SETTINGS)

    name = "a_loss_is_repaired_by_a_sync"
    assert keys("repaired") == []
    name = "a_wire_is_cut"
    assert [each["anomalies"] for each in keys("lost")] == [30]


def hops(summary: Summary, domain: str) -> dict[str, tuple[int, int, int]]:
    return {
        row["hop"]: (row["count"], row["negative"], row["max"]) for row in summary.latencies if row["domain"] == domain
    }


def each_hop_has_its_latency(summary: Summary) -> None:
    assert hops(summary, "clean") == {
        "commit_publish": (200, 0, 3), "publish_receive": (200, 0, WAY), "receive_apply": (200, 0, 0),
        "publish_apply": (200, 0, WAY),
    }  # fmt: skip
    waited = hops(summary, "three_comes_after_four")
    assert waited["receive_apply"][2] > 0, "the fourth waited for the third"
    assert waited["publish_receive"][2] + waited["receive_apply"][2] >= waited["publish_apply"][2]
    repaired = hops(summary, "a_loss_is_repaired_by_a_sync")
    assert (repaired["detect"], repaired["repair"]) == ((1, 0, BOUND - 3 - 5), (1, 0, BOUND - 3))


def latencies_are_free_of_skew(name: str, way: int, summary: Summary) -> None:
    (row,) = [each for each in summary.latencies if (each["domain"], each["hop"]) == (name, "publish_receive")]
    assert row["negative"] == 0
    assert row["p50"] == way, "without a hello request the latency of the quickest message counts as 0"


def percentiles_are_nearest_ranks_by_replica_and_of_all(spark: "SparkSession") -> None:
    values = [("d", "a", "hop", value) for value in range(1, 1001)]  # each is its own rank
    values += [("d", "b", "hop", value) for value in (-1_234_567, -999, -1, 0)]
    values += [("d", "c", "hop", 1_234_567)]
    given = spark.createDataFrame(values, "domain string, name string, hop string, value bigint")
    found = {
        row["name"]: tuple(row[name] for name in ("count", "negative", "p50", "p95", "p99", "p999", "max"))
        for row in percentiles(counted(given, "domain", "name", "hop")).collect()
    }
    assert found == {
        "a": (1000, 0, 500, 950, 990, 999, 1000),
        "b": (4, 3, -999, 0, 0, 0, 0),
        "c": (1, 0, 1_230_000, 1_230_000, 1_230_000, 1_230_000, 1_234_567),
        "": (1005, 3, 499, 951, 991, 1000, 1_234_567),
    }


def a_trail_ends_where_the_message_was_last_seen(summary: Summary) -> None:
    found = {
        each["domain"]: [record.get("outcome") for record in each["trail"]]
        for each in summary.first
        if each["verdict"] == "lost" and "trail" in each
    }
    assert {name: found[name] for name in found if name.startswith("a_loss")} == {
        "a_loss_in_the_ipc_hop": ["committed", "handed"],
        "a_loss_in_the_service": ["committed", "handed", "taken"],
        "a_loss_in_the_subscriber": ["committed", "handed", "taken", "sent", "dropped"],
    }


def trails_are_those_of_the_oracle(summary: Summary, by_oracle: Mapping[str, Oracle]) -> None:
    """Every record, its time, and the objects with their versions."""
    found = [each for each in summary.first if "trail" in each]
    for each in found:
        records = [{"objects": [], "more": 0, **record} for record in each["trail"]]
        names = ("side", "name", "run", "number", "wall", "objects", "more")
        expected = trail(by_oracle[each["domain"]], each)
        assert [{name: record[name] for name in names} for record in records] == expected, each
        assert all(record["time"] == moment(record["wall"]) for record in records)
    lost = [each for each in found if (each["of"], each["verdict"]) == ("delivery", "lost")]
    assert all(record["objects"] for each in lost for record in each["trail"])
    assert {"delivery", "state", "strays"} <= {each["of"] for each in found}


def runs_are_those_of_the_oracle(summary: Summary, by_oracle: Mapping[str, Oracle]) -> None:
    """All runs of services and replicas are counted; the summary names the killed ones first."""
    expected = {}
    for domain, one in by_oracle.items():
        for run, own in one.runs.items():
            if own[0].side in ("service", "replica"):
                end = "closed" if one.ended(run) else "killed" if one.over(run) or one.expired(run) else ""
                began = one.first_wall(run) if own[0].number == 1 else None
                expected[domain, run] = (own[0].side, own[0].name, own[0].host, began, one.last_wall(run), end)
    assert summary.run_count == len(expected)
    named = {(each["domain"], each["run"]): each for each in summary.runs}
    assert len(named) == len(summary.runs) == min(len(expected), 400)
    for key, each in named.items():
        found = tuple(each[name] for name in ("side", "name", "host", "began", "last", "end"))
        assert found == expected[key], key
    killed = sum(end == "killed" for *_, end in expected.values())
    assert [each["end"] == "killed" for each in summary.runs] == sorted(
        [True] * min(killed, 400) + [False] * (len(summary.runs) - min(killed, 400)), reverse=True
    )
    assert killed


def the_first_of_many_anomalies_are_named(summary: Summary, derived: "Aggregates") -> None:
    named = [each["sequence"] for each in summary.first if each["domain"] == "a_wire_is_cut"]
    assert named == list(range(2, 22))
    assert derived.anomaly.filter("domain = 'a_wire_is_cut'").count() == 30


def the_detector_counts_missed_holes_and_needless_syncs(summary: Summary) -> None:
    found = {each.domain: (each.holes, each.missed, each.syncs, each.needless) for each in summary.detector}
    assert found["a_wire_is_cut"] == (30, 30, 1, 0)
    assert found["a_loss_is_repaired_by_a_sync"] == (1, 0, 2, 0)
    assert found["a_needless_sync"] == (0, 0, 2, 1)


def the_course_of_time_adds_up(summary: Summary, derived: "Aggregates") -> None:
    expected = sum(balance.expected for balance in summary.balance.values())
    timeless = sum(row["expected"] for row in derived.window.filter("window is null").collect())
    assert sum(each["expected"] for each in summary.over_time) == expected - timeless
    assert 0 < sum(each["settled"] for each in summary.over_time) <= expected
    assert len(summary.over_time) <= 200 + 1


PROBLEMS: dict[str, Callable[[Oracle], list[Any]]] = {
    "lack the begin of the run with the replica's subscriptions, so losses may be missed": Oracle.headless,
    "lack the record of a subscription": Oracle.unsubscribed,
    "are lost between others, so messages that they sent may be missed": Oracle.holed_publishers,
    "began while another run of the same name still wrote": Oracle.overlaps,
    "are in no replica's journal": Oracle.unknown_requests,
    "came while records of replicas were lost": Oracle.hidden_requests,
    "databases have journals": lambda one: [0] if len(one.databases()) > 1 else [],
    "and no record shows what they held": Oracle.stateless,
    "there is no journal of a replica": lambda one: [0] if one.without_replica() else [],
}
"""A part of each sentence on missing evidence, and its causes by the oracle."""


def missing_participants_are_reported(summary: Summary, oracles: Mapping[str, Oracle]) -> None:
    for part, causes in PROBLEMS.items():
        reported = {}
        for sentence in summary.problems:
            domain = re.search(r" of (\S+?)(?: \(first: | \(ids |, so no delivery| began while)", sentence)
            assert domain is not None, sentence
            if part in sentence:
                reported[domain[1]] = sentence
        expected = {name: found for name, one in oracles.items() if (found := causes(one))}
        assert reported.keys() == expected.keys(), part
        assert 0 < len(expected) < len(oracles)
        for name, found in expected.items():
            if found != [0]:
                assert re.search(rf"\b{len(found)} (replicas|answered|writers')", reported[name]), reported[name]
    assert not oracles["moved"].missing()
    assert len(oracles["requests_around_lost_records"].unknown_requests()) == 2
    assert len(oracles["requests_around_lost_records"].hidden_requests()) == 3
    ((run, other),) = oracles["two_replicas_share_a_name"].overlaps()
    assert f"(first: {run} during {other}, both r)" in " ".join(summary.problems)


def what_was_not_audited_is_counted(summary: Summary, journals: Mapping[str, list[Row]]) -> None:
    expected = []
    for domain, rows in sorted(journals.items()):
        names = {row.name for row in rows if row.side == "replica"}
        listed = {row.name for row in rows if row.side == "replica" and row.kind == "listing"}
        held = {row.name for row in rows if row.side == "replica" and row.kind == "held"} - listed
        store = any(row.side == "store" for row in rows)
        expected.append(Coverage(domain, store, len(names), len(listed), len(held)))
    assert summary.coverage == expected
    assert len({(each.store, each.replicas, each.listed) for each in expected}) > 2
    assert any(each.held for each in expected)
