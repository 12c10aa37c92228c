"""Rule 14: a replica compares itself with the store, also while publishers prove that it is fresh."""

import random
from itertools import pairwise

import msgspec
import pytest

from pubsub_lib.core.cache import Cache
from pubsub_lib.core.digest import add, fingerprint
from pubsub_lib.core.effects import RequestHello, StartSync
from pubsub_lib.core.history_change import HistoryChange
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, Change, Full, Head, Heads, Link, Point
from pubsub_lib.core.quarantine import CONTRADICTIONS, FIRST_SECONDS, SECONDS
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.core.step_result import StepResult
from pubsub_lib.core.timing import Timing
from pubsub_lib.core.tracker import Tracker
from pubsub_lib.core.verification import Verification
from tests.unit.core.builders import UUID, Bench, History, envelope, hello

TIMING = Timing(sync_jitter=0.0, sync_interval=0.0, sync_timeout=5.0, recount_time=0.0)
INTERVAL = TIMING.verify_interval
LATEST = 1.75 * INTERVAL
"""Maximum seconds between two verifications."""


def forged(history: History, topic: str, key: str, *, point: Point | None = None) -> Link:
    """A link that connects to a topic's head and fits its digest, and that was never committed."""
    head = history.heads[topic]
    position = history.point.position + 1 if point is None else point.position
    after = Point(position, 4711) if point is None else point
    change = Change("port", key, "create", position, b'"forged"')
    digest = add(head.digest, fingerprint("port", key, position, b'"forged"'))
    return Link(topic, head.point, after, [change], head.count + 1, digest, history.point, 1, "api-1", 1.0)


class Deceived:
    """A replica with only one publisher, which answers with the heads that the replica has."""

    def __init__(self, chain: str) -> None:
        self.history = History()
        self.history.some(3)
        self.chain = chain
        self.now = 0.0
        self.syncs: list[str] = []
        self.read = 0
        self.answering = True
        self.unanswered: list[StartSync] = []
        self.results: list[StepResult] = []
        self.state = ReplicaState(TIMING, Limits(), random.Random(1), Cache(), 0.0)
        self.heads = self.history.reading()
        self.take(self.state.subscribe([chain], 0.0))
        self.pass_time(2.0)
        self.syncs.clear()
        self.read = 0

    def receive(self, link: Link) -> None:
        """The publisher sends a link; from now on its hellos have the link's point."""
        self.heads = Heads(link.point, {**self.heads.topics, link.topic: Head(link.point, link.count, link.digest)})
        self.take(self.state.feed(envelope(link), self.now))

    def pass_time(self, seconds: float) -> None:
        """Time passes; the store answers all syncs from its true contents."""
        until = self.now + seconds
        while self.now < until:
            self.now = min(until, max(self.now + 0.001, self.state.next_time()))
            self.take(self.state.tick(self.now))

    def take(self, result: StepResult) -> None:
        """Carry out the replica's requests at once."""
        self.results.append(result)
        for request in result.hello_requests:
            self.take(self.state.feed(hello(self.heads, nonce=request.nonce), self.now))
        if result.sync is not None:
            self.syncs.extend(result.sync.causes.values())
            if not self.answering:
                self.unanswered.append(result.sync)
                return
            answer = self.history.answer(result.sync.wants)
            fulls = [part for part in answer.chains.values() if isinstance(part, Full)]
            self.read += sum(len(each.records) for part in fulls for each in part.topics.values())
            self.take(self.state.sync_done(result.sync.number, answer, self.now))

    def notices(self) -> list[HistoryChange]:
        """All notices of a changed history."""
        return [result.history for result in self.results if result.history is not None]

    def shown(self) -> dict[str, bytes]:
        """The objects that the replica shows."""
        return {record.key: record.value for record in self.state.cache.topic_records("t")}

    def stored(self) -> dict[str, bytes]:
        """The objects of the store."""
        return {key: record.value for (_, key), record in self.history.objects["t"].items()}


@pytest.mark.parametrize("chain", ["t", ALL])
def test_rule_14_link_that_was_never_committed_is_undone(chain: str) -> None:
    replica = Deceived(chain)
    replica.receive(forged(replica.history, "t", "planted"))
    assert "planted" in replica.shown()
    replica.pass_time(LATEST + 1.0)
    assert replica.shown() == replica.stored()
    assert replica.syncs[:2] == ["unverified", "incomplete"]
    assert replica.state.tracker.counters.contradicted == 1
    (change,) = replica.notices()
    assert change.publishers == {chain: ("api-1", UUID)}
    assert not change.quarantined


