"""Find the first seed that catches each mutant, and write ``caught.py``: ``python -m tests.simulator.hunt``.

To be run after a change that gives seeds another meaning; the tests begin to search at these seeds.
"""

import multiprocessing
import sys
from collections.abc import Iterator
from pathlib import Path

from simulator.run import Result, run_seed
from tests.simulator.mutants import MUTANTS, infected

MAX_SEEDS = 300
CAUGHT = Path(__file__).with_name("caught.py")
HEAD = '''"""The first seed that catches each mutant, and the violated invariant. Written by ``hunt.py``."""

from typing import NamedTuple


class Caught(NamedTuple):
    """A seed and the invariant that it broke."""

    seed: int
    invariant: str


CAUGHT: dict[str, Caught] = {
'''


def hunt(name: str, first: int = 0) -> Result | None:
    """The first result in which a mutant breaks an invariant; seeds from ``first`` on, then from 0. A crash does not
    count: otherwise a patch that does not fit the product any more would seem to be caught.
    """
    cuts = MUTANTS[name].cuts
    with infected(name):
        for seed in (*range(first, MAX_SEEDS), *range(first)):
            result = run_seed(seed, cuts)
            if result.invariant not in ("", "crash"):
                return result
    return None


def _lines() -> Iterator[str]:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for name, result in zip(MUTANTS, pool.imap(hunt, MUTANTS), strict=True):
            if result is None:
                sys.exit(f"{name} is not caught within {MAX_SEEDS} seeds")
            yield f'    "{name}": Caught({result.seed}, "{result.invariant}"),\n'


if __name__ == "__main__":
    CAUGHT.write_text(HEAD + "".join(_lines()) + "}\n", encoding="utf-8")
