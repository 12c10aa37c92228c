"""From folders of journals to one Spark table of records. What cannot be read is told, and does not stop the rest."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from pubsub_lib.errors import JournalError
from pubsub_lib.journal.reading import check_parquet, find
from pubsub_lib.journal.rolling import write_parquet

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
        for place in places:
            _gather_one(place, scratch / str(index), found, problems)
        files[domain] = [found[name] for name in sorted(found)]
    return Input(files, problems)


def _gather_one(place: Path, scratch: Path, found: dict[str, Path], problems: list[str]) -> None:
    try:
        there = find([place])
    except JournalError as error:
        problems.append(str(error))
        return
    for path in (*there.parquet, *there.append):
        if path.stem in found:
            continue
        try:
            if path in there.parquet:
                check_parquet(path)
                found[path.stem] = path
            else:
                scratch.mkdir(parents=True, exist_ok=True)
                copy = scratch / f"{path.stem}.parquet"
                write_parquet(path, copy)
                found[path.stem] = copy
        except JournalError as error:
            problems.append(str(error))
        except FileNotFoundError:
            problems.append(f"{path} cannot be read (it vanished); look who removes journals")
        except OSError as error:
            problems.append(f"{path} cannot be read ({error.strerror}); correct its rights or its disk")


def load(spark: "SparkSession", gathered: Input) -> "DataFrame":
    """The records of all files, with ``domain``. Lazy: Spark reads them when the audit runs. Must not be empty."""
    from pyspark.sql import functions as F  # noqa: N812

    tables = [
        spark.read.schema(SCHEMA).parquet(*[str(path) for path in paths]).withColumn("domain", F.lit(domain))
        for domain, paths in gathered.files.items()
        if paths
    ]
    whole = tables[0]
    for table in tables[1:]:
        whole = whole.unionByName(table)
    return whole
