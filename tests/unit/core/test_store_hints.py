"""Hello requests after a broadcast with a later point of the store, and their rate."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib.core.store_hints import NEVER_DUE, StoreHints
from pubsub_lib.core.timing import Timing

TIMING = Timing(connect_jitter=0.5, message_delay_window=1.0)


def made(seed: int = 0, timing: Timing = TIMING) -> StoreHints:
    return StoreHints(timing, random.Random(seed))


def always(name: str, position: int) -> bool:
    return True


def test_no_request_without_a_hint() -> None:
    hints = made()
    hints.received(7, [], 100.0)
    assert (hints.ask_at, hints.waits, hints.wanted, hints.due(1e9, always)) == (NEVER_DUE, False, True, ())


@given(seed=st.integers(0, 1000))
def test_replicas_send_requests_at_different_times_within_the_jitter(seed: int) -> None:
    one, other = made(seed), made(seed + 1)
    for each in (one, other):
        each.received(7, ["t"], 100.0)
        assert 100.0 <= each.ask_at <= 100.0 + TIMING.connect_jitter
        assert each.due(each.ask_at - 1e-6, always) == ()
    assert one.ask_at != other.ask_at


@pytest.mark.parametrize("window", [0.05, 2.0])
def test_request_is_due_no_later_than_the_clock_of_a_waiting_link(window: float) -> None:
    """Otherwise the sleeping thread would be late for that clock."""
    for seed in range(50):
        hints = made(seed, Timing(connect_jitter=0.5, message_delay_window=window))
        hints.received(7, ["t"], 100.0)
        assert hints.ask_at <= 100.0 + window


def test_hellos_of_several_publishers_lead_to_one_request() -> None:
    hints = made()
    hints.received(7, ["a", "b"], 100.0)
    first = hints.ask_at
    hints.received(9, ["b", "c"], first - 1e-6)
    assert hints.ask_at <= first
    assert hints.due(first, lambda name, position: position == 9 and name != "b") == ["a", "c"]


def test_one_request_between_two_rounds_about_all_chains() -> None:
    hints = made()
    for position in range(1, 100):
        hints.received(position, ["a"], 100.0 + position)
        hints.due(101.0 + position, always)
        assert not hints.wanted
    assert hints.ask_at == NEVER_DUE
    hints.asked_about_all()
    hints.received(100, ["a"], 300.0)
    assert hints.due(hints.ask_at, always) == ["a"]


def test_round_about_all_chains_replaces_a_due_request() -> None:
    hints = made()
    hints.received(7, ["a"], 100.0)
    hints.asked_about_all()
    assert (hints.ask_at, hints.wanted) == (NEVER_DUE, True)


def test_hint_without_a_request_allows_the_next_hint() -> None:
    hints = made()
    hints.received(7, ["a"], 100.0)
    assert hints.due(hints.ask_at, lambda name, position: False) == []
    assert hints.wanted
    hints.received(9, ["a"], 102.0)
    assert hints.due(hints.ask_at, always) == ["a"]
