"""Computes until when each run is known, and which windows are closed then (docs/audit.md, "Following")."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set

import msgspec

from pubsub_lib.audit.settings import PARTICIPANTS, AuditSettings
from pubsub_lib.audit.stream.intake import Coming
from pubsub_lib.audit.stream.part_numbers import NumberedFile, part_numbers
from pubsub_lib.audit.stream.spool import taken_of


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """A hello request or its reply."""

    number: int
    kind: str
    wall: int
    mono: int
    peer: str
    uuid: str


class PartStretch(msgspec.Struct, frozen=True, array_like=True):
    """The records of a part between two steps of the wall clock: see :class:`~pubsub_lib.audit.rules.clocks.Stretch`.
    ``mark``: the greatest wall of its marks.
    """

    number: int
    offset: int
    low: int
    high: int
    mono: int
    last_mono: int
    mark: int | None


class PartClocks(msgspec.Struct, frozen=True):
    """The data of a part about its clock. ``first_offset`` and ``last_offset``: the difference of wall and monotonic
    clock in its first and last record.
    """

    first_offset: int
    last_offset: int
    stretches: Sequence[PartStretch]
    hellos: Sequence[Hello]


class JournalPart(msgspec.Struct, frozen=True):
    """The data of one journal file about its run. ``number``: that of the part; 0 when the file name has none."""

    stem: str
    run: str
    number: int
    side: str
    name: str
    host: str
    whole: bool
    """Whether the number of records that were read equals the number in the file's metadata."""
    first: int
    """The number of its first record."""
    first_wall: int
    last_wall: int
    last_mark: int | None
    closed: bool
    last: int = 0
    """The number of its last record; 0 in a checkpoint of an earlier version."""
    torn: str = ""
    """The problem of records that are missing at its end."""
    clocks: PartClocks | None = None
    """Null in a checkpoint of an earlier version, and when the file was not read whole."""


class Known(msgspec.Struct, frozen=True):
    """One run: the parts up to the first missing part, and whether more parts are expected (``more``)."""

    who: tuple[str, str, str]
    parts: Sequence[JournalPart]
    more: bool
    first_wall: int | None
    """The wall of its first record; null when no record is known."""
    first_mono: int | None = None
    """The monotonic time of its first record, when that is known from an unfinished file alone."""

    @property
    def closed(self) -> bool:
        """Whether the run ended in order."""
        return any(each.closed for each in self.parts)

    @property
    def last_wall(self) -> int | None:
        """The last wall in the known parts."""
        return max((each.last_wall for each in self.parts), default=self.first_wall)


class Frontier(msgspec.Struct, frozen=True):
    """The time until which all records of a domain are known. ``until`` null: no limit, because every run is over or
    expired. ``of``: the run that limits the time. ``without_participants``: the domain has no participant.
    """

    until: int | None = None
    of: str = ""
    without_participants: bool = False


def known(
    parts: Iterable[JournalPart], coming: Mapping[str, Coming], given_up: Set[tuple[str, int]]
) -> dict[str, Known]:
    """Every run of a domain, also runs that have only an unfinished file."""
    by_run: dict[str, list[JournalPart]] = defaultdict(list)
    for part in parts:
        by_run[part.run].append(part)
    found = {}
    for run in by_run.keys() | coming.keys():
        opened = coming[run].open if run in coming else set()
        have = sorted(_numbered(by_run.get(run, ()), opened), key=lambda each: (each.number, each.first))
        numbers = {each.number for each in have if each.number}
        missing = set(range(1, max(numbers | opened, default=0) + 1)) - numbers
        missing -= {number for of, number in given_up if of == run}
        limit = min(missing | opened, default=None)
        whole = [each for each in have if limit is None or each.number < limit]
        begun = coming[run].begun if run in coming else None
        first_mono = None
        if whole:
            who = (whole[0].side, whole[0].name, whole[0].host)
            first_wall: int | None = min(each.first_wall for each in whole)
        elif begun is not None and limit == 1:
            who, first_wall = (begun.side, begun.name, begun.host), begun.wall
            first_mono = begun.mono
        else:
            who, first_wall = (have[0].side, have[0].name, have[0].host) if have else ("", "", ""), None
        found[run] = Known(who, whole, limit is not None, first_wall, first_mono)
    return found


def _numbered(parts: Sequence[JournalPart], opened: Set[int]) -> Sequence[JournalPart]:
    """The parts, those of renamed files with the numbers that their records show."""
    if all(each.number for each in parts):
        return parts
    files = [NumberedFile(each.stem, each.number, each.first, max(each.first, each.last)) for each in parts]
    numbers = part_numbers(files, opened)
    return [msgspec.structs.replace(each, number=numbers[taken_of(each.stem)[0]]) for each in parts]


