"""A publisher's bookkeeping: sequences without gaps, hellos with true heads and ages."""

import random
from collections.abc import Iterable, Iterator
from itertools import pairwise

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pubsub_lib.core import sequencer as module
from pubsub_lib.core.codec import decode, encode
from pubsub_lib.core.envelope import Envelope, Hello, HelloRequest
from pubsub_lib.core.hello_portions import portions
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, EMPTY, ZERO, Link
from pubsub_lib.core.sequence_gaps import SequenceGaps, Tally
from pubsub_lib.core.sequencer import (
    HELLO_DELAY,
    HELLO_SPACING,
    HELLO_TOPICS,
    MAX_BACKOFF,
    NEVER_YET,
    Progress,
    Sequencer,
)
from pubsub_lib.core.timing import Timing
from pubsub_lib.errors import FrameError
from tests.unit.core.builders import CALM, UUID, Bench, History

IDLE, AGE = CALM.max_idle_time, CALM.reading_age
SMALL = Limits(max_frame_bytes=900)


def publishing(limits: Limits = Limits()) -> Sequencer:  # noqa: B008 - frozen
    return Sequencer("api-1", UUID, CALM, limits, 0.0)


def read(one: Sequencer, history: History, now: float) -> None:
    """A reading without delay."""
    one.begin_reading()
    one.heads_read(history.reading(), now, now)


def hellos(one: Sequencer, now: float) -> list[Envelope]:
    """All due hellos."""
    return list(iter(lambda: one.next_hello(now), None))


def refuse(one: Sequencer, now: float) -> None:
    """The transport refuses the next hello."""
    assert one.next_hello(now) is not None
    one.refused()


def asked(one: Sequencer, ask: HelloRequest, now: float) -> list[Envelope]:
    """The hellos to which a request leads at once."""
    one.hello_requested(ask, now)
    return hellos(one, now)


def started(history: History, now: float = 0.0) -> Sequencer:
    """A publisher that has sent its first hello."""
    one = publishing()
    read(one, history, now)
    assert len(hellos(one, now)) == 1
    return one


def links_of(envelopes: list[Envelope]) -> list[Link]:
    return [message.link for each in envelopes for message in each.messages]


def hello_of(envelope: Envelope) -> Hello:
    assert envelope.hello is not None
    return envelope.hello


def nonce_of(envelope: Envelope) -> str:
    return hello_of(envelope).nonce


# -- numbers -----------------------------------------------------------------------------------------------------


def test_rule_11_messages_are_numbered_from_one_per_topic() -> None:
    history, one = History(), publishing()
    first = one.publish([history.one("a"), history.one("b"), history.one("a")], 0.0)
    assert [(each.topic, each.sequence) for each in first] == [("a", 1), ("b", 1), ("a", 2)]
    assert [(each.topic, each.sequence) for each in one.publish([history.one("b")], 0.0)] == [("b", 2)]
    assert one.sequences == {"a": 2, "b": 2}


def test_progress_is_what_was_sent_and_the_last_reading() -> None:
    history, one = History(), publishing()
    assert one.progress() == Progress({}, None, NEVER_YET)
    one.publish([history.one("a")], 0.0)
    read(one, history, 3.0)
    before = one.progress()
    one.publish([history.one("a")], 4.0)
    assert before == Progress({"a": 1}, history.restored(1).reading(), 3.0)
    assert one.progress().sequences == {"a": 2}


def test_adjacent_links_of_a_topic_share_an_envelope() -> None:
    history, one = History(), publishing()
    links = history.some(5)
    envelopes = one.publish(links, 0.0)
    assert len(envelopes) == 1
    assert links_of(envelopes) == links
    assert one.publish([history.one()], 0.0)[0].sequence == 6


@given(st.lists(st.integers(1, 12), min_size=1, max_size=8), st.integers(0, 999))
def test_sent_messages_fit_in_frames_and_have_no_gaps(sizes: list[int], seed: int) -> None:
    history, one, gaps = History(seed), publishing(SMALL), SequenceGaps()
    rng = random.Random(seed)
    links = [
        link
        for size in sizes
        for link in history.commit(*[(rng.choice("ab"), f"k{index}", '"' + "x" * 90 + '"') for index in range(size)])
    ]
    gaps.announced("api-1", UUID, "a", 0)
    gaps.announced("api-1", UUID, "b", 0)
    bench = Bench(History(), (ALL,)).synced()
    for each in one.publish(links, 0.0):
        again = decode(encode(each, SMALL), SMALL)
        gaps.received(again.service, again.uuid, again.topic, again.sequence, len(again.messages))
        bench.do(bench.tracker.feed(again, bench.now))
    assert gaps.tally == Tally()
    assert bench.applied == links


