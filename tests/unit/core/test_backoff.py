"""The wait before the next attempt."""

import pytest

from pubsub_lib.core.backoff import doubled


@pytest.mark.parametrize(
    ("failures", "seconds"), [(0, 0.5), (1, 1.0), (2, 2.0), (6, 32.0), (7, 45.0), (60, 45.0), (100_000, 45.0)]
)
def test_wait_doubles_up_to_the_maximum_also_after_a_long_outage(failures: int, seconds: float) -> None:
    assert doubled(0.5, failures, 45.0) == seconds