@pytest.mark.parametrize("chain", ["t", ALL])
def test_rule_14_altered_link_of_a_true_transaction_is_undone(chain: str) -> None:
    """Point and hellos are right, so only count and digest of the store's own head show it."""
    replica = Deceived(chain)
    true = replica.history.one("t", "true")
    previous = msgspec.structs.replace(forged(replica.history, "t", "x", point=true.point), prev=true.prev)
    head = replica.heads.topics["t"]
    change = Change("port", "planted", "create", true.point.position, b'"forged"')
    digest = add(head.digest, fingerprint("port", "planted", true.point.position, b'"forged"'))
    replica.receive(
        msgspec.structs.replace(previous, changes=[change], count=head.count + 1, digest=digest, tx_prev=true.tx_prev)
    )
    assert "planted" in replica.shown()
    replica.pass_time(LATEST + 1.0)
    assert replica.shown() == replica.stored()
    assert replica.syncs[:2] == ["unverified", "mismatched"]
    assert replica.state.faults.mismatches >= 1


@pytest.mark.parametrize("chain", ["t", ALL])
def test_rule_05_only_differing_buckets_are_read_to_undo_a_publishers_link(chain: str) -> None:
    """A link of 150 bytes must not cost a reading of the whole topic."""
    replica = Deceived(chain)
    for number in range(300):
        replica.receive(replica.history.one("t", f"more-{number}"))
    replica.receive(forged(replica.history, "t", "planted"))
    replica.pass_time(LATEST + 1.0)
    assert replica.shown() == replica.stored()
    assert replica.read < 100
    (change,) = replica.notices()
    assert change.publishers == {chain: ("api-1", UUID)}


def test_rule_05_links_that_wait_for_an_undone_point_are_not_applied_before_the_reading() -> None:
    replica = Deceived("t")
    lie = forged(replica.history, "t", "planted")
    replica.receive(lie)
    head = lie.point
    change = Change("port", "later", "create", head.position + 1, b'"forged"')
    point = Point(head.position + 1, 4712)
    later = msgspec.structs.replace(lie, prev=head, point=point, changes=[change], tx_prev=head)
    replica.answering = False
    while not replica.unanswered:
        replica.pass_time(0.5)
    (sync,) = replica.unanswered
    replica.unanswered.clear()
    delta = replica.history.answer(sync.wants)
    replica.take(replica.state.sync_done(sync.number, delta, replica.now))
    replica.take(replica.state.feed(envelope(later), replica.now))
    replica.pass_time(1.0)
    (sync,) = replica.unanswered
    replica.state.sync_failed(sync.number, replica.now)
    replica.take(replica.state.feed(envelope(later, sequence=2), replica.now))
    replica.answering = True
    replica.pass_time(3.0)
    assert replica.shown() == replica.stored()
    assert replica.notices()[-1].publishers == {"t": ("api-1", UUID)}
    events = [event for result in replica.results for event in result.events]
    assert not [event for event in events if event.key == "later"], "it was never shown"


def test_rule_14_publisher_that_is_contradicted_repeatedly_is_not_used() -> None:
    replica = Deceived("t")
    for number in range(CONTRADICTIONS):
        replica.receive(forged(replica.history, "t", f"planted-{number}"))
        replica.pass_time(LATEST + 1.0)
        assert replica.shown() == replica.stored()
    assert [each.uuid for each in replica.state.quarantine.excluded(replica.now)] == [UUID]
    before = replica.state.tracker.counters.quarantined
    replica.receive(forged(replica.history, "t", "planted"))
    assert replica.shown() == replica.stored()
    assert replica.state.tracker.counters.quarantined > before
    true = replica.history.one("t", "true")
    replica.take(replica.state.feed(envelope(true, uuid="f" * 32), replica.now))
    assert replica.shown() == replica.stored(), "another publisher is used"
    replica.history.one("t", "unsent")
    replica.pass_time(TIMING.stale_after + TIMING.poll_interval + 1.0)
    assert replica.shown() == replica.stored(), "the store is polled"
    (excluded,) = [change.quarantined for change in replica.notices() if change.quarantined]
    assert excluded == (("api-1", UUID),)


