"""A real terminal for the tests: tmux, with a private socket and without any configuration file."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from _processes import poll

from pubsub_lib.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
LONG = 120.0
PROMPT = "ready> "
PROGRAMS = {"pubsub-db": "-m pubsub_lib.cli", "publisher-service": "-m pubsub_lib.service", "python": ""}


def tmux() -> str:
    """Return the path of tmux. Raises ConfigError."""
    found = shutil.which("tmux")
    if found is None:
        raise ConfigError("no tmux found; install the package tmux")
    return found


class Terminal:
    """A shell in a terminal whose size can be changed. One thread."""

    def __init__(self, folder: Path, width: int, height: int, environment: Mapping[str, str]) -> None:
        self._base = [tmux(), "-S", str(folder / "socket"), "-f", "/dev/null", "-u"]
        # The programs of this source tree, not the installed ones.
        for name, module in PROGRAMS.items():
            (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
            (folder / name).chmod(0o755)
        (folder / "rc").write_text(f"PS1='{PROMPT}'\n")
        # Without the size of the terminal that the tests run in, which would override this one's.
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self._environment = {
            **inherited,
            "LC_ALL": "C.UTF-8",
            "ENV": str(folder / "rc"),  # the start file of an interactive sh
            "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'drivers'}",
            **environment,
        }
        self._size = ["-x", str(width), "-y", str(height)]

    def start(self) -> None:
        """Start the shell, and wait for the prompt."""
        self._tmux("new-session", "-d", *self._size, "sh")
        self.until(lambda lines: lines[0].startswith(PROMPT.strip()))

    def type(self, line: str) -> None:
        """Type a line and Return."""
        self._tmux("send-keys", "-l", line)
        self._tmux("send-keys", "Enter")

    def press(self, key: str) -> None:
        """Press one key by tmux's name: ``q``, ``C-c``."""
        self._tmux("send-keys", key)

    def resize(self, width: int, height: int) -> None:
        """Change the size; the running program gets SIGWINCH."""
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def screen(self) -> list[str]:
        """Return all lines on the screen, without trailing spaces."""
        return self._tmux("capture-pane", "-p").split("\n")[:-1]

    def clear(self) -> None:
        """Clear the screen and the history; the shell must wait for a command."""
        self.type("clear")
        self.until(lambda lines: lines[0] == PROMPT.strip() and not any(lines[1:]))
        self._tmux("clear-history")

    def everything(self) -> list[str]:
        """Return all lines shown so far; wrapped lines are joined."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-").rstrip().split("\n")

    def until(self, wanted: Callable[[list[str]], bool]) -> list[str]:
        """Wait until the screen is as wanted; return it."""
        lines: list[str] = []

        def look() -> bool:
            lines[:] = self.screen()
            return wanted(lines)

        assert poll(look, LONG), "\n".join(lines)
        return lines

    def state(self, name: str) -> str:
        """Return one of tmux's variables, for example ``alternate_on``."""
        return self._tmux("display-message", "-p", f"#{{{name}}}").strip()

    def close(self) -> None:
        """End the terminal and all programs in it."""
        subprocess.run([*self._base, "kill-server"], capture_output=True, check=False)

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._base, *arguments], env=self._environment, capture_output=True, text=True, check=False, timeout=LONG
        )
        assert done.returncode == 0, (arguments, done.stderr)
        return done.stdout


@contextmanager
def terminal(width: int, height: int, **environment: str) -> Iterator[Terminal]:
    """A terminal for the duration of the block."""
    # A short path, because a socket's path has at most 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="pubsub-tmux-"))
    try:
        made = Terminal(folder, width, height, environment)
        try:
            made.start()
            yield made
        finally:
            made.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