def test_too_large_change_is_refused_and_no_link_is_numbered() -> None:
    history, one = History(), publishing(SMALL)
    with pytest.raises(FrameError, match="needs") as caught:
        one.publish([history.one("a"), history.one("b", value='"' + "x" * 2000 + '"')], 0.0)
    assert caught.value.reason == "oversized"
    assert one.sequences == {}


# -- hellos ------------------------------------------------------------------------------------------------------


def test_rule_06_one_hello_at_start_for_any_contents_of_the_store() -> None:
    history = History()
    history.some(3, "a")
    history.one("b")
    one = publishing()
    assert one.wants_reading(0.0)
    one.begin_reading()
    assert not one.wants_reading(0.0), "one reading at a time"
    assert hellos(one, 0.1) == [], "no hello without a reading"
    one.heads_read(history.reading(), 0.0, 0.2)
    (start,) = hellos(one, 0.2)
    assert (start.topic, start.sequence, list(start.messages)) == (ALL, 0, [])
    hello = hello_of(start)
    assert (hello.store, hello.nonce, hello.goodbye) == (history.point, "", False)
    assert (hello.heads, hello.sequences) == ({}, {}), "the publisher sent on no topic yet"
    assert hello.age == pytest.approx(0.2)


def test_port_of_the_sync_channel_is_in_every_hello_but_the_goodbye() -> None:
    history = History()
    one = started(history)
    [before] = asked(one, HelloRequest("n", ("a",)), 0.1)
    assert hello_of(before).serves == 0
    one.serves = 8867
    [reply] = asked(one, HelloRequest("n", ("a",)), 0.2)
    read(one, history, 2 * IDLE)
    [broadcast] = hellos(one, 2 * IDLE)
    goodbye = one.goodbye(2 * IDLE)
    assert [hello_of(each).serves for each in (reply, broadcast, goodbye)] == [8867, 8867, 0]


def test_rule_06_one_hello_when_nothing_was_sent_for_max_idle_time() -> None:
    history = History()
    for number in range(2000):
        history.one(f"t{number}")
    one = started(history)
    one.publish([history.one("b")], 0.8 * IDLE)
    assert not one.wants_reading(IDLE)
    assert one.next_time() == pytest.approx(1.8 * IDLE)
    now = 1.8 * IDLE
    assert hellos(one, now) == [], "the reading is too old for a hello"
    assert one.wants_reading(now)
    one.begin_reading()
    one.heads_read(history.reading(), now, now)
    (idle,) = hellos(one, now)
    assert hello_of(idle).sequences == {"b": 1}
    assert hello_of(idle).heads == {"b": history.heads["b"]}
    assert hello_of(idle).store == history.point
    assert hellos(one, now + 0.1) == []
    assert one.next_time() == pytest.approx(2.8 * IDLE)


def test_rule_06_broadcast_names_the_topics_sent_on_last() -> None:
    history, one = History(), publishing()
    names = [f"t{number}" for number in range(HELLO_TOPICS + 50)]
    for name in names:
        one.publish([history.one(name)], 0.0)
    one.publish([history.one("t0")], 0.0)
    history.one("never sent on")
    read(one, history, 1.0)
    hello = hello_of(hellos(one, 1.0)[0])
    assert list(hello.heads) == ["t0", *reversed(names[51:])]
    assert hello.sequences == {**dict.fromkeys(names[51:], 1), "t0": 2}


def test_rule_06_broadcast_has_no_head_of_a_topic_missing_in_its_reading() -> None:
    history = History()
    history.one("a")
    one = publishing()
    read(one, history, 0.0)
    one.publish([history.one("a"), history.one("new")], 0.1)
    hello = hello_of(hellos(one, 0.1)[0])
    assert hello.sequences == {"new": 1, "a": 1}
    assert list(hello.heads) == ["a"]


