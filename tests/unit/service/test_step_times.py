"""The bounds of steps."""

from pubsub_lib.service.step_times import QUERIES_OF_A_STEP, longest_step, max_quiet
from pubsub_lib.settings import StoreSettings


def test_step_hangs_after_all_timeouts_of_its_queries() -> None:
    store = StoreSettings()
    one = store.retry_max_seconds + store.connect_timeout + store.statement_timeout + store.lock_timeout
    assert longest_step(store) == QUERIES_OF_A_STEP * one


def test_quiet_is_one_lease_or_three_readings() -> None:
    assert max_quiet(10.0, 0.25) == 10.0
    assert max_quiet(10.0, 5.0) == 15.0
