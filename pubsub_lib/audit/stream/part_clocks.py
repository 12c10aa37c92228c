"""The clocks of the journals that a follower has read, and the times of their parts by them (audit-verdicts.md,
"Clocks").
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pubsub_lib.audit.rules.clocks import (
    STEP,
    Clock,
    Clocks,
    Comparison,
    Sample,
    Stretch,
    clocks_of,
    first_monos,
    length_of,
    span_of,
)
from pubsub_lib.audit.settings import AuditSettings
from pubsub_lib.audit.stream.runs import Hello, JournalPart, Known, PartClocks, PartStretch

COLUMNS: Final = ("number", "kind", "wall", "mono", "peer", "uuid")


def read_clocks(path: Path) -> PartClocks:
    """The data of a Parquet file about its clock. Blocks while it reads some columns."""
    return clocks_in(pq.read_table(path, columns=list(COLUMNS), partitioning=None))


def clocks_in(rows: pa.Table) -> PartClocks:
    """The data of these records (columns ``COLUMNS``) about their clock."""
    rows = rows.sort_by("number").combine_chunks()
    walls, monos = rows["wall"].combine_chunks(), rows["mono"].combine_chunks()
    offsets = pc.subtract(walls, monos)
    steps = pc.greater(pc.abs(pc.pairwise_diff(offsets)), STEP).fill_null(False)
    begins = [0, *pc.indices_nonzero(steps).to_pylist(), rows.num_rows]
    stretches = [
        _stretch(rows.slice(begin, end - begin), offsets.slice(begin, end - begin)) for begin, end in pairwise(begins)
    ]
    compared = rows.filter(pc.and_(pc.is_in(rows["kind"], pa.array(["ask", "hello"])), pc.not_equal(rows["peer"], "")))
    hellos = [Hello(**{name: row[name] for name in COLUMNS}) for row in compared.to_pylist()]
    return PartClocks(offsets[0].as_py(), offsets[rows.num_rows - 1].as_py(), stretches, hellos)


def _stretch(rows: pa.Table, offsets: pa.Array) -> PartStretch:
    walls, monos = (pc.min_max(rows[name]).as_py() for name in ("wall", "mono"))
    mark = pc.max(rows.filter(pc.equal(rows["kind"], "mark"))["wall"]).as_py()
    offset = pc.min(offsets).as_py()
    return PartStretch(rows["number"][0].as_py(), offset, walls["min"], walls["max"], monos["min"], monos["max"], mark)


class _Timed(msgspec.Struct, frozen=True):
    """A sample with its round trip, and the monotonic times of the two hellos."""

    sample: Sample
    trip: int
    mono: int
    reply_mono: int

    @property
    def order(self) -> tuple[str, int, str, int, int]:
        """The order of samples that are equal otherwise."""
        one = self.sample
        return one.run, one.number, one.reply_run, one.reply_number, one.ask_number

    def sides(self) -> Iterator[tuple[Clock, int, Clock, int, int]]:
        """A clock, its monotonic time, the other clock, its monotonic time, and by how much the first one is ahead."""
        one, two = self.sample.one, self.sample.two
        yield one, self.mono, two, self.reply_mono, self.sample.ahead
        yield two, self.reply_mono, one, self.mono, -self.sample.ahead


class RightTimes(msgspec.Struct, frozen=True):
    """The runs by the times of their groups. ``undecided``: a run whose next records may compare a clock that nothing
    has compared so far; "": none.
    """

    runs: Mapping[str, Known]
    undecided: str


def with_right_times(runs: Mapping[str, Known], settings: AuditSettings) -> RightTimes:
    """Correct the times of the runs, as the audit of their parts does."""
    clocks = _RunClocks(runs, settings)
    return RightTimes({run: clocks.corrected(run, each) for run, each in runs.items()}, clocks.undecided())


class _RunClocks:
    def __init__(self, runs: Mapping[str, Known], settings: AuditSettings) -> None:
        self._runs, self._settings = runs, settings
        self._stretches = {run: _chained(run, each) for run, each in runs.items()}
        self._clocks = clocks_of(stretch for each in self._stretches.values() for stretch in each)
        self._since = first_monos(self._clocks)
        every = list(self._samples())
        samples = [each.sample for each in every]
        self._compared = {clock for each in samples for clock in (each.one, each.two)}
        self._found = Clocks(self._clocks, [each for each in samples if each.age <= settings.reach])
        self._compare_again(every)

    def _at(self, run: str, number: int) -> Clock:
        """The clock of a record."""
        return self._clocks[[each for each in self._stretches[run] if each.number <= number][-1]]

    def _hellos(self) -> Iterator[tuple[str, str, Hello]]:
        for run, each in self._runs.items():
            for part in each.parts:
                for hello in part.clocks.hellos if part.clocks else ():
                    yield run, each.who[0], hello

    def _compare_again(self, every: Sequence["_Timed"]) -> None:
        """Correct the drift of the clocks."""
        begins, span = self._found.begins(length_of(self._settings)), span_of(self._settings)
        of_clocks: dict[Clock, list[int]] = defaultdict(list)
        for clock, begin in begins:
            of_clocks[clock].append(begin)
        best: dict[tuple[Clock, int], Comparison] = {}
        for each in every if begins else ():
            if each.trip > span.trip or self._found.group[each.sample.one] != self._found.group[each.sample.two]:
                continue
            for mine, mono, other, other_mono, ahead in each.sides():
                for begin in of_clocks[mine]:
                    if begin - span.since <= mono <= begin - span.until:
                        drifts = other not in self._found.timing
                        one = Comparison(drifts, each.trip, each.order, mine, begin, other, other_mono, ahead)
                        best[mine, begin] = min(one, best.get((mine, begin), one))
        self._found.compare_again(begins, best.values(), span.least)

    def _samples(self) -> Iterator["_Timed"]:
        requests: dict[tuple[str, str], list[Hello]] = defaultdict(list)
        replies: dict[tuple[str, str], list[tuple[str, Hello]]] = defaultdict(list)
        for run, side, hello in self._hellos():
            if hello.kind == "ask":
                requests[run, hello.peer].append(hello)
            elif side != "replica":
                replies[hello.peer, hello.uuid].append((run, hello))
        for run, side, back in self._hellos():
            if back.kind != "hello" or side != "replica":
                continue
            one = self._at(run, back.number)
            for of_reply, reply in replies.get((back.peer, back.uuid), ()):
                two = self._at(of_reply, reply.number)
                if one.host == two.host:
                    continue
                age = min(back.mono - self._since[one], reply.mono - self._since[two])
                for ask in requests.get((run, back.peer), ()):
                    if self._at(run, ask.number) == one:
                        ahead = (ask.wall + back.wall) // 2 - reply.wall
                        sample = Sample(age, run, back.number, of_reply, reply.number, ask.number, one, two, ahead)
                        yield _Timed(sample, back.wall - ask.wall, back.mono, reply.mono)

    def corrected(self, run: str, known: Known) -> Known:
        """The run with the times of its group."""
        parts = [self._part(run, part) for part in known.parts]
        first = known.first_wall
        if parts:
            first = min(part.first_wall for part in parts)
        elif first is not None and known.first_mono is not None:
            first = self._begun(known.who[2], first, first - known.first_mono)
        return msgspec.structs.replace(known, parts=parts, first_wall=first)

    def _begun(self, host: str, wall: int, offset: int) -> int | None:
        """The first wall of a run without a part, by its group; null when its clock is not known."""
        for stretch, clock in self._clocks.items():
            if stretch.host == host and abs(stretch.offset - offset) <= STEP:
                return wall - self._found.at(clock, wall - offset)
        return None if self._clocks else wall

    def _part(self, run: str, part: JournalPart) -> JournalPart:
        if part.clocks is None:
            return part
        of_part = [(each, self._at(run, each.number)) for each in part.clocks.stretches]
        marked = [(each.mark, each.offset, clock) for each, clock in of_part if each.mark is not None]
        marks = [mark - self._found.at(clock, mark - offset) for mark, offset, clock in marked]
        return msgspec.structs.replace(
            part,
            first_wall=min(low for each, clock in of_part for low in self._walls(each, clock, each.low, after=0)),
            last_wall=max(high for each, clock in of_part for high in self._walls(each, clock, each.high, after=-1)),
            last_mark=max(marks, default=None),
        )

    def _walls(self, stretch: PartStretch, clock: Clock, wall: int, *, after: int) -> Iterator[int]:
        """The right times of the first (``after`` is 0) or last (-1) record of a stretch, and of each begin or end of a
        piece of its clock in it.
        """
        yield wall - self._found.at(clock, stretch.last_mono if after else stretch.mono)
        for since, _ in self._found.pieces(clock):
            if since is not None and stretch.mono < since <= stretch.last_mono:
                yield since + after + stretch.offset - self._found.at(clock, since + after)

    def _reached(self, run: str) -> float:
        """The monotonic time until which a run is known."""
        return max((each.last_mono for each in self._stretches[run]), default=-math.inf)

    def undecided(self) -> str:
        """See :class:`RightTimes`."""
        if len(self._since) == 1:
            return ""
        coming = {(run, each.who[2]) for run, each in self._runs.items() if each.more}
        for clock in sorted(self._since.keys() - self._compared):
            mine = [stretch for stretch, of in self._clocks.items() if of == clock and stretch.takes_part]
            until = self._since[clock] + self._settings.reach
            runs = {each.run for each in mine}
            if own := sorted(run for run, host in coming if host == clock.host and self._reached(run) <= until):
                return own[0]
            asked = any(
                run in runs and hello.kind == "hello" and hello.mono <= until and self._at(run, hello.number) == clock
                for run, _, hello in self._hellos()
            )
            if asked and (others := sorted(run for run, host in coming if host != clock.host)):
                return others[0]
        return ""


def _chained(run: str, known: Known) -> Sequence[Stretch]:
    """The stretches of a run; one may be longer than a part."""
    found: list[Stretch] = []
    last: int | None = None
    for part in known.parts:
        if part.clocks is None:
            continue
        for place, each in enumerate(part.clocks.stretches):
            goes_on = place == 0 and last is not None and abs(part.clocks.first_offset - last) <= STEP
            new = Stretch(run, *known.who, each.number, each.offset, each.low, each.high, each.mono, each.last_mono)
            if goes_on:
                found[-1] = _joined(found[-1], new)
            else:
                found.append(new)
        last = part.clocks.last_offset
    return found


def _joined(one: Stretch, two: Stretch) -> Stretch:
    return msgspec.structs.replace(
        one,
        offset=min(one.offset, two.offset),
        low=min(one.low, two.low),
        high=max(one.high, two.high),
        mono=min(one.mono, two.mono),
        last_mono=max(one.last_mono, two.last_mono),
    )


def every_part(runs: Iterable[Known], parts: Iterable[JournalPart]) -> list[JournalPart]:
    """These parts, with the right times of those that are known."""
    right = {part.stem: part for each in runs for part in each.parts}
    return [right.get(part.stem, part) for part in parts]
