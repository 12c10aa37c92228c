#!/usr/bin/env python3
"""Write the hops of one ``set`` into docs/architecture.md: ``tools/generate_hops.py [--check]``.

The ``set`` is traced as by ``tools/bench trace``. With ``--check`` nothing is written; the exit status is 1 when the
page is stale.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from _generated import ROOT, write_or_check
from _measurements.trace import Trace, traces

PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- hops -->\n", "<!-- /hops -->\n"
TRACES: Final = 9
THREADS: Final = ("writer", "receiver", "handler")
"""The threads in the order of their first calls."""
TIMER: Final = "inflow_guard.py"
"""The file of a thread that looks at the sending thread ten times a second, and is in the traces of a slow machine."""
TURN: Final = "_drain"
"""The first call of each turn of the receiver."""
LOOK: Final = ("drivers/pubsub_zmq/arrivals.py", "look")
"""A call of the turns in which it looks at its connections, five times a second, also while nothing is received."""

Hops = tuple[tuple[tuple[str, tuple[str, ...]], ...], ...]
"""For each thread its steps: a file, and the functions that were called in it, each once."""


def hops(trace: Trace) -> Hops:
    """The steps of each thread, without comprehensions and lambdas, which are calls in some versions of Python only."""
    found = []
    for steps in trace.threads:
        if steps[0].file.endswith(TIMER):
            continue
        calls = [(step.file, name) for step in steps for name in step.functions if not name.startswith("<")]
        groups = groupby(without_looks(calls), key=lambda call: call[0])
        found.append(tuple((file, tuple(dict.fromkeys(name for _, name in group))) for file, group in groups))
    return tuple(found)


def without_looks(calls: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The calls (file, function) of a thread without the turns of ``LOOK``."""
    turns: list[list[tuple[str, str]]] = [[]]
    for call in calls:
        if call[1] == TURN:
            turns.append([])
        turns[-1].append(call)
    return [call for turn in turns if LOOK not in turn for call in turn]


def most_frequent(found: Sequence[Trace]) -> Hops:
    """The hops of most traces: a timer or a hello between two steps changes few of them. Raises ValueError when these
    are on other threads than the known ones.
    """
    ((chosen, _),) = Counter(map(hops, found)).most_common(1)
    if len(chosen) != len(THREADS):
        raise ValueError(f"a set was traced on {len(chosen)} threads, not on {', '.join(THREADS)}; run it again")
    return chosen


def listed(found: Hops) -> str:
    """The number of moves, and the table of hops."""
    moves = sum(len(steps) - 1 for steps in found)
    files = {file for steps in found for file, _ in steps}
    lines = [f"{moves} moves between {len(files)} files:", "", "| thread | file | functions |", "|---|---|---|"]
    for thread, steps in zip(THREADS, found, strict=True):
        for file, functions in steps:
            names = ", ".join(f"`{name}`" for name in functions)
            lines.append(f"| {thread} | `{file.removeprefix('pubsub_lib/')}` | {names} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """The text of the page."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}{listed(most_frequent(traces(TRACES)))}{END}{after}"


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page(), sys.argv[1:]))
