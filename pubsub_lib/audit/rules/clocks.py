"""The clocks of a domain's hosts, and by how much each is ahead (audit-verdicts.md, "Clocks").

It computes with a few rows for each run, in the driver's process.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

STEP: Final = 100_000
"""A change of a run's wall clock against its monotonic clock by more than this (microseconds) is a step."""
PUBLISHING: Final = ("writer", "service")


class Stretch(msgspec.Struct, frozen=True):
    """The records of a run between two steps of its wall clock. ``number``: its first record; ``offset``: its least
    difference of wall and monotonic clock; the least and greatest wall and monotonic time.
    """

    run: str
    side: str
    name: str
    host: str
    number: int
    offset: int
    low: int
    high: int
    mono: int
    last_mono: int = 0

    @property
    def takes_part(self) -> bool:
        """Whether it is one of a participant, not of the store."""
        return self.side != "store"


class Clock(msgspec.Struct, frozen=True, order=True):
    """A host's wall clock between two steps; ``low``: the least offset of its stretches."""

    host: str
    low: int


class Sample(msgspec.Struct, frozen=True, order=True):
    """A hello request and its reply: ``one``, of the replica, was ``ahead`` of ``two``. The first columns give the
    order in which samples are used.
    """

    age: int
    run: str
    number: int
    reply_run: str
    reply_number: int
    ask_number: int
    one: Clock
    two: Clock
    ahead: int


def clocks_of(stretches: Iterable[Stretch]) -> dict[Stretch, Clock]:
    """The clock of each stretch: neighbouring offsets of one host, with differences up to ``STEP``, are one clock."""
    found: dict[Stretch, Clock] = {}
    by_host: dict[str, list[Stretch]] = defaultdict(list)
    for stretch in stretches:
        by_host[stretch.host].append(stretch)
    for host, of_host in by_host.items():
        of_host.sort(key=lambda each: each.offset)
        last = low = of_host[0].offset
        for stretch in of_host:
            low = stretch.offset if stretch.offset > last + STEP else low
            last = stretch.offset
            found[stretch] = Clock(host, low)
    return found


def first_monos(clocks: Mapping[Stretch, Clock]) -> dict[Clock, int]:
    """The least monotonic time of each clock of participants."""
    found: dict[Clock, int] = {}
    for stretch, clock in clocks.items():
        if stretch.takes_part:
            found[clock] = min(stretch.mono, found.get(clock, stretch.mono))
    return found


class Clocks:
    """By how much each clock is ahead of the time of its group: of the clocks that are compared with each other."""

    def __init__(self, clocks: Mapping[Stretch, Clock], samples: Iterable[Sample]) -> None:
        """``samples``: those that count."""
        self._clocks = clocks
        every = sorted(set(clocks.values()))
        self.group = {clock: number for number, clock in enumerate(every)}
        self.ahead = dict.fromkeys(every, 0)
        self._members = {number: [clock] for number, clock in enumerate(every)}
        edges = [(each.one, each.two, each.ahead) for each in sorted(samples)]
        for one, two, ahead in [*edges, *self._steps(), *self._of_hosts()]:
            self._join(one, two, ahead)
        for members in self._members.values():
            self._anchor(members)

    def _steps(self) -> list[tuple[Clock, Clock, int]]:
        """A step of a run's wall clock compares the clock after it with the one before it."""
        runs: dict[str, list[Stretch]] = defaultdict(list)
        for stretch in self._clocks:
            if stretch.takes_part:
                runs[stretch.run].append(stretch)
        steps = [
            (two.mono, run, two.number, self._clocks[two], self._clocks[one], two.offset - one.offset)
            for run, of_run in runs.items()
            for one, two in pairwise(sorted(of_run, key=lambda each: each.number))
        ]
        return [(one, two, ahead) for *_, one, two, ahead in sorted(steps)]

    def _of_hosts(self) -> list[tuple[Clock, Clock, int]]:
        """Clocks of one host that nothing else compares count as equal."""
        return [(two, one, 0) for one, two in pairwise(sorted(first_monos(self._clocks))) if one.host == two.host]

    def _join(self, one: Clock, two: Clock, ahead: int) -> None:
        mine, theirs = self.group[one], self.group[two]
        if mine == theirs:
            return
        more = self.ahead[two] + ahead - self.ahead[one]
        if len(self._members[mine]) > len(self._members[theirs]):
            mine, theirs, more = theirs, mine, -more
        for clock in self._members.pop(mine):
            self.group[clock] = theirs
            self.ahead[clock] += more
            self._members[theirs].append(clock)

    def _anchor(self, members: Sequence[Clock]) -> None:
        """The group has the time of the clock whose publishers began first."""
        own = set(members)
        there = [(each, clock) for each, clock in self._clocks.items() if clock in own and each.takes_part]
        there = [(each, clock) for each, clock in there if each.side in PUBLISHING] or there
        if there:
            _, first = min((each.low - self.ahead[clock], clock) for each, clock in there)
            less = self.ahead[first]
            for clock in members:
                self.ahead[clock] -= less

    def shifts(self) -> dict[str, list[tuple[int, int]]]:
        """Per run the first record of each stretch, and by how much the clock is ahead from there on, in order."""
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for stretch, clock in self._clocks.items():
            found[stretch.run].append((stretch.number, self.ahead[clock]))
        return {run: sorted(each) for run, each in found.items()}

    def of_names(self) -> dict[str, list[tuple[int, int]]]:
        """Per name of a publisher its clocks in the order of their times: the greatest wall of each, and by how much it
        is ahead. They give the times of commits.
        """
        ranges: dict[str, dict[Clock, list[int]]] = defaultdict(lambda: defaultdict(list))
        for stretch, clock in self._clocks.items():
            if stretch.side in PUBLISHING:
                ranges[stretch.name][clock] += [stretch.low, stretch.high]
        return {
            name: [
                (high, self.ahead[clock])
                for _, high, clock in sorted((min(walls), max(walls), clock) for clock, walls in of_name.items())
            ]
            for name, of_name in ranges.items()
        }

    def last_of_hosts(self) -> dict[str, Clock]:
        """The clock of each host's latest record, by the times of the groups."""
        latest: dict[str, tuple[int, Clock]] = {}
        for stretch, clock in self._clocks.items():
            if stretch.takes_part:
                at = (stretch.high - self.ahead[clock], clock)
                latest[stretch.host] = max(at, latest.get(stretch.host, at))
        return {host: clock for host, (_, clock) in latest.items()}
