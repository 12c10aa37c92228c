"""Tracker and cache together: all rules at once under schedules that hypothesis, or chance, makes up; and the steps of
a follower one by one.
"""

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from pubsub_lib.core.cache import Cache
from pubsub_lib.core.compared_topics import MAX_COMPARED
from pubsub_lib.core.digest import subtract
from pubsub_lib.core.effects import StartSync
from pubsub_lib.core.events import Event
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, ZERO, Full, Head, Heads, Want
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.core.step_result import NOTHING, StepResult
from pubsub_lib.core.transitions import State
from pubsub_lib.errors import NotSubscribedError
from tests.unit.core.builders import CALM, STORE, History, envelope, hello
from tests.unit.core.world import TOPICS, World, walk

INDEX = st.integers(0, 30)
WRITES = st.lists(
    st.tuples(
        st.sampled_from(TOPICS),
        st.sampled_from(["k1", "k2", "k3"]),
        st.none() | st.sampled_from(["1", "22", "4444444444"]),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda write: write[:2],
)


class AnyOrder(RuleBasedStateMachine):
    """A wire that loses, repeats and reorders; syncs that read and answer at any time; a store that is restored."""

    @initialize(seed=st.integers(0, 1000), everything=st.booleans(), tight=st.booleans())
    def begin(self, seed: int, everything: bool, tight: bool) -> None:
        self.world = World(seed, everything=everything, tight=tight)

    @rule()
    def connect(self) -> None:
        self.world.connect()

    @rule(writes=WRITES, parts=st.integers(1, 3))
    def commit(self, writes: list[tuple[str, str, str | None]], parts: int) -> None:
        self.world.commit(writes, parts)

    @rule(index=INDEX, keep=st.booleans())
    def deliver(self, index: int, keep: bool) -> None:
        self.world.deliver(index, keep=keep)

    @rule(index=INDEX)
    def lose(self, index: int) -> None:
        self.world.lose(index)

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 3.0, 6.0]))
    def elapse(self, seconds: float) -> None:
        self.world.elapse(seconds)

    @rule()
    def read_heads(self) -> None:
        self.world.read_heads()

    @rule(own=st.booleans())
    def send_hello(self, own: bool) -> None:
        self.world.send_hello(own=own)

    @rule(index=INDEX)
    def receive_hello(self, index: int) -> None:
        self.world.receive_hello(index)

    @rule()
    def read(self) -> None:
        self.world.read()

    @rule()
    def answer(self) -> None:
        self.world.answer()

    @rule()
    def fail(self) -> None:
        self.world.fail()

    @rule(back=st.integers(0, 6))
    def restore(self, back: int) -> None:
        self.world.restore(back)

    @rule(keep=st.integers(0, 6))
    def trim(self, keep: int) -> None:
        self.world.trim(keep)

    @rule(index=INDEX)
    def drop_and_follow(self, index: int) -> None:
        self.world.drop_and_follow(self.world.chains[index % len(self.world.chains)])

    @rule()
    def resume(self) -> None:
        self.world.resume()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.heal()


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=60)
TestAnyOrder = AnyOrder.TestCase


@pytest.mark.parametrize("block", range(4))
def test_replica_shows_only_states_of_the_store_and_ends_with_the_last(block: int, seed: int) -> None:
    for number in range(15):
        print(f"walk({seed + number}, 300)")
        walk(seed + number, 300)


def test_same_seed_gives_the_same_walk() -> None:
    assert walk(7, 200).history.links == walk(7, 200).history.links


# -- one by one --------------------------------------------------------------------------------------------------


def start(*topics: str, history: History) -> ReplicaState:
    """A replica state that has everything of these topics."""
    replica_state = ReplicaState(CALM, Limits(), random.Random(0), Cache(), 0.0)
    request = replica_state.subscribe(topics, 0.0).hello_requests[0]
    replica_state.feed(hello(history.reading(), nonce=request.nonce), 0.1)
    sync = replica_state.tick(0.2).sync
    assert sync is not None
    replica_state.sync_done(sync.number, history.answer(sync.wants), 0.3)
    replica_state.tick(0.4)
    return replica_state


def test_subscribe_requests_hellos_and_first_sync_makes_creates() -> None:
    history = History()
    history.some(3)
    replica_state = ReplicaState(CALM, Limits(), random.Random(0), Cache(), 0.0)
    outcome = replica_state.subscribe(["t"], 0.0)
    assert [request.topics for request in outcome.hello_requests] == [("t",)]
    sync = replica_state.tick(CALM.hello_wait).sync
    assert sync is not None
    events = replica_state.sync_done(sync.number, history.answer(sync.wants), 2.0).events
    assert [(event.action, event.key) for event in events] == [("create", f"k{index}") for index in range(3)]
    assert replica_state.tracker.synced


