"""Readings of buckets that a publisher's false counts and digests cause are rare, and lead to its quarantine."""

import msgspec

from pubsub_lib.core.model import Head, Heads, Link
from pubsub_lib.core.provoked_reads import MAX_KEPT, MAX_PAUSE, ProvokedReads
from pubsub_lib.core.quarantine import SPACING
from pubsub_lib.core.step_result import StepResult
from pubsub_lib.core.tracker_counters import Counters
from tests.unit.core.builders import CALM, UUID, History, envelope, hello
from tests.unit.core.timed import TimedReplica

OTHER = "f" * 32


class Misled(TimedReplica):
    """A replica of one topic. ``liar`` answers its hello requests with a false digest while ``lies``; another publisher
    answers truly.
    """

    def __init__(self) -> None:
        super().__init__(CALM)
        self.history = History()
        self.history.some(5)
        self.lies = False
        self.read: list[float] = []
        self.quarantined: list[tuple[str, str]] = []
        self.take(self.state.subscribe(["t"], 0.0))
        self.pass_time(3.0)
        self.read.clear()

    def take(self, result: StepResult) -> None:
        self.quarantined += result.quarantined
        for request in result.hello_requests:
            true = self.history.reading()
            self.take(self.state.feed(hello(true, nonce=request.nonce, uuid=OTHER), self.now))
            if self.lies:
                self.lie(request.nonce)
        if result.sync is not None:
            self.read += [self.now] * any(want.after is None for want in result.sync.wants.values())
            answer = self.history.answer(result.sync.wants)
            self.take(self.state.sync_done(result.sync.number, answer, self.now))

    def lie(self, nonce: str) -> None:
        true = self.history.reading()
        head = true.topics["t"]
        false = Heads(true.store, {"t": Head(head.point, head.count, head.digest ^ 1)}, true.store_id)
        self.take(self.state.feed(hello(false, nonce=nonce), self.now))

    def false_link(self) -> Link:
        """A true link with a false digest."""
        link = self.history.one("t", "k")
        return msgspec.structs.replace(link, digest=link.digest ^ 1)


def test_rule_14_publisher_with_false_digests_is_quarantined() -> None:
    replica = Misled()
    replica.lies = True
    replica.pass_time(600.0)
    assert replica.quarantined == [("api-1", UUID)]
    assert 3 <= len(replica.read) <= 8
    assert replica.state.tracker.counters.useless == len(replica.read)
    assert replica.state.tracker.counters.contradicted == 0
    assert replica.state.tracker.staleness(replica.now) <= CALM.max_idle_time + 1.0, "the other publisher proves it"


def test_rule_14_false_digests_cause_few_readings_within_a_moment() -> None:
    replica = Misled()
    nonces = [request.nonce for request in replica.state.tick(replica.now + CALM.max_idle_time).hello_requests]
    replica.now += CALM.max_idle_time
    for _ in range(200):
        replica.lie(nonces[0])
        replica.pass_time(0.05)
    assert len(replica.read) <= 5, "10 s with pauses of 1, 2, 4 … s"


def test_rule_14_links_with_false_digests_lead_to_the_quarantine() -> None:
    replica = Misled()
    for _ in range(3):
        replica.take(replica.state.feed(envelope(replica.false_link()), replica.now))
        replica.pass_time(SPACING + 1.0)
    assert replica.quarantined == [("api-1", UUID)]


def test_digest_that_shows_a_true_difference_accuses_no_publisher() -> None:
    """An object was altered in this replica's memory, or in the database without the library."""
    replica = Misled()
    for _ in range(5):
        objects = replica.state.cache._topics["t"]
        objects.digest ^= 1
        replica.pass_time(SPACING + 1.0)
    assert replica.quarantined == []
    assert len(replica.read) >= 3
    assert replica.state.provoked.may_compare(OTHER, replica.now), "its hellos are compared as before"
    assert replica.state.tracker.counters.useless == 0


def test_link_that_had_waited_accuses_no_publisher() -> None:
    replica = Misled()
    true, false = replica.history.one("t", "a"), replica.false_link()
    replica.take(replica.state.feed(envelope(false, uuid=OTHER), replica.now))
    replica.take(replica.state.feed(envelope(true), replica.now))
    assert replica.state.provoked._causes == {}


def test_pauses_double_and_end() -> None:
    provoked = ProvokedReads(Counters())
    sent = envelope(History().one())
    now, pauses = 0.0, []
    for _ in range(8):
        provoked.differed("t", sent, now)
        provoked.differed("t", sent, now + 0.5)
        begun = now
        while not provoked.may_compare(UUID, now):
            now += 1.0
        pauses.append(now - begun)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, MAX_PAUSE, MAX_PAUSE]
    assert provoked.may_compare(OTHER, now)
    now += 700.0
    provoked.differed("t", sent, now)
    assert provoked.may_compare(UUID, now + 1.0)


def test_number_of_remembered_publishers_is_bounded() -> None:
    provoked = ProvokedReads(Counters())
    for number in range(2 * MAX_KEPT):
        provoked.differed("t", envelope(History().one(), uuid=f"{number:032x}"), 0.0)
    assert len(provoked._pauses) == MAX_KEPT
    assert len(provoked._causes) == 1
