"""The longest time that tests wait for an event."""

import pytest
from _mutants import warm_pytest
from _patience import HURRY, longest


def test_only_a_planted_mutant_shortens_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HURRY, raising=False)
    assert longest(120.0) == 120.0
    monkeypatch.setenv(HURRY, "")  # the run of all tests without a mutant
    assert longest(120.0) == 120.0
    monkeypatch.setenv(HURRY, "1")
    assert longest(120.0) == 12.0


def test_runs_of_mutants_set_the_same_variable() -> None:
    assert warm_pytest.HURRY == HURRY