def test_links_make_events_in_chain_order() -> None:
    history = History()
    replica_state = start("t", history=history)
    first, second, third = history.one(value="1"), history.one(value="2"), history.one(value=None)
    assert list(replica_state.feed(envelope(second), 1.0).events) == []
    assert list(replica_state.feed(envelope(third), 1.0).events) == []
    events = replica_state.feed(envelope(first), 1.0).events
    assert [event.action for event in events] == ["create", "set", "delete"]
    assert replica_state.feed(envelope(first), 1.0) is NOTHING


def test_first_events_of_a_new_listener_have_the_old_values_applied_before() -> None:
    history = History()
    replica_state = start("t", history=history)
    listening = False
    replica_state.listens = lambda: listening
    create = history.one(value="1")
    assert list(replica_state.feed(envelope(create), 1.0).events) == []
    assert [event.new for event in replica_state.cache.present()] == [1]
    listening = True
    (changed,) = replica_state.feed(envelope(history.one(value="2")), 2.0).events
    assert (changed.action, changed.old, changed.new, changed.old_version) == ("set", 1, 2, create.changes[0].version)


def test_everything_and_named_topics_exclude_each_other() -> None:
    replica_state = start("t", history=History())
    with pytest.raises(NotSubscribedError, match="use two replicas"):
        replica_state.subscribe([ALL], 1.0)
    with pytest.raises(NotSubscribedError, match="use two replicas"):
        ReplicaState(CALM, Limits(), random.Random(0), Cache(), 0.0).subscribe([ALL, "t"], 1.0)
    assert replica_state.subscribe(["t"], 1.0).hello_requests == []


def test_unsubscribe_makes_deletes() -> None:
    history = History()
    history.some(2)
    replica_state = start("t", history=history)
    assert [event.action for event in replica_state.unsubscribe("t").events] == ["delete", "delete"]
    with pytest.raises(NotSubscribedError, match="not subscribed to the topic 't'"):
        replica_state.unsubscribe("t")


def test_replica_of_everything_drops_topics_missing_in_a_restored_store() -> None:
    history = History()
    history.one("a", "k1")
    history.one("b", "k2")
    replica_state = start(ALL, history=history)
    old = history.restored(1)
    request = replica_state.tick(10.0).hello_requests[0]
    replica_state.feed(hello(old.reading(), nonce=request.nonce), 10.1)
    effects = []
    for step in range(2):
        sync = replica_state.tick(10.2 + step).sync
        assert sync is not None
        effects = [event.action for event in replica_state.sync_done(sync.number, old.answer(sync.wants), 10.3).events]
    assert effects == ["delete"]
    assert replica_state.cache.topics() == ["a"]


def test_rule_10_repair_request_has_the_caches_bucket_digests() -> None:
    history = History()
    history.some(5)
    replica_state = start("t", history=history)
    rotten = next(iter(history.objects["t"].values()))
    entry = replica_state.cache._topics["t"].tables[rotten.table][rotten.key]
    entry.value, entry.fingerprint = b'"rot"', 1  # like a bug or faulty memory
    link = history.one(key=rotten.key, value="9")
    replica_state.feed(envelope(link), 1.0)
    assert replica_state.faults.mismatches == 1
    sync = replica_state.tick(1.1).sync
    assert sync is not None
    buckets = replica_state.cache.bucket_digests("t")
    assert sync.wants == {"t": Want(buckets=buckets, known=link.point, judged=("t", link.point))}
    answer = history.answer(sync.wants)
    replica_state.sync_done(sync.number, answer, 1.2)
    assert replica_state.cache.head("t") == (history.heads["t"].count, history.heads["t"].digest)
    assert replica_state.tracker.chain("t").state is State.FOLLOWING, "the repair by buckets was enough"


@pytest.mark.parametrize("chain", ["t", ALL])
def test_rule_10_mismatch_of_links_applied_at_the_begin_of_a_repair_is_ignored(chain: str) -> None:
    """They are applied when the repair begins, to objects that are still wrong."""
    history = History()
    history.some(5)
    replica_state = start(chain, history=history)
    rotten = next(iter(history.objects["t"].values()))
    entry = replica_state.cache._topics["t"].tables[rotten.table][rotten.key]
    entry.value, entry.fingerprint = b'"rot"', 1
    replica_state.feed(envelope(history.one(key=rotten.key, value="9")), 1.0)
    replica_state.feed(envelope(*history.some(3), sequence=2), 1.0)
    outcome = replica_state.tick(1.1)
    assert outcome.sync is not None
    assert replica_state.faults.mismatches > 1, "the received links were applied"
    replica_state.sync_done(outcome.sync.number, history.answer(outcome.sync.wants), 1.2)
    assert replica_state.cache.head("t") == (history.heads["t"].count, history.heads["t"].digest)
    assert replica_state.tracker.chain(chain).state is State.FOLLOWING


