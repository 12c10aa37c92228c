"""Rule 14: only publishers with a live lease in the store's directory prove that a replica is fresh."""

import random

from pubsub_lib.core.leased_publishers import (
    GRACE,
    MAX_KEPT,
    MAX_PAUSE,
    MAX_READINGS,
    NEVER_DUE,
    LeasedPublishers,
)
from pubsub_lib.core.step_result import StepResult
from tests.unit.core.builders import CALM, UUID, History, envelope, hello
from tests.unit.core.timed import TimedReplica

OTHER = "f" * 32
THIRD = "e" * 32


def leased() -> LeasedPublishers:
    return LeasedPublishers(CALM, random.Random(1))


def test_every_publisher_proves_until_the_directory_shows_a_lease() -> None:
    """A program that publishes with a ``Publisher`` has no lease, and a directory may be read slowly at the start."""
    publishers = leased()
    assert publishers.may_prove(OTHER, 0.0)
    publishers.read([], 1.0)
    assert not publishers.to_ask(100.0)
    assert publishers.may_prove(OTHER, 2.0)
    assert publishers.read_at == NEVER_DUE
    publishers.read([UUID], 3.0)
    assert publishers.may_prove(UUID, 3.0)
    assert not publishers.may_prove(OTHER, 3.0)


def test_unknown_publisher_causes_few_readings() -> None:
    publishers = leased()
    publishers.read([UUID], 0.0)
    begun: list[float] = []
    for tenth in range(1000):
        now = tenth / 10
        assert not publishers.may_prove(OTHER, now)
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
        publishers.may_prove(f"{tenth:032x}", now)
        if publishers.due(now):
            readings += 1
            publishers.read([UUID], now)
    assert readings <= 100 / MAX_PAUSE + 5
    assert len(publishers._unknown) <= MAX_KEPT


def test_failed_reading_is_not_repeated_at_once() -> None:
    publishers = leased()
    publishers.read([UUID], 0.0)
    for tenth in range(100):
        publishers.may_prove(OTHER, tenth / 10)
        publishers.due(tenth / 10)  # no answer
    assert publishers._unknown[OTHER] <= MAX_READINGS


def test_lease_that_appears_is_reported_once() -> None:
    """A reply that did not count was received from it: the caller asks again."""
    publishers = leased()
    publishers.read([UUID], 0.0)
    publishers.read([UUID, THIRD], 0.5)
    assert not publishers.to_ask(0.9), "nothing was received from it"
    assert not publishers.may_prove(OTHER, 1.0)
    publishers.read([UUID, THIRD, OTHER], 2.0)
    assert publishers.may_prove(OTHER, 2.0)
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
    assert publishers.may_prove(UUID, 100.0 + GRACE)
    publishers.read([UUID], 200.0)
    publishers.read([], 300.0)
    publishers.read([], 300.0 + GRACE / 2)
    assert publishers.may_prove(UUID, 300.0 + GRACE / 2)
    publishers.read([], 300.0 + GRACE)
    assert not publishers.may_prove(UUID, 300.0 + GRACE)


def test_slow_directory_takes_no_proof() -> None:
    publishers = leased()
    publishers.read([UUID], 0.0)
    assert publishers.may_prove(UUID, 1e6), "no reading since then shows that the lease ended"


class Answered(TimedReplica):
    """A replica of one topic whose hello requests are answered under one UUID, and whose directory has ``UUID``."""

    def __init__(self) -> None:
        super().__init__(CALM)
        self.history = History()
        self.history.some(3)
        self.uuid = UUID
        self.live = [UUID]
        self.readings = 0
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
            self.state.directory_read(self.live, self.now)
        if result.sync is not None:
            self.syncs.extend(result.sync.causes.values())
            answer = self.history.answer(result.sync.wants)
            self.take(self.state.sync_done(result.sync.number, answer, self.now))


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


def test_rule_14_link_of_a_publisher_without_a_lease_is_applied() -> None:
    """Only its hellos do not count: a change of a service that just started is not late."""
    replica = Answered()
    link = replica.history.one("t", "new")
    replica.take(replica.state.feed(envelope(link, uuid=OTHER), replica.now))
    assert replica.state.tracker.chain("t").known == link.point


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
