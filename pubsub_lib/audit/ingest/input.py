"""Reads folders of journals into one Spark table of records. An unreadable file is reported, and the rest is read."""

import errno
import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from pubsub_lib.audit.ingest.overlaps import Numbered, without_overlaps
from pubsub_lib.audit.ingest.removals import not_by_retention
from pubsub_lib.audit.ingest.run_ends import ends_before, parts_of, run_and_part
from pubsub_lib.audit.ingest.source_file import SourceFile, source_file
from pubsub_lib.audit.settings import Listing
from pubsub_lib.audit.spark.addresses import path_of, to_read
from pubsub_lib.audit.spark.arrow_tables import small
from pubsub_lib.audit.spark.settled import together
from pubsub_lib.errors import JournalError
from pubsub_lib.journal.compaction import BAD_SUFFIX, PARQUET_SUFFIX
from pubsub_lib.journal.parquet_metadata import unsealed_problem
from pubsub_lib.journal.reading import find, unreadable

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
_MANY: Final = 100
"""From this number of files on, opening them in each step of an audit costs more than the steps."""
_KEPT: Final = 256 << 20
"""Below this number of bytes (compressed) the records fit in memory."""
_WRITING: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}
"""Errors of writing a file; reading never raises them."""
_TORN: Final = pa.schema([("domain", pa.string()), ("run", pa.string()), ("last", pa.int64())])
_PLACES: Final = pa.schema([("file", pa.string()), ("domain", pa.string())])


class Input(msgspec.Struct, frozen=True):
    """Readable Parquet files per domain, and one sentence for each file or folder that could not be read. ``torn``: per
    domain run and number of the last record before bytes or files that were not read.
    """

    files: Mapping[str, Sequence[Path]]
    problems: Sequence[str]
    torn: Mapping[str, Sequence[tuple[str, int]]] = {}
    listed: Mapping[str, Listing] = {}

    @property
    def empty(self) -> bool:
        """Whether there is nothing to audit."""
        return not any(self.files.values())

    @property
    def size(self) -> int:
        """Bytes of all files that still exist."""
        return sum(map(_size, itertools.chain.from_iterable(self.files.values())))

    @property
    def cacheable(self) -> bool:
        """Whether all records are kept in memory for all steps of an audit: the files are many, so that opening them in
        each step would cost more, and small enough.
        """
        return sum(map(len, self.files.values())) >= _MANY and self.size < _KEPT


class _Gathered(msgspec.Struct):
    """The files of a domain by their names without suffix. ``begins``: by their first records, since a copy under
    another name has the same. ``unread``: names of files of which no record could be read; ``gone``: those of them that
    were removed after the listing.
    """

    found: dict[str, SourceFile] = {}
    begins: dict[tuple[str, int], SourceFile] = {}
    unread: set[str] = set()
    gone: list[Path] = []

    @property
    def torn(self) -> list[tuple[str, int]]:
        """Run and number of each last record behind which bytes or files were not read."""
        files = self.found.values()
        behind = {(run, last) for each in files if each.torn for run, (_, last) in each.ranges.items()}
        unread = (self.unread - self.found.keys()) | {each.path.stem for each in files if each.torn and not each.ranges}
        read = (part for each in files for part in parts_of(each.path.stem, each.ranges))
        return sorted(behind | set(ends_before(map(run_and_part, unread), read)))


