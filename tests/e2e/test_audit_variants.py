"""The page of variants names tests that exist (docs/contributing/audit-variants.md)."""

import re
from pathlib import Path
from typing import NamedTuple

from tests.unit.audit.message_variants import VARIANTS
from tests.unit.audit.rules.test_pipeline import all_cases
from tests.unit.audit.stream.test_judge import OF_MISSING

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "contributing" / "audit-variants.md"
NUMBER = 83
SAME = "*same*"
ENTRY = re.compile(r"- \*\*(\d+) ×\*\* (.+?): (.+?)\. `run`: (.+)\. `follow`: (.+)\.")


class Entry(NamedTuple):
    number: int
    planted: str
    run: list[str]
    follow: str


def entries() -> list[Entry]:
    text = PAGE.read_text(encoding="utf-8").partition("## Variants\n")[2]
    found = []
    for each in re.split(r"\n(?=- )", text.strip()):
        match = ENTRY.fullmatch(" ".join(each.split()))
        assert match is not None, each
        number, planted, _, run, follow = match.groups()
        found.append(Entry(int(number), planted, names(run), follow))
    return found


def names(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def every_test() -> set[str]:
    """The names of all tests in these folders."""
    places = [TESTS / "unit" / "audit", TESTS / "unit" / "journal", TESTS / "e2e"]
    files = [path for place in places for path in place.rglob("test_*.py")]
    return {name for path in files for name in re.findall(r"^def (test_\w+)\(", path.read_text("utf-8"), re.MULTILINE)}


def test_page_has_all_variants() -> None:
    assert sum(each.number for each in entries()) == NUMBER


def test_each_named_test_exists() -> None:
    there = every_test() | all_cases().keys() | VARIANTS.keys()
    for each in entries():
        assert each.run, each.planted
        assert each.follow == SAME or names(each.follow), each.planted
        assert {*each.run, *names(each.follow)} <= there, each.planted
        if each.follow == SAME:
            assert not any(name.startswith("test_") for name in each.run), each.planted


def test_problems_of_the_page_are_compared_between_run_and_follow() -> None:
    """The oracle of the follower's other tests gives verdicts, and no sentences."""
    by_name = {each.planted: each for each in entries()}
    for planted in ("two replicas with one name", "first file of a long run removed; then a loss"):
        assert {*by_name[planted].run} <= {*OF_MISSING}
