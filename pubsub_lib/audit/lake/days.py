"""The results of a lake by day and domain, and their trend (docs/audit.md, "Days"). Needs neither Spark nor Java."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from pubsub_lib.audit.lake.folder import Damaged, Lake
from pubsub_lib.audit.lake.tables import SCHEMAS, percentiles
from pubsub_lib.audit.report.summary import INCOMPLETE, STRICT, Balance, exit_code
from pubsub_lib.audit.settings import SECOND, AuditSettings
from pubsub_lib.errors import ConfigError

HOP: Final = "publish_apply"
"""The hop whose latency is shown."""
WEEK: Final = 7
"""Maximum number of days on each side of a trend."""
BLAMELESS: Final = frozenset({"ok", "excused", "pending", "behind"})
SUMS: Final = Balance.__struct_fields__


class Day(msgspec.Struct, frozen=True):
    """The results of a domain on a day. Without any result ``exit_code`` and ``balance`` are null.

    ``anomalies``: number of each kind. ``p50`` … ``max``: latency from publication to application in microseconds.
    ``audited_seconds``: the time of the day for which records were read. ``open_windows``: their verdicts may change.
    ``removed``: there is no result because ``--keep-days`` removed the day, or did not add it.
    """

    day: str
    domain: str
    exit_code: int | None = None
    balance: Balance | None = None
    anomalies: Mapping[str, int] = {}
    p50: int | None = None
    p95: int | None = None
    p99: int | None = None
    max: int | None = None
    audited_seconds: int = 0
    open_windows: int = 0
    audits: int = 0
    problems: Sequence[str] = ()
    removed: bool = False

    @property
    def audited(self) -> bool:
        """Whether the day has a result."""
        return self.exit_code is not None

    def number(self, name: str) -> int | None:
        """One of the sums of the balance; None without a result."""
        return None if self.balance is None else getattr(self.balance, name)


class Period(msgspec.Struct, frozen=True):
    """The sums of some days with a result, and the percentiles of all their latencies."""

    first: str
    last: str
    balance: Balance
    late: int
    p50: int | None
    p99: int | None


class Trend(msgspec.Struct, frozen=True):
    """The last ``days`` days with a result of a domain, and the same number of days with a result before them."""

    domain: str
    days: int
    before: Period
    after: Period


class Report(msgspec.Struct, frozen=True):
    """The report on the days from ``first`` to ``last``."""

    folder: str
    first: str
    last: str
    exit_code: int
    days: Sequence[Day]
    trends: Sequence[Trend]
    problems: Sequence[str]


_Histogram = Counter[int]


def report(folder: Path, first: date, last: date, now: date, *, since_begin: bool) -> Report:
    """Read the days. ``now``: a day before it without a result is missing evidence. ``since_begin``: a domain is not
    expected on days before its first one. Blocks. Raises ConfigError.
    """
    lake = Lake(folder)
    problems: list[str] = []
    found: dict[tuple[date, str], tuple[Day, _Histogram]] = {}
    try:
        with lake.locked(write=False):
            about, there = lake.about(), lake.days()
            for day in there:
                if first <= day <= last:
                    found |= {(day, one.domain): (one, times) for one, times in _of_day(lake, day, problems)}
    except OSError as error:
        raise ConfigError(f"{error.filename or folder} cannot be read ({error.strerror or error})") from error
    # A day behind one that is there was not removed. After a wrong clock removed too much, gaps are seen again.
    removed_before = min([about.removed_before, *(str(day) for day in there[:1])])
    rows, gaps = [], 0
    domains = sorted({*about.domains, *(domain for _, domain in found)}) or [""]
    for day in (first + timedelta(days=number) for number in range((last - first).days + 1)):
        for domain in domains:
            begin = about.domains.get(domain, str(first))
            missing = Day(str(day), domain, removed=str(day) < removed_before)
            row, _ = found.get((day, domain), (missing, None))
            rows.append(row)
            expected = day < now and not row.removed and not (since_begin and str(day) < begin)
            gaps += expected and not row.audited
    trends = [each for domain in domains if (each := _trend(domain, found)) is not None]
    code = INCOMPLETE if problems or gaps or not found else 0
    for row in rows:
        code |= row.exit_code or 0
    return Report(str(folder), str(first), str(last), code, rows, trends, problems)


def _of_day(lake: Lake, day: date, problems: list[str]) -> Iterator[tuple[Day, _Histogram]]:
    """Each domain with a result. A damaged file makes the day incomplete and adds a problem."""
    faults = lake.damaged(day)
    tables = {}
    for name in SCHEMAS:
        if name == "anomaly":
            continue  # its kinds are counted in the table of verdicts
        try:
            tables[name] = lake.read(name, day)
        except Damaged as error:
            faults.append(str(error))
            tables[name] = SCHEMAS[name].empty_table()
    problems += [f"{each}; results of {day} are missing: audit its journals again" for each in faults]
    for domain in sorted({each for name in ("coverage", "window") for each in tables[name]["domain"].to_pylist()}):
        one = {name: table.filter(pc.equal(table["domain"], domain)) for name, table in tables.items()}
        times = _histogram(one["latency"])
        yield _day(day, domain, one, times, damaged=bool(faults)), times


def _day(day: date, domain: str, tables: Mapping[str, pa.Table], times: _Histogram, *, damaged: bool) -> Day:
    coverage = tables["coverage"].to_pylist()
    verdicts = tables["verdict"].to_pylist()
    strict = any(row["strict"] for row in coverage)
    findings = {row["verdict"] for row in verdicts if row["window"] is None}
    incomplete = damaged or any(row["incomplete"] for row in coverage)
    code = exit_code(findings, AuditSettings(), incomplete=incomplete, problems=())
    for each in tables["window"]["exit_code"].to_pylist():
        code |= each
    anomalies: Counter[str] = Counter()
    for row in verdicts:
        if row["verdict"] not in (BLAMELESS if strict else BLAMELESS | STRICT):
            anomalies[row["verdict"]] += row["count"]
    shown = percentiles(times.items())
    return Day(
        str(day), domain, code, _sums(tables["balance"]), dict(sorted(anomalies.items())),
        shown["p50"], shown["p95"], shown["p99"], pc.max(_of_hop(tables["latency"])["max"]).as_py(),
        _seconds(coverage), tables["window"]["closed"].to_pylist().count(False), len(coverage),
        list(dict.fromkeys(each for row in coverage for each in row["problems"])),
    )  # fmt: skip


def _sums(table: pa.Table) -> Balance:
    return Balance(**{name: pc.sum(table[name]).as_py() or 0 for name in SUMS})


def _of_hop(table: pa.Table) -> pa.Table:
    return table.filter(pc.equal(table["hop"], HOP))


def _histogram(table: pa.Table) -> _Histogram:
    """The latencies of all windows together: value -> number."""
    of_hop = _of_hop(table)
    columns = {name: pc.list_flatten(of_hop[name]) for name in ("values", "counts")}
    summed = pa.table(columns).group_by("values").aggregate([("counts", "sum")])
    return Counter(dict(zip(summed["values"].to_pylist(), summed["counts_sum"].to_pylist(), strict=True)))


def _seconds(coverage: Iterable[Mapping[str, Any]]) -> int:
    """The length of the union of all audited times."""
    total, reached = 0, None
    for begin, end in sorted((row["begin"], row["end"]) for row in coverage):
        start = begin if reached is None else max(begin, reached)
        total += max(0, end - start)
        reached = end if reached is None else max(end, reached)
    return total // SECOND


def _trend(domain: str, found: Mapping[tuple[date, str], tuple[Day, _Histogram]]) -> Trend | None:
    days = [found[key] for key in sorted(found) if key[1] == domain]
    number = min(WEEK, len(days) // 2)
    if not number:
        return None
    return Trend(domain, number, _period(days[-2 * number : -number]), _period(days[-number:]))


def _period(days: Sequence[tuple[Day, _Histogram]]) -> Period:
    times: _Histogram = Counter()
    for _, each in days:
        times.update(each)
    sums = {name: sum(one.number(name) or 0 for one, _ in days) for name in SUMS}
    shown = percentiles(times.items())
    late = sum(one.anomalies.get("late", 0) for one, _ in days)
    return Period(days[0][0].day, days[-1][0].day, Balance(**sums), late, shown["p50"], shown["p99"])
