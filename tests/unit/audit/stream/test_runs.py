"""The known part of runs, and the windows that it closes: known answers."""

import msgspec
import pytest

from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.stream.intake import Begun, Coming
from pubsub_lib.audit.stream.runs import (
    Frontier,
    JournalPart,
    Known,
    closed_before,
    expired,
    followed,
    horizon,
    known,
    participants,
    too_late,
    without_copies,
)
from pubsub_lib.audit.stream.runs import frontier as frontier_of

SETTINGS = AuditSettings(window=100, grace=30, bound=10, silence=1000)


def part(
    number: int, first: int, last: int, mark: int | None = None, *, run: str = "a", closed: bool = False,
    side: str = "replica", name: str = "r", host: str = "h",
) -> JournalPart:  # fmt: skip
    stem = f"{run}-{number:06d}"
    return JournalPart(stem, run, number, side, name, host, True, number * 5, first, last, mark, closed)


def frontier(of: dict[str, Known]) -> Frontier:
    return frontier_of(of, SETTINGS)


def runs(
    *parts: JournalPart, coming: dict[str, Coming] | None = None, lost: frozenset[tuple[str, int]] = frozenset()
) -> dict[str, Known]:
    return known(parts, coming or {}, lost)


def test_run_limits_the_frontier_to_its_last_mark_until_it_is_over() -> None:
    assert frontier(runs(part(1, 10, 50, 40), part(2, 51, 90, 80))) == Frontier(80, "a")
    assert frontier(runs(part(1, 10, 50, 40, closed=True))) == Frontier()
    assert frontier(runs(part(1, 10, 50))) == Frontier(10, "a")


def test_run_with_the_earliest_mark_is_the_frontier() -> None:
    assert frontier(runs(part(1, 10, 50, 40), part(1, 10, 50, 30, run="b", name="other"))) == Frontier(30, "b")


def test_parts_after_a_missing_part_are_not_known() -> None:
    there = (part(1, 10, 50, 40), part(3, 90, 120, 110))
    assert frontier(runs(*there)) == Frontier(40, "a")
    assert [each.number for each in runs(*there)["a"].parts] == [1]
    assert frontier(runs(*there, lost=frozenset({("a", 2)}))) == Frontier(110, "a")


def renamed(one: JournalPart, first: int, last: int, stem: str = "old") -> JournalPart:
    return msgspec.structs.replace(one, stem=stem, number=0, first=first, last=last)


def numbered(one: JournalPart, first: int, last: int) -> JournalPart:
    return msgspec.structs.replace(one, first=first, last=last)


def test_part_of_a_renamed_file_is_not_missing() -> None:
    there = numbered(part(1, 10, 50, 40), 1, 7), numbered(part(3, 90, 120, 110), 12, 20)
    between = renamed(part(2, 51, 89, 80), 8, 11)
    assert frontier(runs(*there, between)) == Frontier(110, "a")
    assert [each.stem for each in runs(*there, between)["a"].parts] == ["a-000001", "old", "a-000003"]
    assert frontier(runs(*there, renamed(part(2, 51, 89, 80), 9, 11))) == Frontier(80, "a"), "number 8 is missing"


def test_longer_one_of_two_copies_counts() -> None:
    first, second = numbered(part(1, 10, 50), 1, 7), numbered(part(2, 51, 90), 8, 11)
    piece = msgspec.structs.replace(second, stem="a-000002~9", last=9)
    copy = renamed(part(1, 10, 50), 1, 7)
    kept, problems = without_copies([copy, first, piece, second])
    assert kept == [first, second, piece]
    assert problems == ["old is a copy of a-000001 under another name and ignored; remove one of them"]
    longer = renamed(part(1, 10, 60), 1, 9)
    kept, problems = without_copies([longer, first])
    assert (kept, len(problems)) == ([longer], 1)
    assert "a-000001 is a copy of old" in problems[0]


def test_run_whose_next_part_is_being_written_is_not_over() -> None:
    """Two processes with the same name may run at the same time."""
    both = (part(1, 10, 50, 40), part(1, 60, 90, 80, run="b"))
    assert frontier(runs(*both)) == Frontier(80, "b")
    assert frontier(runs(*both, coming={"a": Coming({2})})) == Frontier(40, "a")


def test_run_without_a_complete_part_is_known_until_its_first_record() -> None:
    begun = {"b": Coming({1}, Begun("service", "s", "h", 25))}
    assert frontier(runs(part(1, 10, 50, 40), coming=begun)) == Frontier(25, "b")
    unknown = {"b": Coming({1})}
    held = frontier(runs(part(1, 10, 50, 40), coming=unknown))
    assert held.of == "b"
    assert closed_before(held, 10**6, SETTINGS) is None