def test_rule_14_first_contradiction_excludes_a_publisher_with_a_lease() -> None:
    replica = Deceived("t")
    replica.results += replica.state.directory_read([UUID], replica.now)
    replica.receive(forged(replica.history, "t", "planted"))
    replica.pass_time(LATEST + 1.0)
    assert replica.shown() == replica.stored()
    (excluded,) = [change.quarantined for change in replica.notices() if change.quarantined]
    assert excluded == (("api-1", UUID),)
    replica.receive(forged(replica.history, "t", "planted"))
    assert replica.shown() == replica.stored(), "not for a moment"


def test_rule_14_replica_without_its_publisher_polls_at_once() -> None:
    replica = Deceived("t")
    replica.results += replica.state.directory_read([UUID], replica.now)
    replica.receive(forged(replica.history, "t", "planted"))
    replica.heads = replica.history.reading()
    while not replica.state.quarantine.excluded(replica.now):
        replica.pass_time(0.1)
    replica.history.one("t", "unsent")
    replica.pass_time(TIMING.poll_interval + 0.1)
    assert replica.shown() == replica.stored(), "and not after stale_after"


def test_rule_14_publisher_that_lies_on_is_not_used_again() -> None:
    """Its quarantine would end after a minute, and each lie would be shown until the next verification."""
    replica = Deceived("t")
    replica.results += replica.state.directory_read([UUID], replica.now)
    replica.receive(forged(replica.history, "t", "planted"))
    replica.pass_time(LATEST + 1.0)
    for _ in range(int(3 * SECONDS / 20)):
        replica.receive(forged(replica.history, "t", "planted"))
        replica.heads = replica.history.reading()
        assert replica.shown() == replica.stored()
        replica.pass_time(20.0)
    assert len([change for change in replica.notices() if change.quarantined]) == 1
    replica.heads = replica.history.reading()
    replica.pass_time(2 * SECONDS)
    replica.receive(replica.history.one("t", "true"))
    assert replica.shown() == replica.stored(), "without lies for the time of a quarantine, it is used again"


def test_rule_14_excluded_publisher_that_sends_the_truth_is_used_after_a_minute() -> None:
    replica = Deceived("t")
    replica.results += replica.state.directory_read([UUID], replica.now)
    replica.receive(forged(replica.history, "t", "planted"))
    replica.heads = replica.history.reading()
    replica.pass_time(FIRST_SECONDS / 4)
    assert replica.state.quarantine.excluded(replica.now)
    for _ in range(4):
        replica.take(replica.state.feed(envelope(replica.history.one("t", "true")), replica.now))
        replica.heads = replica.history.reading()
        replica.pass_time(FIRST_SECONDS / 4)
        assert replica.shown() == replica.stored()
    assert not replica.state.quarantine.excluded(replica.now)


@pytest.mark.parametrize("chain", ["t", ALL])
def test_rule_14_restored_store_excludes_no_publisher(chain: str) -> None:
    replica = Deceived(chain)
    replica.results += replica.state.directory_read([UUID], replica.now)
    replica.history.one("u")
    replica.pass_time(LATEST + 1.0)  # the verification reads the store's position
    replica.receive(replica.history.one("t", "lost"))
    replica.history = replica.history.restored(3)
    replica.pass_time(LATEST + 1.0)
    assert replica.shown() == replica.stored()
    assert replica.state.tracker.counters.history_changes >= 1
    assert not replica.state.quarantine.until


def test_rule_14_trimmed_changelog_accuses_no_publisher() -> None:
    """Versions went back, so the history is another one; whose messages the old one had is not known."""
    replica = Deceived("t")
    replica.results += replica.state.directory_read([UUID], replica.now)
    replica.receive(replica.history.one("t", "k0", "9"))
    replica.history = replica.history.restored(3)
    replica.history.some(3, "u")
    replica.history.trim(100)
    replica.heads = replica.history.reading()
    replica.pass_time(LATEST + 1.0)
    assert replica.shown() == replica.stored()
    assert replica.state.tracker.counters.history_changes == 1
    assert replica.state.tracker.counters.contradicted == 0
    assert not replica.state.quarantine.until


def test_rule_14_false_position_of_the_store_is_believed_until_the_next_reading() -> None:
    """True heads, and a position beyond the store's: a wait for a number would end too early, for ever."""
    replica = Deceived("t")
    replica.results += replica.state.directory_read([UUID], replica.now)
    beyond = replica.history.point.position + 1000
    replica.heads = Heads(Point(beyond, 7), replica.heads.topics)
    replica.pass_time(TIMING.max_idle_time + 1.0)
    assert replica.state.tracker.covered() == beyond, "the lie works"
    replica.pass_time(LATEST)
    assert replica.state.tracker.covered() == replica.history.point.position
    assert replica.state.tracker.counters.contradicted >= 1
    excluded = [publisher for result in replica.results for publisher in result.quarantined]
    assert excluded == [("api-1", UUID)]
    for _ in range(30):
        replica.pass_time(1.0)
        assert replica.state.tracker.covered() == replica.history.point.position


