"""The drawing of the tracker's states matches the table."""

import importlib.util
from pathlib import Path
from types import ModuleType

from pubsub_lib.core.transitions import TRANSITIONS, State, Trigger

TOOL = Path(__file__).resolve().parent.parent.parent.parent / "tools" / "draw_states.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_states", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


draw_states = load()


def test_the_drawing_in_the_docs_is_not_stale() -> None:
    assert draw_states.PAGE.read_text(encoding="utf-8") == draw_states.page(), "run tools/draw_states.py"


def test_every_state_and_trigger_has_a_meaning() -> None:
    assert draw_states.meanings(State).keys() == {state.name for state in State}
    assert draw_states.meanings(Trigger).keys() == {trigger.name for trigger in Trigger}


def test_every_change_of_state_is_an_arrow() -> None:
    lines = draw_states.diagram()
    for state, row in TRANSITIONS.items():
        for trigger, target in row.items():
            arrows = [line for line in lines if f"{state.name} --> {target.name}:" in line and trigger in line]
            assert len(arrows) == (target is not state), (state, trigger)
