"""docs/walk-through.md, typed into two terminals command by command; what they show is compared with the page."""

import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from _processes import alive, free_port, poll

from pubsub_lib.errors import ConfigError
from tests.conftest import IN_CI
from tests.e2e.terminal import LONG, PROMPT, ROOT, Terminal, terminal, tmux

PAGE = ROOT / "docs" / "walk-through.md"
FOLDER = "/tmp/walk"
PORTS = ("8866", "8867", "8868")
FENCE = re.compile(r"^```(\S[^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
UNHEARD = "without any message from `watch`"
MESSAGE = "… tenant-1 … api-1 … ms"
"""A row of ``watch``."""
FILE = re.compile(r'(?:ini|json|python) title="(\S+)"')


@pytest.fixture
def page() -> Iterator[str]:
    """The page, with a folder and ports of this run's own."""
    try:
        tmux()
    except ConfigError as error:
        if IN_CI:
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
    text = PAGE.read_text()
    folder = tempfile.mkdtemp(prefix="walk-")
    for port in PORTS:
        assert port in text
        text = text.replace(port, str(free_port()))
    yield text.replace(FOLDER, folder)
    shutil.rmtree(folder, ignore_errors=True)


def blocks(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """(text before it, kind, lines) of the fenced blocks."""
    end = 0
    for found in FENCE.finditer(text):
        yield text[end : found.start()], found[1], found[2].splitlines()
        end = found.end()


def fits(pattern: str, line: str) -> bool:
    """Whether a line is as the page says; … stands for anything."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("…"))), line.rstrip()) is not None


def by_command(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """(command, its output), first what is to be seen without a command."""
    command: str = ""
    output: list[str] = []
    for line in lines:
        if line.startswith("$ "):
            yield command, output
            command, output = line[2:], []
        else:
            output.append(line)
    yield command, output


def foreground(shell: Terminal, command: str, expected: list[str]) -> None:
    """Type a command, wait for its end, and compare every line of its output."""
    shell.clear()
    shell.type(command)
    # Alone the prompt is that of a screen that was just cleared.
    shell.until(lambda lines: [line for line in lines if line.strip()][1:][-1:] == [PROMPT.strip()])
    shown = [line for line in shell.everything() if line.strip()]
    assert shown[0] == PROMPT + command
    output = shown[1:-1]
    assert len(output) == len(expected), "\n".join(shown)
    for wanted, line in zip(expected, output, strict=True):
        assert fits(wanted, line), f"the page says\n{wanted}\nand the terminal shows\n{line}"


class Background:
    """A terminal in which programs go on talking. What a block of the page shows must be said after the block before
    it: a line that was seen once is no answer to what is typed later.
    """

    def __init__(self, shell: Terminal) -> None:
        self._shell = shell
        self._before = 0
        """Lines that belong to earlier blocks."""

    def said(self) -> list[str]:
        """What programs said since the last block, also behind a prompt that stood there already."""
        return [re.sub(f"^({PROMPT})+", "", line) for line in self._shell.everything()[self._before :]]

    def end_block(self) -> None:
        """What follows is looked for in what comes from now on."""
        shown = self._shell.everything()
        # What comes next stands behind a prompt that waits already.
        self._before = len(shown) - shown[-1].endswith(PROMPT.strip())

    def run(self, command: str, expected: list[str]) -> None:
        """Type a command (if any), and wait until all is seen that is to be seen; more may come, and in any order."""
        shell = self._shell
        if command:
            shell.type(command)
        for wanted in expected:
            if wanted == "^C":
                shell.press("C-c")
                shell.until(lambda lines: [line for line in lines if line.strip()][-1].endswith(f"^C{PROMPT.strip()}"))
            else:
                seen = poll(lambda wanted=wanted: any(fits(wanted, line) for line in self.said()), LONG)  # type: ignore[misc]
                assert seen, f"{wanted!r} is not seen in\n" + "\n".join(shell.everything())


@pytest.mark.slow
def test_the_walk_through(page: str) -> None:
    folder = Path(next(re.finditer(r"mkdir -p (\S+)", page))[1])
    # Unbuffered, a line is written word by word, and two programs on one terminal would mix theirs.
    with terminal(160, 50, PYTHONUNBUFFERED="") as first, terminal(160, 50) as second:
        pids: list[int] = []
        background, unheard = Background(first), 0
        for before, kind, lines in blocks(page):
            if kind == "terminal-1":
                for command, output in by_command(lines):
                    background.run(command, output)
                if UNHEARD in before:
                    assert not [line for line in background.said() if fits(MESSAGE, line)]
                    unheard += 1
                elif any(line.endswith(" ms") for line in lines):
                    assert any(fits(MESSAGE, line) for line in background.said()), "that is how a message looks"
                background.end_block()
            elif kind == "terminal-2":
                for command, output in by_command(lines):
                    if command:
                        foreground(second, command, output)
            else:
                named = FILE.fullmatch(kind)
                assert named is not None, f"nobody runs a block of {kind}"
                (folder / named[1]).write_text("\n".join(lines) + "\n")
            pids += [int(each.read_text()) for each in folder.glob("*.pid") if each.read_text().strip()]
        assert unheard == 1
        assert len(set(pids)) == 3, "a service, a controller, and a service again"
        assert poll(lambda: not any(map(alive, pids)), LONG), "what the page starts, it ends"
        assert not folder.exists()


def test_every_block_of_the_page_is_found() -> None:
    assert PAGE.read_text().count("\n```") == 2 * len(list(blocks(PAGE.read_text())))


def test_what_stands_for_anything_and_what_does_not() -> None:
    assert fits("a … b", "a x y b")
    assert fits("… ms", "anything at 3 ms")
    assert not fits("a … b", "a x c")
    assert not fits("a.b", "axb")


def test_what_an_earlier_block_saw_does_not_count() -> None:
    class Shown(Terminal):
        """Shows what it is told."""

        def __init__(self) -> None:
            self.lines = [f"{PROMPT}$ something", "told once", PROMPT.strip()]

        def everything(self) -> list[str]:
            return list(self.lines)

    shell = Shown()
    background = Background(shell)
    background.run("", ["told once"])
    background.end_block()
    assert background.said() == [PROMPT.strip()]
    shell.lines[-1:] = [f"{PROMPT}told behind the prompt", "told after it"]
    background.run("", ["told behind the prompt", "told after it"])
    background.end_block()
    assert background.said() == []
