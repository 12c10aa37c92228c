"""Teeth: every bug of ``mutants.py`` is caught within 300 seeds, by an invariant and not by an accident."""

import random
import sys

import pytest

from pubsub_lib.testing.simulator.run import run_seed
from tests.simulator.mutants import MUTANTS, infected

MOST_SEEDS = 300
FIRST: dict[str, int] = {}
"""Where to begin to look, so that the test is quick: at most MOST_SEEDS seeds from there on."""


def test_there_are_enough_mutants() -> None:
    assert len(MUTANTS) >= 25


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(name: str) -> None:
    first = FIRST.get(name, 0)
    with infected(name):
        for seed in range(first, first + MOST_SEEDS):
            result = run_seed(seed)
            if result.invariant:
                break
    assert result.invariant, f"{name} ({MUTANTS[name].wrong}) lives on after {MOST_SEEDS} seeds from {first}"
    print(f"{name}: caught at seed {seed} by {result.invariant!r}")
    # A patch that does not fit the product any more would be "caught" as a crash.
    assert "TypeError" not in result.what
    assert "AttributeError" not in result.what


def test_product_is_whole_again() -> None:
    seed = random.Random(sys.version).randrange(300)
    assert run_seed(seed).invariant == "", seed
