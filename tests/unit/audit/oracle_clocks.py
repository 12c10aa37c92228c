"""The clocks of a domain's hosts, brute force, from docs/contributing/audit-verdicts.md ("Clocks") alone.

It shares no code with the pipeline. It is slow and simple on purpose.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

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


class Side(NamedTuple):
    """A sample from one of its sides: ``mine`` is ``ahead`` of ``other``. ``key``: round trip, and order."""

    key: tuple[Any, ...]
    mine: Clock
    mono: int
    other: Clock
    other_mono: int
    ahead: int


class Clocks:
    """``of``: the clock of each record. ``ahead``: by how much each clock is ahead of the time of its group."""

    def __init__(self, runs: dict[str, list[Row]], bound: int, grace: int) -> None:
        self.runs, self.bound, self.grace = runs, bound, grace
        self.reach = bound + 2 * grace
        self.stretches = [each for rows in runs.values() for each in self._stretches(rows)]
        self.of = self._clocks()
        self.first_mono: dict[Clock, int] = {}
        for row in self._participants():
            clock = self._of(row)
            self.first_mono[clock] = min(row.mono, self.first_mono.get(clock, row.mono))
        self.sides: list[Side] = []
        self.samples = self._samples()
        counted = [each for each in self.samples if int(str(each.key[0])) <= self.reach]
        self.measured = {clock for each in counted for clock in (each.one, each.two)}
        self.group: dict[Clock, int] = {}
        self.ahead: dict[Clock, int] = {}
        for number, clock in enumerate(sorted(set(self.of.values()))):
            self.group[clock], self.ahead[clock] = number, 0
        for edge in [*sorted(counted), *self._step_edges(), *self._host_edges()]:
            self._join(edge)
        self.timing: set[Clock] = set()
        """The clocks that give the times of their groups."""
        self._anchor()
        self.pieces: dict[Clock, list[tuple[float, int]]] = {
            clock: [(float("-inf"), ahead)] for clock, ahead in self.ahead.items()
        }
        """The monotonic times from which a clock is ahead by so much."""
        for _, clock, begin in self._begins():
            self._compare_again(clock, begin)

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
                        ahead = (ask.wall + back.wall) // 2 - reply.wall
                        found.append(Edge(key, one, two, ahead))
                        again = (back.wall - ask.wall, *key[1:])
                        self.sides.append(Side(again, one, back.mono, two, reply.mono, ahead))
                        self.sides.append(Side(again, two, reply.mono, one, back.mono, -ahead))
        return found

    def at(self, clock: Clock, mono: int) -> int:
        """By how much a clock is ahead at a monotonic time, as far as it is known."""
        return [ahead for since, ahead in self.pieces[clock] if since <= mono][-1]

    def _begins(self) -> list[tuple[int, Clock, int]]:
        """The begins of the later pieces of all clocks, in order."""
        found = []
        for clock, first in self.first_mono.items():
            last = max(row.mono for row in self._participants() if self._of(row) == clock)
            begin = first + 100 * self.grace
            while self.grace and begin <= last and clock not in self.timing:
                found.append((begin + clock.low - self.ahead[clock], clock, begin))
                begin += 100 * self.grace
        return sorted(found)

    def _compare_again(self, clock: Clock, begin: int) -> None:
        first, last = begin - self.bound - 3 * self.grace, begin - self.grace
        some = [
            (each.other not in self.timing, each.key, each)
            for each in self.sides
            if each.mine == clock != each.other
            and first <= each.mono <= last
            and self.group[each.other] == self.group[clock]
            and each.key[0] <= self.grace // 8
        ]
        if some:
            best = min(some, key=lambda each: each[:2])[2]
            ahead = self.at(best.other, best.other_mono) + best.ahead
            if abs(ahead - self.pieces[clock][-1][1]) > self.grace // 16:
                self.pieces[clock].append((begin, ahead))

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
            self.timing.add(begun[1])
            less = self.ahead[begun[1]]
            for clock in clocks:
                self.ahead[clock] -= less

    def written_ahead(self, name: str, written: int) -> int:
        """By how much the clock was ahead that gave the time of a commit."""
        ranges: dict[Clock, list[int]] = defaultdict(list)
        for stretch in self.stretches:
            if stretch[0].side in PUBLISHING and stretch[0].name == name:
                ranges[self._of(stretch[0])] += [each.wall for each in stretch]
        known = sorted((min(walls), max(walls), clock) for clock, walls in ranges.items())
        if not known:
            return 0
        until = [clock for _, high, clock in known if high >= written]
        clock = until[0] if until else known[-1][2]
        return self.at(clock, written - clock.low)

    def corrected(self) -> list[Row]:
        """All records, with the times of their groups."""
        names: dict[tuple[str, int], int] = {}
        found = []
        for rows in self.runs.values():
            of_store = self._store_ahead(rows)
            for row in rows:
                written = row.written
                if written > 0:
                    key = (row.cause or row.service, written)
                    if key not in names:
                        names[key] = self.written_ahead(*key)
                    written -= names[key]
                ahead = self.at(self._of(row), row.mono) if of_store is None else of_store
                found.append(msgspec.structs.replace(row, wall=row.wall - ahead, written=written))
        return found

    def _store_ahead(self, rows: Sequence[Row]) -> int | None:
        """By how much the clock of a run of the store is ahead, if only the database has compared it."""
        if rows[0].side != "store" or any(self._of(row) in self.first_mono for row in rows):
            return None
        for row in rows:
            if row.kind == "changelog" and row.peer == "database":
                return row.count + self.written_ahead(row.cause, row.wall - row.count)
        return None

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
