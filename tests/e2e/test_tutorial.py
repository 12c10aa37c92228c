"""docs/tutorial.md, typed line by line into ``python`` in a real terminal (a pty), as the page describes."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.repl import PAGE, ROOT, SHOWN, Repl, samples, type_tutorial


@pytest.fixture
def repl(tmp_path: Path) -> Iterator[Repl]:
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{ROOT / 'drivers'}"}
    with Repl(sys.executable, tmp_path, variables) as repl:
        yield repl


@pytest.mark.slow
def test_tutorial_works_when_typed(repl: Repl) -> None:
    type_tutorial(repl)


def test_syntax_error_in_a_sample_is_detected(repl: Repl) -> None:
    repl.type("with open('x', 'w') as file:")
    repl.type("    pass")
    assert "SyntaxError" in repl.type("print(1)")


def test_tutorial_has_samples_and_their_output() -> None:
    assert len(samples()) >= 5
    assert any("create p1" in block for block in SHOWN.findall(PAGE.read_text()))
