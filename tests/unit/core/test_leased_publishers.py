"""Rule 14: only messages of publishers with a live lease in the store's directory are used."""

import random
from collections.abc import Sequence

import pytest

from pubsub_lib.core.effects import RequestHello
from pubsub_lib.core.leased_publishers import (
    FIRST_PAUSE,
    GRACE,
    MAX_KEPT,
    MAX_PAUSE,
    MAX_READINGS,
    NEVER_DUE,
    LeasedPublishers,
)
from pubsub_lib.core.model import Head, Heads, Point
from pubsub_lib.core.step_result import StepResult
from tests.unit.core.builders import CALM, UUID, History, envelope, hello
from tests.unit.core.timed import TimedReplica

OTHER = "f" * 32
THIRD = "e" * 32


def leased() -> LeasedPublishers:
    return LeasedPublishers(CALM, random.Random(1))


def test_every_publisher_proves_until_the_directory_is_read() -> None:
    """A publisher behind a broker has no lease, and a directory may be read slowly at the start."""
    publishers = leased()
    assert publishers.may_be_used(OTHER, 0.0)
    assert publishers.next_time() == NEVER_DUE
    publishers.read([UUID], 3.0)
    assert publishers.may_be_used(UUID, 3.0)
    assert not publishers.may_be_used(OTHER, 3.0)


def test_no_publisher_proves_after_a_reading_of_an_empty_directory() -> None:
    """Else a program at the address of a service that is down would be believed by each replica that starts."""
    publishers = leased()
    publishers.read([], 1.0)
    assert not publishers.may_be_used(UUID, 2.0)
    assert publishers.due(2.0 + CALM.connect_jitter), "it may just have started"
    publishers.read([UUID], 3.0)
    assert publishers.may_be_used(UUID, 3.0)


def test_unknown_publisher_causes_few_readings() -> None:
    publishers = leased()
    publishers.read([UUID], 0.0)
    begun: list[float] = []
    for tenth in range(1000):
        now = tenth / 10
        assert not publishers.may_be_used(OTHER, now)
        if publishers.due(now):
            begun.append(now)
            publishers.read([UUID], now)
    assert len(begun) == MAX_READINGS
    assert begun[0] <= CALM.connect_jitter + 0.1, "a publisher that just started is looked up at once"


def test_readings_for_many_unknown_publishers_are_rate_limited() -> None:
    publishers = leased()
    publishers.read([UUID], 0.0)
    readings = 0
    for tenth in range(1000):
        now = tenth / 10
        publishers.may_be_used(f"{tenth:032x}", now)
        if publishers.due(now):
            readings += 1
            publishers.read([UUID], now)
    assert readings <= 100 / MAX_PAUSE + 5
    assert len(publishers._unknown) <= MAX_KEPT


def test_failed_reading_is_not_repeated_at_once() -> None:
    publishers = leased()
    publishers.read([UUID], 0.0)
    for tenth in range(100):
        publishers.may_be_used(OTHER, tenth / 10)
        publishers.due(tenth / 10)  # no answer
    assert publishers._unknown[OTHER] <= MAX_READINGS


def test_lease_that_appears_is_reported_once() -> None:
    """A reply that did not count was received from it: the caller asks again."""
    publishers = leased()
    publishers.read([UUID], 0.0)
    publishers.read([UUID, THIRD], 0.5)
    assert not publishers.to_ask(0.9), "nothing was received from it"
    assert not publishers.may_be_used(OTHER, 1.0)
    publishers.read([UUID, THIRD, OTHER], 2.0)
    assert publishers.may_be_used(OTHER, 2.0)
    assert publishers.next_time() <= 2.0 + CALM.connect_jitter
    assert publishers.to_ask(2.0 + CALM.connect_jitter)
    publishers.read([UUID, THIRD, OTHER], 3.0)
    assert not publishers.to_ask(100.0)


