"""docs/walk-through.md, typed into two terminals command by command; what they show is compared with the page."""

import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pubsub_lib.errors import ConfigError
from pubsub_lib.testing.processes import alive, free_port, poll
from tests.conftest import IN_CI
from tests.e2e.terminal import LONG, PROMPT, ROOT, Terminal, terminal, tmux

PAGE = ROOT / "docs" / "walk-through.md"
FOLDER = "/tmp/walk"
PORTS = ("8866", "8867", "8868")
FENCE = re.compile(r"^```(\S[^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
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


def blocks(text: str) -> list[tuple[str, list[str]]]:
    """(kind, lines) of the fenced blocks."""
    return [(kind, body.splitlines()) for kind, body in FENCE.findall(text)]


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
    shell.until(lambda lines: [line for line in lines if line.strip()][-1:] == [PROMPT.strip()])
    shown = [line for line in shell.everything() if line.strip()]
    assert shown[0] == PROMPT + command
    output = shown[1:-1]
    assert len(output) == len(expected), "\n".join(shown)
    for wanted, line in zip(expected, output, strict=True):
        assert fits(wanted, line), f"the page says\n{wanted}\nand the terminal shows\n{line}"


def said(shell: Terminal) -> list[str]:
    """What programs said, also behind a prompt that stood there already."""
    return [re.sub(f"^({PROMPT})+", "", line) for line in shell.everything()]


def background(shell: Terminal, command: str, expected: list[str]) -> None:
    """Type a command (if any), and wait until all is seen that is to be seen; more may come, and in any order."""
    if command:
        shell.type(command)
    for wanted in expected:
        if wanted == "^C":
            shell.press("C-c")
            shell.until(lambda lines: [line for line in lines if line.strip()][-1].endswith(f"^C{PROMPT.strip()}"))
        else:
            seen = poll(lambda wanted=wanted: any(fits(wanted, line) for line in said(shell)), LONG)  # type: ignore[misc]
            assert seen, f"{wanted!r} is not seen in\n" + "\n".join(shell.everything())


@pytest.mark.slow
def test_the_walk_through(page: str) -> None:
    folder = Path(next(re.finditer(r"mkdir -p (\S+)", page))[1])
    with terminal(160, 50) as first, terminal(160, 50) as second:
        pids: list[int] = []
        for kind, lines in blocks(page):
            if kind == "terminal-1":
                for command, output in by_command(lines):
                    background(first, command, output)
            elif kind == "terminal-2":
                for command, output in by_command(lines):
                    if command:
                        foreground(second, command, output)
            else:
                named = FILE.fullmatch(kind)
                assert named is not None, f"nobody runs a block of {kind}"
                (folder / named[1]).write_text("\n".join(lines) + "\n")
            pids += [int(each.read_text()) for each in folder.glob("*.pid") if each.read_text().strip()]
        assert len(set(pids)) == 3, "a service, a controller, and a service again"
        assert poll(lambda: not any(map(alive, pids)), LONG), "what the page starts, it ends"
        assert not folder.exists()


def test_every_block_of_the_page_is_found() -> None:
    assert PAGE.read_text().count("\n```") == 2 * len(blocks(PAGE.read_text()))


def test_what_stands_for_anything_and_what_does_not() -> None:
    assert fits("a … b", "a x y b")
    assert fits("… ms", "anything at 3 ms")
    assert not fits("a … b", "a x c")
    assert not fits("a.b", "axb")
