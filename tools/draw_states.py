#!/usr/bin/env python3
"""Draw docs/contributing/tracker-states.svg, and write its page: ``tools/draw_states.py [--check]``.

The source is the table in pubsub_lib/core/transitions.py. With ``--check`` nothing is written; the exit status is 1
when the drawing or the page is stale.
"""

import ast
import html
import sys
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # run from a source tree, installed or not

from _generated import write_or_check  # noqa: E402

from pubsub_lib.core import transitions  # noqa: E402
from pubsub_lib.core.transitions import FROZEN, SYNCING, TRANSITIONS, State, Trigger  # noqa: E402

PAGE = ROOT / "docs" / "contributing" / "tracker-states.md"
DRAWING: Final = PAGE.with_suffix(".svg")
COLUMN: Final = 92
"""Width of a state's column. The picture must be readable in the 740 pixels of a page."""
HEAD: Final = 44
ROW: Final = 26
LETTER: Final = 7
"""Width of a letter of a label, with the widest usual font, which decides where a label fits."""
STYLE: Final = (
    "text{font-family:Helvetica,Arial,sans-serif;text-anchor:middle;fill:#222}"
    ".name{font-size:12px;font-weight:bold}"
    ".label{font-size:12px;stroke:#fff;stroke-width:4px;stroke-linejoin:round;paint-order:stroke}"
    ".page{fill:#fff}.state{fill:#f0f0f0;stroke:#666}.frozen{fill:#d8e4f6;stroke:#2f5f9e}"
    ".column{stroke:#bbb;stroke-dasharray:2 3}.arrow{stroke:#444;stroke-width:1.5;fill:none}.tip{fill:#444}"
    "@media (prefers-color-scheme:dark){text{fill:#eee}.label{stroke:#16181d}.page{fill:#16181d}"
    ".state{fill:#30343b;stroke:#999}.frozen{fill:#24406b;stroke:#7fa9e6}.column{stroke:#555}"
    ".arrow{stroke:#ccc}.tip{fill:#ccc}}"
)


def meanings(enum: type[StrEnum]) -> dict[str, str]:
    """The sentence below each member in the source, by member name."""
    tree = ast.parse(Path(transitions.__file__).read_text(encoding="utf-8"))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == enum.__name__)
    found: dict[str, str] = {}
    for member, text in pairwise(body):
        if isinstance(member, ast.Assign) and isinstance(member.targets[0], ast.Name) and isinstance(text, ast.Expr):
            found[member.targets[0].id] = " ".join(str(ast.literal_eval(text.value)).split())
    return found


class Arrow(NamedTuple):
    """One or more triggers that lead from one state to another."""

    source: State
    target: State
    triggers: Sequence[Trigger]

    @property
    def label(self) -> str:
        """The names of its triggers."""
        return ", ".join(self.triggers)


def arrows() -> list[Arrow]:
    """Every change of state; triggers between the same two states share an arrow."""
    found = []
    for source, row in TRANSITIONS.items():
        targets = dict.fromkeys(target for target in row.values() if target is not source)
        found += [Arrow(source, each, [name for name, target in row.items() if target is each]) for each in targets]
    return found


def drawing() -> str:
    """The diagram as SVG: a column for each state, and an arrow for each change, in the colours of the reader."""
    places = {state: COLUMN * index + COLUMN // 2 for index, state in enumerate(State)}
    shown = arrows()
    width, height = COLUMN * len(State), HEAD + ROW * (len(shown) + 1)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>The states of a chain</title>",
        f"<desc>{html.escape(description())}</desc>",
        f"<style>{STYLE}</style>",
        '<marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">',
        '<path class="tip" d="M0 0L10 5L0 10z"/></marker>',
        f'<rect class="page" width="{width}" height="{height}"/>',
    ]
    for state, x in places.items():
        kind = "frozen" if state in FROZEN else "state"
        lines += [
            f'<rect class="{kind}" x="{x - COLUMN // 2 + 3}" y="6" width="{COLUMN - 6}" height="{HEAD - 16}" rx="6"/>',
            f'<text class="name" x="{x}" y="{HEAD // 2 + 2}">{state}</text>',
            f'<path class="column" d="M{x} {HEAD - 10}V{height - 6}"/>',
        ]
    y = HEAD + ROW // 2
    lines += [f'<circle class="tip" cx="{places[State.JOINING]}" cy="{y - 6}" r="5"/>',
              f'<text class="label" x="{places[State.JOINING] + 26}" y="{y - 2}">start</text>']  # fmt: skip
    for row, arrow in enumerate(shown, 1):
        lines += _arrow(arrow, places[arrow.source], places[arrow.target], y + ROW * row, width)
    return "\n".join([*lines, "</svg>", ""])


def _arrow(arrow: Arrow, begin: int, end: int, y: int, width: int) -> Sequence[str]:
    """One arrow with its label, which stays inside the picture."""
    middle = (begin + end) // 2
    half = len(arrow.label) * LETTER // 2
    x = min(max(middle, half + 4), width - half - 4)
    return [
        f'<text class="label" x="{x}" y="{y - 5}">{arrow.label}</text>',  # first: its margin must not hide the arrow
        f'<circle class="tip" cx="{begin}" cy="{y}" r="2.5"/>',
        f'<path class="arrow" d="M{begin} {y}H{end}" marker-end="url(#tip)"/>',
    ]


def description() -> str:
    """The diagram in words, for readers who do not see it."""
    changes = ". ".join(f"From {each.source} to {each.target}: {each.label}" for each in arrows())
    return f"Each column is a state; a chain begins in {State.JOINING}. {changes}."


def grid() -> list[str]:
    """The whole table, a row for each trigger and a column for each state."""
    lines = [
        "| trigger | " + " | ".join(state.value for state in State) + " |",
        "|---|" + "---|" * len(State),
    ]
    for trigger in Trigger:
        targets = [TRANSITIONS[state].get(trigger) for state in State]
        cells = [
            "" if target is None else "stays" if target is state else target.value
            for state, target in zip(State, targets, strict=True)
        ]
        lines.append(f"| **{trigger}** | " + " | ".join(cells) + " |")
    return lines


def page() -> str:
    """The text of the page."""
    states, triggers = meanings(State), meanings(Trigger)
    lines = [
        "# The states of a chain in a replica",
        "",
        "Generated by `tools/draw_states.py` from the table in `pubsub_lib/core/transitions.py`, which the",
        "replica executes; do not edit this page. A *chain* is the sequence of one topic's links or, for a",
        "replica of all topics, the sequence of all transactions. In the blue states links wait and the",
        "known point does not change. In all other states a link that connects is applied at once.",
        "",
        f"![The states of a chain and their changes; the tables below have the same]({DRAWING.name})",
        "",
        "| state | meaning | links that connect | a sync |",
        "|---|---|---|---|",
    ]
    for state in State:
        links = "wait" if state in FROZEN else "are applied" if state is not State.JOINING else "wait for a first known"
        sync = "runs" if state in SYNCING else "is due" if Trigger.BEGUN in TRANSITIONS[state] else ""
        lines.append(f"| **{state}** | {states[state.name]} | {links} | {sync} |")
    lines += ["", "| trigger | meaning |", "|---|---|"]
    lines += [f"| **{trigger}** | {triggers[trigger.name]} |" for trigger in Trigger]
    lines += ["", "The next state for each trigger and state (empty: the trigger cannot occur there):", "", *grid(), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    written = [write_or_check(DRAWING, drawing(), sys.argv[1:]), write_or_check(PAGE, page(), sys.argv[1:])]
    sys.exit(max(written))
