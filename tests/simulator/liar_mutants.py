"""Mistakes in the defence against publishers and workers that lie (rules 14 and 15), caught by runs with liars."""

from pubsub_lib.core.verification import Verification
from tests.simulator.registry import Patch, mutant


@mutant("a replica whose publishers prove that it is fresh never reads the store", liars=True)
def lies_never_verified() -> list[Patch]:
    return [(Verification, "due", lambda self, now: False)]
