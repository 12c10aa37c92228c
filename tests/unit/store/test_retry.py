"""Retries are bounded, and made only after errors that may not happen again."""

import pytest

from pubsub_lib.errors import NotFound, PubSubError, StoreBusy, StoreFull, StoreUnavailable
from pubsub_lib.store import StoreSettings, retry
from pubsub_lib.store.verbs import ReadChanged

SETTINGS = StoreSettings(retry_attempts=3)


class Failing:
    """Raises the given errors, then returns."""

    def __init__(self, *errors: PubSubError) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def test_attempt_retries_busy_and_unavailable() -> None:
    fn = Failing(StoreBusy("x"), StoreUnavailable("y"))
    assert retry.attempt(SETTINGS, fn) == "done"
    assert fn.calls == 3


def test_attempt_raises_the_last_error_after_all_attempts() -> None:
    fn = Failing(StoreBusy("1"), StoreBusy("2"), StoreUnavailable("3"), StoreBusy("4"))
    with pytest.raises(StoreUnavailable, match="3"):
        retry.attempt(SETTINGS, fn)
    assert fn.calls == 3


@pytest.mark.parametrize("error", [StoreFull("x"), NotFound("x"), ReadChanged("x")])
def test_attempt_raises_other_errors_at_once(error: PubSubError) -> None:
    fn = Failing(error)
    with pytest.raises(type(error)):
        retry.attempt(SETTINGS, fn)
    assert fn.calls == 1


def test_opening_does_not_wait_for_an_unreachable_database() -> None:
    fn = Failing(StoreUnavailable("x"))
    with pytest.raises(StoreUnavailable):
        retry.attempt_busy(SETTINGS, fn)
    assert fn.calls == 1


def test_attempt_stops_after_the_maximum_time() -> None:
    fn = Failing(*[StoreBusy("x")] * 100)
    with pytest.raises(StoreBusy):
        retry.attempt(StoreSettings(retry_attempts=100, retry_max_seconds=0.01), fn)
    assert fn.calls < 20


def test_attempt_reads_retries_overtaken_reads() -> None:
    assert retry.attempt_reads(SETTINGS, Failing(ReadChanged("x"))) == "done"
