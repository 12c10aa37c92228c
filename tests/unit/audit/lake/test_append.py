"""Adding audits to a lake: sentences, retention, damaged files."""

from datetime import date
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from pubsub_lib.audit.lake.append import append, closed_windows
from pubsub_lib.audit.lake.folder import Lake
from pubsub_lib.errors import ConfigError
from tests.unit.audit.lake.additions import (
    FIRST,
    LOST,
    OK,
    SECOND_DAY,
    THIRD,
    addition,
    at,
    audited,
    run,
)

THREE_DAYS = [audited("01 10:00", "03 10:00")]
WINDOWS = {"01 10:00": {OK: 5}, "02 10:00": {OK: 4, LOST: 1}, "03 10:00": {OK: 3}}
ONE = addition(THREE_DAYS, WINDOWS)


def expected(lake: Path) -> dict[date, int]:
    one = Lake(lake)
    return {day: sum(one.read("balance", day)["expected"].to_pylist()) for day in one.days()}


def test_same_journals_audited_twice_count_once(lake: Path) -> None:
    first = append(lake, ONE)
    assert (first.added, first.notes, first.problems) == (
        f"3 windows of 2026-11-01 to 2026-11-03 added to {lake}", [], []
    )  # fmt: skip
    again = append(lake, addition(THREE_DAYS, WINDOWS, audit="two"))
    assert again.notes == ["3 windows replaced: their results of an earlier audit do not count"]
    assert expected(lake) == {FIRST: 5, SECOND_DAY: 5, THIRD: 3}
    assert Lake(lake).about().domains == {"": "2026-11-01"}


def test_result_of_more_records_is_kept_and_reported(lake: Path) -> None:
    append(lake, ONE)
    later = addition([audited("01 10:00", "03 10:00", run("ab", first=7))], {"03 10:00": {OK: 1}}, audit="two")
    found = append(lake, later)
    assert found.notes == [
        "1 window not replaced: the earlier audit counts, because it read more records, the first of the run ab"
    ]
    assert found.problems == []
    assert expected(lake)[THIRD] == 3
    without_store = addition([audited("01 10:00", "03 10:00", store=False)], {"03 10:00": {OK: 1}}, audit="three")
    assert append(lake, without_store).notes == [
        "1 window not replaced: the earlier audit counts, because it had the store, and this one has not"
    ]


def test_results_of_other_journals_are_a_problem(lake: Path) -> None:
    append(lake, ONE)
    found = append(lake, addition([audited("01 10:00", "03 10:00", run("xy"))], {"01 10:00": {OK: 1}}, audit="two"))
    (problem,) = found.problems
    assert problem.startswith(f"{lake} has results from other journals for the same time, which were not replaced; ")
    opened = [audited("01 10:00", "03 10:00", closed_until=at("01 10:00"))]
    assert append(lake, addition(opened, WINDOWS, audit="three")).notes == [
        "3 windows not replaced: the earlier audit counts, because they were closed, and are open in this audit"
    ]


@pytest.mark.parametrize(
    ("now", "days"),
    [
        (date(2026, 11, 3), [SECOND_DAY, THIRD]),
        (date(2026, 12, 24), [SECOND_DAY, THIRD]),  # the newest day counts: an old lake is not emptied
        (date(2026, 11, 2), [FIRST, SECOND_DAY, THIRD]),  # a journal's clock may be ahead
        (date(1970, 1, 1), [FIRST, SECOND_DAY, THIRD]),
    ],
)
def test_old_days_are_removed(lake: Path, now: date, days: list[date]) -> None:
    append(lake, addition([audited("01 10:00", "01 10:05")], {"01 10:00": {OK: 5}}))
    found = append(lake, addition([audited("02 10:00", "03 10:00")], WINDOWS | {"01 10:00": {}}), 2, now)
    assert list(expected(lake)) == days
    if FIRST not in days:
        assert f"1 day before 2026-11-02 removed from {lake} (--keep-days)" in found.notes


def test_days_before_those_kept_are_not_added(lake: Path) -> None:
    found = append(lake, ONE, 1, date(2026, 11, 26))
    assert (found.added, found.notes) == (
        f"1 window of 2026-11-03 added to {lake}", [f"2 days before 2026-11-03 not added to {lake} (--keep-days)"]
    )  # fmt: skip
    assert expected(lake) == {THIRD: 3}
    assert append(lake, ONE, 10**9, date(2026, 11, 26)).notes == [
        "1 window replaced: their results of an earlier audit do not count"
    ]


def test_damaged_file_is_set_aside_and_named(lake: Path) -> None:
    append(lake, ONE)
    path = lake / "verdict" / "day=2026-11-02" / "part-0.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    (problem,) = append(lake, addition(THREE_DAYS, WINDOWS, audit="two")).problems
    assert problem.startswith(f"{path} is damaged (")
    assert problem.endswith("it was renamed, and results of 2026-11-02 are missing: audit its journals again")
    assert path.with_name("_part-0.damaged").exists()
    assert expected(lake) == {FIRST: 5, SECOND_DAY: 5, THIRD: 3}


def test_closed_windows_of_a_lake(lake: Path) -> None:
    append(lake, addition([audited("01 10:00", "03 10:00", closed_until=at("02 11:00"))], WINDOWS))
    assert closed_windows(lake, [FIRST, SECOND_DAY, THIRD]) == {("", at("01 10:00")), ("", at("02 10:00"))}
    path = lake / "window" / "day=2026-11-02" / "part-0.parquet"
    path.write_bytes(b"PAR1")
    assert closed_windows(lake, [FIRST, SECOND_DAY]) == {("", at("01 10:00"))}
    (lake / ".lock").unlink()
    (lake / ".lock").mkdir()
    with pytest.raises(ConfigError, match=r"cannot be written \(Is a directory\), so nothing was added to it"):
        append(lake, ONE)


def test_window_outside_of_the_calendar_is_a_problem(lake: Path) -> None:
    far = {
        name: table.set_column(1, "window", pa.array([2**62] * len(table), pa.int64()))
        for name, table in ONE.tables.items()
    }
    found = append(lake, msgspec.structs.replace(ONE, tables=far))
    assert found.problems == [f"1 window not added to {lake}: outside of the calendar, by a wrong clock"]