def without_copies(parts: Iterable[JournalPart]) -> tuple[list[JournalPart], list[str]]:
    """The parts without those of files that are copies of others under another name, which begin with the same record,
    and the problems. The longer one of such files counts.
    """
    begins: dict[tuple[str, int], str] = {}
    copies: dict[str, str] = {}
    every = sorted(parts, key=lambda each: each.stem)
    for part in sorted(every, key=lambda each: -each.last):
        stem, _ = taken_of(part.stem)
        kept = begins.setdefault((part.run, part.first), stem)
        if kept != stem:
            copies[stem] = kept
    problems = [
        f"{stem} is a copy of {kept} under another name and ignored; remove one of them"
        for stem, kept in sorted(copies.items())
    ]
    return [each for each in every if taken_of(each.stem)[0] not in copies], problems


def copied_again(parts: Iterable[JournalPart], coming: Mapping[str, Coming]) -> set[str]:
    """The runs whose unfinished files are all of parts that have been read from other files."""
    there = {(each.run, each.number) for each in parts}
    return {run for run, each in coming.items() if all((run, number) in there for number in each.open)}


def participants(
    parts: Mapping[str, Iterable[JournalPart]], coming: Mapping[str, Mapping[str, Coming]]
) -> set[tuple[str, str]]:
    """Side and name of each participant of which a record is known, also from an unfinished file."""
    begun = [each.begun for of_domain in coming.values() for each in of_domain.values()]
    found = {(each.side, each.name) for each in begun if each is not None and each.wall is not None}
    return found | {(part.side, part.name) for of_domain in parts.values() for part in of_domain}


def frontier(runs: Mapping[str, Known], settings: AuditSettings) -> Frontier:
    """The earliest time until which any run that is neither over nor expired is known, by its marks."""
    taking_part = _taking_part(runs)
    if not any(each.parts for each in taking_part.values()):
        return Frontier(without_participants=True)
    ended = expired(runs, settings)
    held = []
    for run, each in taking_part.items():
        if each.closed or run in ended or _followed(run, each, taking_part, settings):
            continue
        marks = [part.last_mark for part in each.parts if part.last_mark is not None]
        until = max(marks) if marks else each.first_wall
        held.append((-(2**62) if until is None else until, run))
    return Frontier(*min(held)) if held else Frontier()


def expired(runs: Mapping[str, Known], settings: AuditSettings) -> dict[str, Known]:
    """The runs that wrote nothing for longer than the silence, and did not end (audit-verdicts.md, "Words"). A run of
    which more parts are expected has not expired.
    """
    taking_part = _taking_part(runs)
    latest = max((part.last_wall for each in taking_part.values() for part in each.parts), default=0)
    found = {}
    for run, each in taking_part.items():
        if each.last_wall is None or each.closed or each.more or not each.parts:
            continue
        until = each.last_wall + settings.silence
        if latest > until and all(begin > until for begin, _ in _later(run, each, taking_part, settings)):
            found[run] = each
    return found


def followed(run: str, runs: Mapping[str, Known], settings: AuditSettings) -> bool:
    """Whether a successor of the run is known."""
    return _followed(run, runs[run], _taking_part(runs), settings)


def _taking_part(runs: Mapping[str, Known]) -> dict[str, Known]:
    return {run: each for run, each in runs.items() if not each.who[0] or each.who[0] in PARTICIPANTS}


def _followed(run: str, one: Known, runs: Mapping[str, Known], settings: AuditSettings) -> bool:
    """Whether no more parts of the run are expected, and another run took its place, of which a part has arrived."""
    return not one.more and any(arrived for _, arrived in _later(run, one, runs, settings))


def _later(run: str, one: Known, runs: Mapping[str, Known], settings: AuditSettings) -> list[tuple[int, bool]]:
    """The runs that may have taken the place of this one (audit-verdicts.md, "Successor"): the first wall of each, and
    whether a part of it has arrived.
    """
    if one.last_wall is None or one.first_wall is None:
        return []
    replica = one.who[0] == "replica"
    after = max(one.first_wall, one.last_wall - settings.grace) if replica else one.last_wall
    return [
        (each.first_wall, bool(each.parts))
        for other, each in runs.items()
        if other != run
        and (each.who[:2] == one.who[:2] if replica else each.who == one.who)
        and each.first_wall is not None
        and each.first_wall > after
    ]


def closed_before(frontier: Frontier, now: int, settings: AuditSettings) -> int | None:
    """The end of the last closed window, for a follower with the time ``now``; null: no window is closed.

    When every run is over or expired, the clock limits the result, because a new run may still begin.
    """
    if frontier.without_participants:
        return None
    until = (now if frontier.until is None else frontier.until) - settings.reach
    return until - until % settings.window if until >= settings.window else None


def horizon(end: int, settings: AuditSettings) -> int:
    """The time after which no evidence counts for a window that ends at ``end``."""
    return end + settings.reach


def too_late(part: JournalPart, end: int | None, settings: AuditSettings) -> bool:
    """Whether a new file has records that belong to closed windows."""
    return end is not None and part.side in PARTICIPANTS and part.first_wall < horizon(end, settings)
