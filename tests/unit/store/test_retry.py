"""Retries are bounded, and only of what may go better the next time."""

import pytest

from pubsub_lib.errors import NotFound, PubSubError, StoreBusy, StoreFull, StoreUnavailable
from pubsub_lib.store import StoreSettings, retry
from pubsub_lib.store.writer import ReadChanged

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


def test_busy_and_unavailable_are_tried_again() -> None:
    fn = Failing(StoreBusy("x"), StoreUnavailable("y"))
    assert retry.attempt(SETTINGS, fn) == "done"
    assert fn.calls == 3


def test_the_last_error_is_raised_when_the_attempts_are_used_up() -> None:
    fn = Failing(StoreBusy("1"), StoreBusy("2"), StoreUnavailable("3"), StoreBusy("4"))
    with pytest.raises(StoreUnavailable, match="3"):
        retry.attempt(SETTINGS, fn)
    assert fn.calls == 3


@pytest.mark.parametrize("error", [StoreFull("x"), NotFound("x"), ReadChanged("x")])
def test_others_are_raised_at_once(error: PubSubError) -> None:
    fn = Failing(error)
    with pytest.raises(type(error)):
        retry.attempt(SETTINGS, fn)
    assert fn.calls == 1


def test_opening_does_not_wait_for_an_unreachable_database() -> None:
    fn = Failing(StoreUnavailable("x"))
    with pytest.raises(StoreUnavailable):
        retry.attempt_busy(SETTINGS, fn)
    assert fn.calls == 1


def test_no_new_try_after_the_time_is_over() -> None:
    fn = Failing(*[StoreBusy("x")] * 100)
    with pytest.raises(StoreBusy):
        retry.attempt(StoreSettings(retry_attempts=100, retry_max_seconds=0.01), fn)
    assert fn.calls < 20


def test_overtaken_reads_are_run_again() -> None:
    assert retry.attempt_reads(SETTINGS, Failing(ReadChanged("x"))) == "done"
