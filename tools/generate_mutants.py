#!/usr/bin/env python3
"""Write the simulator's mutants into docs/contributing/mutants.md: ``tools/generate_mutants.py [--check]``.

With ``--check`` nothing is written; the exit status is 1 when the page is stale.
"""

import sys
from textwrap import fill

from _generated import ROOT, write_or_check

PAGE = ROOT / "docs" / "contributing" / "mutants.md"
BEGIN, END = "<!-- mutants -->\n", "<!-- /mutants -->\n"


def listed() -> str:
    """The mutants, the error of each, and the seed and invariant that caught it first."""
    sys.path.insert(0, str(ROOT))
    from tests.simulator.caught import CAUGHT
    from tests.simulator.mutants import MUTANTS

    items = []
    for name, mutant in MUTANTS.items():
        seed, invariant = CAUGHT[name]
        option = " with `--liars`" if mutant.liars else " with `--trees`" if mutant.trees else ""
        text = f"- `{name}` (seed {seed}{option}, `{invariant}`): {mutant.wrong}"
        items.append(fill(text, 100, subsequent_indent="  ", break_on_hyphens=False))
    return "\n".join(items) + "\n"


def page() -> str:
    """The text of the page."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}{listed()}{END}{after}"


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page(), sys.argv[1:]))