def test_rule_06_request_is_answered_at_once_from_a_young_reading_with_its_age() -> None:
    history = History()
    history.one("a")
    one = started(history)
    one.publish([history.one("a")], 0.1)
    answers = asked(one, HelloRequest("n1", ("a", "never written")), AGE)
    assert [nonce_of(each) for each in answers] == ["n1"]
    hello = answers[0].hello
    assert hello is not None
    assert hello.age == pytest.approx(AGE)
    assert hello.sequences == {"a": 1, "never written": 0}
    assert hello.heads["never written"] == EMPTY
    assert hello.heads["a"].point.position == 1, "as last read, not as last published"


def test_rule_06_request_waits_for_a_new_reading_when_the_last_is_old() -> None:
    history = History()
    history.one("a")
    one = started(history)
    now = AGE + 0.1
    assert asked(one, HelloRequest("n1", ("a",)), now) == []
    assert asked(one, HelloRequest("n2", (ALL,)), now) == []
    assert one.wants_reading(now)
    one.begin_reading()
    history.one("a")
    one.heads_read(history.reading(), now, now + 0.3)
    answers = hellos(one, now + 0.3)
    assert [nonce_of(each) for each in answers] == ["n1", "n2"]
    assert all(hello_of(each).store == history.point for each in answers)
    assert not one.wants_reading(now + 0.3)


def test_rule_06_requests_are_answered_from_the_last_reading_while_the_store_is_down() -> None:
    history = History()
    history.one("a")
    one = started(history)
    one.hello_requested(HelloRequest("n1", ("a",)), 50.0)
    one.begin_reading()
    one.heads_failed(52.0)
    sent = hellos(one, 52.0)
    assert [(nonce_of(each), hello_of(each).age) for each in sent] == [("n1", 52.0), ("", 52.0)]
    assert hellos(one, 52.0 + IDLE) == [], "the next hello needs a new reading"
    assert one.wants_reading(52.0 + IDLE)


def test_no_hello_before_the_first_reading() -> None:
    one = publishing()
    assert asked(one, HelloRequest("n1", ("a",)), 0.0) == []
    one.begin_reading()
    one.heads_failed(0.1)
    assert hellos(one, 0.1) == []
    goodbye = hello_of(one.goodbye(0.2))
    assert (goodbye.goodbye, goodbye.store, goodbye.heads) == (True, None, {})


def test_failed_readings_back_off_up_to_the_maximum() -> None:
    one, now, waits = publishing(), 0.0, []
    for _ in range(2000):
        assert one.wants_reading(now)
        one.begin_reading()
        assert one.next_time() == float("inf")
        one.heads_failed(now)
        assert not one.wants_reading(now)
        waits.append(one.next_time() - now)
        now = one.next_time()
    assert waits[:3] == pytest.approx([AGE, 2 * AGE, 4 * AGE])
    assert max(waits) <= MAX_BACKOFF + 1e-6


def test_idle_publisher_sends_hellos_after_a_failed_reading() -> None:
    history = History()
    history.one("a")
    one = started(history)
    one.begin_reading()
    one.heads_failed(IDLE)
    assert len(hellos(one, IDLE)) == 1
    now = one.next_time()
    while not one.wants_reading(now):
        now = max(now + 0.1, one.next_time())
        assert now < 3 * IDLE + MAX_BACKOFF
    read(one, history, now)
    assert hello_of(hellos(one, now)[0]).age == 0.0


def test_rule_06_heads_of_an_unchanged_store_are_not_read_again() -> None:
    history = History()
    history.one("a")
    one = started(history)
    assert one.heads_at(history.point, 1.0) == history.reading()
    twin = history.restored(0)
    twin.one("a")
    assert twin.point.position == history.point.position
    assert one.heads_at(twin.point, 1.0) is None, "another history at the same position"
    assert one.heads_at(history.one("a").point, 1.0) is None
    assert publishing().heads_at(ZERO, 1.0) is None, "nothing was read yet"