def test_resync_repairs_a_value_that_no_digest_shows() -> None:
    history = History()
    history.some(5)
    replica_state = start("t", history=history)
    rotten = next(iter(history.objects["t"].values()))
    replica_state.cache._topics["t"].tables[rotten.table][rotten.key].value = b'"rot"'
    assert replica_state.cache.head("t") == (history.heads["t"].count, history.heads["t"].digest)
    with pytest.raises(NotSubscribedError, match="not subscribed to the topic 'other'"):
        replica_state.resync(["t", "other"], 1.0)
    assert replica_state.tick(1.1).sync is None
    replica_state.resync(["t"], 1.2)
    sync = replica_state.tick(1.2).sync
    assert sync is not None
    (event,) = replica_state.sync_done(sync.number, history.answer(sync.wants), 1.3).events
    assert (event.key, event.old_value, event.new_value) == (rotten.key, b'"rot"', rotten.value)
    assert replica_state.tracker.chain("t").state is State.FOLLOWING


def test_failed_sync_is_retried() -> None:
    replica_state = ReplicaState(CALM, Limits(), random.Random(0), Cache(), 0.0)
    replica_state.subscribe(["t"], 0.0)
    sync = replica_state.tick(CALM.hello_wait).sync
    assert sync is not None
    replica_state.sync_failed(sync.number, 2.0)
    again = replica_state.tick(2.0 + CALM.sync_backoff).sync
    assert again is not None
    assert again.wants == sync.wants
    assert again.number != sync.number


# -- another history -----------------------------------------------------------------------------------------------


def read_again(
    replica_state: ReplicaState, history: History, now: float, reading: Heads | None = None
) -> list[StepResult]:
    """The outcomes of all syncs to which a hello of another history leads."""
    request = replica_state.tick(now).hello_requests[0]
    replica_state.feed(hello(reading or history.reading(), nonce=request.nonce), now)
    outcomes: list[StepResult] = []
    until = now + CALM.message_delay_window + 3.0
    while now < until:
        sync = replica_state.tick(now).sync
        if sync is not None:
            outcomes.append(replica_state.sync_done(sync.number, history.answer(sync.wants), now))
        now += 0.25
    return outcomes


@pytest.mark.parametrize("chain", ["t", ALL])
@pytest.mark.parametrize("further", [0, 2, 20], ids=["behind", "same position", "ahead"])
def test_changed_history_is_notified_once_with_versions_that_go_back(chain: str, further: int) -> None:
    history = History()
    history.some(4)
    history.some(4)
    replica_state = start(chain, history=history)
    before = history.point
    other = history.restored(6)
    for _ in range(further):
        other.one(key="new")
    outcomes = read_again(replica_state, other, 10.0)
    changes = [outcome.history for outcome in outcomes if outcome.history is not None]
    assert [change.points for change in changes] == [{chain: (before, other.point)}]
    (notified,) = [outcome for outcome in outcomes if outcome.events]
    assert notified.history is not None, "versions that go back come with the notice"
    assert {(event.key, event.version) for event in notified.events} >= {("k2", 3), ("k3", 4)}
    assert replica_state.tracker.counters.history_changes == 1


def test_object_restored_by_a_backup_comes_with_a_notice() -> None:
    history = History()
    history.some(3)
    kept = history.restored(3)
    history.one(key="k1", value=None)
    replica_state = start("t", history=history)
    for _ in range(5):
        kept.one(key="new")
    outcomes = read_again(replica_state, kept, 10.0)
    (notified,) = [outcome for outcome in outcomes if outcome.events]
    assert ("k1", 2) in {(event.key, event.version) for event in notified.events}
    assert notified.history is not None


def test_behind_a_trimmed_changelog_versions_that_go_back_mean_another_history() -> None:
    history = History()
    history.some(3)
    kept = history.restored(3)
    history.one(key="k1", value=None)
    replica_state = start("t", history=history)
    for _ in range(5):
        kept.one(key="new")
    kept.trim(kept.point.position)
    outcomes = read_again(replica_state, kept, 10.0)
    (notified,) = [outcome for outcome in outcomes if outcome.events]
    assert ("k1", 2) in {(event.key, event.version) for event in notified.events}
    assert notified.history is not None


