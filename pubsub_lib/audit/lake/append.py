"""Adds the results of an audit to a lake, and removes its oldest days."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path

import msgspec
import pyarrow as pa

from pubsub_lib.audit.lake.addition import Addition
from pubsub_lib.audit.lake.folder import About, Damaged, Lake, not_written
from pubsub_lib.audit.lake.merging import Outcome, merged
from pubsub_lib.audit.lake.tables import SCHEMAS, today
from pubsub_lib.errors import ConfigError


class Appended(msgspec.Struct, frozen=True):
    """The result of an append, as sentences: the number of windows, then ``notes`` about all that is not usual, and
    ``problems``, which make the evidence incomplete.
    """

    added: str
    notes: Sequence[str]
    problems: Sequence[str]


def append(folder: Path, addition: Addition, keep_days: int | None = None, now: date | None = None) -> Appended:
    """Add the results; a killed process leaves all of them or none. ``keep_days``: older days are removed, and not
    added; the number counts from ``now`` (default: today), or from the newest day if that is earlier.

    Blocks while another process appends. Raises ConfigError when the lake cannot be read or written.
    """
    lake = Lake(folder)
    days, outside = addition.by_day()
    problems = []
    if outside:
        problems.append(
            f"{_number(outside, 'window')} not added to {folder}: outside of the calendar, by a wrong clock"
        )
    try:
        with lake.locked(write=True):
            about = lake.about()
            first = _first(lake, days, keep_days, now or today())
            total, added = Outcome(), {}
            for day in days:
                if day >= first:
                    added[day], found = _merged(lake, day, days[day], about.window, problems)
                    total += found
            known = _known(about, added, first, not_added=len(days) - len(added))
            if added or known != about:
                lake.replace(known, added)
            removed = [day for day in lake.days() if day < first]
            for day in removed:
                lake.remove(day)
    except OSError as error:
        raise not_written(folder, error) from error
    notes = _notes(total)
    if removed:
        notes.append(f"{_number(len(removed), 'day')} before {first} removed from {folder} (--keep-days)")
    if len(added) < len(days):
        notes.append(f"{_number(len(days) - len(added), 'day')} before {first} not added to {folder} (--keep-days)")
    problems += [_foreign(folder, domain) for domain in sorted(total.foreign)]
    span = f" of {_span(added)}" if added else ""
    return Appended(f"{_number(total.added, 'window')}{span} added to {folder}", notes, problems)


def first_kept(folder: Path, days: Iterable[date], keep_days: int | None) -> date:
    """The oldest day that an append of these days keeps. Raises ConfigError when the lake cannot be read."""
    lake = Lake(folder)
    try:
        with lake.locked(write=False):
            return _first(lake, days, keep_days, today())
    except OSError as error:
        raise _not_read(folder, error) from error


def closed_windows(folder: Path, days: Iterable[date]) -> set[tuple[str, int]]:
    """Domain and begin of the closed windows in these days of a lake. Raises ConfigError when it cannot be read."""
    lake = Lake(folder)
    found: set[tuple[str, int]] = set()
    try:
        with lake.locked(write=False):
            for day in days:
                try:
                    rows = lake.read("window", day).to_pylist()
                except Damaged:
                    continue  # the append sets the file aside and reports it
                found |= {(row["domain"], row["window"]) for row in rows if row["closed"]}
    except OSError as error:
        raise _not_read(folder, error) from error
    return found


def _not_read(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{folder} cannot be read ({error.strerror or error}); check its permissions")


def _merged(
    lake: Lake, day: date, later: Mapping[str, pa.Table], window: int, problems: list[str]
) -> tuple[dict[str, pa.Table], Outcome]:
    earlier = {}
    for name in SCHEMAS:
        try:
            earlier[name] = lake.read(name, day)
        except Damaged as error:
            earlier[name] = SCHEMAS[name].empty_table()
            lake.set_aside(name, day)
            problems.append(f"{error}; it was renamed, and results of {day} are missing: audit its journals again")
    return merged(earlier, later, window)


def _first(lake: Lake, days: Iterable[date], keep_days: int | None, now: date) -> date:
    """The oldest day that is kept. Neither a wrong clock of this host nor one of a journal alone removes days."""
    newest = min(now, max([*lake.days(), *days], default=now))
    if keep_days is None or keep_days > newest.toordinal():
        return date.min
    return newest - timedelta(days=keep_days - 1)


def _known(about: About, added: Mapping[date, Mapping[str, pa.Table]], first: date, not_added: int) -> About:
    """The data of the lake with these days. ``not_added``: number of days before ``first``, which is kept."""
    domains = dict(about.domains)
    for day, tables in added.items():
        for domain in tables["coverage"]["domain"].unique().to_pylist():
            domains[domain] = min(domains.get(domain, str(day)), str(day))
    before = about.removed_before
    if not_added or any(begin < str(first) for begin in domains.values()):
        before = max(before, str(first))
    return msgspec.structs.replace(about, domains=domains, removed_before=before)


def _span(days: Collection[date]) -> str:
    first, last = min(days), max(days)
    return str(first) if first == last else f"{first} to {last}"


def _notes(total: Outcome) -> list[str]:
    notes = []
    if total.replaced:
        notes.append(f"{_number(total.replaced, 'window')} replaced: their results of an earlier audit do not count")
    if total.kept:
        why = (
            f"it read more records, the first of the run {total.lacking}"
            if total.lacking
            else "it had the store, and this one has not"
            if total.no_store
            else "they were closed, and are open in this audit"
        )
        notes.append(f"{_number(total.kept, 'window')} not replaced: the earlier audit counts, because {why}")
    return notes


def _foreign(folder: Path, domain: str) -> str:
    of = f" of {domain}" if domain else ""
    return (
        f"{folder} has results{of} from other journals for the same time, which were not replaced; give each database "
        "a domain of its own (net-1=FOLDER), and audit all journals of a database together"
    )


def _number(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
