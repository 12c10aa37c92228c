"""Takes each complete journal file once from its folder into the spool of the stream (docs/audit.md, "Following").

Every file is checked here before Spark reads it, so that a bad file cannot end the stream.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote, unquote

import msgspec

from pubsub_lib.audit.ingest.run_ends import run_and_part
from pubsub_lib.audit.ingest.source_file import as_parquet
from pubsub_lib.audit.stream.durable import make, rename, sync
from pubsub_lib.errors import JournalError
from pubsub_lib.journal.appending import OPEN_SUFFIX, claim
from pubsub_lib.journal.compaction import BAD_SUFFIX, PARQUET_SUFFIX
from pubsub_lib.journal.entries import parse
from pubsub_lib.journal.reading import unreadable

_HEAD: Final = 1 << 16
"""Maximum number of bytes read from a file that is still being written: they hold its header and first entry."""
_Outcome = Literal["taken", "invalid", "gone", "unreadable", "no room"]
"""The result of taking in a file."""


class Begun(msgspec.Struct, frozen=True):
    """The data in the first bytes of a file that is still being written. ``wall``, ``mono``: of its first record."""

    side: str
    name: str
    host: str
    wall: int | None
    mono: int | None = None


class Coming(msgspec.Struct):
    """The unfinished parts of one run: the numbers of those being written (``open``), and the begin of one of them."""

    open: set[int] = msgspec.field(default_factory=set)
    begun: Begun | None = None


class Look(msgspec.Struct, frozen=True):
    """The result of listing all folders once. ``arrived``: the number of new files in the spool."""

    arrived: int
    coming: Mapping[str, Mapping[str, Coming]]
    """Per domain and run."""
    given_up: Mapping[str, frozenset[tuple[str, int]]]
    """Per domain: each (run, part) that is lost."""
    problems: Sequence[str]


def folder_of(domain: str) -> str:
    """The name of the folder of a domain. The domain may have any characters."""
    return f"domain={quote(domain, safe='')}"


def domain_of(folder: str) -> str:
    """The domain of a folder that ``folder_of`` named."""
    return unquote(folder.removeprefix("domain="))


class Intake:
    """Puts complete files into the spool. Only one thread may use an intake.

    ``patience`` (seconds): a part that neither exists nor is being written counts as lost after this time.
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
        """Files that are not journals, with their time of change and size: checked again when these change."""
        self._refused: dict[Path, str] = {}
        """The last reported permission or I/O error of a file. Such a file is retried at each look, because it need not
        change before it can be read.
        """
        self._missing: dict[tuple[str, str, int], float] = {}
        """The time since which a part is missing."""
        self._reported: set[tuple[str, str, int]] = set()
        """Missing parts that were reported as lost."""
        for domain in folders:
            make(spool / folder_of(domain))

    def look(self) -> Look:
        """List every folder and take in the new files. Blocks while it reads them. Unreadable files become problems."""
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
            # Append files are listed first: a file that is rolled meanwhile is then in at least one of the two lists.
            opened = sorted(each for each in place.iterdir() if each.suffix == OPEN_SUFFIX)
            others = sorted(each for each in place.iterdir() if not each.name.startswith("."))
        except OSError as error:
            problems.append(f"the journals' folder {place} cannot be read ({error.strerror}); restore it")
            return
        for path in others:
            if path.suffix == BAD_SUFFIX:
                lost.add(run_and_part(path.stem))
                self._report(path, f"{path} was an invalid journal when it was rolled; its records are lost", problems)
            elif path.suffix == PARQUET_SUFFIX and path.stem not in there:
                outcome = self._take(path, domain, there, problems)
                run, part = run_and_part(path.stem)
                invalid = outcome == "invalid" and part > 0
                if outcome == "no room" or (invalid and self._may_change(path, domain)):
                    coming.setdefault(run, Coming()).open.add(part)
                elif invalid:
                    lost.add((run, part))
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
            # A file is empty until its writer has locked it.
            if fd is not None and os.fstat(fd).st_size:
                outcome = self._take(path, domain, there, problems)
                if outcome == "invalid":  # no process writes it any more, so waiting would not help
                    lost.add(run_and_part(path.stem))
                if outcome in ("taken", "invalid"):
                    return
        finally:
            if fd is not None:
                os.close(fd)
        run, part = run_and_part(path.stem)
        one = coming.setdefault(run, Coming())
        one.open.add(part)
        one.begun = one.begun or _begun(path)

    def _take(self, path: Path, domain: str, there: set[str], problems: list[str]) -> _Outcome:
        """Put a file into the spool if it is a journal. ``no room``: the spool cannot be written."""
        try:
            state = path.stat()
            if self._bad.get(path) == (state.st_mtime_ns, state.st_size):
                return "invalid"
            target = self._spool / folder_of(domain) / f"{path.stem}{PARQUET_SUFFIX}"
            if as_parquet(path, target) == path:
                self._link(path, target)
            sync(target.parent)
        except JournalError as error:
            self._report(path, str(error), problems)
            return "invalid"
        except FileNotFoundError:
            return "gone"  # rolled, or deleted by retention: the next look shows which
        except OSError as error:
            if error.filename == str(path) and error.filename2 is None:  # a copy has two names: either may be the cause
                self._refuse(path, unreadable(path, error), problems)
                return "unreadable"
            why = error.strerror or error
            sentence = f"{path} cannot be copied to {self._spool} ({why}); free disk space, or check permissions"
            self._refuse(path, sentence, problems)
            return "no room"
        there.add(path.stem)
        self._bad.pop(path, None)
        self._refused.pop(path, None)
        return "taken"

    def _may_change(self, path: Path, domain: str) -> bool:
        """Whether an invalid Parquet file may be in the middle of being copied: it was first seen, and last changed,
        not longer ago than the patience.
        """
        since = self._missing.setdefault((domain, *run_and_part(path.stem)), self._clock())
        try:
            unchanged = time.time() - path.stat().st_mtime
        except OSError:
            return False  # deleted meanwhile
        return self._clock() - since < self._patience and unchanged < self._patience

    def _refuse(self, path: Path, sentence: str, problems: list[str]) -> None:
        """Report a permission or I/O error of a file, once for each error."""
        if self._refused.get(path) != sentence:
            self._refused[path] = sentence
            problems.append(sentence)

    def _report(self, path: Path, sentence: str, problems: list[str]) -> None:
        """Report that a file is not a journal, once for each state of the file."""
        try:
            state = path.stat()
        except OSError:
            return
        if self._bad.get(path) != (state.st_mtime_ns, state.st_size):
            self._bad[path] = (state.st_mtime_ns, state.st_size)
            problems.append(sentence)

    @staticmethod
    def _link(source: Path, target: Path) -> None:
        """Link the file into the spool. A link needs no disk space, and retention of the source does not delete it."""
        beside = target.with_name(f".{target.name}.new")
        beside.unlink(missing_ok=True)
        try:
            os.link(source, beside)
        except OSError:
            shutil.copyfile(source, beside)  # another file system
        rename(beside, target)

    def _overdue(
        self, domain: str, there: set[str], coming: Mapping[str, Coming], lost: set[tuple[str, int]],
        problems: list[str],
    ) -> set[tuple[str, int]]:  # fmt: skip
        """The missing parts that were not found within the patience."""
        parts: dict[str, set[int]] = {}
        for run, part in map(run_and_part, there):
            parts.setdefault(run, set()).add(part)
        overdue = set()
        now = self._clock()  # one time for all, so that parts which go missing together are reported together
        for run, have in parts.items():
            opened = coming[run].open if run in coming else set()
            new = []
            for part in set(range(1, max(have | opened))) - have - opened:
                if (run, part) in lost:
                    continue
                since = self._missing.setdefault((domain, run, part), now)
                if now - since >= self._patience:
                    overdue.add((run, part))
                    if (domain, run, part) not in self._reported:
                        self._reported.add((domain, run, part))
                        new.append(part)
            problems += [_missing_parts(run, first, last) for first, last in ranges(new)]
        return overdue


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """The first and the last number of each range of successive numbers, in order."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def _missing_parts(run: str, first: int, last: int) -> str:
    if first == last:
        return f"part {first} of the run {run} is missing; its records count as lost"
    return f"parts {first} to {last} of the run {run} are missing; their records count as lost"


def _begun(path: Path) -> Begun | None:
    try:
        with path.open("rb") as file:
            contents = parse(file.read(_HEAD), path.name)
    except (OSError, JournalError):
        return None
    header = contents.header
    if not contents.entries:
        return Begun(header.side, header.name, header.host, None)
    first = contents.entries[0]
    return Begun(header.side, header.name, header.host, first.wall, first.mono)
