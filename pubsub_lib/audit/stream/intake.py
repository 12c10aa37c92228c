"""Takes each record of the journals once from their folders into the spool (docs/audit.md, "Following").

Every file is checked here before Spark reads it, so that a bad file cannot end the stream. A file that is being copied
is waited for until it is whole or does not grow for the patience.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from pubsub_lib.audit.ingest.run_ends import run_and_part
from pubsub_lib.audit.ingest.source_file import check_name, may_begin
from pubsub_lib.audit.stream.growth import Growth, State, keep_only, state_of
from pubsub_lib.audit.stream.missing_parts import MissingParts
from pubsub_lib.audit.stream.part_numbers import SpooledParts
from pubsub_lib.audit.stream.spool import WHOLE, Spool, folder_of, has_seal
from pubsub_lib.errors import JournalError
from pubsub_lib.journal.appending import OPEN_SUFFIX, claim
from pubsub_lib.journal.compaction import BAD_SUFFIX, PARQUET_SUFFIX
from pubsub_lib.journal.entries import parse
from pubsub_lib.journal.parquet_metadata import empty_problem, unsealed_problem
from pubsub_lib.journal.reading import unreadable

_HEAD: Final = 1 << 16
"""Maximum number of bytes read from a file that is still being written: they hold its header and first entry."""
_GROWTH: Final = "growing.json"
_MISSING: Final = "missing.json"
_Outcome = Literal["taken", "growing", "invalid", "gone", "unreadable", "no room"]
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
    young: Sequence[Path] = ()
    """Invalid files that may be in the middle of being copied."""


class Intake:
    """Puts complete files into the spool. Only one thread may use an intake.

    ``patience`` (seconds): a part that neither exists nor is being written counts as lost after this time, and a file
    that does not grow for this time is not being copied (growth.py). What is known of that is kept beside the spool.
    """

    def __init__(
        self,
        folders: Mapping[str, Sequence[Path]],
        spool: Path,
        patience: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folders = folders
        self._root = spool
        self._spool = Spool(spool, folders)
        self._parts = {domain: SpooledParts(spool / folder_of(domain)) for domain in folders}
        self._patience = patience
        self._clock = clock
        self._bad: dict[Path, State] = {}
        """Files that are not journals: checked again when their state changes."""
        self._done: dict[Path, State] = {}
        """Files of which all is taken."""
        self._growth = Growth(spool.parent / _GROWTH, patience, clock)
        self._missing = MissingParts(spool.parent / _MISSING, patience, clock)
        self._refused: dict[Path, str] = {}
        """The last reported permission or I/O error of a file, which is retried at each look: it need not change."""
        self._young: list[Path] = []
        """Those of the present look: see :class:`Look`."""
        self._unsealed: list[Path] = []
        """The files without a checksum that were taken in the present look."""

    def look(self) -> Look:
        """List every folder and take in the new files. Blocks while it reads them. Unreadable files become problems.
        Raises OSError when the spool cannot be read.
        """
        problems: list[str] = []
        self._young, self._unsealed = [], []
        coming: dict[str, dict[str, Coming]] = {}
        given_up: dict[str, frozenset[tuple[str, int]]] = {}
        arrived = 0
        for domain, places in self._folders.items():
            there = self._spool.taken(domain)
            before = there.copy()
            of_domain: dict[str, Coming] = {}
            lost: set[tuple[str, int]] = set()
            for place in places:
                self._look_at(place, domain, there, of_domain, lost, problems)
            arrived += len(there.items() - before.items())
            coming[domain] = of_domain
            opened = {run: each.open for run, each in of_domain.items()}
            parts = self._parts[domain].parts(there, opened)
            given_up[domain] = frozenset(lost | self._missing.overdue(domain, parts, opened, lost, problems))
        problems += [unsealed_problem(self._unsealed)] if self._unsealed else []
        # The name of a file may hold any bytes; a problem must be valid text.
        sentences = [each.encode(errors="backslashreplace").decode() for each in problems]
        return Look(arrived, coming, given_up, sentences, tuple(self._young))

    def save(self) -> None:
        """Keep on the disk which files may be growing, and which parts are missing. Raises OSError."""
        self._growth.save()
        self._missing.save()

    def _look_at(
        self, place: Path, domain: str, there: dict[str, float], coming: dict[str, Coming], lost: set[tuple[str, int]],
        problems: list[str],
    ) -> None:  # fmt: skip
        try:
            # Append files are listed first: a file that is rolled meanwhile is then in at least one of the two lists.
            opened = sorted(each for each in _visible(place) if each.suffix == OPEN_SUFFIX)
            others = sorted(_visible(place))
        except OSError as error:
            problems.append(f"the journals' folder {place} cannot be read ({error.strerror}); restore it")
            return
        present = {*opened, *others}
        self._growth.keep_only(place, present)
        for known in (self._done, self._bad, self._refused):
            keep_only(known, place, present)
        for path in others:
            if path.suffix == BAD_SUFFIX:
                lost.add(run_and_part(path.stem))
                self._report(path, f"{path} was an invalid journal when it was rolled; its records are lost", problems)
            elif path.suffix == PARQUET_SUFFIX and there.get(path.stem) != WHOLE:
                outcome = self._take(path, domain, there, problems)
                run, part = run_and_part(path.stem)
                if outcome in ("no room", "growing"):
                    coming.setdefault(run, Coming()).open.add(part)
                elif part and outcome == "invalid":
                    lost.add((run, part))
        for path in opened:
            if there.get(path.stem) != WHOLE and not self._is_done(path):
                self._take_or_wait(path, domain, there, coming, lost, problems)

    def _take_or_wait(
        self, path: Path, domain: str, there: dict[str, float], coming: dict[str, Coming], lost: set[tuple[str, int]],
        problems: list[str],
    ) -> None:  # fmt: skip
        try:
            fd = claim(path)
        except OSError as error:
            self._refuse(path, unreadable(path, error), problems)
            fd = None
        try:
            if fd is not None and not self._begins(os.fstat(fd)):
                outcome = self._take(path, domain, there, problems)
                if outcome == "invalid":  # no process writes or copies it any more, so waiting would not help
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

    def _begins(self, about: os.stat_result) -> bool:
        """Whether a process may be about to lock the file. Until then it is empty."""
        return not about.st_size and (may_begin(about) or not self._growth.is_old(about))

    def _is_done(self, path: Path) -> bool:
        try:
            return self._done.get(path) == state_of(path.stat())
        except OSError:
            return False  # reported, when it is read

    def _take(self, path: Path, domain: str, there: dict[str, float], problems: list[str]) -> _Outcome:
        """Put into the spool what it has not yet of a file. ``growing``: the file may be in the middle of being copied.
        ``no room``: the spool cannot be written.
        """
        quiet = False
        try:
            about = path.stat()
            state = state_of(about)
            if self._done.get(path) == state:
                return "taken"
            if self._bad.get(path) == state:
                return "invalid"
            quiet = self._growth.is_old(about)
            check_name(path)
            if not about.st_size and path.suffix == OPEN_SUFFIX:
                raise JournalError(empty_problem(path, begun=False))
            if not quiet:
                seen = self._growth.look(path, about)
                quiet = self._growth.is_quiet(seen)
                if path.suffix == OPEN_SUFFIX:
                    if 0 <= seen.reach[0] <= there.get(path.stem, -1):
                        return self._has_taken(path, state)  # copied again; its next record may be on its way
                    if not quiet and not seen.ended and seen.reach[0] >= 0:
                        return "growing"
            there[path.stem] = self._spool.put(path, domain, there.get(path.stem))
            if not has_seal(path):
                self._unsealed.append(path)
        except JournalError as error:
            if not quiet:
                self._young.append(path)
                return "growing"
            self._report(path, str(error), problems)
            return "invalid"
        except FileNotFoundError:
            return "gone"  # rolled, or deleted by retention: the next look shows which
        except OSError as error:
            if error.filename == str(path) and error.filename2 is None:  # a copy has two names: either may be the cause
                self._refuse(path, unreadable(path, error), problems)
                return "unreadable"
            why = error.strerror or error
            sentence = f"{path} cannot be copied to {self._root} ({why}); free disk space, or check permissions"
            self._refuse(path, sentence, problems)
            return "no room"
        return self._has_taken(path, state)

    def _has_taken(self, path: Path, state: State) -> _Outcome:
        self._done[path] = state
        self._bad.pop(path, None)
        self._refused.pop(path, None)
        self._growth.forget(path)
        return "taken"

    def _refuse(self, path: Path, sentence: str, problems: list[str]) -> None:
        """Report a permission or I/O error of a file, once for each error."""
        if self._refused.get(path) != sentence:
            self._refused[path] = sentence
            problems.append(sentence)

    def _report(self, path: Path, sentence: str, problems: list[str]) -> None:
        """Report that a file is not a journal, once for each state of the file."""
        try:
            state = state_of(path.stat())
        except OSError:
            return
        if self._bad.get(path) != state:
            self._bad[path] = state
            problems.append(sentence)


def _visible(place: Path) -> list[Path]:
    """The files in a folder. Programs that copy give a temporary file a name that begins with a dot."""
    return [each for each in place.iterdir() if not each.name.startswith(".")]


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
