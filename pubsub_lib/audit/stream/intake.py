"""What arrives in folders of journals, put where a stream reads it, whole and once (docs/audit.md, "Following").

Nothing here is decided by Spark: a file is looked at before Spark sees it, so that none can break the stream.
"""

import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote, unquote

import msgspec

from pubsub_lib.audit.ingest.input import as_parquet
from pubsub_lib.errors import JournalError
from pubsub_lib.journal.appending import OPEN_SUFFIX, claim
from pubsub_lib.journal.compaction import BAD_SUFFIX, PARQUET_SUFFIX
from pubsub_lib.journal.entries import parse
from pubsub_lib.journal.reading import unreadable

_HEAD: Final = 1 << 16
"""So much of a file that is being written is read: its header and first entry."""
_PART: Final = re.compile(r"(.+)-(\d{6})")
_Outcome = Literal["taken", "no journal", "gone", "unreadable", "no room"]
"""What became of a file that was to be taken in."""


class Begun(msgspec.Struct, frozen=True):
    """What the file of a run that is still being written says in its first bytes. ``wall``: of its first record."""

    side: str
    name: str
    host: str
    wall: int | None


class Coming(msgspec.Struct):
    """What of one run is not there yet: parts that are being written (``open``), and what one of them says."""

    open: set[int] = msgspec.field(default_factory=set)
    begun: Begun | None = None


class Look(msgspec.Struct, frozen=True):
    """One look at all folders. ``arrived``: how many files are new in the spool."""

    arrived: int
    coming: Mapping[str, Mapping[str, Coming]]
    """Per domain and run."""
    given_up: Mapping[str, frozenset[tuple[str, int]]]
    """Per domain: (run, part) that nobody can read any more."""
    problems: Sequence[str]


def run_and_part(stem: str) -> tuple[str, int]:
    """Of a file's name without its ending; part 0 when the name has none."""
    match = _PART.fullmatch(stem)
    return (match[1], int(match[2])) if match else (stem, 0)


def folder_of(domain: str) -> str:
    """The name of a folder for a domain, whatever characters that has."""
    return f"domain={quote(domain, safe='')}"


def domain_of(folder: str) -> str:
    """The domain of such a folder."""
    return unquote(folder.removeprefix("domain="))


