"""Histograms of the time since a commit: known answers for the buckets, the sum and the negative values."""

import math
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_lib.core.model import ZERO, Link, Point
from pubsub_lib.latency import BOUNDS, NO_LATENCIES, Latencies, LatencyHistogram

NOW = 1024.0
"""A power of two: the latencies of the tests are then exact."""
BEYOND = len(BOUNDS)


def link(written_at: float) -> Link:
    return Link("t", ZERO, Point(1, 1), [], 0, 0, ZERO, 1, written_at=written_at)


def filled(taken: Latencies) -> dict[int, int]:
    """The buckets that are not empty."""
    return {place: number for place, number in enumerate(taken.counts) if number}


def test_bounds_go_from_a_millisecond_to_a_minute() -> None:
    assert BOUNDS[0] == 0.001
    assert BOUNDS[-1] == 60.0
    assert list(BOUNDS) == sorted({*BOUNDS})


@pytest.mark.parametrize(
    ("latency", "bucket"),
    [
        (0.0, 0),
        (2.0**-11, 0),
        (2.0**-9, 1),  # 1.95 ms
        (0.25, BOUNDS.index(0.5)),
        (1.0, BOUNDS.index(1.0)),  # a bound belongs to its bucket
        (1.0 + 2.0**-20, BOUNDS.index(2.0)),
        (60.0, BOUNDS.index(60.0)),
        (60.5, BEYOND),
        (1000.0, BEYOND),
    ],
)
def test_latency_is_counted_in_the_bucket_of_the_next_bound(latency: float, bucket: int) -> None:
    one, together = LatencyHistogram(), LatencyHistogram()
    one.observe([link(NOW - latency)], NOW)
    together.observe([link(NOW - latency)] * 3, NOW)
    assert filled(one.taken()) == {bucket: 1}
    assert filled(together.taken()) == {bucket: 3}
    assert (one.taken().total, together.taken().total) == (latency, 3 * latency)
    assert one.taken().negative == together.taken().negative == 0


def test_bound_belongs_to_the_lower_bucket_also_after_a_latency_of_the_upper_one() -> None:
    histogram = LatencyHistogram()
    histogram.observe([link(NOW - latency) for latency in (1.5, 1.0, 1.5, 2.0, 0.5)], NOW)
    histogram.observe([link(NOW - 0.5)], NOW)
    assert filled(histogram.taken()) == {BOUNDS.index(0.5): 2, BOUNDS.index(1.0): 1, BOUNDS.index(2.0): 3}


@pytest.mark.parametrize("written_at", [NOW + 2.0, math.inf, math.nan])
def test_negative_latency_counts_as_zero_and_is_counted_separately(written_at: float) -> None:
    histogram = LatencyHistogram()
    histogram.observe([link(written_at)], NOW)
    histogram.observe([link(written_at), link(NOW - 1.0), link(written_at)], NOW)
    taken = histogram.taken()
    assert filled(taken) == {0: 3, BOUNDS.index(1.0): 1}
    assert (taken.total, taken.negative) == (1.0, 3)


def test_unknown_time_of_a_commit_is_not_counted() -> None:
    histogram = LatencyHistogram()
    histogram.observe([link(0.0)], NOW)
    histogram.observe([link(0.0), link(NOW - 100.0), link(0.0)], NOW)
    assert filled(histogram.taken()) == {BEYOND: 1}
    assert histogram.taken().total == 100.0


@given(st.lists(st.floats(-10.0, 2000.0)))
def test_links_of_one_step_count_as_if_each_was_observed_alone(latencies: list[float]) -> None:
    one, together = LatencyHistogram(), LatencyHistogram()
    links = [link(NOW - latency) for latency in latencies]
    for each in links:
        one.observe([each], NOW)
    together.observe(links, NOW)
    known = [NOW - each.written_at for each in links if each.written_at]
    for taken in (one.taken(), together.taken()):
        assert taken.count == len(known)
        assert list(accumulate(taken.counts))[:-1] == [sum(each <= bound for each in known) for bound in BOUNDS]
        assert taken.negative == sum(each < 0.0 for each in known)
        assert taken.total == pytest.approx(sum(max(each, 0.0) for each in known))


def test_taken_values_do_not_change_and_can_be_added() -> None:
    histogram = LatencyHistogram()
    assert histogram.taken() == NO_LATENCIES
    histogram.observe([link(NOW - 1.0)], NOW)
    first = histogram.taken()
    histogram.observe([link(NOW + 1.0)], NOW)
    assert first.count == 1
    total = first + histogram.taken()
    assert filled(total) == {0: 1, BOUNDS.index(1.0): 2}
    assert (total.total, total.negative, total.count) == (2.0, 1, 3)
