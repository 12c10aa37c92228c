"""A publisher's bookkeeping: numbers without gaps, hellos that never claim more than is true."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib.core import publishing as module
from pubsub_lib.core.codec import decode, encode
from pubsub_lib.core.envelope import Envelope, HelloAsk
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, EMPTY, Link
from pubsub_lib.core.publishing import HELLO_TOPICS, LONGEST_BACKOFF, Publishing
from pubsub_lib.core.sequence_gaps import SequenceGaps, Tally
from pubsub_lib.errors import FrameError
from tests.unit.core.builders import CALM, UUID, Bench, History

IDLE, AGE = CALM.max_idle_time, CALM.reading_age
SMALL = Limits(max_frame_bytes=900)


def publishing(limits: Limits = Limits()) -> Publishing:  # noqa: B008 - frozen
    return Publishing("api-1", UUID, CALM, limits, 0.0)


def started(history: History, now: float = 0.0) -> Publishing:
    """A publisher that has said its first hellos."""
    one = publishing()
    one.begin_reading()
    one.heads_read(history.reading(), now, now)
    return one


def links_of(envelopes: list[Envelope]) -> list[Link]:
    return [message.link for each in envelopes for message in each.messages]


def nonce_of(envelope: Envelope) -> str:
    assert envelope.hello is not None
    return envelope.hello.nonce


# -- numbers -----------------------------------------------------------------------------------------------------


def test_rule_11_messages_are_numbered_from_one_per_topic() -> None:
    history, one = History(), publishing()
    first = one.publish([history.one("a"), history.one("b"), history.one("a")], 0.0)
    assert [(each.topic, each.sequence) for each in first] == [("a", 1), ("b", 1), ("a", 2)]
    assert [(each.topic, each.sequence) for each in one.publish([history.one("b")], 0.0)] == [("b", 2)]
    assert one.sequences == {"a": 2, "b": 2}


def test_neighbours_on_a_topic_share_an_envelope() -> None:
    history, one = History(), publishing()
    links = history.some(5)
    envelopes = one.publish(links, 0.0)
    assert len(envelopes) == 1
    assert links_of(envelopes) == links
    assert one.publish([history.one()], 0.0)[0].sequence == 6


@given(st.lists(st.integers(1, 12), min_size=1, max_size=8), st.integers(0, 999))
def test_whatever_is_sent_fits_in_frames_and_has_no_gaps(sizes: list[int], seed: int) -> None:
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
        gaps.heard(again.service, again.uuid, again.topic, again.sequence, len(again.messages))
        bench.do(bench.tracker.feed(again, bench.now))
    assert gaps.tally == Tally()
    assert bench.applied == links


def test_a_change_that_fits_in_no_frame_is_refused_and_nothing_is_numbered() -> None:
    history, one = History(), publishing(SMALL)
    with pytest.raises(FrameError, match="needs") as caught:
        one.publish([history.one("a"), history.one("b", value='"' + "x" * 2000 + '"')], 0.0)
    assert caught.value.reason == "oversized"
    assert one.sequences == {}


# -- hellos ------------------------------------------------------------------------------------------------------


def test_rule_06_hello_at_start_for_every_topic_of_the_store() -> None:
    history = History()
    history.one("a")
    history.one("b")
    one = publishing()
    assert one.wants_reading(0.0)
    one.begin_reading()
    assert not one.wants_reading(0.0), "one reading at a time"
    hellos = one.heads_read(history.reading(), 0.0, 0.2)
    assert sorted(each.topic for each in hellos) == ["a", "b"]
    for each in hellos:
        assert each.hello is not None
        assert each.hello.heads == {each.topic: history.heads[each.topic]}
        assert each.hello.age == pytest.approx(0.2)
        assert (each.hello.nonce, each.sequence, list(each.messages)) == ("", 0, [])


def test_rule_06_hello_on_idle_topics_only_and_after_a_young_reading() -> None:
    history = History()
    history.one("a")
    history.one("b")
    one = started(history)
    one.publish([history.one("b")], 0.8 * IDLE)
    assert not one.wants_reading(IDLE - 0.1)
    assert one.next_time() == IDLE
    assert one.tick(IDLE) == [], "the reading is too old to be told"
    assert one.wants_reading(IDLE)
    one.begin_reading()
    hellos = one.heads_read(history.reading(), IDLE, IDLE)
    assert [(each.topic, each.hello and each.hello.sequences) for each in hellos] == [("a", {"a": 0})]
    assert one.tick(IDLE + 0.1) == []
    assert one.next_time() == pytest.approx(1.8 * IDLE)


def test_rule_06_a_question_is_answered_at_once_by_a_young_reading_with_its_true_age() -> None:
    history = History()
    history.one("a")
    one = started(history)
    one.publish([history.one("a")], 0.1)
    answers = one.asked(HelloAsk("n1", ("a", "never written")), AGE)
    assert [nonce_of(each) for each in answers] == ["n1"]
    hello = answers[0].hello
    assert hello is not None
    assert hello.age == pytest.approx(AGE)
    assert hello.sequences == {"a": 1, "never written": 0}
    assert hello.heads["never written"] == EMPTY
    assert hello.heads["a"].point.position == 1, "as last read, not as last published"


def test_rule_06_a_question_waits_for_a_new_reading_when_the_last_is_old() -> None:
    history = History()
    history.one("a")
    one = started(history)
    now = AGE + 0.1
    assert one.asked(HelloAsk("n1", ("a",)), now) == []
    assert one.asked(HelloAsk("n2", (ALL,)), now) == []
    assert one.wants_reading(now)
    one.begin_reading()
    history.one("a")
    answers = one.heads_read(history.reading(), now, now + 0.3)
    assert [nonce_of(each) for each in answers] == ["n1", "n2"]
    assert all(each.hello is not None and each.hello.store == history.point for each in answers)
    assert not one.wants_reading(now + 0.3)


def test_rule_06_the_store_down_questions_are_answered_with_what_is_known_at_its_true_age() -> None:
    history = History()
    history.one("a")
    one = started(history)
    one.asked(HelloAsk("n1", ("a",)), 50.0)
    one.begin_reading()
    answers = one.heads_failed(52.0)
    own = [each for each in answers if nonce_of(each)]
    assert [(nonce_of(each), each.hello and each.hello.age) for each in own] == [("n1", 52.0)]


def test_nothing_was_ever_read_nothing_is_claimed() -> None:
    one = publishing()
    assert one.asked(HelloAsk("n1", ("a",)), 0.0) == []
    one.begin_reading()
    assert one.heads_failed(0.1) == []
    goodbye = one.goodbye(0.2)[0].hello
    assert goodbye is not None
    assert (goodbye.goodbye, goodbye.store, goodbye.heads) == (True, None, {})


def test_failed_readings_back_off_within_a_bound() -> None:
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
    assert max(waits) <= LONGEST_BACKOFF + 1e-6


def test_a_failed_reading_does_not_hide_the_hellos_of_idle_topics_for_ever() -> None:
    history = History()
    history.one("a")
    one = started(history)
    one.begin_reading()
    one.heads_failed(IDLE)
    now = one.next_time()
    while not one.wants_reading(now):
        now = max(now + 0.1, one.next_time())
        assert now < 3 * IDLE + LONGEST_BACKOFF
    one.begin_reading()
    assert [each.topic for each in one.heads_read(history.reading(), now, now)] == ["a"]


def test_an_answer_about_many_topics_is_cut_into_hellos_that_fit_in_a_frame() -> None:
    one = started(History())
    topics = tuple(f"{index:04}" + "t" * 251 for index in range(2 * HELLO_TOPICS + 1))
    answers = one.asked(HelloAsk("n1", topics), 0.1)
    assert len(answers) == 3
    assert {topic for each in answers if each.hello for topic in each.hello.heads} == set(topics)
    for each in answers:
        encode(each)


def test_questions_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_QUESTIONS", 3)
    one = publishing()
    for number in range(9):
        one.asked(HelloAsk(f"n{number}", (ALL,)), 0.0)
    one.begin_reading()
    assert len(one.heads_read(History().reading(), 0.0, 0.0)) == 3


def test_a_shell_that_sleeps_until_next_time_never_spins() -> None:
    history = History()
    history.one("a")
    one, now = publishing(), 0.0
    for _ in range(50):
        if one.wants_reading(now):
            one.begin_reading()
            one.heads_read(history.reading(), now, now)
        one.tick(now)
        assert one.next_time() > now
        now = one.next_time()
    assert now > 40 * IDLE