def test_publisher_without_a_lease_proves_for_a_limited_time() -> None:
    """A database that refuses writes for a while prevents renewals, and makes no publisher untrue."""
    publishers = leased()
    publishers.read([UUID], 0.0)
    publishers.read([], 100.0)
    publishers.read([], 100.0 + GRACE - 0.1)
    assert publishers.may_be_used(UUID, 100.0 + GRACE)
    publishers.read([UUID], 200.0)
    publishers.read([], 300.0)
    publishers.read([], 300.0 + GRACE / 2)
    assert publishers.may_be_used(UUID, 300.0 + GRACE / 2)
    publishers.read([], 300.0 + GRACE)
    assert not publishers.may_be_used(UUID, 300.0 + GRACE)


def test_slow_directory_takes_no_proof() -> None:
    publishers = leased()
    publishers.read([UUID], 0.0)
    assert publishers.may_be_used(UUID, 1e6), "no reading since then shows that the lease ended"


class Answered(TimedReplica):
    """A replica of one topic whose hello requests are answered under one UUID, and whose directory has ``UUID``."""

    def __init__(self, live: Sequence[str] = (UUID,)) -> None:
        super().__init__(CALM)
        self.history = History()
        self.history.some(3)
        self.uuid = UUID
        self.live = [*live]
        self.readings = 0
        self.reads = True
        self.syncs: list[str] = []
        self.take(self.state.subscribe(["t"], 0.0))
        self.state.directory_read(self.live, 0.0)
        self.pass_time(2.0)
        self.syncs.clear()

    def take(self, result: StepResult) -> None:
        for request in result.hello_requests:
            reply = hello(self.history.reading(), nonce=request.nonce, uuid=self.uuid)
            self.take(self.state.feed(reply, self.now))
        if result.read_directory:
            self.readings += 1
            if self.reads:
                self.take_all(self.state.directory_read(self.live, self.now))
        if result.sync is not None:
            self.syncs.extend(result.sync.causes.values())
            answer = self.history.answer(result.sync.wants)
            self.take(self.state.sync_done(result.sync.number, answer, self.now))

    def take_all(self, results: list[StepResult]) -> None:
        for result in results:
            self.take(result)

    @property
    def known(self) -> Point | None:
        return self.state.tracker.chain("t").known


def test_rule_14_replies_without_a_lease_prove_nothing() -> None:
    replica = Answered()
    replica.pass_time(60.0)
    assert replica.syncs == []
    replica.uuid = OTHER
    replica.pass_time(9.0)
    assert replica.syncs == []
    assert replica.state.tracker.staleness(replica.now) >= 9.0
    replica.pass_time(10.0)
    assert set(replica.syncs) == {"polled"}, "the store proves what no publisher with a lease does"
    assert replica.state.tracker.staleness(replica.now) <= CALM.poll_interval + 1.0
    assert 1 <= replica.readings <= MAX_READINGS
    assert replica.state.tracker.counters.unleased > 0


def test_rule_14_position_of_a_publisher_without_a_lease_covers_nothing() -> None:
    """``wait_for`` trusts a covered position."""
    replica = Answered()
    replica.uuid = OTHER
    covered = replica.state.tracker.covered()
    reading = replica.history.reading()
    far = type(reading)(type(reading.store)(10**9, 1), reading.topics, reading.store_id)
    for request in replica.state.tick(replica.now + CALM.max_idle_time).hello_requests:
        replica.state.feed(hello(far, nonce=request.nonce, uuid=OTHER), replica.now)
    assert replica.state.tracker.covered() == covered


def test_rule_14_digest_of_a_publisher_without_a_lease_causes_no_reading() -> None:
    replica = Answered()
    replica.uuid = OTHER
    head = replica.history.heads["t"]
    replica.history.heads["t"] = type(head)(head.point, head.count, head.digest ^ 1)
    replica.pass_time(10.0)
    assert replica.state.faults.mismatches == 0
    replica.uuid = UUID
    replica.pass_time(6.0)
    assert replica.state.faults.mismatches > 0


