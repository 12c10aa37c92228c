"""Which parts of runs are missing, and since when (docs/audit.md, "Following").

The times are kept on the disk, so that followers that run for one round at a time wait together for the patience.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path

from pubsub_lib.audit.stream.memory import recall, remember

_Key = tuple[str, str, int]
"""Domain, run and part."""


class MissingParts:
    """The parts that neither exist nor are being written, although a later part does. Only one thread may use it."""

    def __init__(self, memory: Path, patience: float, clock: Callable[[], float]) -> None:
        """``memory``: the file that keeps the times. It may be missing or damaged: then parts are waited for again.
        ``patience`` (seconds): a part that is missing for this time is lost.
        """
        self._memory = memory
        self._patience = patience
        self._clock = clock
        now, wall = clock(), time.time()
        kept = recall(memory, list[tuple[str, str, int, float]]) or []
        self._since: dict[_Key, float] = {
            (domain, run, part): now - max(0.0, wall - since) for domain, run, part, since in kept
        }
        self._kept = set(self._since)
        self._reported: set[_Key] = set()

    def overdue(
        self, domain: str, there: Iterable[tuple[str, int]], opened: Mapping[str, AbstractSet[int]],
        lost: set[tuple[str, int]], problems: list[str],
    ) -> set[tuple[str, int]]:  # fmt: skip
        """The parts of a domain that are missing for the patience. ``there``: run and part of all files that were read;
        ``opened``: per run the parts that are being written; ``lost``: those whose file cannot be read.
        """
        parts: dict[str, set[int]] = {}
        for run, part in there:
            parts.setdefault(run, set()).add(part)
        found: set[tuple[str, int]] = set()
        missing: set[_Key] = set()
        now = self._clock()  # one time for all, so that parts which go missing together are reported together
        for run, have in parts.items():
            of_run = opened.get(run, set())
            new = []
            for part in set(range(1, max(have | of_run))) - have - of_run:
                if (run, part) in lost:
                    continue
                key = domain, run, part
                missing.add(key)
                if now - self._since.setdefault(key, now) >= self._patience:
                    found.add((run, part))
                    if key not in self._reported:
                        self._reported.add(key)
                        new.append(part)
            problems += [_sentence(run, first, last) for first, last in ranges(new)]
        for key in [each for each in self._since if each[0] == domain and each not in missing]:
            del self._since[key]
        return found

    def save(self) -> None:
        """Keep the times, when other parts are missing than before. Raises OSError."""
        if self._since.keys() != self._kept:
            now, wall = self._clock(), time.time()
            remember(self._memory, [(*key, wall - (now - since)) for key, since in self._since.items()])
            self._kept = set(self._since)


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """The first and the last number of each range of successive numbers, in order."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def _sentence(run: str, first: int, last: int) -> str:
    if first == last:
        return f"part {first} of the run {run} is missing; its records count as lost"
    return f"parts {first} to {last} of the run {run} are missing; their records count as lost"
