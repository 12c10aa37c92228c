"""A lease from its holder's side: certainly held, or not held."""

import pytest

from pubsub_lib.core.lease import RENEWALS_PER_LEASE, Lease

SECONDS = 9.0


def test_lease_is_not_held_before_the_grant() -> None:
    lease = Lease(SECONDS, 100.0)
    assert lease.due(100.0)
    lease.asked(100.0)
    assert not lease.held(100.0)
    assert not lease.due(100.0)


@pytest.mark.parametrize("answer", [0.0, 5.0, 8.9, 20.0])
def test_lease_is_held_from_the_request_for_any_duration_of_the_answer(answer: float) -> None:
    lease = Lease(SECONDS, 100.0)
    lease.asked(100.0)
    lease.granted(100.0)  # the answer comes at 100 + answer
    assert lease.held(100.0 + answer) is (answer < SECONDS)


def test_lease_ends_exactly_at_its_time() -> None:
    lease = Lease(SECONDS, 0.0)
    lease.granted(0.0)
    assert lease.held(SECONDS - 0.001)
    assert not lease.held(SECONDS), "another process may hold it from now on"


def test_renewal_is_due_early_enough_for_two_failures() -> None:
    lease, now, failed = Lease(SECONDS, 0.0), 0.0, 0
    lease.granted(0.0)
    lease.asked(0.0)
    while lease.held(lease.next_time()):
        now = lease.next_time()
        assert lease.due(now)
        lease.asked(now)
        failed += 1
    assert failed == RENEWALS_PER_LEASE - 1


def test_refused_lease_is_not_held() -> None:
    lease = Lease(SECONDS, 0.0)
    lease.granted(0.0)
    lease.refused()
    assert not lease.held(0.1)


def test_older_grant_does_not_shorten_a_newer_one() -> None:
    lease = Lease(SECONDS, 0.0)
    lease.granted(5.0)
    lease.granted(1.0)
    assert lease.held(5.0 + SECONDS - 0.1)