def test_replica_shows_no_object_of_the_old_history_after_the_notice() -> None:
    """Between the replacements of two topics the old history's object of the second would show."""
    history = History()
    history.one("b", "moved")
    kept = history.restored(1)
    history.one("a", "moved", "2")
    history.one("c", "moved", "3")
    replica_state = start("c", "a", "b", history=history)
    kept.one("a", "new")
    kept.one("c", "newer")
    outcomes = read_again(replica_state, kept, 10.0)
    (step,) = [each for each in outcomes if each.history is not None]
    moved = [event for event in step.events if event.key == "moved"]
    assert [(each.topic, each.version, each.old_topic, each.old_version) for each in moved] == [("b", 1, "c", 3)]
    assert step.by_sync == len(step.events)


@pytest.mark.parametrize("version", [3, 4], ids=["older", "same version"])
def test_object_below_an_undone_delete_of_another_topic_comes_with_a_notice(version: int) -> None:
    """Neither topic shows it alone: in "a" the object is new, and "b" does not have it in either history."""
    history = History()
    history.some(2, "a")
    kept = history.restored(2)
    history.one("b", "moved")
    replica_state = start("a", "b", history=history)
    replica_state.feed(envelope(history.one("b", "moved", None)), 1.0)
    for _ in range(version - 3):
        kept.one("a", "other")
    kept.one("a", "moved", "9")
    kept.one("a", "other")
    kept.one("b", "new")
    kept.trim(kept.point.position)
    outcomes = read_again(replica_state, kept, 10.0)
    assert all(each.history is None and all(event.key != "moved" for event in each.events) for each in outcomes)
    (notified,) = [each.then for each in outcomes if each.then is not None]
    assert [(event.key, event.version) for event in notified.events] == [("moved", version)]
    assert notified.history is not None, "a handler was called with version 4 of this object"
    point = kept.head("a")
    assert notified.history.points == {"a": (point, point)}, "the readings show only an undone delete"
    assert replica_state.tracker.counters.history_changes == 1


def test_rule_h2_a_lie_in_one_topic_shows_an_older_object_of_a_topic_that_lags_again() -> None:
    """The replica cannot know which deletes of the topic the other history contains: the lie came right after one."""
    history = History()
    history.one("b", "moved")
    replica_state = start("a", "b", history=history)
    left, came = history.commit(("b", "moved", None), ("a", "moved", "2"))
    calls: list[Event] = []
    for link in (came, history.one("a", "moved", None)):  # the message of the old topic is late
        calls += replica_state.feed(envelope(link), 1.0).events
    lie = history.restored(history.point.position, seed=7).one("a", "lie")
    calls += replica_state.feed(envelope(lie), 1.0).events
    history.one("a", "true")
    of_topic = Heads(history.point, {"a": history.heads["a"]}, STORE)
    (undone,) = [each for each in read_again(replica_state, history, 10.0, of_topic) if each.history is not None]
    assert undone.history is not None, "the notice comes first"
    assert undone.history.points == {"a": (lie.point, history.point)}
    calls += [event for event in undone.events if event.key == "moved"]
    calls += replica_state.feed(envelope(left), 20.0).events
    moved = [(each.action, each.topic, each.version) for each in calls if each.key == "moved"]
    assert moved == [("set", "a", 3), ("delete", "a", 4), ("create", "b", 1), ("delete", "b", 2)]


def test_trimmed_changelog_makes_no_notice() -> None:
    history = History()
    history.some(4)
    replica_state = start("t", history=history)
    history.some(6)
    history.trim(9)
    outcomes = read_again(replica_state, history, 10.0)
    assert any(outcome.events for outcome in outcomes)
    assert all(outcome.history is None for outcome in outcomes)


def test_repair_of_an_altered_object_under_load_makes_no_notice() -> None:
    history = History()
    history.commit(*[("t", f"k{number}", "1") for number in range(500)])
    replica_state = start("t", history=history)
    replica_state.cache._topics["t"].tables["port"]["k5"].value = b'"rotten"'
    now = 0.4
    while not (outcome := replica_state.tick(now)).rotted:
        for request in outcome.hello_requests:
            replica_state.feed(hello(history.reading(), nonce=request.nonce), now)
        now = max(now, replica_state.next_time())
        assert now <= CALM.recount_time
    link = history.one(key="k9", value="2")
    sync = outcome.sync or replica_state.tick(now + 2.0).sync
    assert sync is not None
    replica_state.feed(envelope(link), now + 2.1)
    repaired = replica_state.sync_done(sync.number, history.answer(sync.wants), now + 2.2)
    assert {event.key for event in repaired.events} >= {"k5"}
    assert repaired.history is None


