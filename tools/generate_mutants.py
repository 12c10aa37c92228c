#!/usr/bin/env python3
"""Write the table of mutants into docs/simulator.md: ``tools/generate_mutants.py [--check]``.

With ``--check`` nothing is written; the exit status is 1 when the page is stale.
"""

import sys

from _generated import ROOT, write_or_check

PAGE = ROOT / "docs" / "simulator.md"
BEGIN, END = "<!-- mutants -->\n", "<!-- /mutants -->\n"


def table() -> str:
    """The mutants, the error of each, and the seed and invariant that caught it first."""
    sys.path.insert(0, str(ROOT))
    from tests.simulator.caught import CAUGHT
    from tests.simulator.mutants import MUTANTS

    lines = ["| mutant | what it does wrong | seed | invariant |", "|---|---|---|---|"]
    for name, mutant in MUTANTS.items():
        seed, invariant = CAUGHT[name]
        lines.append(f"| `{name}` | {mutant.wrong} | {seed} | `{invariant}` |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """The text of the page."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page(), sys.argv[1:]))
