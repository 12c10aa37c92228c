"""Spark starts while the journals are read; a session that is not needed is stopped."""

from typing import TYPE_CHECKING, Any

import pytest

from pubsub_lib.audit.spark import early as module
from pubsub_lib.audit.spark.early import early
from pubsub_lib.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Session:
    """Replaces a SparkSession."""

    def __init__(self) -> None:
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture(autouse=True)
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_running", lambda: False)


def test_early_session_is_taken_once_and_not_stopped() -> None:
    first: Any = Session()
    second: Any = Session()
    sessions: Any = iter([(first, True), (second, True)])
    with early(lambda: next(sessions)) as begun:
        assert begun.take(pytest.fail) == (first, True)
        assert begun.take(lambda: next(sessions)) == (second, True)
    assert not first.stopped
    assert not second.stopped


@pytest.mark.parametrize("ours", [True, False])
def test_own_early_session_that_is_not_taken_is_stopped(ours: bool) -> None:
    made: Any = Session()
    with pytest.raises(KeyboardInterrupt), early(lambda: (made, ours)):
        raise KeyboardInterrupt
    assert made.stopped == ours


def test_error_of_an_early_start_is_raised_only_when_the_session_is_needed() -> None:
    def fails() -> Any:
        raise ConfigError("no Java")

    with early(fails):
        pass
    with early(fails) as begun, pytest.raises(ConfigError, match="no Java"):
        begun.take(pytest.fail)


def test_without_an_early_start_the_session_starts_when_it_is_taken() -> None:
    made: Any = Session()
    with early(None) as begun:
        assert begun.take(lambda: (made, True)) == (made, True)
    assert not made.stopped


def test_running_session_is_used_at_once(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with early(pytest.fail) as begun:
        assert begun.take(lambda: (spark, False)) == (spark, False)