def test_repair_by_a_full_sync_makes_no_notice() -> None:
    """An object is lost and the version of another one raised; the replica continues from an older point."""
    history = History()
    history.some(5)
    replica_state = start("t", history=history)
    objects = replica_state.cache._topics["t"].tables["port"]
    del objects["k1"]
    objects["k2"].version += 100
    history.some(3)
    replica_state.resync(["t"], 1.0)
    sync = replica_state.tick(1.0).sync
    assert sync is not None
    assert sync.wants["t"].buckets is None
    outcome = replica_state.sync_done(sync.number, history.answer(sync.wants), 1.1)
    assert {event.key for event in outcome.events} >= {"k1", "k2"}
    assert outcome.history is None


@pytest.mark.parametrize("chain", ["t", ALL])
@pytest.mark.parametrize("further", [0, 2, 20], ids=["behind", "same position", "ahead"])
def test_repair_after_a_restore_comes_with_a_notice(chain: str, further: int) -> None:
    history = History()
    history.some(8)
    replica_state = start(chain, history=history)
    before = history.point
    replica_state.mismatched("t", 1.0)
    sync = replica_state.tick(1.0).sync
    assert sync is not None
    assert sync.wants[chain].buckets is not None
    other = history.restored(6)
    for _ in range(further):
        other.one(key="new")
    outcome = replica_state.sync_done(sync.number, other.answer(sync.wants), 1.1)
    assert ("k6", "delete") in {(event.key, event.action) for event in outcome.events}
    assert outcome.history is not None
    assert outcome.history.points == {chain: (before, other.point)}


def corrupt_memory(replica_state: ReplicaState, rng: random.Random) -> None:
    """Alter or lose one object in memory, with or without a change of the sums."""
    name = rng.choice(replica_state.cache.topics())
    topic = replica_state.cache._topics[name]
    objects = topic.tables["port"]
    key = rng.choice(list(objects))
    fault = rng.choice(["value", "older", "younger", "lost", "lost with its sums"])
    if fault == "value":
        objects[key].value = b'"rotten"'
    elif fault in ("older", "younger"):
        objects[key].version = max(1, objects[key].version + rng.randint(1, 50) * (-1 if fault == "older" else 1))
    else:
        gone = objects.pop(key)
        if fault == "lost with its sums":
            topic.count, topic.digest = topic.count - 1, subtract(topic.digest, gone.fingerprint)


def run(replica_state: ReplicaState, history: History, now: float, seconds: float) -> list[StepResult]:
    """Let time pass while publishers and the store answer. Returns the outcomes of the store's answers."""
    outcomes: list[StepResult] = []
    until = now + seconds
    while now < until:
        step = replica_state.tick(now)
        for request in step.hello_requests:
            replica_state.feed(hello(history.reading(), nonce=request.nonce), now)
        if step.sync is not None:
            outcomes.append(replica_state.sync_done(step.sync.number, history.answer(step.sync.wants), now))
        now += 0.25
    return outcomes


@pytest.mark.parametrize("block", range(4))
def test_only_restores_make_notices_not_altered_memory(block: int, seed: int) -> None:
    for number in range(seed + 50 * block, seed + 50 * block + 50):
        print("seed", number)
        rng = random.Random(number)
        history = History(number)
        for _ in range(30):
            history.one(rng.choice("tu"), f"k{rng.randrange(8)}", str(rng.random()))
        chains = [ALL] if rng.random() < 0.5 else ["t", "u"]
        replica_state = start(*chains, history=history)
        before = {chain: history.head(chain) for chain in chains}
        for _ in range(rng.randint(1, 3)):
            corrupt_memory(replica_state, rng)
        restored = rng.random() < 0.5
        if restored:
            history = history.restored(rng.randint(10, 25), number + 1)
        for sequence in range(1, rng.randint(1, 40)):
            link = history.one(rng.choice("tu"), f"k{rng.randrange(8)}", str(rng.random()))
            if rng.random() < 0.5:
                replica_state.feed(envelope(link, sequence=sequence), 1.0)
        if rng.random() < 0.5:
            replica_state.resync(chains, 1.0)
        if rng.random() < 0.5:
            replica_state.mismatched(rng.choice("tu"), 1.0)
        outcomes = run(replica_state, history, 1.0, 120.0)
        notices = [outcome.history.points for outcome in outcomes if outcome.history is not None]
        undone = {chain for chain in chains if not history.holds(chain, before[chain])}
        assert restored or not undone
        assert sorted(chain for points in notices for chain in points) == sorted(undone)
        for topic in "tu":
            assert replica_state.cache.head(topic) == (history.heads[topic].count, history.heads[topic].digest)