def test_rule_10_heads_of_an_unchanged_store_are_read_again_in_time() -> None:
    """A repair of the database corrects count and digest of a head without a new point."""
    history = History()
    history.one("a")
    one = started(history)
    now, fresh = 0.0, 0
    while now < 100.0:
        now += 1.0
        kept = one.heads_at(history.point, now)
        fresh += kept is None
        one.begin_reading()
        one.heads_read(history.reading() if kept is None else kept, now, now)
    assert fresh == 100.0 // CALM.stale_after


def test_reply_about_many_topics_is_cut_into_hellos_that_fit_in_a_frame() -> None:
    one = started(History())
    topics = tuple(f"{index:04}" + "t" * 251 for index in range(2 * HELLO_TOPICS + 1))
    answers = asked(one, HelloRequest("n1", topics), 0.1)
    assert len(answers) == 3
    assert {topic for each in answers for topic in hello_of(each).heads} == set(topics)
    for each in answers:
        encode(each)


def test_rule_w3_hellos_about_long_topics_stay_within_a_small_frame() -> None:
    limits = Limits(max_frame_bytes=4097, max_value_bytes=1)
    history = History()
    one = publishing(limits)
    names = tuple(f"{index:04}" + "t" * 251 for index in range(300))
    for name in names:
        one.publish([history.one(name)], 0.0)
    read(one, history, 0.0)
    (broadcast,) = hellos(one, 0.0)
    encode(broadcast, limits)
    named = list(hello_of(broadcast).heads)
    assert named == list(reversed(names))[: len(named)]
    assert len(named) >= 4
    answers = asked(one, HelloRequest("n1", names), 0.1)
    assert {name: head for each in answers for name, head in hello_of(each).heads.items()} == history.reading().topics
    for each in answers:
        encode(each, limits)


