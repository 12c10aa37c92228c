"""The messages between a worker and the service that commits for it: their form, their limits, and invalid bytes."""

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib import errors
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import Change, Link, Point
from pubsub_lib.errors import (
    AlreadyExists,
    FrameError,
    InvalidValueError,
    NotFound,
    OutcomeUnknown,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    VersionMismatch,
)
from pubsub_lib.store import host_messages
from pubsub_lib.store.group_commit import Attempt
from pubsub_lib.store.host_messages import (
    Declined,
    Exchange,
    Finished,
    Frames,
    Hello,
    Prepared,
    Refused,
    Request,
    Welcome,
    decode_reply,
    decode_request,
    encode,
)
from pubsub_lib.store.links import Commit
from pubsub_lib.store.verbs import Operation, ReadChanged
from pubsub_lib.store.writer import Work

NONCES = st.integers(1, 2**63 - 1)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
OPERATIONS = st.builds(
    Operation,
    st.sampled_from(["create", "update", "set", "delete"]),
    TEXTS,
    TEXTS,
    st.none() | st.binary(max_size=50),
    st.none() | TEXTS,
    st.none() | st.integers(0, 2**63 - 1),
    st.booleans(),
)
WORKS = st.builds(
    Work,
    st.lists(OPERATIONS, max_size=5).map(tuple),
    st.dictionaries(st.tuples(TEXTS, TEXTS), st.integers(0, 2**63 - 1), max_size=5),
    NONCES,
    TEXTS,
    st.booleans(),
)
WORK = Work((Operation("set", "t", "k", b"1"),), {}, 7, "api")
LINK = Link("x", Point(0, 0), Point(1, 7), [Change("t", "k", "create", 1, b"1")], 1, 2**64 - 1, Point(0, 0), 1, "api")
COMMIT = Commit(Point(1, 7), 7, [LINK])


def body(message: Any) -> bytes:
    (found,) = Frames(10**7).feed(encode(message))
    return found


def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for begin, end in itertools.pairwise(edges):
        yield data[begin:end]


@given(WORKS)
def test_request_keeps_every_field_of_a_work(work: Work) -> None:
    request = decode_request(body(host_messages.request_of(work)))
    assert isinstance(request, Request)
    assert host_messages.work_of(request) == work


def test_version_was_raised_with_the_fields_of_a_work() -> None:
    """When this fails: raise VERSION, and correct the lists."""
    assert host_messages.VERSION == 2
    assert Operation.__struct_fields__ == ("verb", "table", "key", "value", "topic", "version", "missing_ok")
    assert Work.__struct_fields__ == ("operations", "reads", "nonce", "origin", "publish")
    assert Attempt.__struct_fields__ == ("commit", "error", "shared", "doubt")
    assert Commit.__struct_fields__ == ("point", "nonce", "links", "store_id", "published")


@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(0, 10**6), max_size=8))
def test_frames_are_found_however_the_bytes_are_cut(bodies: list[bytes], cuts: list[int]) -> None:
    frames, found = Frames(40), []
    for piece in pieces(b"".join(len(each).to_bytes(4, "big") + each for each in bodies), cuts):
        found += frames.feed(piece)
    assert found == bodies


def test_a_frame_above_the_maximum_is_refused_before_it_is_received() -> None:
    with pytest.raises(FrameError, match="a message has 11 bytes; at most 10 are allowed") as caught:
        Frames(10).feed((11).to_bytes(4, "big"))
    assert caught.value.reason == "oversized"


@given(st.binary(max_size=60))
def test_invalid_bytes_raise_only_a_frame_error(data: bytes) -> None:
    for decode in (decode_request, decode_reply):
        try:
            decode(data)
        except FrameError:
            pass


@given(st.binary(max_size=80))
def test_invalid_bytes_end_an_exchange_without_an_exception(data: bytes) -> None:
    exchange = Exchange(WORK)
    if exchange.feed(data) and exchange.invalid:
        assert exchange.attempt is not None
        assert isinstance(exchange.attempt.error, OutcomeUnknown)
        assert exchange.attempt.error.nonce == 7


ERRORS = [
    NotFound("x"), AlreadyExists("x"), VersionMismatch("x"), ReadChanged("x"), InvalidValueError("x"), StoreBusy("x"),
    StoreUnavailable("x"), StoreFull("x"), StoreReadOnly("x"), StoreError("x"),
]  # fmt: skip