# -- proofs ------------------------------------------------------------------------------------------------------


def ask(replica_state: ReplicaState, now: float) -> tuple[str, tuple[str, ...]]:
    """The next hello request, when its round is due."""
    (request,) = replica_state.tick(now).hello_requests
    return request.nonce, request.topics


def repair(
    replica_state: ReplicaState, history: History, now: float, sync: StartSync | None = None
) -> tuple[list[str], int]:
    """The sync that is due, or was begun: (keys with events, records read)."""
    sync = sync or replica_state.tick(now).sync
    assert sync is not None, "no repair is due"
    answer = history.answer(sync.wants)
    (part,) = answer.chains.values()
    assert isinstance(part, Full)
    events = replica_state.sync_done(sync.number, answer, now + 0.1).events
    return [event.key for event in events], sum(len(snapshot.records) for snapshot in part.topics.values())


@pytest.mark.parametrize("chain", ["t", ALL])
def test_rule_10_object_lost_with_its_digest_is_found_by_a_hello_reply(chain: str) -> None:
    history = History()
    history.commit(*[("t", f"k{number}", "1") for number in range(2000)])
    replica_state = start(chain, history=history)
    topic = replica_state.cache._topics["t"]
    gone = topic.tables["port"].pop("k5")
    topic.count, topic.digest = topic.count - 1, subtract(topic.digest, gone.fingerprint)
    nonce, asked = ask(replica_state, 5.5)
    assert asked == (("t",) if chain == "t" else (ALL, "t"))
    replica_state.feed(hello(history.reading(), nonce=nonce), 5.6)
    assert replica_state.faults.mismatches == 1
    keys, read = repair(replica_state, history, 7.0)
    assert keys in ([], ["k5"])
    assert read <= 20
    assert replica_state.cache.topic_records("t") != []
    assert replica_state.cache.head("t") == (2000, history.heads["t"].digest)
    nonce, _ = ask(replica_state, 12.0)
    replica_state.feed(hello(history.reading(), nonce=nonce), 12.1)
    assert replica_state.faults.mismatches == 1


def test_rule_10_hello_with_another_point_is_not_compared() -> None:
    history = History()
    history.some(3)
    replica_state = start("t", history=history)
    early = history.reading()
    replica_state.feed(envelope(history.one()), 1.0)
    replica_state.cache._topics["t"].count += 1
    nonce, _ = ask(replica_state, 5.5)
    replica_state.feed(hello(early, nonce=nonce, age=5.0), 5.6)
    assert replica_state.faults.mismatches == 0


def test_rule_10_replica_of_everything_compares_idle_topics_while_others_are_busy() -> None:
    history = History()
    history.commit(("quiet", "q", "1"), ("busy", "b", "1"))
    replica_state = start(ALL, history=history)
    heads = history.reading()
    replica_state.cache._topics["quiet"].count += 1
    replica_state.feed(envelope(history.one("busy", "b", "2")), 1.0)
    nonce, asked = ask(replica_state, 5.5)
    assert asked == (ALL, "busy", "quiet")
    replica_state.feed(hello(heads, nonce=nonce, age=0.5), 5.6)
    assert replica_state.faults.mismatches == 1


def test_replica_of_everything_requests_all_topics_in_turn() -> None:
    history = History()
    history.commit(*[(f"t{number}", "k", "1") for number in range(250)])
    replica_state = start(ALL, history=history)
    asked: list[str] = []
    for number in range(1, 4):
        _, topics = ask(replica_state, 5.0 * number + 0.5)
        assert topics[0] == ALL
        assert len(topics) <= MAX_COMPARED + 1
        asked += topics[1:]
    assert sorted(asked) == sorted(history.heads)


def test_rule_10_store_with_a_wrong_digest_is_read_with_backoff() -> None:
    history = History()
    history.some(3)
    head = history.heads["t"]
    history.heads["t"] = Head(head.point, head.count + 1, head.digest)
    replica_state = start("t", history=history)
    syncs = 0
    now = 1.0
    while now < 300.0:
        now += 0.5
        outcome = replica_state.tick(now)
        for request in outcome.hello_requests:
            replica_state.feed(hello(history.reading(), nonce=request.nonce), now)
        if outcome.sync is not None:
            syncs += 1
            replica_state.sync_done(outcome.sync.number, history.answer(outcome.sync.wants), now)
    assert list(replica_state.tracker.mismatching) == ["t"]
    assert syncs <= 20, "the reading backs off"


