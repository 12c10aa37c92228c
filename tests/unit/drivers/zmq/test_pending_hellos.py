"""Pending hello requests: split, sent, answered, and unsubscribed in time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib.core import codec
from pubsub_lib.core.envelope import Envelope, Hello
from pubsub_lib.core.model import ALL, ZERO
from pubsub_lib.errors import InvalidValueError
from pubsub_zmq import pending_hellos
from pubsub_zmq.pending_hellos import AS_BEFORE, PendingHellos, RequestPart, parts_of

UUIDS = ("aa" * 16, "bb" * 16)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=60)


def hello(who: str, nonce: str, *topics: str) -> Envelope:
    return Envelope("world", who, "", 0, [], Hello(dict.fromkeys(topics, 0), {}, ZERO, 0.0, nonce))


def part(nonce: str, *topics: str) -> RequestPart:
    (made,) = parts_of(nonce, topics, 16_000)
    return made


def ends(*parts: RequestPart) -> list[bytes]:
    """The subscriptions of requests to publishers with keys."""
    return [frame for each in parts for frame in (each.private, each.request)]


def begins(made: RequestPart) -> list[bytes]:
    return [b"\1" + made.private, b"\1" + made.request]


@given(st.sets(NAMES | st.just(ALL), max_size=60), st.integers(600, 2000), st.integers(1, codec.MAX_NONCE_BYTES))
def test_parts_of_a_hello_request_hold_all_topics_within_the_limit(topics: set[str], max_bytes: int, size: int) -> None:
    nonce = "n" * size
    parts = parts_of(nonce, topics, max_bytes)
    assert {topic for each in parts for topic in each.topics} == topics
    assert sum(len(each.topics) for each in parts) == len(topics)
    assert len({each.nonce for each in parts}) == len(parts)
    for each in parts:
        private, ask = each.private, each.request
        assert len(ask) <= max_bytes
        assert ask.startswith(private)
        read = codec.read_hello_request(ask)
        assert (read.nonce, frozenset(read.topics), each.asked) == (each.nonce, each.topics, nonce)


def test_parts_of_the_longest_nonces_have_different_nonces() -> None:
    topics = [f"topic-{number:060}" for number in range(100)]
    some, others = ([each.nonce for each in parts_of("n" * 63 + last, topics, 2048)] for last in "ab")
    assert len(some) > 2
    assert len({*some, *others}) == len(some) + len(others)


def test_hello_request_without_topics_is_one_part() -> None:
    assert [each.topics for each in parts_of("nonce", [], 1000)] == [frozenset()]


@pytest.mark.parametrize(("nonce", "topics"), [("", ["a"]), ("a\0b", ["a"]), ("n" * 65, ["a"]), ("n", ["\ud800"])])
def test_invalid_nonce_or_topic_is_refused(nonce: str, topics: list[str]) -> None:
    with pytest.raises(InvalidValueError):
        parts_of(nonce, topics, 1000)


def test_hello_request_ends_when_all_connected_publishers_replied_about_all_topics() -> None:
    pending = PendingHellos(5.0, subscribes=True)
    asked = part("n", "a", "b", ALL)
    assert pending.request(asked, 0.0) == (begins(asked), [])
    assert pending.answered(hello(UUIDS[0], "n", "a", "b"), 2)[1] == []
    assert pending.answered(hello(UUIDS[1], "n", "a"), 2)[1] == []
    assert pending.answered(hello(UUIDS[1], "n", "b"), 2)[1] == ends(asked)
    assert pending.answered(hello(UUIDS[1], "n", "b"), 2)[1] == [], "it ended already"
    assert list(pending.expired(100.0)) == []


def test_hello_request_stays_open_without_a_known_connection() -> None:
    pending = PendingHellos(5.0, subscribes=True)
    pending.request(part("n", "a"), 0.0)
    assert pending.answered(hello(UUIDS[0], "n", "a"), 0)[1] == []


def test_unanswered_hello_request_expires() -> None:
    pending = PendingHellos(5.0, subscribes=True)
    assert pending.next_time() == float("inf")
    first, second = part("1", "a"), part("2", "a")
    pending.request(first, 0.0)
    pending.request(second, 1.0)
    assert pending.next_time() == 5.0
    assert list(pending.expired(4.9)) == []
    assert list(pending.expired(5.5)) == ends(first)
    assert pending.next_time() == 6.0


def test_publishers_without_keys_keep_nothing_of_a_hello_request() -> None:
    pending = PendingHellos(5.0, subscribes=False)
    first, second, third = part("n", "a"), part("n", "b"), part("m", "b")
    assert pending.request(first, 0.0) == ([b"\1Hn", first.request], [])
    assert pending.request(second, 0.0)[1] == [b"Hn"]
    pending.request(third, 0.0)
    assert pending.answered(hello(UUIDS[0], "n", "b"), 1)[1] == [b"Hn"]
    assert list(pending.expired(5.0)) == [b"Hm"]


def is_message(pending: PendingHellos, now: float) -> bool:
    """Whether the next request, which is answered, is no subscription."""
    made = part(f"at {now}", "a")
    messages, _ = pending.request(made, now, 1)
    pending.answered(hello(UUIDS[0], made.nonce, "a"), 1)
    return messages[1] == made.request


def test_publisher_that_does_not_answer_is_asked_as_older_ones_need() -> None:
    pending = PendingHellos(5.0, subscribes=False)
    silent = part("n", "a", "b")
    pending.request(silent, 0.0, 1)
    pending.answered(hello(UUIDS[0], "n", "a", "b"), 2)  # one of two
    assert list(pending.expired(5.0, 1)) == [b"Hn"]
    old = part("o", "a")
    assert pending.request(old, 5.0, 1) == (begins(old), [])
    assert pending.answered(hello(UUIDS[0], "o", "a"), 1)[1] == ends(old)
    assert [is_message(pending, now) for now in (6.0, 4.9 + AS_BEFORE, 5.0 + AS_BEFORE)] == [False, False, True]


@pytest.mark.parametrize(("begin", "end"), [(0, 0), (0, 1), (1, 0), (1, 2)])
def test_connection_that_ended_meanwhile_is_no_sign_of_an_older_publisher(begin: int, end: int) -> None:
    pending = PendingHellos(5.0, subscribes=False)
    pending.request(part("n", "a"), 0.0, begin)
    assert list(pending.expired(5.0, end))
    assert is_message(pending, 6.0)


def test_repeated_hello_request_replaces_the_first_and_its_subscriptions() -> None:
    pending = PendingHellos(5.0, subscribes=True)
    first, second = part("n", "a"), part("n", "b")
    pending.request(first, 0.0)
    assert pending.request(second, 1.0) == (begins(second), ends(first))
    assert list(pending.expired(5.5)) == []
    assert list(pending.expired(6.0)) == ends(second)


def test_parts_have_as_many_topics_as_a_publisher_reads() -> None:
    parts = parts_of("n", [f"{number}" for number in range(450)], 16_000)
    assert [len(each.topics) for each in parts] == [200, 200, 50]


def test_open_hello_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_hellos, "MAX_OPEN", 2)
    pending = PendingHellos(5.0, subscribes=True)
    parts = [part(str(number), "a") for number in range(3)]
    assert [pending.request(each, 0.0)[1] for each in parts] == [[], [], ends(parts[0])]
    assert [*pending.expired(5.0)] == ends(*parts[1:])


def test_invented_publishers_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_hellos, "MAX_UUIDS", 5)
    pending = PendingHellos(5.0, subscribes=True)
    pending.request(part("n", "a"), 0.0)
    for number in range(20):
        pending.answered(hello(f"{number:032x}", "n"), 2)
    assert len(pending._open["n"].missing) == 5
    assert [*pending.expired(5.0)], "it ends by its time"


def test_hello_reply_has_the_original_nonce() -> None:
    pending = PendingHellos(5.0, subscribes=True)
    parts = parts_of("n", [f"topic-{number}" for number in range(100)], 600)
    assert len(parts) > 1
    for each in parts:
        pending.request(each, 0.0)
        answer, _ = pending.answered(hello(UUIDS[0], each.nonce, *each.topics), 1)
        assert answer.hello is not None
        assert answer.hello.nonce == "n"


def test_hello_reply_without_a_request_is_passed_on_unchanged() -> None:
    answer = hello(UUIDS[0], "other", "a")
    assert PendingHellos(5.0, subscribes=True).answered(answer, 1) == (answer, [])