@pytest.mark.parametrize("error", ERRORS, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("shared", [False, True])
def test_error_of_an_attempt_keeps_its_class_and_text(error: Exception, shared: bool) -> None:
    exchange = Exchange(WORK)
    assert exchange.feed(encode(host_messages.finished_of(Attempt(error=error, shared=shared))))
    attempt = exchange.attempt
    assert attempt is not None
    assert (type(attempt.error), str(attempt.error)) == (type(error), "x")
    assert (attempt.commit, attempt.doubt, attempt.shared) == (None, None, shared)


@pytest.mark.parametrize("error", [KeyError("seven"), OutcomeUnknown("x", 1), FrameError("x", "foreign")])
def test_other_errors_arrive_as_a_store_error(error: Exception) -> None:
    exchange = Exchange(WORK)
    exchange.feed(encode(host_messages.finished_of(Attempt(error=error))))
    assert exchange.attempt is not None
    assert type(exchange.attempt.error) is StoreError
    assert type(error).__name__ in str(exchange.attempt.error)


def test_every_error_of_the_library_can_be_sent() -> None:
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.PubSubError):
            error = kind.__new__(kind)
            assert host_messages.finished_of(Attempt(error=error)).error is not None


@given(st.lists(st.integers(0, 10**6), max_size=8), st.booleans())
def test_exchange_knows_the_commit_however_the_bytes_are_cut(cuts: list[int], doubt: bool) -> None:
    exchange = Exchange(WORK)
    done = Attempt(error=StoreUnavailable("x"), doubt=COMMIT) if doubt else Attempt(COMMIT)
    data = encode(host_messages.prepared_of(COMMIT)) + encode(host_messages.finished_of(done))
    ends = [exchange.feed(piece) for piece in pieces(data, cuts)]
    assert ends == [False] * (len(ends) - 1) + [True]
    assert exchange.attempt is not None
    assert (exchange.attempt.commit, exchange.attempt.doubt) == ((None, COMMIT) if doubt else (COMMIT, None))


def test_answer_contains_whether_the_service_publishes() -> None:
    for published in (False, True):
        exchange = Exchange(WORK)
        done = host_messages.finished_of(Attempt(COMMIT), published)
        assert exchange.feed(encode(host_messages.prepared_of(COMMIT)) + encode(done))
        assert exchange.attempt is not None
        assert exchange.attempt.commit == msgspec.structs.replace(COMMIT, published=published)


def test_the_last_prepared_commit_counts() -> None:
    """The service executes a group again without the transaction of a worker that is gone."""
    exchange = Exchange(WORK)
    later = Commit(Point(5, 7), 7, [])
    for each in (COMMIT, later):
        assert not exchange.feed(encode(host_messages.prepared_of(each)))
        assert exchange.prepared == each


def test_declined_request_has_no_attempt() -> None:
    exchange = Exchange(WORK)
    assert exchange.feed(encode(Declined()))
    assert exchange.attempt is None
    assert not exchange.invalid


@pytest.mark.parametrize(
    "messages",
    [
        [Finished(committed=True)],
        [Finished(committed=False, doubt=True)],
        [Prepared(Point(1, 8), [])],
        [Welcome()],
        [Finished(committed=False), Prepared(Point(1, 7), [])],
    ],
)
def test_unexpected_message_makes_the_outcome_unknown(messages: list[Any]) -> None:
    exchange = Exchange(WORK)
    assert exchange.feed(b"".join(map(encode, messages)))
    assert exchange.invalid
    assert exchange.attempt is not None
    with pytest.raises(OutcomeUnknown, match=r"was not expected here.*call committed\(7\) later"):
        raise exchange.attempt.error or AssertionError


OWN = host_messages.hello("sqlite:/net.db", Limits())


@pytest.mark.parametrize(
    ("given_hello", "reason"),
    [
        (OWN, ""),
        (msgspec.structs.replace(OWN, version=9), "uses version 2 of the messages and this program 9"),
        (msgspec.structs.replace(OWN, database="sqlite:/x"), "writes to sqlite:/net.db and this program to sqlite:/x"),
        (host_messages.hello(OWN.database, Limits(max_value_depth=3)), "has max_value_depth = 64 and this program 3"),
        (msgspec.structs.replace(OWN, limits={**OWN.limits, "max_x": 1}), "has max_x = None and this program 1"),
    ],
)
def test_refusal_names_the_difference(given_hello: Hello, reason: str) -> None:
    received = decode_request(body(given_hello))
    assert isinstance(received, Hello)
    found = host_messages.refusal(received, OWN)
    assert reason in found
    assert bool(found) == bool(reason)


def test_answer_to_the_first_message() -> None:
    assert host_messages.refusal_in(decode_reply(body(Welcome()))) == ""
    assert host_messages.refusal_in(decode_reply(body(Refused("why")))) == "why"
    with pytest.raises(FrameError, match="did not answer the first message"):
        host_messages.refusal_in(Declined())