@pytest.mark.parametrize("chain", ["t", ALL])
@pytest.mark.parametrize("how", ["value", "object", "version", "newer version"])
def test_altered_memory_is_found_within_the_time_and_repaired_by_buckets(chain: str, how: str) -> None:
    history = History()
    history.commit(*[("t", f"k{number}", "1") for number in range(2000)])
    replica_state = start(chain, history=history)
    objects = replica_state.cache._topics["t"].tables["port"]
    if how == "value":
        objects["k5"].value = b'"rotten"'
    elif how == "version":
        objects["k5"].version = 1
    elif how == "newer version":
        objects["k5"].version += 10**9
    else:
        del objects["k5"], replica_state.cache._merged.shown["port"]["k5"]
    now = 0.4
    while not (outcome := replica_state.tick(now)).rotted:
        for request in outcome.hello_requests:
            replica_state.feed(hello(history.reading(), nonce=request.nonce), now)
        assert outcome.sync is None
        now = max(now, replica_state.next_time())
        assert now <= CALM.recount_time
    assert replica_state.faults.rotted == 1
    keys, read = repair(replica_state, history, now + 2.0, outcome.sync)
    assert keys == ["k5"]
    assert read <= 20, "one bucket of 256"
    assert {(row.table, row.key): row for row in replica_state.cache.topic_records("t")} == history.objects["t"]
    assert replica_state.cache.get("port", "k5") == b"1"


def test_altered_object_found_during_a_full_sync_needs_no_repair() -> None:
    history = History()
    history.commit(*[("t", f"k{number}", "1") for number in range(2000)])
    replica_state = start("t", history=history)
    replica_state.cache._topics["t"].tables["port"]["k5"].value = b'"rotten"'
    replica_state.tick(CALM.recount_time / 2 + 1)  # the walk began
    replica_state.resync(["t"], CALM.recount_time / 2 + 1)
    sync = None
    now = CALM.recount_time / 2 + 1
    while sync is None or replica_state.recount.rounds == 0:
        now = max(now + 0.01, min(replica_state.next_time(), now + 1))
        sync = sync or replica_state.tick(now).sync
        replica_state.tick(now)
        assert now <= 2 * CALM.recount_time
    replica_state.sync_done(sync.number, history.answer(sync.wants), now)
    assert replica_state.cache.get("port", "k5") == b"1"


# -- another store (rule 15) --

OTHER = bytes(16)


class Shared:
    """A replica, its store, and another store whose publisher sends through the same socket path by mistake."""

    def __init__(self, *, chain: str = "t") -> None:
        self.state = ReplicaState(CALM, Limits(), random.Random(1), Cache(), 0.0)
        self.own, self.other = History(1), History(2)
        self.other.store_id = OTHER
        self.now = 0.0
        self.results: list[StepResult] = []
        self.take(self.state.subscribe([chain], self.now))

    def take(self, result: StepResult) -> StepResult:
        self.results.append(result)
        return result

    def elapse(self, seconds: float) -> None:
        """Time passes, and the store answers each sync at once."""
        until = self.now + seconds
        while (due := self.state.next_time()) <= until:
            self.now = max(self.now, due)
            sync = self.take(self.state.tick(self.now)).sync
            if sync is not None:
                self.take(self.state.sync_done(sync.number, self.own.answer(sync.wants), self.now))
        self.now = until

    def foreign(self, history: History) -> None:
        """The other store commits; its publisher sends the link and a hello."""
        link = history.one("t", f"k{history.point.position}", "9")
        self.take(self.state.feed(envelope(link, uuid="11" * 16, store_id=history.store_id), self.now))
        self.take(self.state.feed(hello(history.reading(), store_id=history.store_id), self.now))

    @property
    def keys(self) -> list[str]:
        """The keys of the objects that the replica has."""
        return sorted(each.key for each in self.state.cache.iterate())

    @property
    def dropped(self) -> int:
        return self.state.tracker.counters.foreign_store

    @property
    def named(self) -> list[str]:
        return [each.foreign.uuid for each in self.results if each.foreign is not None]


