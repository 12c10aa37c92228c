"""Questions: cut, asked, answered, taken back in time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope, Hello
from pubsub_lib.core.model import ALL, ZERO
from pubsub_lib.errors import InvalidValueError
from pubsub_zmq.pending_hellos import PendingHellos, RequestPart, parts_of

UUIDS = ("aa" * 16, "bb" * 16)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=60)


def hello(who: str, nonce: str, *topics: str) -> Envelope:
    return Envelope("world", who, "", 0, [], Hello(dict.fromkeys(topics, 0), {}, ZERO, 0.0, nonce))


def part(nonce: str, *topics: str) -> RequestPart:
    (made,) = parts_of(nonce, topics, 16_000)
    return made


@given(st.sets(NAMES | st.just(ALL), max_size=60), st.integers(600, 2000), st.integers(1, codec.MAX_NONCE_BYTES))
def test_the_parts_of_a_question_hold_all_topics_and_none_is_too_long(topics: set[str], most: int, size: int) -> None:
    nonce = "n" * size
    parts = parts_of(nonce, topics, most)
    assert {topic for each in parts for topic in each.topics} == topics
    assert sum(len(each.topics) for each in parts) == len(topics)
    assert len({each.nonce for each in parts}) == len(parts)
    for each in parts:
        private, ask = each.frames
        assert len(ask) <= most
        assert ask.startswith(private)
        read = codec.read_hello_request(ask)
        assert (read.nonce, frozenset(read.topics), each.asked) == (each.nonce, each.topics, nonce)


def test_the_longest_nonces_may_ask_about_any_number_of_topics_and_are_not_confused() -> None:
    topics = [f"topic-{number:060}" for number in range(100)]
    some, others = ([each.nonce for each in parts_of("n" * 63 + last, topics, 2048)] for last in "ab")
    assert len(some) > 2
    assert len({*some, *others}) == len(some) + len(others)


def test_a_question_without_topics_is_one_part() -> None:
    assert [each.topics for each in parts_of("nonce", [], 1000)] == [frozenset()]


@pytest.mark.parametrize(("nonce", "topics"), [("", ["a"]), ("a\0b", ["a"]), ("n" * 65, ["a"]), ("n", ["\ud800"])])
def test_what_cannot_be_asked_is_refused(nonce: str, topics: list[str]) -> None:
    with pytest.raises(InvalidValueError):
        parts_of(nonce, topics, 1000)


def test_a_question_ends_when_every_connected_publisher_spoke_of_all_its_topics() -> None:
    questions = PendingHellos(5.0)
    asked = part("n", "a", "b", ALL)
    assert questions.request(asked, 0.0) == (list(asked.frames), [])
    assert questions.answered(hello(UUIDS[0], "n", "a", "b"), 2)[1] == []
    assert questions.answered(hello(UUIDS[1], "n", "a"), 2)[1] == []
    assert questions.answered(hello(UUIDS[1], "n", "b"), 2)[1] == list(asked.frames)
    assert questions.answered(hello(UUIDS[1], "n", "b"), 2)[1] == [], "it ended already"
    assert list(questions.expired(100.0)) == []


def test_while_nobody_is_known_to_be_connected_a_question_stays() -> None:
    questions = PendingHellos(5.0)
    questions.request(part("n", "a"), 0.0)
    assert questions.answered(hello(UUIDS[0], "n", "a"), 0)[1] == []


def test_a_question_that_nobody_answers_ends_by_time() -> None:
    questions = PendingHellos(5.0)
    assert questions.next_time() == float("inf")
    first, second = part("1", "a"), part("2", "a")
    questions.request(first, 0.0)
    questions.request(second, 1.0)
    assert questions.next_time() == 5.0
    assert list(questions.expired(4.9)) == []
    assert list(questions.expired(5.5)) == list(first.frames)
    assert questions.next_time() == 6.0


def test_a_question_asked_again_replaces_the_first_and_balances_its_subscriptions() -> None:
    questions = PendingHellos(5.0)
    first, second = part("n", "a"), part("n", "b")
    questions.request(first, 0.0)
    assert questions.request(second, 1.0) == (list(second.frames), list(first.frames))
    assert list(questions.expired(5.5)) == []
    assert list(questions.expired(6.0)) == list(second.frames)


def test_the_asker_sees_its_own_nonce() -> None:
    questions = PendingHellos(5.0)
    parts = parts_of("n", [f"topic-{number}" for number in range(100)], 600)
    assert len(parts) > 1
    for each in parts:
        questions.request(each, 0.0)
        answer, _ = questions.answered(hello(UUIDS[0], each.nonce, *each.topics), 1)
        assert answer.hello is not None
        assert answer.hello.nonce == "n"


def test_a_foreign_answer_is_passed_on_as_it_is() -> None:
    answer = hello(UUIDS[0], "other", "a")
    assert PendingHellos(5.0).answered(answer, 1) == (answer, [])