def test_rule_14_links_of_a_restarted_publisher_are_applied_when_its_lease_is_read() -> None:
    """They were applied at once before. So a program that takes a new UUID for each link was believed for ever: what it
    sends connects, and a quarantine is of one UUID. Now a link waits for one reading of the directory, and a replica
    need not read a delta for it.
    """
    replica = Answered()
    links = [replica.history.one("t", f"new {number}") for number in range(3)]
    before = replica.known
    for link in links:
        replica.take(replica.state.feed(envelope(link, uuid=OTHER), replica.now))
    assert replica.known == before
    assert replica.state.next_time() <= replica.now + CALM.connect_jitter
    replica.live = [UUID, OTHER]
    replica.pass_time(CALM.connect_jitter + 0.1)
    assert replica.readings == 1
    assert replica.known == links[-1].point
    assert replica.state.tracker.counters.applied == 3
    assert replica.state.tracker.counters.unleased == 0
    last = replica.history.one("t", "last")
    replica.take(replica.state.feed(envelope(last, uuid=OTHER), replica.now))
    assert replica.known == last.point, "its lease is known, so it waits no more"
    replica.pass_time(CALM.message_delay_window + 1.0)
    assert replica.syncs == []


def test_rule_14_links_that_waited_are_neither_lost_nor_repeated() -> None:
    """Also if a hello is received before they are used."""
    replica = Answered()
    link = replica.history.one("t", "new")
    replica.take(replica.state.feed(envelope(link, uuid=OTHER), replica.now))
    replica.take(replica.state.feed(hello(replica.history.reading(), uuid=OTHER, sequences={"t": 1}), replica.now))
    replica.live = [UUID, OTHER]
    replica.pass_time(CALM.connect_jitter + 0.1)
    replica.take(replica.state.feed(hello(replica.history.reading(), uuid=OTHER, sequences={"t": 1}), replica.now))
    assert replica.known == link.point
    tally = replica.state.tracker.gaps.tally
    assert (tally.holes, tally.duplicates) == (0, 0)


def test_rule_14_link_before_the_lease_is_stored_waits_for_a_later_reading() -> None:
    replica = Answered()
    link = replica.history.one("t", "new")
    replica.take(replica.state.feed(envelope(link, uuid=OTHER), replica.now))
    replica.pass_time(CALM.connect_jitter + 0.1)
    assert replica.readings == 1
    replica.live = [UUID, OTHER]
    replica.pass_time(FIRST_PAUSE)
    assert replica.readings == 2, "it sent no further message, which would cause the reading"
    assert replica.known == link.point
    assert replica.syncs == []


def test_rule_14_links_wait_while_the_directory_cannot_be_read() -> None:
    replica = Answered()
    link = replica.history.one("t", "new")
    replica.take(replica.state.feed(envelope(link, uuid=OTHER), replica.now))
    replica.reads = False
    replica.uuid = OTHER  # the other publisher is gone
    replica.pass_time(2.0)
    assert replica.readings > 0
    assert replica.state.unleased.messages == 1
    replica.take_all(replica.state.directory_read([UUID, OTHER], replica.now))
    assert replica.known == link.point


def test_rule_14_first_lease_after_an_empty_directory_is_used() -> None:
    """Both start at the same time, and the replica reads the directory before the lease is stored."""
    replica = Answered(live=())
    reply, link = hello(replica.history.reading(), nonce="", uuid=OTHER), replica.history.one("t", "new")
    before = replica.known
    replica.take(replica.state.feed(reply, replica.now))
    replica.take(replica.state.feed(envelope(link, uuid=OTHER), replica.now))
    assert replica.known == before
    replica.live = [OTHER]
    replica.pass_time(FIRST_PAUSE + CALM.connect_jitter)
    assert replica.known == link.point
    assert replica.state.tracker.counters.applied == 1, "it was not read from the store"


