"""The fault model: each fault has its configured frequency, no item is invented, and a seed determines the run."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib.fault_injection import PERFECT, Loss, Lossy

chances = st.floats(0, 1)


def run(seed: int, loss: Loss, count: int) -> tuple[list[int], Lossy[int]]:
    """Push 0..count-1, one a second, and then deliver all held-back items."""
    link = Lossy(random.Random(seed), loss, corrupt=lambda item, _rng: -item - 1)
    out = []
    for now in range(count):
        out += link.due(now) + link.push(now, now)
    out += link.due(count + loss.max_delay)
    assert link.next_time() is None
    return out, link


def test_a_perfect_link_changes_nothing() -> None:
    assert run(1, PERFECT, 50)[0] == list(range(50))


@given(st.integers(0, 2**32), chances, chances, chances, chances, st.integers(0, 60))
def test_no_item_is_invented_and_every_item_is_counted(
    seed: int, drop: float, duplicate: float, reorder: float, delay: float, count: int
) -> None:
    loss = Loss(drop=drop, duplicate=duplicate, reorder=reorder, delay=delay, max_delay=3)
    out, link = run(seed, loss, count)
    assert len(out) == count - link.counts["drop"] + link.counts["duplicate"]
    assert len(set(out)) == count - link.counts["drop"]
    assert set(out) <= set(range(count))
    assert run(seed, loss, count)[0] == out


@pytest.mark.parametrize("fault", ["drop", "duplicate", "reorder", "delay", "corrupt"])
def test_each_fault_has_its_configured_frequency(fault: str) -> None:
    _, link = run(7, Loss(**{fault: 0.3}), 4000)
    assert 1000 < link.counts.pop(fault) < 1400
    assert set(link.counts.values()) == {0}


def test_reorder_delivers_the_next_item_first() -> None:
    link: Lossy[str] = Lossy(random.Random(1), Loss(reorder=1.0, max_delay=5))
    assert link.push("a", 0) == []
    link.loss = PERFECT
    assert link.push("b", 1) == ["b", "a"]


def test_reordered_item_without_a_successor_comes_after_max_delay() -> None:
    link: Lossy[str] = Lossy(random.Random(1), Loss(reorder=1.0, max_delay=5))
    link.push("a", 0)
    assert link.next_time() == 5
    assert link.due(4.9) == []
    assert link.due(5) == ["a"]


def test_a_corrupted_item_is_damaged() -> None:
    assert run(1, Loss(corrupt=1.0), 3)[0] == [-1, -2, -3]