def test_requests_are_cut_one_at_a_time_when_they_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits wait for the lock: cutting all requests that waited for a reading takes longer than commits may wait."""
    cut: list[tuple[str, ...]] = []

    def counted(topics: Iterable[str], maximum: int, limits: Limits) -> Iterator[tuple[str, ...]]:
        cut.append(tuple(topics))
        return portions(topics, maximum, limits)

    monkeypatch.setattr(module, "portions", counted)
    one = publishing()
    names = [f"t{number}" for number in range(2 * module.HELLO_TOPICS)]
    for number in range(5):
        one.hello_requested(HelloRequest(f"n{number}", tuple(names)), 0.0)
    read(one, History(), 0.0)
    assert cut == []
    for expected in ("n0", "n0", "n1"):
        answer = one.next_hello(0.0)
        assert answer is not None
        assert nonce_of(answer) == expected
    assert len(cut) == 2
    assert one.refused() == 1 + 3, "the rest of a request and three requests are dropped"
    answer = one.next_hello(0.0)
    assert answer is not None
    assert nonce_of(answer) == "", "the broadcast is not dropped"


def test_waiting_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REQUESTS", 3)
    one = publishing()
    for number in range(9):
        one.hello_requested(HelloRequest(f"n{number}", (ALL,)), 0.0)
    read(one, History(), 0.0)
    for number in range(9):
        one.hello_requested(HelloRequest(f"m{number}", (ALL,)), 0.0)
    assert [nonce_of(each) for each in hellos(one, 0.0)] == ["n0", "n1", "n2", ""]


def test_refusal_drops_only_the_due_replies() -> None:
    one = started(History())
    for number in range(5):
        one.hello_requested(HelloRequest(f"n{number}", (ALL,)), 0.1)
    refused = one.next_hello(0.1)
    assert refused is not None
    assert nonce_of(refused) == "n0"
    assert one.refused() == 4
    assert hellos(one, 0.1) == []
    assert [nonce_of(each) for each in asked(one, HelloRequest("later", (ALL,)), 0.2)] == ["later"]


@pytest.mark.parametrize("idle", [4.0, 1000.0])
def test_rule_06_refused_broadcast_is_retried_after_growing_pauses(idle: float) -> None:
    timing = msgspec.structs.replace(CALM, max_idle_time=idle)
    one, now = Sequencer("api-1", UUID, timing, Limits(), 0.0), 0.0
    pauses = []
    for _ in range(8):
        read(one, History(), now)
        refuse(one, now)
        assert hellos(one, now) == []
        pauses.append(one.next_time() - now)
        now = one.next_time()
    growing = [HELLO_SPACING * 2.0**number for number in range(8)]
    assert pauses == pytest.approx([min(each, MAX_BACKOFF, idle) for each in growing])
    read(one, History(), now)
    assert len(hellos(one, now)) == 1
    assert one.next_time() == pytest.approx(now + idle), "the transport accepted this one"
    now = one.next_time()
    read(one, History(), now)
    refuse(one, now)
    assert one.next_time() == pytest.approx(now + HELLO_SPACING), "a new refusal begins with the shortest pause"


def test_rule_06_refused_reply_is_not_retried_and_makes_no_broadcast() -> None:
    one = started(History())
    one.hello_requested(HelloRequest("n1", (ALL,)), 0.1)
    refuse(one, 0.1)
    assert one.next_time() == pytest.approx(IDLE)


def test_next_time_never_makes_the_caller_loop_busily() -> None:
    history = History()
    history.one("a")
    one, now = publishing(), 0.0
    for _ in range(50):
        if one.wants_reading(now):
            read(one, history, now)
        hellos(one, now)
        assert one.next_time() > now
        now = one.next_time()
    assert now > 40 * IDLE


# -- connections ---------------------------------------------------------------------------------------------------


def test_rule_06_first_connection_after_the_start_hello_makes_another_hello() -> None:
    one = started(History())
    one.connected(2.0)
    assert one.next_time() == pytest.approx(2.0 + HELLO_DELAY), "its subscriptions come after its connection"
    read(one, History(), 2.0 + HELLO_DELAY)
    assert len(hellos(one, 2.0 + HELLO_DELAY)) == 1
    assert one.next_time() == pytest.approx(2.0 + HELLO_DELAY + IDLE)


def test_connection_before_the_first_reading_does_not_delay_the_hello() -> None:
    one = publishing()
    one.connected(0.0)
    read(one, History(), 0.05)
    assert len(hellos(one, 0.05)) == 1
    assert one.next_time() == pytest.approx(0.05 + HELLO_SPACING), "the subscriber may not have been subscribed yet"


def test_connection_right_before_a_hello_makes_another_hello() -> None:
    one = started(History())
    one.connected(2.0)
    one.connected(2.0 + 0.9 * HELLO_DELAY)
    now = 2.0 + HELLO_DELAY
    read(one, History(), now)
    assert len(hellos(one, now)) == 1
    assert one.next_time() == pytest.approx(now + HELLO_SPACING)
    read(one, History(), now + HELLO_SPACING)
    assert len(hellos(one, now + HELLO_SPACING)) == 1
    assert one.next_time() == pytest.approx(now + HELLO_SPACING + IDLE)


def test_thousand_reconnections_make_few_broadcasts(seed: int) -> None:
    rng = random.Random(seed)
    one, history, now, sent = started(History()), History(), 10.0, 0
    moments = sorted(10.0 + rng.uniform(0.0, 3.0) for _ in range(1000))
    while now < 14.0:
        while moments and moments[0] <= now:
            one.connected(moments.pop(0))
        if one.wants_reading(now):
            read(one, history, now)
        sent += len(hellos(one, now))
        now += 0.01
    assert 2 <= sent <= 5


@given(st.lists(st.tuples(st.sampled_from("cpqt"), st.floats(0.0, 3.0)), max_size=60))
@example([("c", 0.99999), ("c", 1.0)])
def test_broadcasts_are_limited_by_time_for_any_input(steps: list[tuple[str, float]]) -> None:
    """Connections, commits on new topics, requests: two broadcasts are never closer than ``HELLO_SPACING``."""
    history, one, now = History(), publishing(), 0.0
    broadcasts: list[float] = []
    for number, (what, pause) in enumerate(steps):
        now += pause
        if what == "c":
            one.connected(now)
        elif what == "p":
            one.publish([history.one(f"t{number}")], now)
        elif what == "q":
            one.hello_requested(HelloRequest(f"n{number}", ("t1",)), now)
        if one.wants_reading(now):
            read(one, history, now)
        for each in hellos(one, now):
            if not nonce_of(each):
                broadcasts.append(now)
                assert set(hello_of(each).heads) <= set(hello_of(each).sequences) <= set(one.sequences)
    # The sum that the sequencer schedules by; the difference of the two times can be smaller by a rounding error.
    assert all(later >= earlier + HELLO_SPACING for earlier, later in pairwise(broadcasts))


# -- hellos that links overtake --------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(("link", "lost", "hello", "deliver")), max_size=60), st.integers(0, 999))
def test_hello_overtaken_by_links_makes_no_gap_and_hides_none(steps: list[str], seed: int) -> None:
    """Hellos are made under the lock and sent without it: links that are numbered later may be sent before."""
    rng = random.Random(seed)
    history, one, gaps = History(), publishing(), SequenceGaps()
    read(one, history, 0.0)
    hellos(one, 0.0)
    gaps.announced("api-1", UUID, "a", 0)
    made: list[Envelope] = []
    missing: list[int] = []

    def deliver(each: Envelope) -> None:
        for topic, last in hello_of(each).sequences.items():
            gaps.announced(each.service, each.uuid, topic, last)

    for step in steps:
        if step in ("link", "lost"):
            (sent,) = one.publish([history.one("a")], 0.0)
            if step == "lost":
                missing.append(sent.sequence)
            else:
                gaps.received(sent.service, sent.uuid, sent.topic, sent.sequence, 1)
        elif step == "hello":
            made += asked(one, HelloRequest("n", ("a",)), 0.0)
        elif made:
            deliver(made.pop(rng.randrange(len(made))))
    for each in (*made, *asked(one, HelloRequest("last", ("a",)), 0.0)):
        deliver(each)
    assert gaps.tally == Tally(holes=len(missing))


def run_until(publishers: list[Sequencer], replica: Bench, until: float) -> int:
    """Let time pass in small steps, with hellos and hello requests delivered. Returns the number of received hellos."""
    received, answered = 0, len(replica.requests)
    while replica.now < until:
        for publisher in publishers:
            for request in replica.requests[answered:]:
                publisher.hello_requested(HelloRequest(request.nonce, request.topics), replica.now)
            if publisher.wants_reading(replica.now):
                read(publisher, replica.history, replica.now)
        answered = len(replica.requests)
        for hello in [each for publisher in publishers for each in hellos(publisher, replica.now)]:
            replica.do(replica.tracker.feed(hello, replica.now))
            received += 1
        replica.wait(0.05)
        if replica.is_syncing():
            replica.answer()
    return received


def test_rule_06_idle_publishers_of_many_topics_send_few_messages() -> None:
    """Three publishers and 2,000 topics, of which each sent on some hundreds: at most 3 messages a second."""
    history, timing, seconds = History(), Timing(verify_interval=0.0), 100.0
    replica = Bench(history, (ALL,), timing=timing)
    publishers = [Sequencer(f"api-{number}", f"{number:032x}", timing, Limits(), replica.now) for number in range(3)]
    for number in range(2000):
        publishers[number % 3].publish([history.one(f"topic-{number}")], replica.now)
    run_until(publishers, replica, replica.now + 30.0)
    received = run_until(publishers, replica, replica.now + seconds)
    assert received <= 3.0 * seconds
    assert received >= 2 * 3 * (seconds / timing.max_idle_time - 1), "each sends idle hellos and replies"
    assert replica.tracker.staleness(replica.now) <= timing.max_idle_time + timing.reading_age
    assert replica.syncs[1:] == [], "no sync after the first one"


# -- readings of some topics -------------------------------------------------------------------------------------


def test_topic_that_a_reading_of_all_topics_lacks_was_never_written() -> None:
    history = History()
    history.one("a")
    one = started(history)
    [reply] = asked(one, HelloRequest("n", ("a", "b")), 0.0)
    assert hello_of(reply).heads == {"a": history.heads["a"], "b": EMPTY}


def test_topic_that_a_reading_of_some_topics_lacks_is_left_out_of_the_reply() -> None:
    history = History()
    history.one("a")
    history.one("b")
    one = publishing()
    heads = msgspec.structs.replace(history.reading(), topics={"a": history.heads["a"]}, everything=False)
    one.begin_reading()
    one.heads_read(heads, 0.0, 0.0)
    [_, reply] = [*hellos(one, 0.0), *asked(one, HelloRequest("n", ("a", "b")), 0.0)]
    assert hello_of(reply).heads == {"a": history.heads["a"]}
