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
PATIENT = {
    "max_idle_time = 1\n": "max_idle_time = 1\nhello_wait = 30\n",  # else a late answer costs a line of `watch`
    "lease = 2\n": "lease = 10\n",  # a lease that lapses costs a line, too
    "sleep 3\n": "sleep 12\n",  # until the lease has expired
    # A service that does not run for a moment costs a write two lines.
    "[publisher_service]\n": "[pubsub_ipc]\nlinger = 1\n\n[publisher_service]\n",
}
"""What a busy machine needs, by what the page has."""
FENCE = re.compile(r"^```(\S[^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WITHOUT_MESSAGE = "without any message from `watch`"
MESSAGE = "… tenant-1 … api-1 … ms"
"""A row of ``watch``."""
FILE = re.compile(r'(?:ini|json|python) title="(\S+)"')


@pytest.fixture
def page() -> Iterator[str]:
    """The page, with a folder and ports of this run."""
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
    for shown, patient in PATIENT.items():
        assert shown in text
        text = text.replace(shown, patient)
    yield text.replace(FOLDER, folder)
    shutil.rmtree(folder, ignore_errors=True)


def blocks(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield (text before it, kind, lines) of each fenced block."""
    end = 0
    for found in FENCE.finditer(text):
        yield text[end : found.start()], found[1], found[2].splitlines()
        end = found.end()


def fits(pattern: str, line: str) -> bool:
    """Whether a line matches the page; … matches any text."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("…"))), line.rstrip()) is not None


def by_command(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield (command, its output); first the output without a command."""
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
    # A prompt without other lines is that of the cleared screen.
    shell.until(lambda lines: [line for line in lines if line.strip()][1:][-1:] == [PROMPT.strip()])
    shown = [line for line in shell.everything() if line.strip()]
    assert shown[0] == PROMPT + command
    output = shown[1:-1]
    assert len(output) == len(expected), "\n".join(shown)
    for wanted, line in zip(expected, output, strict=True):
        assert fits(wanted, line), f"the page has\n{wanted}\nand the terminal shows\n{line}"


class Background:
    """A terminal in which programs print all the time. The output of a block on the page must be printed after the
    block before it, because a line of an earlier block is not an answer to a later command.
    """

    def __init__(self, shell: Terminal) -> None:
        self._shell = shell
        self._before = 0
        """Number of lines that belong to earlier blocks."""

    def output(self) -> list[str]:
        """The lines printed since the last block, also those behind an earlier prompt."""
        return [re.sub(f"^({PROMPT})+", "", line) for line in self._shell.everything()[self._before :]]

    def end_block(self) -> None:
        """Ignore the lines printed so far."""
        shown = self._shell.everything()
        # The next line is printed behind a prompt that is there already.
        self._before = len(shown) - shown[-1].endswith(PROMPT.strip())

    def run(self, command: str, expected: list[str]) -> None:
        """Type a command (if any), and wait for all expected lines, in any order and among others."""
        shell = self._shell
        if command:
            shell.type(command)
        for wanted in expected:
            if wanted == "^C":
                shell.press("C-c")
                shell.until(lambda lines: [line for line in lines if line.strip()][-1].endswith(f"^C{PROMPT.strip()}"))
            else:
                seen = poll(lambda wanted=wanted: any(fits(wanted, line) for line in self.output()), LONG)  # type: ignore[misc]
                assert seen, f"{wanted!r} is missing in\n" + "\n".join(shell.everything())


@pytest.mark.slow
def test_the_walk_through(page: str) -> None:
    folder = Path(next(re.finditer(r"mkdir -p (\S+)", page))[1])
    # Unbuffered, a line is written in pieces, and two programs on one terminal would mix their lines.
    with terminal(160, 50, PYTHONUNBUFFERED="") as first, terminal(160, 50) as second:
        pids: list[int] = []
        background, without_message = Background(first), 0
        for before, kind, lines in blocks(page):
            if kind == "terminal-1":
                for command, output in by_command(lines):
                    background.run(command, output)
                if WITHOUT_MESSAGE in before:
                    assert not [line for line in background.output() if fits(MESSAGE, line)]
                    without_message += 1
                elif any(line.endswith(" ms") for line in lines):
                    assert any(fits(MESSAGE, line) for line in background.output()), "no line has a message's format"
                background.end_block()
            elif kind == "terminal-2":
                for command, output in by_command(lines):
                    if command:
                        foreground(second, command, output)
            else:
                named = FILE.fullmatch(kind)
                assert named is not None, f"this test cannot run a block of {kind}"
                (folder / named[1]).write_text("\n".join(lines) + "\n")
            pids += [int(each.read_text()) for each in folder.glob("*.pid") if each.read_text().strip()]
        assert without_message == 1
        assert len(set(pids)) == 3, "a service, a controller, and a service again"
        assert poll(lambda: not any(map(alive, pids)), LONG), "the page ends every process that it starts"
        assert not folder.exists()


def test_every_block_of_the_page_is_found() -> None:
    assert PAGE.read_text().count("\n```") == 2 * len(list(blocks(PAGE.read_text())))


def test_ellipsis_matches_any_text() -> None:
    assert fits("a … b", "a x y b")
    assert fits("… ms", "anything at 3 ms")
    assert not fits("a … b", "a x c")
    assert not fits("a.b", "axb")


def test_output_of_an_earlier_block_does_not_count() -> None:
    class Shown(Terminal):
        """Shows the lines of the test."""

        def __init__(self) -> None:
            self.lines = [f"{PROMPT}$ something", "printed once", PROMPT.strip()]

        def everything(self) -> list[str]:
            return list(self.lines)

    shell = Shown()
    background = Background(shell)
    background.run("", ["printed once"])
    background.end_block()
    assert background.output() == [PROMPT.strip()]
    shell.lines[-1:] = [f"{PROMPT}printed behind the prompt", "printed after it"]
    background.run("", ["printed behind the prompt", "printed after it"])
    background.end_block()
    assert background.output() == []
