"""The report of a lake as text, as JSON and as CSV (docs/audit.md, "Days")."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pubsub_lib.audit.lake.days import SUMS, Day, Report, Trend
from pubsub_lib.audit.report.csv_tables import lines
from pubsub_lib.audit.report.labels import faults
from pubsub_lib.audit.report.summary import INCOMPLETE
from pubsub_lib.errors import ConfigError
from pubsub_lib.logs import printable

NO_RESULT: Final = "no result"
REMOVED: Final = "removed"
_COMPARED: Final = ("expected", "lost", "repaired", "unknown")


def verdict(day: Day) -> str:
    """The verdict of a day in a few words: the names of its bits."""
    if day.exit_code is None:
        return REMOVED if day.removed else NO_RESULT
    if day.exit_code:
        return f"{_bits(day.exit_code)} ({day.exit_code})"
    return "no fault found" if day.number("expected") else "no delivery expected"


def state(day: Day) -> str:
    """The severity of a day: "gap", "bad" (a fault), "unsure" (only incomplete evidence), "idle" or "good"."""
    if day.exit_code is None:
        return "gap"
    if day.exit_code:
        return "bad" if day.exit_code & ~INCOMPLETE else "unsure"
    return "good" if day.number("expected") else "idle"


def _bits(exit_code: int) -> str:
    return ", ".join(name for name, found in faults(exit_code).items() if found)


def title(report: Report) -> str:
    """The result in a sentence."""
    days = len({each.day for each in report.days})
    with_result = {each.day for each in report.days if each.audited}
    gone = len({each.day for each in report.days if each.removed} - with_result)
    removed = f", {gone} {'was' if gone == 1 else 'were'} removed" if gone else ""
    result = f"{_bits(report.exit_code)} (exit code {report.exit_code})" if report.exit_code else "no fault found"
    return f"{report.first} to {report.last}: {len(with_result)} of {days} days have a result{removed}; {result}."


def text(report: Report) -> Iterator[str]:
    """The report in lines."""
    yield title(report)
    yield from (f"problem: {each}" for each in report.problems)
    yield ""
    several = len({each.domain for each in report.days}) > 1
    header = ["day", *(["domain"] if several else []), *SUMS, "p50 ms", "p99 ms", "verdict", "anomalies"]
    rows = [_cells(each, several=several) for each in report.days]
    widths = [max(len(row[place]) for row in [header, *rows]) for place in range(len(header))]
    left = {0, len(header) - 2, len(header) - 1, *([1] if several else [])}
    for row in [header, *rows]:
        cells = (
            cell.ljust(width) if place in left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )  # fmt: skip
        yield "  ".join(cells).rstrip()
    for trend in report.trends:
        yield ""
        yield _trend(trend)
    if any(each.problems for each in report.days):
        yield ""
    for each in report.days:
        of = f" of {printable(each.domain)}" if each.domain else ""
        yield from (f"{each.day}{of}: {problem}" for problem in each.problems)


def kinds(day: Day) -> str:
    """The anomalies of a day as text."""
    return ", ".join(f"{kind} {number}" for kind, number in day.anomalies.items())


def milliseconds(value: int | None) -> str:
    """A latency; – without any."""
    return "–" if value is None else f"{value / 1000:,.3f}"


def _cells(day: Day, *, several: bool) -> list[str]:
    sums = [str(day.number(name)) if day.audited else "–" for name in SUMS]
    domain = [printable(day.domain)] if several else []
    return [day.day, *domain, *sums, milliseconds(day.p50), milliseconds(day.p99), verdict(day), kinds(day)]


def _trend(one: Trend) -> str:
    of = f" of {printable(one.domain)}" if one.domain else ""
    changes = [
        *(f"{name} {getattr(one.before.balance, name)} -> {getattr(one.after.balance, name)}" for name in _COMPARED),
        f"late {one.before.late} -> {one.after.late}",
        f"p50 {milliseconds(one.before.p50)} -> {milliseconds(one.after.p50)} ms",
        f"p99 {milliseconds(one.before.p99)} -> {milliseconds(one.after.p99)} ms",
    ]
    return (
        f"trend{of}, {one.before.first} to {one.before.last} -> {one.after.first} to {one.after.last} "
        f"(days with a result in each: {one.days}): {', '.join(changes)}"
    )


def save_csv(days: Sequence[Day], file: Path) -> None:
    """Write a row for each day. The cells of a day without a result are empty; texts that a spreadsheet would run as
    formulas are escaped. Raises ConfigError.
    """
    rows: list[list[object]] = [
        ["day", "domain", "exit_code", *SUMS, "p50_us", "p95_us", "p99_us", "max_us", "anomalies"]
    ]
    for day in days:
        values = [
            day.exit_code, *(day.number(name) for name in SUMS), day.p50, day.p95, day.p99, day.max,
            kinds(day),
        ]  # fmt: skip
        rows.append([day.day, day.domain, *(values if day.audited else [""] * len(values))])
    try:
        file.write_text(lines(rows), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be written ({error.strerror}); name another file") from error
