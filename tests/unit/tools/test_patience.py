"""The longest time that tests wait for an event."""

import pytest
from _patience import HURRY, longest


def test_only_a_planted_mutant_shortens_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HURRY, raising=False)
    assert longest(120.0) == 120.0
    monkeypatch.setenv(HURRY, "")  # the run of all tests without a mutant
    assert longest(120.0) == 120.0
    monkeypatch.setenv(HURRY, "1")
    assert longest(120.0) == 12.0


def test_name_of_the_variable_is_that_which_the_tests_of_the_runner_expect() -> None:
    assert HURRY == "PUBSUB_TEST_HURRY"