def test_run_expires_after_the_silence_and_does_not_limit_the_frontier() -> None:
    dead, other = part(1, 10, 50, 40), part(1, 10, 1050, 1040, run="b", name="other")
    assert frontier(runs(dead, other)) == Frontier(40, "a")
    other = part(1, 10, 1051, 1040, run="b", name="other")
    found = runs(dead, other)
    assert frontier(found) == Frontier(1040, "b")
    assert list(expired(found, SETTINGS)) == ["a"]
    assert not followed("a", found, SETTINGS)
    assert expired(runs(dead, part(1, 10, 1051, side="store", run="b")), SETTINGS) == {}


def test_run_that_ended_or_of_which_more_is_expected_does_not_expire() -> None:
    other = part(1, 10, 2000, 1990, run="b", name="other")
    assert expired(runs(part(1, 10, 50, closed=True), other), SETTINGS) == {}
    assert expired(runs(part(1, 10, 50), other, coming={"a": Coming({2})}), SETTINGS) == {}
    assert frontier(runs(part(1, 10, 50), other, coming={"a": Coming({2})})) == Frontier(10, "a")


def test_successor_after_the_silence_does_not_change_that_a_run_expired() -> None:
    """Windows may have been closed before it began."""
    dead, late = part(1, 10, 50, 40), part(1, 1081, 1090, 1085, run="b")
    found = runs(dead, late)
    assert list(expired(found, SETTINGS)) == ["a"]
    assert followed("a", found, SETTINGS)
    assert frontier(found) == Frontier(1085, "b")
    assert expired(runs(dead, part(1, 1050, 1090, 1085, run="b")), SETTINGS) == {}


def test_successor_of_which_no_part_has_arrived_keeps_the_run_before_it() -> None:
    """Spark reads no record of it, so that there the run would have expired."""
    begun = {"b": Coming({1}, Begun("replica", "r", "h", 500))}
    found = runs(part(1, 10, 50, 40), part(1, 10, 2000, 1990, run="c", name="other"), coming=begun)
    assert expired(found, SETTINGS) == {}
    assert frontier(found) == Frontier(40, "a")


def test_successor_of_a_replica_may_be_on_another_host() -> None:
    """Its clock may be behind by the grace."""
    there = part(1, 21, 90, 80, run="b", host="far")
    assert frontier(runs(part(1, 10, 50, 40), there)) == Frontier(80, "b")
    too_early = part(1, 20, 90, 80, run="b", host="far")
    assert frontier(runs(part(1, 10, 50, 40), too_early)) == Frontier(40, "a")
    service, other = part(1, 10, 50, 40, side="service"), part(1, 60, 90, 80, side="service", run="b", host="far")
    assert frontier(runs(service, other)) == Frontier(40, "a")


@pytest.mark.parametrize("parts", [(), (part(1, 10, 50, 40, side="store"),)])
def test_no_window_is_closed_without_a_participant(parts: tuple[JournalPart, ...]) -> None:
    assert frontier(runs(*parts)).without_participants
    assert closed_before(frontier(runs(*parts)), 10**6, SETTINGS) is None


def test_window_is_closed_when_its_horizon_is_before_the_frontier() -> None:
    assert horizon(200, SETTINGS) == 200 + 10 + 2 * 30
    assert closed_before(Frontier(269, "a"), 10**6, SETTINGS) == 100
    assert closed_before(Frontier(270, "a"), 10**6, SETTINGS) == 200
    assert closed_before(Frontier(), 270, SETTINGS) == 200


def test_file_with_records_of_closed_windows_is_too_late() -> None:
    assert too_late(part(1, 269, 300), 200, SETTINGS)
    assert not too_late(part(1, 270, 300), 200, SETTINGS)
    assert not too_late(part(1, 10, 300), None, SETTINGS)
    assert not too_late(part(1, 10, 300, side="store"), 200, SETTINGS)


def test_participants_are_those_of_whom_a_record_is_known() -> None:
    service = part(1, 10, 50, run="b", side="service", name="s")
    parts = {"": [part(2, 10, 50), service], "net": [part(1, 1, 2, name="n")]}
    coming = {
        "": {
            "c": Coming({1}, Begun("relay", "open", "h", 7)),
            "d": Coming({1}, Begun("writer", "only a header", "h", None)),
            "e": Coming({1}),
        }
    }
    assert participants(parts, coming) == {("replica", "r"), ("service", "s"), ("replica", "n"), ("relay", "open")}
    assert participants({}, {}) == set()