@pytest.mark.parametrize("chain", ["t", ALL])
def test_rule_15_another_stores_first_link_is_not_applied(chain: str) -> None:
    """Both stores' chains of a topic begin at the same point, so the link connects."""
    shared = Shared(chain=chain)
    shared.elapse(60.0)
    assert shared.state.tracker.chain(chain).known == ZERO
    for _ in range(3):
        shared.foreign(shared.other)
    shared.elapse(60.0)
    assert shared.keys == []
    assert shared.dropped == 6
    assert shared.named == ["11" * 16, "00112233445566778899aabbccddeeff"]
    assert shared.state.tracker.counters.applied == 0


@pytest.mark.parametrize("chain", ["t", ALL])
def test_rule_15_messages_before_the_first_sync_are_dropped_with_it(chain: str) -> None:
    shared = Shared(chain=chain)
    shared.foreign(shared.other)
    shared.now = CALM.hello_wait
    sync = shared.take(shared.state.tick(shared.now)).sync
    assert sync is not None
    shared.foreign(shared.other)  # while the store is read; what came before is covered by the reading
    shared.take(shared.state.sync_done(sync.number, shared.own.answer(sync.wants), shared.now))
    assert shared.state.tracker.chain(chain).known == ZERO
    assert shared.keys == []
    assert shared.dropped > 0
    shared.elapse(60.0)
    assert shared.keys == []
    assert shared.state.tracker.counters.applied == 0
    assert shared.state.tracker.counters.history_changes == 0


def test_own_messages_before_the_first_sync_are_kept() -> None:
    shared = Shared()
    links = [shared.own.one("t", f"k{number}") for number in range(3)]
    for link in links:
        shared.take(shared.state.feed(envelope(link), shared.now))
    assert shared.state.tracker.chain("t").reorder_buffer.messages == 3
    shared.elapse(60.0)
    assert len(shared.keys) == 3
    assert shared.dropped == 0


def test_store_that_was_created_again_is_noticed_by_its_first_message() -> None:
    shared = Shared()
    shared.own.some(3)
    shared.elapse(5.0)  # a publisher need not have answered yet, so the replica does not poll
    assert len(shared.keys) == 3
    shared.own = again = History(5)
    again.store_id = OTHER
    again.one("t", "new")
    shared.take(shared.state.feed(hello(again.reading(), store_id=OTHER), shared.now))
    assert shared.dropped == 1
    shared.elapse(CALM.hello_wait)
    assert shared.state.stores.own == OTHER
    assert shared.keys == ["new"]
    assert shared.state.tracker.counters.history_changes == 1
    link = again.one("t", "newer")
    shared.take(shared.state.feed(envelope(link, store_id=OTHER), shared.now))
    assert len(shared.keys) == 2
    shared.take(shared.state.feed(envelope(History(1).one("t", "old"), store_id=STORE), shared.now))
    assert shared.dropped == 2


def test_reading_that_began_before_the_foreign_message_is_followed_by_another() -> None:
    shared = Shared()
    shared.own.some(3)
    shared.elapse(5.0)  # a publisher need not have answered yet, so the replica does not poll
    shared.state.resync(["t"], shared.now)
    sync = shared.state.tick(shared.now).sync
    assert sync is not None
    early = shared.own.answer(sync.wants)
    shared.own = again = History(5)
    again.store_id = OTHER
    shared.now += 0.1
    shared.take(shared.state.feed(hello(again.reading(), store_id=OTHER), shared.now))
    shared.now += 0.1
    shared.take(shared.state.sync_done(sync.number, early, shared.now))
    assert shared.state.stores.own == STORE
    shared.elapse(CALM.hello_wait)
    assert shared.state.stores.own == OTHER


def test_late_answer_does_not_change_the_stores_id() -> None:
    shared = Shared()
    shared.elapse(30.0)
    late = shared.own.answer({"t": Want()})
    shared.own.store_id = OTHER
    shared.state.resync(["t"], shared.now)
    shared.elapse(1.0)
    assert shared.state.stores.own == OTHER
    shared.state.sync_done(0, late, shared.now)
    assert shared.state.stores.own == OTHER


def test_links_that_wait_are_dropped_when_the_stores_id_changes() -> None:
    shared = Shared()
    shared.own.some(2)
    shared.elapse(30.0)
    shared.own.one("t", "lost")
    shared.take(shared.state.feed(envelope(shared.own.one("t", "waits")), shared.now))
    assert shared.state.tracker.chain("t").state is State.HOLDING
    shared.own = History(5)
    shared.own.store_id = OTHER
    shared.elapse(30.0)
    assert shared.dropped == 1
    assert shared.state.tracker.chain("t").state is State.FOLLOWING
    assert shared.keys == []