def test_rule_14_withheld_change_contradicts_the_publisher_that_covered_it() -> None:
    replica = Deceived("t")
    replica.results += replica.state.directory_read([UUID], replica.now)
    replica.history.one("t", "withheld")
    replica.history.one("u")
    replica.heads = Heads(replica.history.point, replica.heads.topics)
    replica.pass_time(LATEST + 1.0)
    assert replica.shown() == replica.stored()
    assert [publisher for result in replica.results for publisher in result.quarantined] == [("api-1", UUID)]


def test_rule_14_link_that_had_waited_accuses_its_own_publisher() -> None:
    """A forged link waits for a true one; the true publisher's message then leads to the forged point."""
    replica = Deceived("t")
    true = replica.history.one("t", "true")
    lie = forged(replica.history, "t", "planted")
    replica.take(replica.state.feed(envelope(lie, uuid="f" * 32), replica.now))
    replica.receive(true)
    assert "planted" in replica.shown()
    replica.pass_time(LATEST + 1.0)
    assert replica.shown() == replica.stored()
    assert [notice.publishers for notice in replica.notices()] == [{"t": ("api-1", "f" * 32)}]
    assert replica.state.tracker.counters.contradicted == 1
    assert replica.state.tracker.counters.history_changes == 1


def test_rule_05_link_that_waits_for_a_later_one_does_not_cost_all_objects() -> None:
    """A publisher sends two invented links, the second one first."""
    replica = Deceived("t")
    for number in range(300):
        replica.receive(replica.history.one("t", f"more-{number}"))
    first = forged(replica.history, "t", "planted")
    point = Point(first.point.position + 1, 4712)
    second = msgspec.structs.replace(first, prev=first.point, point=point, tx_prev=first.point, changes=[])
    replica.receive(second)
    replica.receive(first)
    assert replica.state.tracker.chain("t").known == point
    replica.pass_time(LATEST + 1.0)
    assert replica.shown() == replica.stored()
    assert replica.state.tracker.counters.contradicted == 1
    assert replica.read < 100, "only the differing buckets are read"


def test_rule_05_false_digest_of_a_link_that_waited_for_a_sync_does_not_cost_all_objects() -> None:
    """An invented link with a wrong digest is received while the differing buckets are read."""
    replica = Deceived("t")
    for number in range(300):
        replica.receive(replica.history.one("t", f"more-{number}"))
    lie = msgspec.structs.replace(forged(replica.history, "t", "planted"), digest=1)
    replica.answering = False
    replica.state.mismatched("t", replica.now)
    replica.pass_time(0.1)
    (start,) = replica.unanswered
    replica.receive(lie)
    replica.take(replica.state.sync_done(start.number, replica.history.answer(start.wants), replica.now))
    assert replica.state.tracker.chain("t").known == lie.point
    replica.answering = True
    replica.pass_time(1.0)
    assert replica.shown() == replica.stored()
    assert [notice.publishers for notice in replica.notices()] == [{"t": ("api-1", UUID)}]
    assert replica.read < 100, "only the differing buckets are read"


def test_rule_14_lie_that_is_received_while_the_store_contradicts_its_publisher_is_not_believed() -> None:
    replica = Deceived("t")
    lie = msgspec.structs.replace(forged(replica.history, "t", "planted"), digest=1)
    replica.answering = False
    replica.receive(lie)
    replica.pass_time(0.1)
    (start,) = replica.unanswered
    replica.receive(msgspec.structs.replace(lie, point=Point(lie.point.position + 1, 4712)))
    replica.take(replica.state.sync_done(start.number, replica.history.answer(start.wants), replica.now))
    assert replica.shown() == replica.stored()
    replica.answering = True
    replica.pass_time(1.0)
    assert replica.shown() == replica.stored()
    assert [notice.publishers for notice in replica.notices()] == [{"t": ("api-1", UUID)}], "one notice"


