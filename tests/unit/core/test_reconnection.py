"""What is asked after a connection, when, and which answers end it."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib.core.reconnection import NEVER_DUE, Reconnection
from pubsub_lib.core.timing import Timing

TIMING = Timing(connect_jitter=0.5, reading_age=1.0)


def made(seed: int = 0) -> Reconnection:
    return Reconnection(TIMING, random.Random(seed))


def test_before_any_connection_there_is_nothing_to_ask_and_no_answer_means_anything() -> None:
    idle = made()
    assert (idle.ask_at, idle.due(1e9)) == (NEVER_DUE, [])
    assert idle.lost_at("t", 5.0, 6.0) == NEVER_DUE


@given(seed=st.integers(0, 1000))
def test_it_asks_within_the_jitter_and_replicas_ask_at_different_times(seed: int) -> None:
    one, other = made(seed), made(seed + 1)
    for each in (one, other):
        each.connected(["t"], 100.0)
        assert 100.0 <= each.ask_at <= 100.0 + TIMING.connect_jitter
        assert each.due(each.ask_at - 1e-6) == []
    assert one.ask_at != other.ask_at


def test_several_connections_within_the_jitter_are_one_question_about_all_chains() -> None:
    many = made()
    for number in range(5):
        many.connected(["a", "b"], 100.0 + number / 1e6)
    asked_at = many.ask_at
    assert asked_at <= 100.0 + TIMING.connect_jitter
    assert many.due(asked_at) == ["a", "b"]
    assert many.due(asked_at) == []


def test_what_no_reading_since_the_connection_told_of_is_asked_once_more_when_none_can_be_older() -> None:
    asks = made()
    asks.connected(["a", "b", "c"], 100.0)
    first = asks.ask_at
    asks.due(first)
    asks.read("a", 100.0)
    asks.read("b", 99.9)  # a publisher's reading from before the connection
    second = asks.ask_at
    assert 100.0 + TIMING.reading_age <= second <= 100.0 + TIMING.reading_age + TIMING.connect_jitter
    assert asks.due(second) == ["b", "c"]
    assert asks.ask_at == NEVER_DUE, "and not again: the periodic questions do the rest"


def test_when_all_was_read_meanwhile_nothing_is_asked() -> None:
    asks = made()
    asks.connected(["a", "b"], 100.0)
    asks.read("a", 100.1)
    asks.removed("b")
    assert asks.due(asks.ask_at) == []
    assert asks.ask_at == NEVER_DUE


def test_a_connection_after_the_first_question_begins_anew() -> None:
    asks = made()
    asks.connected(["a"], 100.0)
    asks.due(asks.ask_at)
    asks.read("a", 100.2)
    asks.connected(["a"], 100.7)
    assert 100.7 <= asks.ask_at <= 101.2
    assert asks.due(asks.ask_at) == ["a"]
    asks.read("a", 100.5)
    assert asks.due(asks.ask_at) == ["a"], "that reading was older than the connection"


@pytest.mark.parametrize(("asked", "lost_at"), [(99.9, NEVER_DUE), (100.0, 100.6), (100.2, 100.4)])
def test_only_a_question_that_followed_the_connection_shortens_the_wait_by_its_own_round_trip(
    asked: float, lost_at: float
) -> None:
    asks = made()
    asks.connected(["a"], 100.0)
    assert asks.lost_at("a", asked, 100.3) == pytest.approx(lost_at)
    assert asks.lost_at("not followed", asked, 100.3) == NEVER_DUE
    asks.read("a", 100.1)
    assert asks.lost_at("a", asked, 100.3) == NEVER_DUE, "what that reading showed was told before"


def test_second_connection_is_asked_about_twice_as_well() -> None:
    asks = made()
    for since in (100.0, 200.0):
        asks.connected(["a"], since)
        assert asks.due(asks.ask_at) == ["a"]
        assert since + TIMING.reading_age <= asks.ask_at < NEVER_DUE
        assert asks.due(asks.ask_at) == ["a"]
        assert asks.ask_at == NEVER_DUE
