"""Texts and names use the field's words: a list of banned words, and the few places where one of them is a value."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Banned word -> the words to use. Conjugated forms are listed one by one: "foretell" and "hearing aid" are not banned.
BANNED = {
    "told|tell|tells|telling": "notified, called, reported, logged",
    "heard|hear|hears": "received",
    "said|say|says|saying": "printed, logged, reported",
    "nobody|somebody|whoever": "no handler, no process, the caller",
    "anew": "again",
    "mend|mends|mended|mending": "repaired, fixed",
    "speak|speaks|spoken": "uses, sends",
    "so many": "maximum number of, the number of",
    "slip of the pen": "typing error",
    "what became of": "the result of",
    "in vain": "without effect",
    "namesake|namesakes": "service of the same name",
    "own hello": "hello reply",
}
PATTERN = re.compile(rf"(?<![a-zA-Z])(?:{'|'.join(BANNED)})(?![a-zA-Z])", re.IGNORECASE)

# File -> what its line must contain to be allowed: a value of a protocol, a system's name, a recorded trace.
ALLOWED: dict[str, tuple[str, ...]] = {
    "docs/cli.md": ('"told": ',),
    "docs/contributing/simulator.md": ("says", "hears"),
    "pubsub_lib/cli/commands/send.py": ('"told"',),
    "simulator/monitor.py": ('"hears"', '"says"'),
    "tests/unit/cli/commands/test_send.py": ('["told"]',),
    "tests/unit/test_plain_words.py": ("",),
    "tools/_processes.py": ('getpwnam("nobody")',),
}
EVERYWHERE = ".tell()"
"""A method of Python's files."""
ENDINGS = {".py", ".md", ".toml", ".cfg", ".sample", ".service", ".jinja", ".ini", ".sh", ".conf", ""}


def words(line: str) -> str:
    """A line with its identifiers split into words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", line).replace("_", " ")


def banned(path: str, text: str) -> Iterator[str]:
    """The lines of a file that use a banned word."""
    for number, line in enumerate(text.splitlines(), 1):
        found = PATTERN.search(words(line.replace(EVERYWHERE, "")))
        if found is not None and not any(each in line for each in ALLOWED.get(path, ())):
            yield f"{path}:{number}: {found[0]!r}"


def tracked() -> Iterator[str]:
    """All text files of the repository, new ones included, except recorded data."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for path in listed.stdout.splitlines():
        if Path(path).suffix in ENDINGS and not path.startswith("tools/data/"):
            yield path


def test_no_text_and_no_name_uses_a_banned_word() -> None:
    paths = list(tracked())
    assert len(paths) > 500
    found = [each for path in paths for each in banned(path, (ROOT / path).read_text(encoding="utf-8"))]
    assert found == [], "see BANNED for the words to use"


@pytest.mark.parametrize(
    "line",
    [
        "# The handler is told again.",
        "def test_nobody_waits() -> None:",
        "class HearsAll:",
        "self._told_twice = 0",
        "So many objects",
    ],
)
def test_a_banned_word_is_found_in_texts_and_in_names(line: str) -> None:
    assert len(list(banned("pubsub_lib/core/cache.py", line))) == 1


def test_a_word_that_contains_a_banned_one_is_allowed() -> None:
    assert list(banned("x.py", "a hearth, essays, a teller, anewly")) == []


def test_each_exception_is_in_use() -> None:
    for path, parts in ALLOWED.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        assert all(part in text for part in parts), path
