"""Ends of runs that were not read: what they may have shown is unknown (audit-verdicts.md, "Words", *Gap*)."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

_PART: Final = re.compile(r"(.+)-(\d{6})")


class ReadPart(msgspec.Struct, frozen=True):
    """A file of a run that was read: its part, 0 when its name has none, and the number of its last record."""

    run: str
    part: int
    last: int


def run_and_part(stem: str) -> tuple[str, int]:
    """The run and part in a file's name without its suffix; part 0 when the name has none."""
    match = _PART.fullmatch(stem)
    return (match[1], int(match[2])) if match else (stem, 0)


def parts_of(stem: str, ranges: Mapping[str, tuple[int, int]]) -> Iterator[ReadPart]:
    """What a file shows about its runs. ``ranges``: the lowest and the highest number of each. A name of another form
    than <run>-<part> does not show the part.
    """
    named, part = run_and_part(stem)
    for run, (_, last) in ranges.items():
        yield ReadPart(run, part if run == named else 0, last)


def ends_before(unread: Iterable[tuple[str, int]], read: Iterable[ReadPart]) -> list[tuple[str, int]]:
    """Run and number of the last record that was read before each part (run, part) that was not read. A run without an
    earlier part that was read has none: nothing is known about its participant.
    """
    parts: dict[str, list[ReadPart]] = {}
    for each in read:
        parts.setdefault(each.run, []).append(each)
    found = set()
    for run, part in unread:
        earlier = [each.last for each in parts.get(run, ()) if each.part < part]
        if earlier:
            found.add((run, max(earlier)))
    return sorted(found)
