"""The store of a follower: read again for each closing, with all links that it ever had (docs/audit.md, "Following").

The store trims its changelog. A follower keeps the links that it has read: else a later round would not know what was
committed, and a change that was never published would be no loss any more.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pubsub_lib.audit.durable import make, rename
from pubsub_lib.audit.ingest.store_journal import StoreSide
from pubsub_lib.journal.compaction import PARQUET_SUFFIX, write_parquet
from pubsub_lib.journal.parquet_metadata import SCHEMA_KEY
from pubsub_lib.journal.reading import find
from pubsub_lib.journal.rows import arrow_schema
from pubsub_lib.settings import Settings


class StoreRead(msgspec.Struct, frozen=True):
    """The journal of a store as Parquet. ``lacking``: the problem of an empty store."""

    path: Path
    lacking: str = ""


class FollowedStore:
    """Reads the store of the one domain of a follower. Only one thread may use it."""

    def __init__(self, database: Settings | str, checkpoint: Path) -> None:
        """Creates the missing folder below ``checkpoint``. Raises ConfigError and StoreError when the store cannot be
        opened, and OSError.
        """
        self._database = database
        self._folder = checkpoint / "store"
        with StoreSide(database):
            pass
        make(self._folder)

    def read(self) -> StoreRead:
        """Read the store. Its file stays until the next call. Blocks while the store is read; the objects are held in
        memory. Raises StoreError, JournalError and OSError.
        """
        scratch = self._folder / ".new"
        shutil.rmtree(scratch, ignore_errors=True)
        side = StoreSide(self._database)
        parts = find([side.write(scratch)]).append  # a large store has several
        new = [part.with_suffix(PARQUET_SUFFIX) for part in parts]
        for part, target in zip(parts, new, strict=True):
            write_parquet(part, target, objects_apart=True)
        joined = scratch / f"joined{PARQUET_SUFFIX}"
        before = max(self._folder.glob(f"*{PARQUET_SUFFIX}"), default=None)
        with_trimmed(new, before, joined)
        target = self._folder / f"{int(before.stem) + 1 if before else 1:09d}{PARQUET_SUFFIX}"
        rename(joined, target)
        for earlier in self._folder.glob(f"*{PARQUET_SUFFIX}"):
            if earlier.name < target.name:
                earlier.unlink()
        shutil.rmtree(scratch)
        return StoreRead(target, side.lacking)


def with_trimmed(new: Sequence[Path], before: Path | None, target: Path) -> None:
    """Write the records of the parts ``new`` to ``target``, and the links that only ``before`` has, because the store
    trimmed them since. They get numbers after those of ``new``. When the history ``before`` does not lead to the begin
    of the new changelog (a restore, or links that were never read), nothing of it is kept. Blocks. Raises OSError.
    """
    metadata = {SCHEMA_KEY: (pq.read_schema(new[0]).metadata or {})[SCHEMA_KEY]}
    schema = arrow_schema().with_metadata(metadata)
    changelog, listing = _last(new, "changelog"), _last(new, "listing")
    known = _last([before], "changelog") if before is not None else None
    begin = _begin(changelog, listing)
    links = None
    if before is not None and known is not None and begin is not None:
        links = _until(before, begin)
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        last: Mapping[str, Any] = {"number": 0}
        for group in _groups(new):
            if links is not None and known is not None:
                group = _since(group, known)
            writer.write_table(group.cast(schema))
            last = max(last, _greatest(group), key=lambda row: row["number"])
        if links is None or known is None:
            return
        if changelog is None and begin is not None:
            record = pa.Table.from_pylist([{**known, "position": begin[0], "nonce": begin[1]}], schema=arrow_schema())
            links = pa.concat_tables([links, record])
        writer.write_table(_after(links, last).cast(schema))


def _begin(changelog: Mapping[str, Any] | None, listing: Mapping[str, Any] | None) -> tuple[int, int] | None:
    """The point before the first link of a changelog; of an empty one that of its store."""
    if changelog is not None:
        return changelog["prev_position"], changelog["prev_nonce"]
    return (listing["position"], listing["nonce"]) if listing is not None else None


def _until(path: Path, point: tuple[int, int]) -> pa.Table | None:
    """The links up to this point; None when no link has it."""
    parts = [group.filter(pc.equal(group["outcome"], "committed")) for group in _groups([path])]
    links = pa.concat_tables(parts)
    links = links.filter(pc.less_equal(links["position"], point[0]))
    leads = pc.and_(pc.equal(links["position"], point[0]), pc.equal(links["nonce"], point[1]))
    return links if pc.any(leads).as_py() else None


def _since(group: pa.Table, known: Mapping[str, Any]) -> pa.Table:
    """The records, with a changelog that begins where the known one does."""
    is_changelog = pc.equal(group["kind"], "changelog")
    for name in ("prev_position", "prev_nonce"):
        place = group.schema.get_field_index(name)
        group = group.set_column(place, name, pc.if_else(is_changelog, pa.scalar(known[name], pa.int64()), group[name]))
    return group


def _after(links: pa.Table, last: Mapping[str, Any]) -> pa.Table:
    """The links as records of the run of ``last``, after it."""
    length = links.num_rows
    numbers = pa.array(range(last["number"] + 1, last["number"] + 1 + length), pa.int64())
    links = links.set_column(links.schema.get_field_index("number"), "number", numbers)
    for name in ("name", "host", "run", "wall", "mono"):
        place = links.schema.get_field_index(name)
        links = links.set_column(place, name, pa.array([last[name]] * length, links.schema.field(name).type))
    return links


def _last(paths: Sequence[Path], kind: str) -> Mapping[str, Any] | None:
    """The last record of a kind."""
    found = [row for group in _groups(paths) for row in group.filter(pc.equal(group["kind"], kind)).to_pylist()]
    return max(found, key=lambda row: int(row["number"]), default=None)


def _greatest(group: pa.Table) -> Mapping[str, Any]:
    """The record with the greatest number."""
    place = pc.index(group["number"], pc.max(group["number"])).as_py()
    found: Mapping[str, Any] = group.slice(place, 1).to_pylist()[0]
    return found


def _groups(paths: Sequence[Path]) -> Iterator[pa.Table]:
    for path in paths:
        file = pq.ParquetFile(path)
        for place in range(file.num_row_groups):
            yield file.read_row_group(place)
