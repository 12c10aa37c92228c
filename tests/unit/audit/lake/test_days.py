"""The report of a lake: numbers by day, gaps, damaged files, the trend."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from pubsub_lib.audit.lake.append import append
from pubsub_lib.audit.lake.days import Report, report
from pubsub_lib.audit.report.summary import Balance
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.errors import ConfigError
from tests.unit.audit.lake.additions import (
    FIRST,
    LATE,
    LOST,
    OK,
    SECOND_DAY,
    THIRD,
    UNKNOWN,
    addition,
    audited,
    run,
)

NOW = date(2026, 11, 26)
FIFTH = date(2026, 11, 5)
REORDERED = ("reordered", "", "", "message")


def day(number: int, results: Any, **more: Any) -> Any:
    """An audit of one hour of this day of November."""
    text = f"{number:02d}"
    about = {name: more.pop(name) for name in ("incomplete", "problems", "domain") if name in more}
    domain = about.get("domain", "")
    span = audited(f"{text} 10:00", f"{text} 11:00", **about)
    return addition([span], {f"{text} 10:00": results}, audit=f"a{number}{domain}", domain=domain, **more)


def shown(lake: Path, first: date = FIRST, last: date = THIRD, *, since_begin: bool = False) -> Report:
    return report(lake, first, last, NOW, since_begin=since_begin)


def test_numbers_of_a_day(lake: Path) -> None:
    append(lake, day(1, {OK: 7, LATE: 1, LOST: 2}, latencies={1000: 98, 5000: 2}))
    append(lake, addition([audited("01 12:00", "01 12:30")], {"01 12:10": {OK: 1, REORDERED: 3}}, audit="b",
                          latencies={9000: 100}))  # fmt: skip
    (one,) = shown(lake, last=FIRST).days
    assert (one.day, one.exit_code) == ("2026-11-01", 1 + 8)
    assert one.balance == Balance(expected=14, delivered=12, lost=2)
    assert one.anomalies == {"late": 1, "lost": 2}
    assert (one.p50, one.p95, one.p99, one.max) == (5000, 9000, 9000, 9000)
    assert (one.audited_seconds, one.audits, one.open_windows) == (5400, 2, 0)


def test_day_without_a_result_is_a_gap_and_missing_evidence(lake: Path) -> None:
    append(lake, day(1, {OK: 7}))
    append(lake, day(3, {OK: 7}))
    found = shown(lake)
    assert [each.exit_code for each in found.days] == [0, None, 0]
    assert found.exit_code == 32
    assert shown(lake, THIRD).exit_code == 0


def test_days_before_the_first_one_are_expected_only_when_they_are_named(lake: Path) -> None:
    append(lake, day(2, {OK: 7}))
    append(lake, day(3, {OK: 7}))
    assert shown(lake, FIRST).exit_code == 32
    assert shown(lake, FIRST, since_begin=True).exit_code == 0
    assert shown(lake, SECOND_DAY, date(2026, 11, 4), since_begin=True).exit_code == 32


def test_days_that_are_not_over_are_no_missing_evidence(lake: Path) -> None:
    append(lake, day(25, {OK: 7}))
    assert shown(lake, date(2026, 11, 25), date(2026, 11, 30)).exit_code == 0


def results(found: Report) -> list[int | str | None]:
    """The exit code of each day, or that it was removed."""
    return ["removed" if each.removed else each.exit_code for each in found.days]


def test_days_that_were_removed_on_purpose_are_no_gap(lake: Path) -> None:
    for number in (1, 2, 4, 5):
        append(lake, day(number, {OK: 7}), 3, NOW)
    found = shown(lake, last=FIFTH)
    assert (results(found), found.exit_code) == (["removed", "removed", None, 0, 0], 32)
    assert shown(lake, last=FIFTH, since_begin=True).exit_code == 32, "the third day was not removed"
    append(lake, day(6, {OK: 7}), 3, NOW)
    found = shown(lake, last=date(2026, 11, 6))
    assert (results(found), found.exit_code) == ([*["removed"] * 3, 0, 0, 0], 0)
    append(lake, day(7, {OK: 7}))
    append(lake, day(8, {OK: 7}), 400, NOW)
    assert shown(lake, last=date(2026, 11, 8)).exit_code == 0, "they stay removed"
    assert shown(lake, last=THIRD).exit_code == 32, "no day shown has a result"


def test_day_before_those_kept_that_is_not_added_is_no_gap(lake: Path) -> None:
    append(lake, addition([audited("01 10:00", "03 10:00")], {"03 10:00": {OK: 1}}), 1, NOW)
    found = shown(lake)
    assert (results(found), found.exit_code) == (["removed", "removed", 0], 0)
    append(lake, addition([audited("01 10:00", "02 10:00")], {"01 10:00": {OK: 1}}), 1, NOW)  # all of it is too old
    assert results(shown(lake)) == ["removed", "removed", 0]


def test_gap_behind_a_day_that_is_there_was_not_removed(lake: Path) -> None:
    """A wrong clock of host and journals once removed all days, and those that came later are not older than it."""
    append(lake, day(1, {OK: 7}))
    append(lake, day(30, {OK: 7}), 1, date(2026, 11, 30))
    append(lake, day(2, {OK: 7}))
    found = shown(lake)
    assert (results(found), found.exit_code) == (["removed", 0, None], 32)


def test_idle_day_has_a_result_without_deliveries(lake: Path) -> None:
    append(lake, addition([audited("01 10:00", "02 10:00")], {"01 10:00": {OK: 1}}))
    _, two = shown(lake, last=SECOND_DAY).days
    assert (two.exit_code, two.balance, two.audited_seconds) == (0, Balance(), 36_000)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"results": {UNKNOWN: 1}}, 32),
        ({"results": {OK: 1}, "incomplete": True, "problems": ["x is gone"]}, 32),
        ({"results": {OK: 1}, "findings": {("state", "zombie"): 1, ("state", "behind"): 9}}, 4),
        ({"results": {OK: 1}, "findings": {("state", "unknown"): 1}}, 32),
        ({"results": {REORDERED: 1}}, 0),
        ({"results": {REORDERED: 1}, "settings": AuditSettings(strict=True)}, 16),
    ],
)
def test_exit_code_of_a_day(lake: Path, more: dict[str, Any], code: int) -> None:
    append(lake, day(1, more.pop("results"), **more))
    found = shown(lake, last=FIRST)
    (one,) = found.days
    assert (one.exit_code, found.exit_code) == (code, code)
    assert list(one.problems) == more.get("problems", [])
    assert one.anomalies.keys() <= {"unknown", "zombie", "reordered"}
    assert ("reordered" in one.anomalies) == (code == 16)


@pytest.mark.parametrize("table", ["window", "balance", "verdict", "latency", "coverage"])
def test_damaged_file_is_named_and_its_day_incomplete(lake: Path, table: str) -> None:
    append(lake, day(1, {OK: 7}, latencies={5: 7}))
    append(lake, day(2, {OK: 7}, latencies={5: 7}))
    path = lake / table / "day=2026-11-01" / "part-0.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    found = shown(lake, last=SECOND_DAY)
    assert [each.exit_code for each in found.days] == [32, 0]
    assert found.exit_code == 32
    (problem,) = found.problems
    assert problem.startswith(f"{path} is damaged (")
    assert problem.endswith("results of 2026-11-01 are missing: audit its journals again")
    append(lake, day(1, {OK: 7}, latencies={5: 7}))  # it sets the file aside, and writes a new one
    found = shown(lake, last=SECOND_DAY)
    assert found.exit_code == 32
    assert [each.split(" was ")[0] for each in found.problems] == [str(path.with_name("_part-0.damaged"))]


def test_domains_have_rows_of_their_own(lake: Path) -> None:
    append(lake, day(1, {OK: 7}))
    append(lake, day(2, {LOST: 1}, domain="net"))
    found = shown(lake, last=SECOND_DAY, since_begin=True)
    assert [(each.day[-2:], each.domain, each.exit_code) for each in found.days] == [
        ("01", "", 0), ("01", "net", None), ("02", "", None), ("02", "net", 1)
    ]  # fmt: skip
    assert found.exit_code == 33


def test_lake_without_days_is_missing_evidence(lake: Path) -> None:
    found = shown(lake)
    assert (found.exit_code, len(found.days), found.trends) == (32, 3, [])
    assert shown(lake, NOW, NOW).exit_code == 32


def test_trend_compares_the_last_days_with_those_before(lake: Path) -> None:
    for number in range(1, 17):
        if number != 12:
            append(lake, day(number, {OK: 10, LOST: number % 2, LATE: 1}, latencies={number * 1000: 11}))
    (trend,) = shown(lake, last=date(2026, 11, 16)).trends
    assert (trend.days, trend.before.first, trend.before.last) == (7, "2026-11-02", "2026-11-08")
    assert (trend.after.first, trend.after.last) == ("2026-11-09", "2026-11-16")
    assert (trend.before.balance.lost, trend.after.balance.lost) == (3, 4)
    assert (trend.before.late, trend.after.balance.expected) == (7, 7 * 11 + 4)
    assert (trend.before.p50, trend.before.p99, trend.after.p50) == (5000, 8000, 13000)
    assert shown(lake, last=FIRST).trends == []


def test_open_windows_are_counted(lake: Path) -> None:
    append(lake, addition([audited("01 10:00", "01 10:05", run("ab"), closed_until=0)], {"01 10:00": {OK: 1}}))
    assert shown(lake, last=FIRST).days[0].open_windows == 1


def test_unreadable_lake_is_an_error(lake: Path) -> None:
    append(lake, day(1, {OK: 7}))
    (lake / "window").rename(lake / "other")
    (lake / "window").mkdir()
    (lake / "window" / "day=2026-11-01").mkdir()
    (lake / "window" / "day=2026-11-01" / "part-0.parquet").mkdir()
    with pytest.raises(ConfigError, match=r"part-0\.parquet cannot be read \(Is a directory\)"):
        shown(lake)
