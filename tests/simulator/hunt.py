"""Find where each mutant shows first, and write it to ``caught.py``: ``python -m tests.simulator.hunt``.

To be run after a change that gives seeds another meaning; the tests begin to look where this says.
"""

import multiprocessing
import sys
from collections.abc import Iterator
from pathlib import Path

from simulator.run import Result, run_seed
from tests.simulator.mutants import MUTANTS, infected

MAX_SEEDS = 300
CAUGHT = Path(__file__).with_name("caught.py")
HEAD = '''"""Where ``hunt.py`` saw each mutant first, and by which invariant. Written by it."""

from typing import NamedTuple


class Caught(NamedTuple):
    """A seed and the invariant that it broke."""

    seed: int
    invariant: str


CAUGHT: dict[str, Caught] = {
'''


def hunt(name: str, first: int = 0) -> Result | None:
    """The first result, from ``first`` on and round again, in which a mutant breaks an invariant. A crash is none:
    a patch that does not fit the product any more would pass for caught.
    """
    with infected(name):
        for seed in (*range(first, MAX_SEEDS), *range(first)):
            result = run_seed(seed)
            if result.invariant not in ("", "crash"):
                return result
    return None


def _lines() -> Iterator[str]:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for name, result in zip(MUTANTS, pool.imap(hunt, MUTANTS), strict=True):
            if result is None:
                sys.exit(f"{name} lives on after {MAX_SEEDS} seeds")
            yield f'    "{name}": Caught({result.seed}, "{result.invariant}"),\n'


if __name__ == "__main__":
    CAUGHT.write_text(HEAD + "".join(_lines()) + "}\n", encoding="utf-8")
