"""The clocks of a domain's hosts, brute force, from docs/contributing/audit-verdicts.md ("Clocks") alone.

It shares no code with the pipeline. It is slow and simple on purpose.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from pubsub_lib.journal.rows import Row

STEP = 100_000
PUBLISHING = ("writer", "service")


class Clock(NamedTuple):
    host: str
    low: int
    """The least offset of its stretches."""


class Edge(NamedTuple):
    """Known: ``one`` is ``ahead`` of ``two``."""

    key: tuple[object, ...]
    one: Clock
    two: Clock
    ahead: int


class Clocks:
    """``of``: the clock of each record. ``ahead``: by how much each clock is ahead of the time of its group."""

    def __init__(self, runs: dict[str, list[Row]], reach: int) -> None:
        self.runs, self.reach = runs, reach
        self.stretches = [each for rows in runs.values() for each in self._stretches(rows)]
        self.of = self._clocks()
        self.first_mono: dict[Clock, int] = {}
        for row in self._participants():
            clock = self._of(row)
            self.first_mono[clock] = min(row.mono, self.first_mono.get(clock, row.mono))
        self.samples = self._samples()
        counted = [each for each in self.samples if int(str(each.key[0])) <= reach]
        self.measured = {clock for each in counted for clock in (each.one, each.two)}
        self.group: dict[Clock, int] = {}
        self.ahead: dict[Clock, int] = {}
        for number, clock in enumerate(sorted(set(self.of.values()))):
            self.group[clock], self.ahead[clock] = number, 0
        for edge in [*sorted(counted), *self._step_edges(), *self._host_edges()]:
            self._join(edge)
        self._anchor()

    def _of(self, row: Row) -> Clock:
        return self.of[row.run, row.number]

    def _participants(self) -> list[Row]:
        return [row for rows in self.runs.values() for row in rows if row.side != "store"]

    @staticmethod
    def _stretches(rows: Sequence[Row]) -> list[list[Row]]:
        found = [[rows[0]]]
        for one, two in pairwise(rows):
            if abs((two.wall - two.mono) - (one.wall - one.mono)) > STEP:
                found.append([])
            found[-1].append(two)
        return found

    @staticmethod
    def _offset(stretch: Sequence[Row]) -> int:
        return min(row.wall - row.mono for row in stretch)

    def _clocks(self) -> dict[tuple[str, int], Clock]:
        found = {}
        by_host = defaultdict(list)
        for stretch in self.stretches:
            by_host[stretch[0].host].append((self._offset(stretch), stretch))
        for host, of_host in by_host.items():
            of_host.sort(key=lambda each: each[0])
            last = low = of_host[0][0]
            for offset, stretch in of_host:
                if offset > last + STEP:
                    low = offset
                last = offset
                for row in stretch:
                    found[row.run, row.number] = Clock(host, low)
        return found

    def _samples(self) -> list[Edge]:
        """All comparisons of clocks; the first part of the key is the age."""
        found = []
        sent = [row for row in self._participants() if row.kind == "hello" and row.side != "replica" and row.peer]
        for run, rows in self.runs.items():
            for ask in (row for row in rows if row.kind == "ask" and row.peer):
                for back in rows:
                    if back.kind != "hello" or back.side != "replica" or back.peer != ask.peer:
                        continue
                    for reply in sent:
                        if (reply.peer, reply.uuid) != (ask.peer, back.uuid) or reply.host == back.host:
                            continue
                        one, two = self._of(back), self._of(reply)
                        if self._of(ask) != one:
                            continue
                        age = min(back.mono - self.first_mono[one], reply.mono - self.first_mono[two])
                        key = (age, run, back.number, reply.run, reply.number, ask.number)
                        found.append(Edge(key, one, two, (ask.wall + back.wall) // 2 - reply.wall))
        return found

    def _step_edges(self) -> list[Edge]:
        found = []
        for run, rows in self.runs.items():
            if rows[0].side == "store":
                continue
            for one, two in pairwise(self._stretches(rows)):
                ahead = self._offset(two) - self._offset(one)
                key = (min(row.mono for row in two), run, two[0].number)
                found.append(Edge(key, self._of(two[0]), self._of(one[0]), ahead))
        return sorted(found)

    def _host_edges(self) -> list[Edge]:
        clocks = sorted(self.first_mono)
        return [Edge((), two, one, 0) for one, two in pairwise(clocks) if one.host == two.host]

    def _join(self, edge: Edge) -> None:
        mine, theirs = self.group[edge.one], self.group[edge.two]
        if mine == theirs:
            return
        more = self.ahead[edge.two] + edge.ahead - self.ahead[edge.one]
        for clock, group in self.group.items():
            if group == mine:
                self.group[clock] = theirs
                self.ahead[clock] += more

    def _anchor(self) -> None:
        """The time of a group is that of the clock whose publishers began first."""
        for group in set(self.group.values()):
            clocks = [clock for clock in self.group if self.group[clock] == group]
            rows = [row for row in self._participants() if self._of(row) in clocks]
            rows = [row for row in rows if row.side in PUBLISHING] or rows
            if not rows:
                continue
            begun = min((row.wall - self.ahead[self._of(row)], self._of(row)) for row in rows)
            less = self.ahead[begun[1]]
            for clock in clocks:
                self.ahead[clock] -= less

    def written_ahead(self, row: Row) -> int:
        """By how much the clock was ahead that gave the time of the commit."""
        name = row.cause or row.service
        ranges: dict[Clock, list[int]] = defaultdict(list)
        for stretch in self.stretches:
            if stretch[0].side in PUBLISHING and stretch[0].name == name:
                ranges[self._of(stretch[0])] += [each.wall for each in stretch]
        known = sorted((min(walls), max(walls), clock) for clock, walls in ranges.items())
        if not known:
            return 0
        until = [clock for _, high, clock in known if high >= row.written]
        return self.ahead[until[0] if until else known[-1][2]]

    def corrected(self) -> list[Row]:
        """All records, with the times of their groups."""
        names: dict[tuple[str, int], int] = {}
        found = []
        for rows in self.runs.values():
            for row in rows:
                written = row.written
                if written > 0:
                    key = (row.cause or row.service, written)
                    if key not in names:
                        names[key] = self.written_ahead(row)
                    written -= names[key]
                found.append(msgspec.structs.replace(row, wall=row.wall - self.ahead[self._of(row)], written=written))
        return found

    def undecided(self) -> bool:
        """Whether a clock is not compared with another one, and may be: a follower then closes no window."""
        ever = {clock for each in self.samples for clock in (each.one, each.two)}
        clocks = set(self.first_mono)
        if len(clocks) < 2:
            return False
        for clock in clocks - ever:
            mine = [row for row in self._participants() if self._of(row) == clock]
            for run in {row.run for row in mine}:
                last = self.runs[run][-1]
                if last.kind != "close" and last.mono - self.first_mono[clock] <= self.reach:
                    return True
            if any(row.kind == "hello" and row.mono - self.first_mono[clock] <= self.reach for row in mine):
                return True
        return False
