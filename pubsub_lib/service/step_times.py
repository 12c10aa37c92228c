"""How long the steps of the service's threads may take before the service reports them."""

from typing import Final

from pubsub_lib.settings import StoreSettings

QUERIES_OF_A_STEP: Final = 7
"""Queries of the busiest thread: the own entry and name, the name's holder, two leases, and the directory twice."""


def longest_step(store: StoreSettings) -> float:
    """Seconds after which a step hangs. With a slow database the timeouts end every step sooner, but not when the
    server process is stopped and its host still acknowledges packets. That looks like a hang, and a restart does no
    harm.
    """
    return QUERIES_OF_A_STEP * (
        store.retry_max_seconds + store.connect_timeout + store.statement_timeout + store.lock_timeout
    )


def max_quiet(lease: float, follow_interval: float) -> float:
    """Seconds without a successful reading of the changelog after which the service is not ready."""
    return max(lease, 3 * follow_interval)