def test_rule_14_restored_store_names_no_publisher_when_the_store_led_there() -> None:
    replica = Deceived("t")
    replica.history.one("t", "lost")
    replica.pass_time(LATEST + 1.0)  # the verification reads the link
    assert replica.shown() == replica.stored()
    replica.history = replica.history.restored(3)
    replica.pass_time(LATEST + 1.0)
    assert replica.shown() == replica.stored()
    assert replica.state.tracker.counters.contradicted == 0
    assert replica.state.tracker.counters.history_changes == 1


def test_rule_14_point_that_the_store_confirmed_accuses_no_publisher() -> None:
    replica = Deceived("t")
    replica.receive(replica.history.one("t", "true"))
    replica.pass_time(LATEST + 1.0)  # a delta without links
    replica.history = replica.history.restored(3)
    replica.pass_time(LATEST + 1.0)
    assert replica.shown() == replica.stored()
    assert replica.state.tracker.counters.history_changes == 1
    assert replica.state.tracker.counters.contradicted == 0


def test_rule_14_messages_of_a_quarantined_publisher_are_not_called_lost() -> None:
    replica = Deceived("t")
    replica.receive(replica.history.one("t", "true"))
    replica.state.quarantine.until[UUID] = replica.now + 10.0, "s"
    for number in (2, 3):
        link = replica.history.one("t", f"k{number}")
        replica.take(replica.state.feed(envelope(link, sequence=number), replica.now))
    replica.pass_time(20.0 + TIMING.stale_after)
    replica.take(replica.state.feed(envelope(replica.history.one("t", "last"), sequence=4), replica.now))
    assert replica.shown() == replica.stored()
    assert replica.state.tracker.counters.quarantined >= 2
    assert replica.state.tracker.gaps.tally.holes == 0


@pytest.mark.parametrize("interval", [1e-300, 0.001, 3e9])
def test_rule_14_an_extreme_interval_makes_no_busy_loop(interval: float) -> None:
    timing = Timing(verify_interval=interval)
    verification = Verification(timing, random.Random(1), 0.0)
    assert verification.next_time >= 0.75 * max(interval, timing.sync_interval)
    assert verification.due(verification.next_time)


def test_rule_14_proofs_of_publishers_count_for_a_limited_time() -> None:
    history = History()
    history.some(2)
    bench = Bench(history, timing=TIMING).synced()
    synced_at = bench.now
    while bench.now < synced_at + 2 * TIMING.max_unverified:
        bench.wait(1.0)
        bench.receive(history.reading(), nonce=bench.requests[-1].nonce)
        if bench.is_syncing():
            bench.fail()  # the store answers no sync; publishers prove the head each second
        bound = bench.now - synced_at - TIMING.max_unverified
        assert bench.staleness() >= min(bound, bench.now - synced_at - 1.0) - 1.0
        if bench.now < synced_at + TIMING.max_unverified - 1.0:
            assert bench.staleness() <= TIMING.max_idle_time + 1.0
    assert bench.staleness() >= TIMING.max_unverified - 1.0
    while not bench.is_syncing():
        bench.wait(1.0)
    bench.answer()
    assert bench.staleness() <= 1.0


@pytest.mark.parametrize("seed", range(20))
def test_rule_14_verifications_are_spread_and_no_more_frequent_than_needed(seed: int) -> None:
    history = History()
    history.some(2)
    tracker = Tracker(TIMING, Limits(), random.Random(seed), 0.0)
    effects = tracker.subscribe(["t"], 0.0)
    begun: list[float] = []
    now = 0.0
    while now < 20 * INTERVAL:
        for effect in effects:
            if isinstance(effect, StartSync):
                begun.append(now)
                tracker.sync_done(effect.number, history.answer(effect.wants), now)
            elif isinstance(effect, RequestHello):
                tracker.feed(hello(history.reading(), nonce=effect.nonce), now)
        now = max(now + 0.001, tracker.next_time())
        effects = tracker.tick(now)
    pauses = [after - before for before, after in pairwise(begun)]
    assert all(0.75 * INTERVAL <= pause <= LATEST + 0.1 for pause in pauses)
    assert len(pauses) >= 15
    assert set(tracker.counters.deltas) == {"unverified"}


def test_rule_14_zero_means_never() -> None:
    history = History()
    history.some(2)
    bench = Bench(history, timing=msgspec.structs.replace(TIMING, verify_interval=0.0)).synced()
    for _ in range(1000):
        bench.wait(1.0)
        bench.receive(history.reading(), nonce=bench.requests[-1].nonce)
    assert len(bench.syncs) == 1
    assert bench.staleness() <= TIMING.max_idle_time + 1.0
