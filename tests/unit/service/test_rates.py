"""Rates from two samples that are taken only on request."""

from pubsub_lib.service.rates import MIN_WINDOW, Rates, Sample, rate


def test_first_request_compares_with_the_start() -> None:
    rates = Rates(100.0)
    base = rates.since({"t": 40}, 104.0)
    assert rate(40, "t", base, 104.0) == 10.0


def test_repeated_requests_compare_with_a_recent_sample() -> None:
    rates = Rates(0.0)
    assert rates.since({"t": 1000}, 1000.0).at == 0.0, "the first request has nothing else"
    assert rates.since({"t": 1005}, 1005.0).at == 0.0, "requests at short intervals begin no new window"
    base = rates.since({"t": 1030}, 1000.0 + MIN_WINDOW)
    assert base == Sample(1000.0, {"t": 1000})
    assert rate(1030, "t", base, 1010.0) == 3.0
    assert rates.since({"t": 1030}, 1019.0).at == 1000.0
    assert rates.since({"t": 1030}, 1020.0).at == 1010.0


def test_topic_that_the_sample_lacks_counts_from_zero() -> None:
    assert rate(5, "new", Sample(0.0, {"t": 1}), 5.0) == 1.0


def test_two_requests_at_once_have_a_rate() -> None:
    assert rate(0, "t", Sample(7.0, {"t": 0}), 7.0) == 0.0
