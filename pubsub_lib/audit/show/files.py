"""The files that the arguments of ``pubsub-audit show`` name, in the order in which they are shown."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from pubsub_lib.audit.ingest.run_ends import run_and_part
from pubsub_lib.errors import JournalError
from pubsub_lib.journal.appending import OPEN_SUFFIX
from pubsub_lib.journal.compaction import BAD_SUFFIX, PARQUET_SUFFIX
from pubsub_lib.journal.reading import find

_SUFFIXES: Final = (OPEN_SUFFIX, PARQUET_SUFFIX, BAD_SUFFIX)


class JournalFile(msgspec.Struct, frozen=True):
    """A file with the facts that its name shows. ``part``: 0 when the name has none. ``parts``: the number of parts of
    its run in its folder, 0 when the folder cannot be listed.
    """

    path: Path
    run: str
    part: int
    parts: int


def journal_files(named: Iterable[Path]) -> tuple[list[JournalFile], list[str]]:
    """The files that are named, and those of the folders that are named; and a sentence for each folder without any.

    The order is that of the arguments. In a folder, the parts of a run follow each other, and the run whose first file
    is the oldest comes first: by the time of the file, because a look into each file would take long. What does not
    exist, or is in a folder that may not be searched, is in the list, too.
    """
    files: list[JournalFile] = []
    problems: list[str] = []
    parts: dict[Path, Counter[str]] = {}
    for path in named:
        found: Sequence[Path] = [path]
        if _is_folder(path):
            try:
                found = _of_folder(path)
            except JournalError as error:
                problems.append(str(error))
                continue
            if not found:
                problems.append(f"no journals in {path}; name a folder that has them")
        for each in found:
            if each.parent not in parts:
                parts[each.parent] = _parts(each.parent)
            run, part = run_and_part(each.stem)
            files.append(JournalFile(each, run, part, parts[each.parent][run]))
    return files, problems


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False  # the reader of the file reports it


def _of_folder(folder: Path) -> list[Path]:
    there = find([folder])
    found = [*there.parquet, *there.append, *there.set_aside]
    first: dict[str, int] = {}
    for path in sorted(found):
        first.setdefault(run_and_part(path.stem)[0], _changed(path))
    return sorted(found, key=lambda path: (first[run_and_part(path.stem)[0]], *run_and_part(path.stem), path))


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0  # the reader of the file reports it


def _parts(folder: Path) -> Counter[str]:
    """The number of parts of each run in a folder. A part may be there in two forms for a moment."""
    try:
        names = {each.stem for each in folder.iterdir() if each.suffix in _SUFFIXES and not each.name.startswith(".")}
    except OSError:
        return Counter()
    return Counter(run_and_part(name)[0] for name in names)
