"""Leaves out files that cannot be read any more, because they were removed or are damaged.

Retention removes old files at any time. A file that it removes while an audit reads the folder counts as one that it
removed before. It removes the oldest files first, so an earlier part of the same run that is still there shows that
something else removed the file.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet as pq

from pubsub_lib.audit.ingest.overlaps import ranges_of
from pubsub_lib.audit.ingest.run_ends import ends_before, parts_of, run_and_part
from pubsub_lib.errors import JournalError
from pubsub_lib.journal.compaction import PARQUET_SUFFIX
from pubsub_lib.journal.reading import check_whole, unreadable

if TYPE_CHECKING:
    from pubsub_lib.audit.ingest.input import Input


def not_by_retention(gone: Iterable[Path], left: Iterable[Path]) -> list[str]:
    """A problem for each file that is gone although an earlier part of its run is still there."""
    first: dict[str, int] = {}
    for path in left:
        if path.exists() or path.with_suffix(PARQUET_SUFFIX).exists():
            run, part = run_and_part(path.stem)
            first[run] = min(part, first.get(run, part))
    numbered = [(path, *run_and_part(path.stem)) for path in gone]
    return [unreadable(path, FileNotFoundError()) for path, run, part in numbered if first.get(run, part) < part]


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
            ranges = {path: ranges_of(path, pq.read_metadata(path)) for path in files[domain] if path.exists()}
            read = (part for path, of_file in ranges.items() for part in parts_of(path.stem, of_file))
            ends = {*torn.get(domain, ()), *ends_before(left, read)}
            torn |= {domain: sorted(ends)} if ends else {}
    return msgspec.structs.replace(gathered, files=files, problems=problems, torn=torn)
