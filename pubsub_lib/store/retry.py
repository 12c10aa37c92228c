"""Bounded retries of operations that a database may reject now and accept a moment later."""

import time
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import tenacity
from sqlalchemy import Connection

from pubsub_lib.errors import PubSubError, StoreBusy, StoreUnavailable
from pubsub_lib.store.settings import StoreSettings
from pubsub_lib.store.verbs import ReadChanged

T = TypeVar("T")
TRANSIENT: Final = (StoreBusy, StoreUnavailable)
"""Errors that may not happen again."""


class Run(Protocol):
    """Runs a function in a transaction of its own, with retries."""

    def __call__(self, doing: str, fn: Callable[[Connection], T]) -> T:
        """``doing`` names the operation in an error's message."""
        ...


def attempt(settings: StoreSettings, fn: Callable[[], T]) -> T:
    """Call ``fn`` again after StoreBusy and StoreUnavailable, with random growing pauses.

    The last error is raised when ``retry_attempts`` or ``retry_max_seconds`` are used up, any other error at once.
    """
    return _attempt(settings, fn, *TRANSIENT)


def attempt_busy(settings: StoreSettings, fn: Callable[[], T]) -> T:
    """The same for opening: another process may be creating the schema, but StoreUnavailable is raised at once."""
    return _attempt(settings, fn, StoreBusy)


def attempt_reads(settings: StoreSettings, fn: Callable[[], T]) -> T:
    """The same for a function whose reads were overtaken by another writer."""
    return _attempt(settings, fn, ReadChanged)


def _attempt(settings: StoreSettings, fn: Callable[[], T], *kinds: type[PubSubError]) -> T:
    begun = time.monotonic()
    try:
        return fn()  # nearly always enough, and tenacity's bookkeeping takes as long as a statement
    except kinds as error:
        return again(settings, fn, error, begun, *kinds)


def again(
    settings: StoreSettings, fn: Callable[[], T], error: PubSubError, begun: float, *kinds: type[PubSubError]
) -> T:
    """:func:`attempt` after a first call of ``fn``, at the time ``begun`` of ``time.monotonic()``, raised ``error``.

    ``kinds``: the errors after which ``fn`` is called again.
    """
    first = [error]

    def once() -> T:
        if first:
            raise first.pop()  # tenacity counts the first attempt, too
        return fn()

    left = max(0.0, settings.retry_max_seconds - (time.monotonic() - begun))
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(kinds),
        stop=tenacity.stop_after_attempt(settings.retry_attempts) | tenacity.stop_after_delay(left),
        # Full jitter: writers that collided once should not collide again.
        wait=tenacity.wait_random_exponential(multiplier=0.02, max=2.0),
        reraise=True,
    )
    return retrying(once)
