"""The table of the simulator's mutants, and their patches during a block."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple
from unittest.mock import patch

from simulator.plan import Cuts

Patch = tuple[object, str, object]


class Mutant(NamedTuple):
    """One bug: its name, its effect, its patches, and whether only runs with liars, or with relays, or with few other
    participants catch it.
    """

    name: str
    wrong: str
    patches: Callable[[], list[Patch]]
    liars: bool = False
    trees: bool = False
    few: bool = False

    @property
    def cuts(self) -> Cuts:
        """The runs that catch it."""
        number = 1 if self.few else None
        return Cuts(liars=self.liars, trees=self.trees, writers=number, services=number)


MUTANTS: dict[str, Mutant] = {}


def mutant(
    wrong: str, *, liars: bool = False, trees: bool = False, few: bool = False
) -> Callable[[Callable[[], list[Patch]]], Callable[[], list[Patch]]]:
    """Register a function that makes a mutant's patches under its own name."""

    def register(make: Callable[[], list[Patch]]) -> Callable[[], list[Patch]]:
        name = make.__name__
        MUTANTS[name] = Mutant(name, wrong, make, liars, trees, few)
        return make

    return register


@contextmanager
def infected(name: str) -> Iterator[None]:
    """Apply the named bug during the block. KeyError: unknown mutant."""
    with ExitStack() as stack:
        for owner, attribute, replacement in MUTANTS[name].patches():
            stack.enter_context(patch.object(owner, attribute, replacement))
        yield
