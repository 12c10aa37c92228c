"""docs/tutorial.md, typed line by line into ``python`` in a real terminal (a pty), as the page describes."""

import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "tutorial.md"
LONG: Final = 120.0
PROMPT: Final = re.compile(r">>> |\.\.\. ")
"""One prompt follows each typed line. A handler may print behind it, from its own thread."""
SAMPLE: Final = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN: Final = re.compile(r"^```python\n(?:(?!^```$).*\n)+?```\n\n((?:    .+\n)+)", re.MULTILINE)
"""The output of a sample on the page: the indented block right after it."""


class Repl:
    """``python`` without arguments in its own terminal. A context manager; one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._terminal = -1
        self._python: subprocess.Popen[bytes] | None = None
        self.shown = ""
        """All text shown in the terminal."""
        self.in_block = False
        """Whether the interpreter waits for more lines of a block."""

    def __enter__(self) -> Self:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._folder),  # its history file belongs to this test
            "PYTHONPATH": f"{ROOT}:{ROOT / 'drivers'}",
            "TERM": "dumb",
            "PYTHON_BASIC_REPL": "1",  # from Python 3.13 on: the other one indents by itself
        }
        self._terminal, other_end = pty.openpty()
        attributes = termios.tcgetattr(other_end)
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(other_end, termios.TCSANOW, attributes)
        self._python = subprocess.Popen(
            [sys.executable, "-q"],
            cwd=self._folder,
            env=environment,
            stdin=other_end,
            stdout=other_end,
            stderr=other_end,
            start_new_session=True,
        )
        os.close(other_end)
        self._until_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._python is not None
        self._python.kill()
        self._python.wait(LONG)
        os.close(self._terminal)

    def type(self, line: str) -> str:
        """Type a line and Return; return the interpreter's output, with its next prompt."""
        os.write(self._terminal, f"{line}\n".encode())
        return self._until_ready()

    def _until_ready(self) -> str:
        output, until = "", time.monotonic() + LONG
        while not (prompts := PROMPT.findall(output)):
            ready, _, _ = select.select([self._terminal], [], [], until - time.monotonic())
            assert ready, f"no prompt came within {LONG} s after\n{self.shown}{output}"
            output += os.read(self._terminal, 65_536).decode().replace("\r\n", "\n")
        self.shown += output
        self.in_block = prompts[-1] == "... "
        return output


@pytest.fixture
def repl(tmp_path: Path) -> Iterator[Repl]:
    with Repl(tmp_path) as repl:
        yield repl


def samples() -> list[str]:
    return SAMPLE.findall(PAGE.read_text())


@pytest.mark.slow
def test_tutorial_works_when_typed(repl: Repl) -> None:
    for sample in samples():
        for line in sample.splitlines():
            output = repl.type(line)
            assert "Error" not in output, f"after typing\n{line}\npython printed\n{output}\nand before\n{repl.shown}"
        if repl.in_block:
            assert "Error" not in repl.type(""), repl.shown
    printed = PROMPT.sub("", repl.shown)
    for block in SHOWN.findall(PAGE.read_text()):
        for line in block.splitlines():
            assert line.strip() in printed, f"the page has\n{line}\nand python printed\n{printed}"


def test_syntax_error_in_a_sample_is_detected(repl: Repl) -> None:
    repl.type("with open('x', 'w') as file:")
    repl.type("    pass")
    assert "SyntaxError" in repl.type("print(1)")


def test_tutorial_has_samples_and_their_output() -> None:
    assert len(samples()) >= 5
    assert any("create p1" in block for block in SHOWN.findall(PAGE.read_text()))
