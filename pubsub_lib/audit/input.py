"""From folders of journals to one Spark table of records. What cannot be read is told, and does not stop the rest."""

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from pubsub_lib.errors import JournalError
from pubsub_lib.journal.reading import check_parquet, find
from pubsub_lib.journal.rolling import PARQUET_SUFFIX, write_parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA: Final = (
    "side string, name string, host string, run string, number bigint, kind string, wall bigint, mono bigint, "
    "service string, uuid string, topic string, sequence bigint, position bigint, nonce bigint, prev_position bigint, "
    "prev_nonce bigint, part bigint, parts bigint, hash bigint, size bigint, outcome string, cause string, "
    "peer string, written bigint, count bigint, digest bigint, changes array<struct<`table`: string, key: string, "
    "version: bigint, action: string, hash: bigint, size: bigint, before: bigint>>"
)
"""The columns of the Parquet form, as Spark names their types."""


class Input(msgspec.Struct, frozen=True):
    """Readable Parquet files per domain, and a sentence for everything that could not be read."""

    files: Mapping[str, Sequence[Path]]
    problems: Sequence[str]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to audit."""
        return not any(self.files.values())


def gather(folders: Mapping[str, Sequence[Path]], scratch: Path) -> Input:
    """Find the files of these folders (per domain), check each, and make append files Parquet in ``scratch``.

    Blocks for the reading. A file that is in several folders under the same name counts once.
    """
    files: dict[str, list[Path]] = {}
    problems: list[str] = []
    for index, (domain, places) in enumerate(sorted(folders.items())):
        found: dict[str, Path] = {}
        there = [_find(place, problems) for place in places]
        # What is finished in any folder goes before what still grows in another: that may be an older copy.
        for of_form in zip(*there, strict=True):
            for path in itertools.chain(*of_form):
                _gather_one(path, scratch / str(index), found, problems)
        files[domain] = [found[name] for name in sorted(found)]
    # A file's name may be any bytes; sentences must be text everywhere.
    return Input(files, [each.encode(errors="backslashreplace").decode() for each in problems])


def _find(place: Path, problems: list[str]) -> tuple[Sequence[Path], Sequence[Path]]:
    """The finished files of a folder, and those that grow."""
    try:
        there = find([place])
    except JournalError as error:
        problems.append(str(error))
        return (), ()
    return there.parquet, there.append


def _gather_one(path: Path, scratch: Path, found: dict[str, Path], problems: list[str]) -> None:
    if path.stem in found:
        return
    try:
        readable = _readable(path, scratch)
        if readable is not None:
            found[path.stem] = readable
    except JournalError as error:
        problems.append(str(error))
    except FileNotFoundError:
        problems.append(f"{path} cannot be read (it vanished); look who removes journals")
    except OSError as error:
        problems.append(f"{path} cannot be read ({error.strerror}); correct its rights or its disk")


def _readable(path: Path, scratch: Path) -> Path | None:
    """The file itself, or its Parquet form in ``scratch``; None: its writer has only just made it."""
    if path.suffix == PARQUET_SUFFIX:
        check_parquet(path)
        return path
    try:
        if path.stat().st_size == 0:
            return None
        scratch.mkdir(parents=True, exist_ok=True)
        copy = scratch / f"{path.stem}{PARQUET_SUFFIX}"
        write_parquet(path, copy)
    except FileNotFoundError:
        # A participant that lives makes its files Parquet meanwhile, beside them and under the same name.
        finished = path.with_suffix(PARQUET_SUFFIX)
        if not finished.exists():
            raise
        check_parquet(finished)
        return finished
    return copy


def load(spark: "SparkSession", gathered: Input) -> "DataFrame":
    """The records of all files, with ``domain``. Lazy: Spark reads them when the audit runs. Must not be empty."""
    from pyspark.sql import functions as F  # noqa: N812

    tables = [
        spark.read.schema(SCHEMA).parquet(*[address(path) for path in paths]).withColumn("domain", F.lit(domain))
        for domain, paths in gathered.files.items()
        if paths
    ]
    whole = tables[0]
    for table in tables[1:]:
        whole = whole.unionByName(table)
    return whole


def address(path: Path) -> str:
    """A local path as Spark takes it: it would read some characters as wildcards, and a bare path may mean HDFS."""
    escaped = re.sub(r"([\\{}\[\]*?])", r"\\\1", str(path.absolute()))
    return f"file://{escaped}"