class Intake:
    """Moves what is whole into the spool. Of one thread.

    ``patience`` (seconds): a part that is neither there nor being written is waited for so long,
    then it counts as lost.
    """

    def __init__(
        self,
        folders: Mapping[str, Sequence[Path]],
        spool: Path,
        patience: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folders = folders
        self._spool = spool
        self._patience = patience
        self._clock = clock
        self._bad: dict[Path, tuple[int, int]] = {}
        """Files that are no journals, by time of change and size: looked at again when these change."""
        self._refused: dict[Path, str] = {}
        """What was told of files that rights or a disk refused, neither of which changes them: tried at each look."""
        self._missed: dict[tuple[str, str, int], float] = {}
        """Since when a part is missed."""
        self._told: set[tuple[str, str, int]] = set()
        """Of which it was said that they do not come."""
        for domain in folders:
            (spool / folder_of(domain)).mkdir(parents=True, exist_ok=True)

    def look(self) -> Look:
        """List every folder and take in what is new. Blocks for the reading; what cannot be read becomes a sentence."""
        problems: list[str] = []
        coming: dict[str, dict[str, Coming]] = {}
        given_up: dict[str, frozenset[tuple[str, int]]] = {}
        arrived = 0
        for domain, places in self._folders.items():
            there = self._there(domain)
            before = len(there)
            of_domain: dict[str, Coming] = {}
            lost: set[tuple[str, int]] = set()
            for place in places:
                self._look_at(place, domain, there, of_domain, lost, problems)
            arrived += len(there) - before
            coming[domain] = of_domain
            given_up[domain] = frozenset(lost | self._overdue(domain, there, of_domain, lost, problems))
        return Look(arrived, coming, given_up, problems)

    def _there(self, domain: str) -> set[str]:
        return {each.stem for each in (self._spool / folder_of(domain)).glob(f"[!.]*{PARQUET_SUFFIX}")}

    def _look_at(
        self, place: Path, domain: str, there: set[str], coming: dict[str, Coming], lost: set[tuple[str, int]],
        problems: list[str],
    ) -> None:  # fmt: skip
        try:
            # What is being written first: a file that is rolled meanwhile is then seen in the one form or the other.
            opened = sorted(each for each in place.iterdir() if each.suffix == OPEN_SUFFIX)
            others = sorted(each for each in place.iterdir() if not each.name.startswith("."))
        except OSError as error:
            problems.append(f"the journals' folder {place} cannot be read ({error.strerror}); bring it back")
            return
        for path in others:
            if path.suffix == BAD_SUFFIX:
                lost.add(run_and_part(path.stem))
                self._tell(path, f"{path} was no journal when it was rolled; its records count as lost", problems)
            elif (
                path.suffix == PARQUET_SUFFIX
                and path.stem not in there
                and self._take(path, domain, there, problems) == "no room"
            ):
                run, part = run_and_part(path.stem)
                coming.setdefault(run, Coming()).open.add(part)
        for path in opened:
            if path.stem not in there:
                self._take_or_wait(path, domain, there, coming, lost, problems)

    def _take_or_wait(
        self, path: Path, domain: str, there: set[str], coming: dict[str, Coming], lost: set[tuple[str, int]],
        problems: list[str],
    ) -> None:  # fmt: skip
        try:
            fd = claim(path)
        except OSError as error:
            self._refuse(path, unreadable(path, error), problems)
            fd = None
        try:
            # Between its making and its lock a file is empty.
            if fd is not None and os.fstat(fd).st_size:
                outcome = self._take(path, domain, there, problems)
                if outcome == "no journal":  # and nobody writes it any more, so there is nothing to wait for
                    lost.add(run_and_part(path.stem))
                if outcome in ("taken", "no journal"):
                    return
        finally:
            if fd is not None:
                os.close(fd)
        run, part = run_and_part(path.stem)
        one = coming.setdefault(run, Coming())
        one.open.add(part)
        one.begun = one.begun or _begun(path)

    def _take(self, path: Path, domain: str, there: set[str], problems: list[str]) -> _Outcome:
        """Put it into the spool, if it is a journal. ``no room``: what hinders is the spool's disk."""
        try:
            state = path.stat()
            if self._bad.get(path) == (state.st_mtime_ns, state.st_size):
                return "no journal"
            target = self._spool / folder_of(domain) / f"{path.stem}{PARQUET_SUFFIX}"
            if as_parquet(path, target) == path:
                self._link(path, target)
        except JournalError as error:
            self._tell(path, str(error), problems)
            return "no journal"
        except FileNotFoundError:
            return "gone"  # it was rolled, or fell to retention: the next look shows which
        except OSError as error:
            if error.filename == str(path) and error.filename2 is None:  # two: of a copy, which any of both may refuse
                self._refuse(path, unreadable(path, error), problems)
                return "unreadable"
            why = error.strerror or error
            told = f"{path} cannot be put into {self._spool} ({why}); make room there, or correct the rights or disks"
            self._refuse(path, told, problems)
            return "no room"
        there.add(path.stem)
        self._bad.pop(path, None)
        self._refused.pop(path, None)
        return "taken"

    def _refuse(self, path: Path, sentence: str, problems: list[str]) -> None:
        """Once for each reason."""
        if self._refused.get(path) != sentence:
            self._refused[path] = sentence
            problems.append(sentence)

    def _tell(self, path: Path, sentence: str, problems: list[str]) -> None:
        """Once for each state of a file."""
        try:
            state = path.stat()
        except OSError:
            return
        if self._bad.get(path) != (state.st_mtime_ns, state.st_size):
            self._bad[path] = (state.st_mtime_ns, state.st_size)
            problems.append(sentence)

    @staticmethod
    def _link(source: Path, target: Path) -> None:
        """A second name costs no room, and retention in the source's folder does not take it away."""
        beside = target.with_name(f".{target.name}.new")
        beside.unlink(missing_ok=True)
        try:
            os.link(source, beside)
        except OSError:
            shutil.copyfile(source, beside)  # another file system
        beside.rename(target)

    def _overdue(
        self, domain: str, there: set[str], coming: Mapping[str, Coming], lost: set[tuple[str, int]],
        problems: list[str],
    ) -> set[tuple[str, int]]:  # fmt: skip
        """Parts that were waited for in vain."""
        parts: dict[str, set[int]] = {}
        for run, part in map(run_and_part, there):
            parts.setdefault(run, set()).add(part)
        overdue = set()
        now = self._clock()  # one for all: what is missed together is also told together
        for run, have in parts.items():
            opened = coming[run].open if run in coming else set()
            new = []
            for part in set(range(1, max(have | opened))) - have - opened:
                if (run, part) in lost:
                    continue
                since = self._missed.setdefault((domain, run, part), now)
                if now - since >= self._patience:
                    overdue.add((run, part))
                    if (domain, run, part) not in self._told:
                        self._told.add((domain, run, part))
                        new.append(part)
            problems += [_vain(run, first, last) for first, last in ranges(new)]
        return overdue


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """The first and the last of each run of successive numbers, in their order."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def _vain(run: str, first: int, last: int) -> str:
    if first == last:
        return f"part {first} of the run {run} does not come; its records count as lost"
    return f"parts {first} to {last} of the run {run} do not come; their records count as lost"


def _begun(path: Path) -> Begun | None:
    try:
        with path.open("rb") as file:
            contents = parse(file.read(_HEAD), path.name)
    except (OSError, JournalError):
        return None
    header = contents.header
    return Begun(header.side, header.name, header.host, contents.entries[0].wall if contents.entries else None)
