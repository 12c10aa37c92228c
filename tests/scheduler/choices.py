"""Choosers of the thread that runs: all runs with few deviations, random choices of a seed, or a reported schedule.

A *schedule* is text that repeats a run: ``seed 17``, or ``3:1 17:2``, every choice that was not the first candidate.
"""

import random
from typing import Final, NamedTuple

SEED: Final = "seed "


class _Choice(NamedTuple):
    chosen: int
    options: int
    preemptive: bool


class _Recorder:
    """Records the choices."""

    def __init__(self, seed: int = 0) -> None:
        self.made: list[_Choice] = []
        self.seed: Final = seed
        """Seed of all other random numbers in the run."""

    def choose(self, options: int, preemptive: bool) -> int:
        """See :class:`tests.scheduler.scheduler.Chooser`."""
        chosen = self._decide(options, preemptive)
        self.made.append(_Choice(chosen, options, preemptive))
        return chosen

    def schedule(self) -> str:
        """``index:choice`` of every choice that was not the first candidate."""
        return " ".join(f"{index}:{choice.chosen}" for index, choice in enumerate(self.made) if choice.chosen)

    def _decide(self, options: int, preemptive: bool) -> int:
        raise NotImplementedError


class Replay(_Recorder):
    """The choices of a report."""

    def __init__(self, schedule: str) -> None:
        super().__init__()
        self._given = {int(index): int(chosen) for index, chosen in (each.split(":") for each in schedule.split())}

    def _decide(self, options: int, preemptive: bool) -> int:
        chosen = self._given.get(len(self.made), 0)
        if chosen >= options:
            raise ValueError(f"choice {len(self.made)} has {options} candidates, not {chosen + 1}: not this scenario")
        return chosen


class Chance(_Recorder):
    """A seed's choices: each seed has its own probability of preemption."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._rng = random.Random(seed)
        self._preempts: Final = self._rng.choice((0.02, 0.05, 0.1, 0.3, 0.6))

    def schedule(self) -> str:
        return f"{SEED}{self.seed}"

    def _decide(self, options: int, preemptive: bool) -> int:
        if not preemptive:
            return self._rng.randrange(options)
        return self._rng.randrange(1, options) if self._rng.random() < self._preempts else 0


class Bounded(_Recorder):
    """One branch of all runs with a limited number of *deviations*: first this prefix, then always candidate 0.

    Candidate 0 is the running thread, else the next in turn; every other choice is a deviation. Most mistakes of
    threads need one or two deviations at the right places, and the number of runs is polynomial in the steps.
    """

    def __init__(self, prefix: list[_Choice]) -> None:
        super().__init__()
        self._prefix = prefix

    def _decide(self, options: int, preemptive: bool) -> int:
        at = len(self.made)
        if at >= len(self._prefix):
            return 0
        chosen, expected, was_preemptive = self._prefix[at]
        if (options, preemptive) != (expected, was_preemptive):
            raise ValueError(f"choice {at} differs from the run before: the scenario does not depend on choices alone")
        return chosen

    def following(self, deviations: int) -> "Bounded | None":
        """The next branch, depth first; None after the last one."""
        made = self.made
        spent = [0]
        for choice in made:
            spent.append(spent[-1] + (choice.chosen > 0))
        for index in reversed(range(len(made))):
            chosen, options, preemptive = made[index]
            if chosen + 1 < options and spent[index] < deviations:
                return Bounded([*made[:index], _Choice(chosen + 1, options, preemptive)])
        return None


def chooser_of(schedule: str) -> Replay | Chance:
    """The chooser that repeats the choices of a report. Raises ValueError for an invalid schedule."""
    return Chance(int(schedule.removeprefix(SEED))) if schedule.startswith(SEED) else Replay(schedule)
