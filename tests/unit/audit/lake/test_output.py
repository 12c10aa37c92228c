"""The report of a lake as text and CSV."""

import csv
from pathlib import Path

import msgspec
import pytest

from pubsub_lib.audit.lake.days import Day, Period, Report, Trend
from pubsub_lib.audit.lake.output import save_csv, state, text, title, verdict
from pubsub_lib.audit.report.summary import Balance
from pubsub_lib.errors import ConfigError

DAYS = [
    Day("2026-11-01", "", 0, Balance(1200, 1199, 0, 0, 0, 1), {}, 900, 1000, 2100, 3000, 86400),
    Day("2026-11-02", ""),
    Day("2026-11-03", "", 33, Balance(10, 7, 1, 1, 0, 0, 1), {"lost": 1, "unknown": 1}, 950, 2000, 9000, 9000, 60,
        problems=["x is gone"]),
]  # fmt: skip
TREND = Trend(
    "", 1, Period("2026-11-01", "2026-11-01", Balance(1200, 1199), 0, 900, 2100),
    Period("2026-11-03", "2026-11-03", Balance(10, 7, 1, 1, 0, 0, 1), 2, 950, None),
)  # fmt: skip
LOSS = "loss, incomplete (33)"
ONE_GAP = "        0        0        1"
REPORT = Report("lake", "2026-11-01", "2026-11-03", 33, DAYS, [TREND], ["y is damaged"])


def test_text_has_a_line_for_each_day() -> None:
    assert list(text(REPORT)) == [
        "2026-11-01 to 2026-11-03: 2 of 3 days have a result; loss, incomplete (exit code 33).",
        "problem: y is damaged",
        "",
        "day         expected  delivered  repaired  lost  pending  excused  unknown  p50 ms  p99 ms  verdict"
        + " " * 16
        + "anomalies",
        "2026-11-01      1200       1199         0     0        0        1        0   0.900   2.100  no fault found",
        "2026-11-02         –          –         –     –        –        –        –       –       –  no result",
        f"2026-11-03        10          7         1     1{ONE_GAP}   0.950   9.000  {LOSS}  lost 1, unknown 1",
        "",
        (
            "trend, 2026-11-01 to 2026-11-01 -> 2026-11-03 to 2026-11-03 (days with a result in each: 1): "
            "expected 1200 -> 10, lost 0 -> 1, repaired 0 -> 1, unknown 0 -> 1, late 0 -> 2, p50 0.900 -> 0.950 ms, "
            "p99 2.100 -> – ms"
        ),
        "",
        "2026-11-03: x is gone",
    ]


def test_text_of_several_domains_names_them() -> None:
    days = [*DAYS[:1], Day("2026-11-01", "net\x1b")]
    lines = list(text(msgspec.structs.replace(REPORT, days=days, trends=[msgspec.structs.replace(TREND, domain="n")])))
    assert [line[:21].split() for line in lines[3:6]] == [
        ["day", "domain"], ["2026-11-01"], ["2026-11-01", r"net\x1b"]
    ]  # fmt: skip
    assert lines[7].startswith("trend of n, ")


@pytest.mark.parametrize(
    ("code", "expected", "words", "severity"),
    [
        (None, 0, "no result", "gap"), (0, 5, "no fault found", "good"), (0, 0, "no delivery expected", "idle"),
        (32, 5, "incomplete (32)", "unsure"), (32, 0, "incomplete (32)", "unsure"), (8, 5, "late (8)", "bad"),
        (33, 5, "loss, incomplete (33)", "bad"),
    ],
)  # fmt: skip
def test_only_a_day_without_faults_and_with_deliveries_is_good(
    code: int | None, expected: int, words: str, severity: str
) -> None:
    day = Day("2026-11-01", "", code, None if code is None else Balance(expected, expected))
    assert (verdict(day), state(day)) == (words, severity)


def test_removed_days_are_named() -> None:
    removed = msgspec.structs.replace(DAYS[1], removed=True)
    assert (verdict(removed), state(removed)) == ("removed", "gap")
    other = msgspec.structs.replace(removed, day="2026-11-01", domain="net")
    found = msgspec.structs.replace(REPORT, days=[DAYS[0], other], exit_code=0)
    assert title(found).endswith("1 of 1 days have a result; no fault found."), "another domain has a result"
    found = msgspec.structs.replace(REPORT, days=[DAYS[0], removed, removed], exit_code=0)
    assert title(found).endswith("1 of 2 days have a result, 1 was removed; no fault found.")
    more = msgspec.structs.replace(removed, day="2026-11-03")
    found = msgspec.structs.replace(found, days=[DAYS[0], removed, more])
    assert title(found).endswith("1 of 3 days have a result, 2 were removed; no fault found.")


def test_title_without_faults() -> None:
    assert title(msgspec.structs.replace(REPORT, exit_code=0)).endswith("2 of 3 days have a result; no fault found.")


def test_csv_leaves_gaps_empty(tmp_path: Path) -> None:
    save_csv(DAYS, tmp_path / "days.csv")
    first, gap, last = list(csv.DictReader((tmp_path / "days.csv").read_text().splitlines()))
    assert (first["day"], first["expected"], first["p99_us"], first["exit_code"]) == ("2026-11-01", "1200", "2100", "0")
    assert set(gap.values()) == {"2026-11-02", ""}
    assert (last["lost"], last["anomalies"]) == ("1", "lost 1, unknown 1")
    with pytest.raises(ConfigError, match=r"cannot be written \(Is a directory\); name another file"):
        save_csv(DAYS, tmp_path)


def test_csv_has_no_formulas(tmp_path: Path) -> None:
    save_csv([Day("2026-11-01", "=1+1", 0, Balance(5, 5))], tmp_path / "days.csv")
    (row,) = csv.DictReader((tmp_path / "days.csv").read_text().splitlines())
    assert row["domain"] == "'=1+1"
