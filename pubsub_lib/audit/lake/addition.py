"""The small tables of one audit, before they are added to a lake."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import date, timedelta
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from pubsub_lib.audit.lake.tables import DAY, KEYED, SCHEMAS, begin_of, day_of
from pubsub_lib.audit.report.summary import exit_code
from pubsub_lib.audit.settings import AuditSettings

PROBLEMS: Final = 100
"""Maximum number of problems that are kept of an audit."""
IDLE_DAYS: Final = 366
"""Maximum length of an audit whose days without a window count as audited, too: a longer one has a wrong clock."""


class Run(msgspec.Struct, frozen=True):
    """The records of a participant's run that were read: the number of the ``first``, and the walls of both ends."""

    run: str
    first: int
    begin: int
    end: int


class Audited(msgspec.Struct, frozen=True):
    """What an audit read of a domain: records from ``begin`` to ``end``; windows that end until ``closed_until`` are
    closed. ``idle_since``: earlier days count as audited only with a window; None: ``begin``. ``findings``: the rows
    without a window belong to the last day.
    """

    domain: str
    begin: int
    end: int
    closed_until: int
    runs: Sequence[Run]
    idle_since: int | None = None
    incomplete: bool = False
    problems: Sequence[str] = ()
    store: bool = False
    replicas: int = 0
    listed: int = 0
    findings: bool = False

    @property
    def last_day(self) -> date | None:
        """The day before ``end``; None outside of the calendar."""
        return day_of(max(self.begin, self.end - 1))


class Addition(msgspec.Struct, frozen=True):
    """The results of one audit. ``tables``: ``balance``, ``verdict``, ``anomaly`` and ``latency`` of all days."""

    audit: str
    command: str
    audited: int
    settings: AuditSettings
    domains: Sequence[Audited]
    tables: Mapping[str, pa.Table]

    def by_day(self) -> tuple[dict[date, dict[str, pa.Table]], int]:
        """The tables of each day, also ``window`` and ``coverage``; and the number of windows outside of the calendar,
        which are in no day.
        """
        tables = {**self.tables, "window": self._windows()}
        keys = zip(*(tables["window"][name].to_pylist() for name in ("domain", "window")), strict=True)
        of_day: dict[date, set[int]] = defaultdict(set)
        of_domain: dict[str, set[date]] = defaultdict(set)
        outside = 0
        for domain, window in keys:
            day = day_of(window)
            if day is None:
                outside += 1
            else:
                of_day[day].add(window)
                of_domain[domain].add(day)
        last = {each.domain: each.last_day for each in self.domains if each.findings}
        coverage = self._coverage(of_domain)
        found = {}
        for day in sorted({*of_day, *coverage, *filter(None, last.values())}):
            domains = [domain for domain, last_day in last.items() if last_day == day]
            found[day] = {name: _part(tables[name], of_day[day], domains) for name in KEYED}
            found[day]["coverage"] = pa.Table.from_pylist(coverage.get(day, []), schema=SCHEMAS["coverage"])
        return found, outside

    def _windows(self) -> pa.Table:
        closed_until = {each.domain: each.closed_until for each in self.domains}
        verdicts: dict[tuple[str, int], set[str]] = defaultdict(set)
        columns = (self.tables["verdict"][name].to_pylist() for name in ("domain", "window", "verdict"))
        for domain, window, verdict in zip(*columns, strict=True):
            if window is not None:
                verdicts[domain, window].add(verdict)
        rows = [
            {
                "domain": domain, "window": window, "audit": self.audit,
                "closed": window + self.settings.window <= closed_until.get(domain, window),
                "exit_code": exit_code(kinds, self.settings, incomplete=False, problems=()),
            }
            for (domain, window), kinds in sorted(verdicts.items())
        ]  # fmt: skip
        return pa.Table.from_pylist(rows, schema=SCHEMAS["window"])

    def _coverage(self, with_windows: Mapping[str, Set[date]]) -> dict[date, list[dict[str, Any]]]:
        """``with_windows``: the days of each domain that have a window."""
        found: dict[date, list[dict[str, Any]]] = defaultdict(list)
        for each in self.domains:
            for day in self._days(each, with_windows.get(each.domain, set())):
                begin, end = max(each.begin, begin_of(day)), min(each.end, begin_of(day) + DAY)
                runs = [msgspec.to_builtins(run) for run in each.runs if run.begin <= end and run.end >= begin]
                found[day].append({
                    "domain": each.domain, "audit": self.audit, "command": self.command, "audited": self.audited,
                    "begin": begin, "end": max(begin, end), "incomplete": each.incomplete,
                    "problems": list(each.problems)[:PROBLEMS], "store": each.store, "replicas": each.replicas,
                    "listed": each.listed, "findings": each.findings and day == each.last_day,
                    "grace": self.settings.grace, "bound": self.settings.bound, "silence": self.settings.silence,
                    "strict": self.settings.strict, "runs": runs,
                })  # fmt: skip
        return found

    @staticmethod
    def _days(one: Audited, with_windows: Set[date]) -> Iterator[date]:
        """The days of which the domain was audited."""
        first, last = day_of(one.begin), one.last_day
        if first is None or last is None:
            return
        idle = first if one.idle_since is None else max(first, day_of(one.idle_since) or last)
        if (last - idle).days > IDLE_DAYS:
            idle = last
        days = {idle + timedelta(days=number) for number in range((last - idle).days + 1)}
        yield from sorted(days | {day for day in {*with_windows, last} if first <= day <= last})


def _part(table: pa.Table, windows: set[int], domains: Sequence[str]) -> pa.Table:
    """The rows of these windows, and those without a window of these domains."""
    inside = pc.is_in(table["window"], value_set=pa.array(sorted(windows), pa.int64()))
    findings = pc.and_(pc.is_null(table["window"]), pc.is_in(table["domain"], value_set=pa.array(domains, pa.string())))
    return table.filter(pc.or_(inside, findings))
