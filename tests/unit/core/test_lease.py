"""A lease as its holder sees it: certain, or not held."""

import pytest

from pubsub_lib.core.lease import RENEWALS_PER_LEASE, Lease

SECONDS = 9.0


def test_nothing_is_held_before_it_is_granted() -> None:
    lease = Lease(SECONDS, 100.0)
    assert lease.due(100.0)
    lease.asked(100.0)
    assert not lease.held(100.0)
    assert not lease.due(100.0)


@pytest.mark.parametrize("answer", [0.0, 5.0, 8.9, 20.0])
def test_it_is_held_from_the_question_however_long_the_answer_took(answer: float) -> None:
    lease = Lease(SECONDS, 100.0)
    lease.asked(100.0)
    lease.granted(100.0)  # the answer comes at 100 + answer
    assert lease.held(100.0 + answer) is (answer < SECONDS)


def test_it_ends_at_its_time_exactly() -> None:
    lease = Lease(SECONDS, 0.0)
    lease.granted(0.0)
    assert lease.held(SECONDS - 0.001)
    assert not lease.held(SECONDS), "another may have it from this moment on"


def test_it_is_renewed_so_early_that_two_renewals_may_fail() -> None:
    lease, now, failed = Lease(SECONDS, 0.0), 0.0, 0
    lease.granted(0.0)
    lease.asked(0.0)
    while lease.held(lease.next_time()):
        now = lease.next_time()
        assert lease.due(now)
        lease.asked(now)
        failed += 1
    assert failed == RENEWALS_PER_LEASE - 1


def test_refused_is_not_held_at_once() -> None:
    lease = Lease(SECONDS, 0.0)
    lease.granted(0.0)
    lease.refused()
    assert not lease.held(0.1)


def test_an_older_grant_does_not_shorten_a_newer_one() -> None:
    lease = Lease(SECONDS, 0.0)
    lease.granted(5.0)
    lease.granted(1.0)
    assert lease.held(5.0 + SECONDS - 0.1)