def test_rule_14_changing_uuids_change_nothing() -> None:
    """A quarantine is of one UUID, so it does not end this."""
    replica = Answered()
    before, stored = replica.known, replica.history.heads["t"]
    forged = replica.history.restored(3, seed=5).one("t", "forged")
    for number in range(2000):
        replica.take(replica.state.feed(envelope(forged, uuid=f"{number:032x}"), replica.now))
        replica.pass_time(0.05)
        assert replica.known == before
    assert replica.state.cache.head("t") == (stored.count, stored.digest)
    assert replica.syncs == []
    assert replica.readings <= 100 / MAX_PAUSE + 5
    assert replica.state.tracker.counters.unleased > 1500
    assert replica.state.unleased.messages < 500


@pytest.mark.parametrize("nonce", [False, True], ids=["broadcasts", "replies"])
def test_rule_14_foreign_heads_of_changing_uuids_cause_few_readings(nonce: bool) -> None:
    """A hello of 150 bytes costs the database a reading of each replica."""
    replica = Answered()
    replica.pass_time(60.0)
    far = Head(Point(10**9, 1), 1, 1)
    reading = replica.history.reading()
    for number in range(600):
        asked = replica.state.tracker.request_hellos(replica.now) if nonce else []
        lie = Heads(Point(10**9, number), {"t": far}, reading.store_id)
        given = asked[0].nonce if asked and isinstance(asked[0], RequestHello) else ""
        replica.take(replica.state.feed(hello(lie, nonce=given, uuid=f"{number:032x}"), replica.now))
        replica.pass_time(0.1)
    assert 1 <= replica.syncs.count("expired") <= 7
    assert set(replica.syncs) == {"expired"}


def test_rule_14_squatter_takes_no_message_of_a_restarted_publisher() -> None:
    replica = Answered()
    forged = replica.history.restored(3, seed=5).one("t", "forged")
    link = replica.history.one("t", "new")
    for number in range(100):
        replica.take(replica.state.feed(envelope(forged, uuid=f"{number:032x}"), replica.now))
    replica.take(replica.state.feed(envelope(link, uuid=OTHER), replica.now))
    replica.live = [UUID, OTHER]
    replica.pass_time(CALM.connect_jitter + 0.1)
    assert replica.known == link.point
    assert replica.syncs == []


def test_rule_14_restarted_publisher_proves_at_once() -> None:
    """Its hello may be received before its lease is read: then the replica asks again."""
    replica = Answered()
    replica.uuid = OTHER
    replica.live = [UUID, OTHER]
    began = replica.now
    replica.state.feed(hello(replica.history.reading(), uuid=OTHER), began)
    replica.pass_time(2 * CALM.connect_jitter + 0.1)
    assert replica.readings == 1
    assert replica.state.tracker.staleness(replica.now) < replica.now - began
    assert replica.syncs == []


def test_rule_14_new_lease_reads_no_link_that_may_only_be_late() -> None:
    """Unlike a connection, it shows no lost message."""
    replica = Answered()
    replica.uuid = OTHER
    replica.live = [UUID, OTHER]
    replica.state.feed(hello(replica.history.reading(), uuid=OTHER), replica.now)
    link = replica.history.one("t", "on its way")
    replica.pass_time(2 * CALM.connect_jitter + 0.1)
    assert replica.syncs == []
    replica.take(replica.state.feed(envelope(link, uuid=OTHER), replica.now))
    replica.pass_time(CALM.message_delay_window + 1.0)
    assert replica.syncs == []
    assert replica.state.tracker.chain("t").known == link.point


def test_rule_14_broadcast_of_a_restarted_publisher_causes_the_reading() -> None:
    """It is sent before the first reply is requested."""
    replica = Answered()
    replica.state.feed(hello(replica.history.reading(), uuid=OTHER), replica.now)
    assert replica.state.leased.next_time() < NEVER_DUE
    assert replica.state.next_time() <= replica.now + CALM.connect_jitter
    assert replica.state.tracker.counters.unleased == 0, "a broadcast proves nothing in any case"
