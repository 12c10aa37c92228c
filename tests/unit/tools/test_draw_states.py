"""The drawing of the tracker's states matches the table."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

from pubsub_lib.core.transitions import TRANSITIONS, State, Trigger

TOOL = Path(__file__).resolve().parent.parent.parent.parent / "tools" / "draw_states.py"
SVG = "{http://www.w3.org/2000/svg}"


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
    assert draw_states.DRAWING.read_text(encoding="utf-8") == draw_states.drawing(), "run tools/draw_states.py"
    assert f"]({draw_states.DRAWING.name})" in draw_states.page()


def test_every_state_and_trigger_has_a_meaning() -> None:
    assert draw_states.meanings(State).keys() == {state.name for state in State}
    assert draw_states.meanings(Trigger).keys() == {trigger.name for trigger in Trigger}


def test_every_change_of_state_is_an_arrow() -> None:
    arrows = draw_states.arrows()
    for state, row in TRANSITIONS.items():
        for trigger, target in row.items():
            found = [
                each for each in arrows if (each.source, each.target) == (state, target) and trigger in each.triggers
            ]
            assert len(found) == (target is not state), (state, trigger)


def test_picture_has_every_state_and_arrow_inside_it_and_a_text_alternative() -> None:
    picture = ElementTree.fromstring(draw_states.drawing())
    width, height = map(int, picture.attrib["viewBox"].split()[2:])
    texts = [(each.text or "", each.get("class"), int(each.attrib["x"])) for each in picture.iter(f"{SVG}text")]
    assert [text for text, kind, _ in texts if kind == "name"] == list(State)
    arrows = draw_states.arrows()
    assert [text for text, kind, _ in texts if kind == "label"] == ["start", *(each.label for each in arrows)]
    for text, kind, x in texts:
        room = draw_states.COLUMN / 2 if kind == "name" else min(x, width - x)
        assert draw_states.LETTER * len(text) / 2 <= room, text
    lines = [each.attrib["d"] for each in picture.iter(f"{SVG}path") if each.get("class") == "arrow"]
    assert len(lines) == len(arrows)
    assert max(int(line.split()[1].split("H")[0]) for line in lines) < height
    words = picture.findtext(f"{SVG}desc") or ""
    assert all(f"From {each.source} to {each.target}: {each.label}" in words for each in arrows)


def test_picture_has_dark_colours_for_everything_that_it_colours() -> None:
    light, _, dark = draw_states.STYLE.partition("@media (prefers-color-scheme:dark)")
    coloured = re.compile(r"(text|\.\w+)\{[^}]*(?:fill|stroke):#")
    assert set(coloured.findall(dark)) == set(coloured.findall(light)) != set()
