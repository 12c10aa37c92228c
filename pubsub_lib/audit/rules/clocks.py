"""The clocks of a domain's hosts, and by how much each is ahead (audit-verdicts.md, "Clocks").

It computes with a few rows for each run, in the driver's process.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from pubsub_lib.audit.settings import AuditSettings

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


class Comparison(msgspec.Struct, frozen=True, order=True):
    """A hello request and its reply, from one of the two sides: ``mine`` was ``ahead`` of ``other``, whose record has
    the monotonic time ``other_mono``. The first columns give the order of preference. ``other_drifts``: the other clock
    does not give the time of its group.
    """

    other_drifts: bool
    trip: int
    order: tuple[str, int, str, int, int]
    mine: Clock
    begin: int
    """The monotonic time of the piece that is compared again."""
    other: Clock
    other_mono: int
    ahead: int


class Span(msgspec.Struct, frozen=True):
    """The comparisons that count for a later piece of a clock: monotonic times before its begin, the longest round
    trip, and the greatest difference that does not count.
    """

    since: int
    until: int
    trip: int
    least: int


def span_of(settings: AuditSettings) -> Span:
    """The comparisons that count with these settings."""
    grace = settings.grace
    return Span(settings.bound + 3 * grace, grace, grace // 8, grace // 16)


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


def length_of(settings: AuditSettings) -> int:
    """The length of a piece of a clock; 0: clocks are not compared again."""
    return 100 * settings.grace


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
        self.timing: set[Clock] = set()
        """The clocks that give the times of their groups."""
        self._pieces: dict[Clock, list[tuple[int, int]]] = defaultdict(list)
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
            self.timing.add(first)
            less = self.ahead[first]
            for clock in members:
                self.ahead[clock] -= less

    def begins(self, length: int) -> list[tuple[Clock, int]]:
        """The monotonic times at which clocks are compared again, in order: each ``length`` after their begins."""
        last: dict[Clock, int] = {}
        for stretch, clock in self._clocks.items():
            if stretch.takes_part and clock not in self.timing:
                last[clock] = max(stretch.last_mono, last.get(clock, 0))
        since = first_monos(self._clocks)
        some = [
            (begin + clock.low - self.ahead[clock], clock, begin)
            for clock, until in last.items()
            for begin in (range(since[clock] + length, until + 1, length) if length else ())
        ]
        return [(clock, begin) for _, clock, begin in sorted(some)]

    def compare_again(self, begins: Iterable[tuple[Clock, int]], best: Iterable[Comparison], least: int) -> None:
        """Correct the later pieces of clocks. ``best``: of each piece the preferred comparison; ``least``: differences
        up to this one do not count.
        """
        known = {(each.mine, each.begin): each for each in best}
        for clock, begin in begins:
            one = known.get((clock, begin))
            if one is not None:
                ahead = self.at(one.other, one.other_mono) + one.ahead
                if abs(ahead - self.at(clock, begin)) > least:
                    self._pieces[clock].append((begin, ahead))

    def at(self, clock: Clock, mono: int) -> int:
        """By how much a clock is ahead at a monotonic time, as far as it is known."""
        return next((ahead for since, ahead in reversed(self._pieces[clock]) if since <= mono), self.ahead[clock])

    def pieces(self, clock: Clock) -> list[tuple[int | None, int]]:
        """The monotonic times (null: any) from which on a clock is ahead by so much, in order."""
        return [(None, self.ahead[clock]), *self._pieces[clock]]

    def shifts(self) -> dict[str, list[tuple[int, int | None, int]]]:
        """Per run the first record of each stretch, the monotonic time (null: any) of each piece of its clock, and by
        how much the clock is ahead from there on, in order.
        """
        found: dict[str, list[tuple[int, int | None, int]]] = defaultdict(list)
        for stretch, clock in sorted(self._clocks.items(), key=lambda each: each[0].number):
            found[stretch.run] += [(stretch.number, since, ahead) for since, ahead in self.pieces(clock)]
        return found

    def of_names(self) -> dict[str, list[tuple[int, int]]]:
        """Per name of a publisher the pieces of its clocks in the order of their times: the greatest wall of each, and
        by how much it is ahead. They give the times of commits.
        """
        ranges: dict[str, dict[Clock, list[int]]] = defaultdict(lambda: defaultdict(list))
        for stretch, clock in self._clocks.items():
            if stretch.side in PUBLISHING:
                ranges[stretch.name][clock] += [stretch.low, stretch.high]
        found: dict[str, list[tuple[int, int]]] = {}
        for name, of_name in ranges.items():
            ordered = sorted((min(walls), max(walls), clock) for clock, walls in of_name.items())
            found[name] = []
            for _, high, clock in ordered:
                known = self.pieces(clock)
                for (_, ahead), (until, _) in pairwise(known):
                    wall = (until or 0) - 1 + clock.low
                    # No other clock follows the last one.
                    found[name].append((wall if clock == ordered[-1][2] else min(high, wall), ahead))
                found[name].append((high, known[-1][1]))
        return found

    def last_of_hosts(self) -> dict[str, Clock]:
        """The clock of each host's latest record, by the times of the groups."""
        latest: dict[str, tuple[int, Clock]] = {}
        for stretch, clock in self._clocks.items():
            if stretch.takes_part:
                at = (stretch.high - self.ahead[clock], clock)
                latest[stretch.host] = max(at, latest.get(stretch.host, at))
        return {host: clock for host, (_, clock) in latest.items()}
