"""Journal files that arrive one by one, as a follower sees them: in parts, in any order, some still being written."""

import random
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pubsub_lib.journal.parquet_metadata import RECORDS_KEY, SCHEMA_KEY, TORN_KEY
from pubsub_lib.journal.rows import SCHEMA, Row, arrow_schema, as_dict
from pubsub_lib.journal.seal import CHECKSUM_KEY, UNSEALED, seal
from tests.unit.audit.generator import MONO, TORN


class File(NamedTuple):
    """One part of a run."""

    domain: str
    stem: str
    rows: Sequence[Row]

    @property
    def first(self) -> int:
        return min(map(true_time, self.rows))

    @property
    def last(self) -> int:
        return max(map(true_time, self.rows))


def true_time(row: Row) -> int:
    """The time of a record by a right clock. In generated journals all monotonic clocks show it, plus a constant."""
    return row.mono - MONO


def cut(domain: str, rows: Sequence[Row], rng: random.Random, moments: Sequence[int] = ()) -> list[File]:
    """Each run cut into parts that end at these moments; without moments, into one to three parts."""
    runs: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda each: (each.run, each.number)):
        runs[row.run].append(row)
    found = []
    for run, of_run in runs.items():
        if moments:
            before = {sum(true_time(row) <= moment for row in of_run) for moment in moments}
            cuts = sorted(before - {0, len(of_run)})
        else:
            cuts = sorted(rng.sample(range(1, len(of_run)), min(rng.randrange(3), len(of_run) - 1)))
        for part, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(of_run)], strict=True), 1):
            found.append(File(domain, f"{run}-{part:06d}", of_run[begin:end]))
    return found


def write_part(folder: Path, file: File) -> Path:
    """Write a part as the roller of a journal does."""
    metadata = {SCHEMA_KEY: str(SCHEMA).encode(), RECORDS_KEY: str(len(file.rows)).encode(), CHECKSUM_KEY: UNSEALED}
    if (file.rows[-1].run, file.rows[-1].number) in TORN:
        metadata[TORN_KEY] = b"damaged 7"
    schema = arrow_schema().with_metadata(metadata)
    path, beside = folder / f"{file.stem}.parquet", folder / f".{file.stem}.parquet.1"
    pq.write_table(pa.Table.from_pylist([as_dict(row) for row in file.rows], schema=schema), beside)
    seal(beside)
    beside.rename(path)
    (folder / f"{file.stem}.journal").unlink(missing_ok=True)
    return path


class Arrivals:
    """Folders of domains. From the begin of its run until it arrives, a part exists as a file that is being written: an
    empty file, which a follower does not take for a finished one.
    """

    def __init__(
        self, root: Path, cases: Mapping[str, Sequence[Row]], rng: random.Random, punctual: Collection[str] = (),
        moments: Sequence[int] = (),
    ) -> None:  # fmt: skip
        """The files of the ``punctual`` domains end at these moments, and arrive then."""
        self.folders = {domain: [root / f"f{index}"] for index, domain in enumerate(sorted(cases))}
        for (folder,) in self.folders.values():
            folder.mkdir(parents=True)
        self._rng = rng
        self._punctual = punctual
        self._coming = [
            file
            for domain in sorted(cases)
            for file in cut(domain, cases[domain], rng, moments if domain in punctual else ())
        ]

    def come(self, until: int, begun: int, share: float = 1.0) -> None:
        """Let files that end by ``until`` arrive in random order: a ``share`` of them, and all of punctual domains.
        Runs that begin by ``begun`` get an unfinished file, and so does at least one run of each unfinished domain.
        """
        ready = [
            file
            for file in self._coming
            if file.last <= until and (file.domain in self._punctual or self._rng.random() < share)
        ]
        self._rng.shuffle(ready)
        for file in ready:
            write_part(self.folders[file.domain][0], file)
        done = {(file.domain, file.stem) for file in ready}
        self._coming = [file for file in self._coming if (file.domain, file.stem) not in done]
        shown = set()
        for file in sorted(self._coming, key=lambda each: each.first):
            if file.first <= begun or file.domain not in shown:
                (self.folders[file.domain][0] / f"{file.stem}.journal").touch()
                shown.add(file.domain)

    def all_come(self) -> None:
        self.come(2**62, 2**62)
