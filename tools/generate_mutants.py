#!/usr/bin/env python3
"""Write the table of mutants into docs/simulator.md: ``tools/generate_mutants.py [--check]``.

With ``--check`` nothing is written; exit status 1 tells that the page is stale.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "simulator.md"
BEGIN, END = "<!-- mutants -->\n", "<!-- /mutants -->\n"


def table() -> str:
    """The mutants, what each does wrong, and where it was seen first."""
    sys.path.insert(0, str(ROOT))
    from tests.simulator.caught import CAUGHT
    from tests.simulator.mutants import MUTANTS

    lines = ["| mutant | what it does wrong | seed | invariant |", "|---|---|---|---|"]
    for name, mutant in MUTANTS.items():
        seed, invariant = CAUGHT[name]
        lines.append(f"| `{name}` | {mutant.wrong} | {seed} | `{invariant}` |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Write or compare the page; the exit status."""
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    text = f"{before}{BEGIN}{table()}{END}{after}"
    if arguments == ["--check"]:
        if page == text:
            return 0
        print(f"{PAGE.relative_to(ROOT)} is stale; run tools/generate_mutants.py", file=sys.stderr)
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
