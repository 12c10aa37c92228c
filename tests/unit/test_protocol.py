"""docs/protocol.md and its citations: each cited rule exists, and at least one test cites each rule."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "protocol.md"
# Built from parts, so that the samples below do not count as citations.
WORD = "rule"
NUMBER = r"[RSWHD]?\d+"
JOINT = r",? and |, | to | or "
CITATION = re.compile(rf"\b{WORD}s? ({NUMBER}(?:(?:{JOINT})(?:{WORD} )?{NUMBER})*)\b", re.IGNORECASE)
OUTSIDE = re.compile(r"\bdesign(?:\.md\b|,? ?§|:? ?\brules?\b)", re.IGNORECASE)


def written() -> dict[str, str]:
    """The rules of the page: number -> title."""
    return dict(re.findall(rf"^### Rule ({NUMBER}): (.+)$", PAGE.read_text(), re.MULTILINE))


def cited(text: str) -> set[str]:
    """All numbers that a text cites; a range means every number in it."""
    found = set()
    # A citation may wrap over the end of a line, also in a comment.
    for citation in CITATION.finditer(re.sub(r"\s*\n\s*(?:# )?", " ", text)):
        parts = re.split(rf"({JOINT})", citation[1])
        numbers = [re.sub(rf"(?i){WORD} ", "", each) for each in parts[::2]]
        found.update(numbers)
        for joint, first, last in zip(parts[1::2], numbers, numbers[1:], strict=False):
            if joint == " to ":
                letter = first.rstrip("0123456789")
                steps = range(int(first[len(letter) :]), int(last[len(letter) :]) + 1)
                found.update(f"{letter}{number}" for number in steps)
    return found


def sources() -> Iterator[Path]:
    """All files that may cite a rule."""
    installed = ("pubsub_lib", "pubsub_pytest", "drivers")
    for folder in (*installed, "simulator", "tests", "tools", "docs"):
        for ending in ("*.py", "*.md", "*.jinja"):
            yield from (ROOT / folder).rglob(ending)
    yield ROOT / "README.md"


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("(rule 3)", {"3"}),
        ("Rules 6 and 7", {"6", "7"}),
        ("rules 1, 5 and 10", {"1", "5", "10"}),
        ("rules 6, 7: elsewhere", {"6", "7"}),
        ("rules W1 to W3", {"W1", "W2", "W3"}),
        ("rule 4, rule S3 and", {"4", "S3"}),
        ("    # so rule\n    # H2 applies", {"H2"}),
        ("the rule of 3", set()),
        ("rules 9 in 10", {"9"}),
    ],
)
def test_protocol_citation_is_read(text: str, numbers: set[str]) -> None:
    assert cited(text) == numbers


def test_protocol_page_numbers_its_rules_without_a_gap() -> None:
    rules = list(written())
    for letter in ("", "R", "S", "W", "H", "D"):
        numbers = [int(each[len(letter) :]) for each in rules if each.rstrip("0123456789") == letter]
        assert numbers == list(range(1, len(numbers) + 1)), letter
        assert numbers, letter


def test_protocol_each_cited_rule_exists() -> None:
    rules = set(written())
    unknown = {
        f"{path.relative_to(ROOT)}: {WORD} {number}"
        for path in sources()
        if path != Path(__file__)
        for number in cited(path.read_text()) - rules
    }
    assert unknown == set()


def test_protocol_each_rule_is_cited_by_a_test() -> None:
    by_tests = {
        number
        for path in (ROOT / "tests").rglob("*.py")
        if path != Path(__file__)
        for number in cited(path.read_text())
    }
    assert set(written()) - by_tests == set()


def test_protocol_documents_outside_the_project_are_not_cited() -> None:
    outside = {
        f"{path.relative_to(ROOT)}: {citation[0]}"
        for path in sources()
        if path != Path(__file__)
        for citation in OUTSIDE.finditer(path.read_text())
    }
    assert outside == set()
