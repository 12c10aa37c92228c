#!/usr/bin/env python3
"""Draw docs/tracker-states.md from the table in pubsub_lib/core/transitions.py: ``tools/draw_states.py [--check]``.

With ``--check`` nothing is written; exit status 1 tells that the drawing is stale.
"""

import ast
import sys
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # run from a source tree, installed or not

from _generated import write_or_check  # noqa: E402

from pubsub_lib.core import transitions  # noqa: E402
from pubsub_lib.core.transitions import FROZEN, SYNCING, TRANSITIONS, State, Trigger  # noqa: E402

PAGE = ROOT / "docs" / "tracker-states.md"


def meanings(enum: type[StrEnum]) -> dict[str, str]:
    """The sentence that stands below each member in the source, by member name."""
    tree = ast.parse(Path(transitions.__file__).read_text(encoding="utf-8"))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == enum.__name__)
    found: dict[str, str] = {}
    for member, text in pairwise(body):
        if isinstance(member, ast.Assign) and isinstance(member.targets[0], ast.Name) and isinstance(text, ast.Expr):
            found[member.targets[0].id] = " ".join(str(ast.literal_eval(text.value)).split())
    return found


def diagram() -> list[str]:
    """The state diagram in mermaid's language; triggers that lead from one state to the same other share an arrow."""
    lines = ["stateDiagram-v2", f"    [*] --> {State.JOINING.name}"]
    lines += [f'    state "{state}" as {state.name}' for state in State]
    for state, row in TRANSITIONS.items():
        arrows: dict[State, list[str]] = {}
        for trigger, target in row.items():
            if target is not state:
                arrows.setdefault(target, []).append(trigger.value)
        for target, triggers in arrows.items():
            lines.append(f"    {state.name} --> {target.name}: {', '.join(triggers)}")
    lines.append("    classDef frozen fill:#dde,stroke:#447")
    lines.append(f"    class {','.join(state.name for state in State if state in FROZEN)} frozen")
    return lines


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
    """The page as it should be."""
    states, triggers = meanings(State), meanings(Trigger)
    lines = [
        "# The states of a chain in a replica",
        "",
        "Drawn by `tools/draw_states.py` from the table in `pubsub_lib/core/transitions.py`, which is what runs; do",
        "not edit. A *chain* is one topic's links or, for a replica of everything, all transactions. In the coloured",
        "states links wait and known stands still; in all others a link that connects is applied at once.",
        "",
        "```mermaid",
        *diagram(),
        "```",
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
    lines += ["", "Which state a trigger leads to, from each state (empty: it cannot happen there):", "", *grid(), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page(), sys.argv[1:]))
