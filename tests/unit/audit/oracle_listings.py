"""The listings of which the brute-force audit misses records (docs/contributing/audit-verdicts.md, "State")."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pubsub_lib.journal.rows import Row

if TYPE_CHECKING:
    from tests.unit.audit.oracle import Oracle


def lacking_listings(one: "Oracle") -> list[tuple[str, str]]:
    """Name and topic of listings of replicas of which records are missing, without a later complete one."""
    complete = one._listings("replica")
    found = set()
    for run, rows in one.runs.items():
        if rows[0].side != "replica":
            continue
        name = rows[0].name
        lacking = [(topic, sequence) for topic, sequence in _broken(rows)]
        lacking += [(topic, -1) for topic in _unlisted(one, run, rows)]
        for topic, sequence in lacking:
            place = (one.first_wall(run), run, sequence)
            end = complete[name, topic][0] if (name, topic) in complete else None
            if end is None or (one.first_wall(end.run), end.run, _number(end, one)) < place:
                found.add((name, topic))
    return sorted(found)


def _number(end: Row, one: "Oracle") -> int:
    """The number of a listing in its run; -1 of a topic that a replica of everything does not list."""
    return end.sequence if end in one.runs[end.run] else -1


def _broken(rows: list[Row]) -> list[tuple[str, int]]:
    """Topic and number of the listings without their end, or without one of their objects."""
    objects = Counter((row.topic, row.sequence) for row in rows if row.kind == "object")
    ends = {(row.topic, row.sequence): row.count for row in rows if row.kind == "listing"}
    return [each for each in {*objects, *ends} if ends.get(each) != objects[each]]


def _unlisted(one: "Oracle", run: str, rows: list[Row]) -> set[str]:
    """The topics that the run held and still followed, when it listed any, or may have lost all listings."""
    held = [row for row in rows if row.kind == "held" and (row.position > 0 or row.count > 0)]
    if not held:
        return set()
    last = rows[-1].number
    behind = any(lo >= held[-1].number and hi <= last for lo, _, hi, _ in one.gaps(run))
    if not behind and not any(row.kind in ("object", "listing") for row in rows):
        return set()
    changed = max((row.number for row in rows if row.kind in ("data", "sync_end")), default=0)
    ends = {row.topic: row for row in held}
    states = {row.topic: row.kind for row in rows if row.kind in ("interest", "drop")}
    return {
        topic
        for topic, end in ends.items()
        if end.number > changed
        if states.get(topic) == "interest" or (states.get("") == "interest" and end.count > 0)
    }


def contradicted_by_listings(rows: list[Row], gaps: Sequence[tuple[int, float, float, float]]) -> set[str]:
    """The topics of which a replica lists another number of objects than it had recorded at the same point."""
    found = set()
    for end in (row for row in rows if row.kind == "listing"):
        point = (end.topic, end.position, end.nonce)
        held = [
            row
            for row in rows
            if row.kind == "held" and (row.topic, row.position, row.nonce) == point and row.number < end.number
        ]
        if held and held[-1].count != end.count:
            last = held[-1].number
            found |= set() if any(lo >= last and hi <= end.number for lo, _, hi, _ in gaps) else {end.topic}
    return found
