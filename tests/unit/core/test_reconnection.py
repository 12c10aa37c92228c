"""Hello requests after a connection: their times, and the replies that end them."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib.core.reconnection import NEVER_DUE, Reconnection
from pubsub_lib.core.timing import Timing

TIMING = Timing(connect_jitter=0.5, reading_age=1.0)


def made(seed: int = 0) -> Reconnection:
    return Reconnection(TIMING, random.Random(seed))


def test_without_a_connection_no_chain_is_due_and_no_reply_counts() -> None:
    idle = made()
    assert (idle.ask_at, idle.due(1e9)) == (NEVER_DUE, [])
    assert idle.lost_at("t", 5.0, 6.0) == NEVER_DUE


@given(seed=st.integers(0, 1000))
def test_request_is_due_within_the_jitter_at_different_times_per_replica(seed: int) -> None:
    one, other = made(seed), made(seed + 1)
    for each in (one, other):
        each.connected(["t"], 100.0)
        assert 100.0 <= each.ask_at <= 100.0 + TIMING.connect_jitter
        assert each.due(each.ask_at - 1e-6) == []
    assert one.ask_at != other.ask_at


def test_several_connections_within_the_jitter_lead_to_one_request_for_all_chains() -> None:
    many = made()
    for number in range(5):
        many.connected(["a", "b"], 100.0 + number / 1e6)
    asked_at = many.ask_at
    assert asked_at <= 100.0 + TIMING.connect_jitter
    assert many.due(asked_at) == ["a", "b"]
    assert many.due(asked_at) == []


def test_chains_without_a_reading_since_the_connection_are_requested_once_more() -> None:
    asks = made()
    asks.connected(["a", "b", "c"], 100.0)
    first = asks.ask_at
    asks.due(first)
    asks.read("a", 100.0)
    asks.read("b", 99.9)  # a publisher's reading from before the connection
    second = asks.ask_at
    assert 100.0 + TIMING.reading_age <= second <= 100.0 + TIMING.reading_age + TIMING.connect_jitter
    assert asks.due(second) == ["b", "c"]
    assert asks.ask_at == NEVER_DUE, "not a third time: the periodic requests are enough"


def test_no_request_is_due_when_all_chains_were_read() -> None:
    asks = made()
    asks.connected(["a", "b"], 100.0)
    asks.read("a", 100.1)
    asks.removed("b")
    assert asks.due(asks.ask_at) == []
    assert asks.ask_at == NEVER_DUE


def test_relays_answer_to_a_sync_replaces_no_request_and_shortens_no_wait_any_more() -> None:
    asks = made()
    asks.connected(["a"], 100.0)
    asks.read("a", 100.1, relayed=True)
    assert asks.due(asks.ask_at) == ["a"]
    assert asks.lost_at("a", 100.2, 100.3) == NEVER_DUE, "that reading was processed before"
    assert asks.due(asks.ask_at) == ["a"]
    assert asks.ask_at == NEVER_DUE


def test_connection_after_the_first_request_starts_again() -> None:
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
def test_only_a_request_after_the_connection_shortens_the_wait(asked: float, lost_at: float) -> None:
    asks = made()
    asks.connected(["a"], 100.0)
    assert asks.lost_at("a", asked, 100.3) == pytest.approx(lost_at)
    assert asks.lost_at("not followed", asked, 100.3) == NEVER_DUE
    asks.read("a", 100.1)
    assert asks.lost_at("a", asked, 100.3) == NEVER_DUE, "that reading was processed before"


def test_second_connection_leads_to_two_requests_too() -> None:
    asks = made()
    for since in (100.0, 200.0):
        asks.connected(["a"], since)
        assert asks.due(asks.ask_at) == ["a"]
        assert since + TIMING.reading_age <= asks.ask_at < NEVER_DUE
        assert asks.due(asks.ask_at) == ["a"]
        assert asks.ask_at == NEVER_DUE
