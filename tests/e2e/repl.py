"""``python`` in a real terminal (a pty), into which a test types docs/tutorial.md as a newcomer does."""

import os
import pty
import re
import select
import subprocess
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

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

    def __init__(self, python: str | Path, folder: Path, variables: Mapping[str, str]) -> None:
        """``folder``: the current one of ``python``. ``variables``: its environment, beside those of the terminal."""
        self._python = python
        self._folder = folder
        self._variables = variables
        self._terminal = -1
        self._process: subprocess.Popen[bytes] | None = None
        self.shown = ""
        """All text shown in the terminal."""
        self.in_block = False
        """Whether the interpreter waits for more lines of a block."""

    def __enter__(self) -> Self:
        environment = {
            **self._variables,
            "HOME": str(self._folder),  # its history file belongs to this test
            "TERM": "dumb",
            "PYTHON_BASIC_REPL": "1",  # from Python 3.13 on: the other one indents by itself
        }
        self._terminal, other_end = pty.openpty()
        attributes = termios.tcgetattr(other_end)
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(other_end, termios.TCSANOW, attributes)
        self._process = subprocess.Popen(
            [self._python, "-q"],
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
        assert self._process is not None
        self._process.kill()
        self._process.wait(LONG)
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


def samples() -> list[str]:
    """The samples of the tutorial."""
    return SAMPLE.findall(PAGE.read_text())


def type_tutorial(repl: Repl) -> None:
    """Type the tutorial line by line. Fails at the first error, and when an output of the page is not printed."""
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
