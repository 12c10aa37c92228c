"""Leaves out files that cannot be read any more, because they were removed or are damaged.

Retention removes old files at any time. A file that it removes while an audit reads the folder counts as one that it
removed before. It removes the oldest files first, so an earlier part of the same run that is still there shows that
something else removed the file.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pubsub_lib.audit.ingest.overlaps import Ranges, ranges_of
from pubsub_lib.audit.ingest.run_ends import ends_before, parts_of, run_and_part
from pubsub_lib.errors import JournalError
from pubsub_lib.journal.compaction import PARQUET_SUFFIX
from pubsub_lib.journal.reading import check_whole, unreadable

if TYPE_CHECKING:
    from pubsub_lib.audit.ingest.input import Input


def not_by_retention(gone: Iterable[Path], left: Iterable[Path]) -> list[str]:
    """A problem for each file that is gone although an earlier part of its run is still there, in the same folder."""
    first: dict[tuple[Path, str], int] = {}
    for path in left:
        if path.exists() or path.with_suffix(PARQUET_SUFFIX).exists():
            run, part = run_and_part(path.stem)
            first[path.parent, run] = min(part, first.get((path.parent, run), part))
    numbered = [(path, *run_and_part(path.stem)) for path in gone]
    removed = [path for path, run, part in numbered if first.get((path.parent, run), part) < part]
    return [unreadable(path, FileNotFoundError()) for path in removed]


def without_removed(gathered: "Input") -> "Input | None":
    """The input without the files that were removed since they were checked; None when all are there, or when a domain
    would have none.
    """
    files = {domain: [path for path in paths if path.exists()] for domain, paths in gathered.files.items()}
    gone = {domain: [path for path in paths if path not in files[domain]] for domain, paths in gathered.files.items()}
    if not any(gone.values()) or any(gone[domain] and not files[domain] for domain in gone):
        return None
    found = [each for domain in gone for each in not_by_retention(gone[domain], files[domain])]
    return _reduced(gathered, files, [*gathered.problems, *found])


def without_damaged(gathered: "Input") -> "Input | None":
    """The input without the files that cannot be read whole, each with its problem; None when there are none, or when a
    file was deleted meanwhile.

    For an audit that Spark has broken off: a check of each file takes as long as reading all of them. Blocks.
    """
    if not all(path.exists() for paths in gathered.files.values() for path in paths):
        return None
    files: dict[str, list[Path]] = {}
    problems = list(gathered.problems)
    for domain, paths in gathered.files.items():
        files[domain] = []
        for path in paths:
            try:
                check_whole(path)
            except JournalError as error:
                problems.append(str(error))
            except OSError as error:
                problems.append(unreadable(path, error))
            else:
                files[domain].append(path)
    return None if len(problems) == len(gathered.problems) else _reduced(gathered, files, problems)


def _reduced(gathered: "Input", files: Mapping[str, Sequence[Path]], problems: Sequence[str]) -> "Input":
    """The input with these of its files. What the others may have shown is unknown."""
    torn = dict(gathered.torn)
    for domain, paths in gathered.files.items():
        if left := [run_and_part(path.stem) for path in paths if path not in files[domain]]:
            read = (part for path in files[domain] for part in parts_of(path.stem, _ranges(path)))
            ends = {*torn.get(domain, ()), *ends_before(left, read)}
            torn |= {domain: sorted(ends)} if ends else {}
    return msgspec.structs.replace(gathered, files=files, problems=problems, torn=torn)


def _ranges(path: Path) -> Ranges:
    """The numbers of a file's records. None of a file that was removed or damaged after its check: Spark cannot read it
    either, and the next look at the files leaves it out.
    """
    try:
        return ranges_of(path, pq.read_metadata(path))
    except (OSError, ValueError, pa.ArrowException):
        return {}
