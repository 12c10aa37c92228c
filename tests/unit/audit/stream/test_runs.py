"""What is known of runs, and what that closes: known answers."""

import pytest

from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.stream.intake import Begun, Coming
from pubsub_lib.audit.stream.runs import Frontier, JournalPart, Known, closed_before, frontier, horizon, known, too_late

SETTINGS = AuditSettings(window=100, grace=30, bound=10)


def part(
    number: int, first: int, last: int, mark: int | None = None, *, run: str = "a", closed: bool = False,
    side: str = "replica", name: str = "r",
) -> JournalPart:  # fmt: skip
    stem = f"{run}-{number:06d}"
    return JournalPart(stem, run, number, side, name, "h", True, number * 5, first, last, mark, closed)


def runs(
    *parts: JournalPart, coming: dict[str, Coming] | None = None, lost: frozenset[tuple[str, int]] = frozenset()
) -> dict[str, Known]:
    return known(parts, coming or {}, lost)


def test_a_run_is_known_until_its_last_mark_and_none_when_it_is_over() -> None:
    assert frontier(runs(part(1, 10, 50, 40), part(2, 51, 90, 80))) == Frontier(80, "a")
    assert frontier(runs(part(1, 10, 50, 40, closed=True))) == Frontier()
    assert frontier(runs(part(1, 10, 50))) == Frontier(10, "a")


def test_the_run_that_is_known_least_counts() -> None:
    assert frontier(runs(part(1, 10, 50, 40), part(1, 10, 50, 30, run="b", name="other"))) == Frontier(30, "b")


def test_what_comes_after_a_missing_part_is_not_known() -> None:
    there = (part(1, 10, 50, 40), part(3, 90, 120, 110))
    assert frontier(runs(*there)) == Frontier(40, "a")
    assert [each.number for each in runs(*there)["a"].parts] == [1]
    assert frontier(runs(*there, lost=frozenset({("a", 2)}))) == Frontier(110, "a")


def test_a_run_whose_next_part_is_being_written_has_no_successor() -> None:
    """Two processes of one name may live at the same time."""
    both = (part(1, 10, 50, 40), part(1, 60, 90, 80, run="b"))
    assert frontier(runs(*both)) == Frontier(80, "b")
    assert frontier(runs(*both, coming={"a": Coming({2})})) == Frontier(40, "a")


def test_a_run_that_has_only_begun_counts_from_its_first_record() -> None:
    begun = {"b": Coming({1}, Begun("service", "s", "h", 25))}
    assert frontier(runs(part(1, 10, 50, 40), coming=begun)) == Frontier(25, "b")
    dark = {"b": Coming({1})}
    held = frontier(runs(part(1, 10, 50, 40), coming=dark))
    assert held.of == "b"
    assert closed_before(held, 10**6, SETTINGS) is None


@pytest.mark.parametrize("parts", [(), (part(1, 10, 50, 40, side="store"),)])
def test_without_a_participant_nothing_is_closed(parts: tuple[JournalPart, ...]) -> None:
    assert frontier(runs(*parts)).nothing
    assert closed_before(frontier(runs(*parts)), 10**6, SETTINGS) is None


def test_a_window_is_closed_when_all_evidence_of_it_stands_before_the_frontier() -> None:
    assert horizon(200, SETTINGS) == 200 + 10 + 2 * 30
    assert closed_before(Frontier(269, "a"), 10**6, SETTINGS) == 100
    assert closed_before(Frontier(270, "a"), 10**6, SETTINGS) == 200
    assert closed_before(Frontier(), 270, SETTINGS) == 200


def test_what_tells_of_closed_windows_is_too_late() -> None:
    assert too_late(part(1, 269, 300), 200, SETTINGS)
    assert not too_late(part(1, 270, 300), 200, SETTINGS)
    assert not too_late(part(1, 10, 300), None, SETTINGS)
    assert not too_late(part(1, 10, 300, side="store"), 200, SETTINGS)