def gather(
    folders: Mapping[str, Sequence[Path]], scratch: Path, store: Callable[[], Path] | None = None
) -> Input:  # fmt: skip
    """Find the files of these folders (per domain), check each, and make append files Parquet in ``scratch``.

    Blocks while it reads the files. A file that is in several folders under the same name counts once. ``store`` writes
    the journal of a domain's store and returns its folder. It is called when the domain's files were read, so that the
    store has whatever they name.
    """
    files: dict[str, list[Path]] = {}
    torn: dict[str, list[tuple[str, int]]] = {}
    listed: dict[str, Listing] = {}
    problems: list[str] = []
    for index, (domain, places) in enumerate(sorted(folders.items())):
        into = _Gathered()
        wall, began = time.time_ns() // 1000, time.monotonic_ns()
        there = [_find(place, into, problems) for place in places]
        # Finished files of all folders come first: a growing file in another folder may be an older copy.
        for of_form in zip(*there, strict=True):
            for path in itertools.chain(*of_form):
                _gather_one(path, scratch / str(index), into, problems)
        listed[domain] = Listing(wall, (time.monotonic_ns() - began) // 1000)
        for path in itertools.chain(*_find(store(), into, problems)) if store else ():
            _gather_one(path, scratch / str(index), into, problems)
        found = into.found
        gone = [path for path in into.gone if path.stem not in found]
        problems += not_by_retention(gone, (each.path for each in found.values()))
        problems += [each.torn for each in found.values() if each.torn]
        unsealed = unsealed_problem([found[name].path for name in sorted(found) if not found[name].sealed])
        problems += [unsealed] if unsealed else []
        torn |= {domain: ends} if (ends := into.torn) else {}
        files[domain] = _once([found[name] for name in sorted(found)], scratch / str(index) / "once", problems)
        if not found:
            of = f" of {domain}" if domain else ""
            problems.append(f"no journals{of} in {', '.join(map(str, places))}; name the folders that have them")
    # The name of a file may hold any bytes; a problem must be valid text.
    return Input(files, [each.encode(errors="backslashreplace").decode() for each in problems], torn, listed)


def _find(place: Path, into: _Gathered, problems: list[str]) -> tuple[Sequence[Path], Sequence[Path]]:
    """The finished files of a folder, and its append files."""
    try:
        there = find([place])
    except JournalError as error:
        problems.append(str(error))
        return (), ()
    problems += map(_set_aside, there.set_aside)
    into.unread.update(each.stem for each in there.set_aside)
    return there.parquet, there.append


def _set_aside(path: Path) -> str:
    return f"{path} was set aside: it has no readable records, and they are missing"


def _gather_one(path: Path, scratch: Path, into: _Gathered, problems: list[str]) -> None:
    found, begins = into.found, into.begins
    same = found.get(path.stem)
    if same is not None and PARQUET_SUFFIX in (same.path.suffix, path.suffix):
        return
    into.unread.add(path.stem)
    try:
        begun = source_file(path, scratch if same is None else scratch / "copies")
        into.unread.discard(path.stem)
        if begun is None:
            return
        if same is not None and same.records >= begun.records:
            return  # the shorter one was copied while its writer was still appending; so is it below
        other = None if same is not None else begins.get(begun.first) if begun.first is not None else None
        if other is not None:
            kept, left = (begun, other) if begun.records > other.records else (other, begun)
            problems.append(f"{left.path} is a copy of {kept.path} under another name and ignored; remove one of them")
            if kept is other:
                return
            del found[other.path.stem]
        found[path.stem] = begun
        if begun.first is not None:
            begins[begun.first] = begun
    except JournalError as error:
        problems.append(str(error))
    except FileNotFoundError:
        aside = path.with_suffix(BAD_SUFFIX)
        if not aside.exists():
            into.gone.append(path)
        elif _set_aside(aside) not in problems:  # the listing may have both names
            problems.append(_set_aside(aside))
    except OSError as error:
        if error.errno in _WRITING:
            why = os.strerror(error.errno)
            problems.append(f"{path} cannot be converted to Parquet in {scratch} ({why}); free space or set TMPDIR")
        else:
            problems.append(unreadable(path, error))


def _once(files: Sequence[SourceFile], scratch: Path, problems: list[str]) -> list[Path]:
    """The files, each record in one of them only."""
    numbered = [Numbered(each.readable, str(each.path), each.ranges) for each in files]
    try:
        kept, found = without_overlaps(numbered, scratch)
    except OSError as error:
        why = error.strerror or error
        problems.append(f"journals that overlap cannot be joined in {scratch} ({why}); free space or set TMPDIR")
        return []
    problems += found
    return kept


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # retention has removed it
        return 0


def folders_by_domain(named: Sequence[str]) -> dict[str, list[Path]]:
    """The folders of the command line, ``FOLDER`` or ``DOMAIN=FOLDER``, by their domain."""
    folders: dict[str, list[Path]] = {}
    for each in named:
        domain, equals, folder = each.partition("=")
        folders.setdefault(domain if equals else "", []).append(Path(folder if equals else each))
    return folders


def size_of(folders: Mapping[str, Sequence[Path]]) -> int:
    """Bytes of the present files in these folders."""
    size = 0
    for place in itertools.chain.from_iterable(folders.values()):
        with suppress(OSError):  # the reader of the folder reports it
            size += sum(each.stat().st_size for each in place.iterdir())
    return size


def load(spark: "SparkSession", gathered: Input) -> "DataFrame":
    """The records of all files, with ``domain``. Lazy: Spark reads them when the audit runs. The input must have files.

    There is one scan for all domains. With several domains, a small table maps each file to its domain.
    """
    from pyspark.sql import functions as F  # noqa: N812

    domains: dict[Path, list[str]] = {}
    for domain, paths in gathered.files.items():
        for path in paths:
            domains.setdefault(path.resolve(), []).append(domain)
    # A file may be damaged after its checksum was checked, or on another machine of a cluster.
    reader = spark.read.schema(SCHEMA).option("parquet.page.verify-checksum.enabled", "true")
    rows = reader.parquet(*map(to_read, domains))
    every = {domain for of_file in domains.values() for domain in of_file}
    if len(every) == 1:
        return together(rows.withColumn("domain", F.lit(every.pop())))
    # The table uses the names that Spark gives the files: Spark escapes them, and their prefix varies.
    places = [
        {"file": begin + file.removeprefix("file://"), "domain": domain}
        for file in rows.inputFiles()
        for domain in domains[path_of(file)]
        for begin in ("file:", "file://")
    ]
    known = F.broadcast(small(spark, places, _PLACES))
    return together(rows.withColumn("file", F.col("_metadata.file_path")).join(known, "file").drop("file"))


def torn_ends(spark: "SparkSession", gathered: Input) -> "DataFrame | None":
    """The table of torn files for :func:`pubsub_lib.audit.rules.pipeline.audit`; None without any."""
    ends = [
        {"domain": domain, "run": run, "last": last} for domain, each in gathered.torn.items() for run, last in each
    ]
    return small(spark, ends, _TORN) if ends else None
