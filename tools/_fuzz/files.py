"""Targets in files: both forms of journals, INI files, and the JSON lines of ``pubsub-db load``."""

import struct
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import pyarrow.parquet as pq
import xxhash

from _fuzz.mutation import changed_bytes, changed_json, changed_list, changed_msgpack, edge
from _fuzz.target import Target
from pubsub_lib import Settings, Store
from pubsub_lib.cli import bulk_load
from pubsub_lib.cli.jsonl import Reader
from pubsub_lib.config.reading import Configuration
from pubsub_lib.core.envelope import Message
from pubsub_lib.core.model import Change, Link, Point, Record
from pubsub_lib.errors import JournalError, PubSubError
from pubsub_lib.journal import reading
from pubsub_lib.journal.compaction import write_parquet
from pubsub_lib.journal.entries import MAGIC, Entry, Header, beginning, frame
from pubsub_lib.journal.parquet_metadata import SCHEMA_KEY
from pubsub_lib.journal.rows import SCHEMA
from pubsub_lib.service import settings as service_settings

_PREFIX: Final = struct.Struct("<II")
ROOT: Final = Path(__file__).resolve().parents[2]

# -- journals ----------------------------------------------------------------------------------------------------


def _journal() -> bytes:
    changes = [Change("port", "p1", "set", 7, b'{"a":1}')]
    link = Link("t1", Point(6, 5), Point(7, 6), changes, 1, 9, Point(0, 0), 1, "s", 1.5)
    entries = [
        Entry(1, 5, 5, "mark"),
        Entry(2, 6, 6, "data", ("applied",), "s", "cd" * 16, "t1", 11, [Message(link), Message(link, 1, 2)]),
        Entry(4, 7, 7, "hello", service="s", uuid="cd" * 16, point=Point(7, 6), prev=Point(6, 5), digest=2**64 - 1),
        Entry(5, 8, 8, "object", topic="t1", objects=[Record("port", "p1", 7, b"1"), Record("port", "é", 8, b"{}")]),
        Entry(7, 9, 9, "sync_end", ("applied",), cause="gap", peer="x", size=3, count=4),
    ]
    return beginning(Header(SCHEMA, "replica", "controller-1", "host-1", "ab" * 16, 1)) + b"".join(map(frame, entries))


def _bodies(data: bytes) -> list[bytes]:
    found, at = [], len(MAGIC)
    while at + _PREFIX.size < len(data):
        size, _ = _PREFIX.unpack_from(data, at)
        found.append(data[at + _PREFIX.size : at + _PREFIX.size + size])
        at += _PREFIX.size + size
    return found


def _change_journal(data: bytes, rng: Random) -> bytes:
    """Mostly with right checksums, so that the change is read."""
    if rng.randrange(5) == 0:
        return changed_bytes(data, rng)
    bodies: list[Any] = _bodies(data)
    for _ in range(rng.randint(1, 3)):
        bodies = changed_list(bodies, rng, changed_msgpack)
        bodies = [each for each in bodies if isinstance(each, bytes)]
    return MAGIC + b"".join(_PREFIX.pack(len(each), _checksum(each)) + each for each in bodies)


def _checksum(body: bytes) -> int:
    return xxhash.xxh3_64_intdigest(body) & 0xFFFFFFFF


def _read_journal(folder: Path, data: bytes) -> str:
    path = folder / "a.journal"
    path.write_bytes(data)
    rows = sum(1 for _ in reading.read(path))
    write_parquet(path, folder / "made.parquet")  # a row that was read can be converted, or names itself
    return f"{min(rows, 8)} rows"


def _parquet(folder: Path) -> bytes:
    """Without a checksum, as earlier versions wrote it: else a changed file would be refused before it is read."""
    source, target = folder / "b.journal", folder / "b.parquet"
    source.write_bytes(_journal())
    write_parquet(source, target)
    table = pq.read_table(target)
    pq.write_table(table.replace_schema_metadata({SCHEMA_KEY: str(SCHEMA).encode()}), target, compression="zstd")
    return target.read_bytes()


def _read_parquet(folder: Path, data: bytes) -> str:
    path = folder / "c.parquet"
    path.write_bytes(data)
    return f"{min(sum(1 for _ in reading.read(path)), 8)} rows"


# -- INI files ---------------------------------------------------------------------------------------------------


def _ini_seeds() -> list[bytes]:
    small = (
        "[pubsub]\nstore_url = sqlite:///net.db\nservice_name = api-1\nenable_pub_sub = true\nlocal_ip = 10.0.0.7\n"
        "publishers_ips = 10.0.0.7, 10.0.0.8\npublisher_bind_address = 127.0.0.1\ntopics = a, b\n"
        "[publisher_service]\nmetrics_port = 0\n[pubsub_zmq]\nsend_hwm = 7\n"
    )
    sample = (ROOT / "etc" / "pubsub_lib.conf.sample").read_text()
    options = [line.removeprefix("#") for line in sample.splitlines() if not line.startswith("# ")]
    return [small.encode(), "\n".join(options).encode()]


def _change_ini(data: bytes, rng: Random) -> bytes:
    lines = data.split(b"\n")
    for _ in range(rng.randint(1, 4)):
        lines = [each for each in changed_list(lines, rng, _change_ini_line) if isinstance(each, bytes)]
    return b"\n".join(lines)


def _change_ini_line(line: bytes, rng: Random) -> bytes:
    name, equals, _ = line.partition(b"=")
    if equals and rng.randrange(4):
        value = edge(rng)
        return name + b"= " + (value if isinstance(value, bytes) else str(value).encode())
    return changed_bytes(line, rng)


def _read_ini(folder: Path, data: bytes) -> str:
    path = folder / "net.conf"
    path.write_bytes(data)
    Settings.from_file(path)
    service_settings.load(Configuration.read(path))
    return "good"


# -- JSON lines --------------------------------------------------------------------------------------------------


def _line_seeds() -> list[bytes]:
    lines = [
        {"table": "port", "key": "p1", "topic": "t", "version": 3, "value": {"a": [1, 1.5, None, "é", True]}},
        {"table": "port", "key": "p2", "value": "x", "action": "create", "time": 1.5},
        {"table": "port", "key": "p1", "action": "delete"},
    ]
    return [b"\n".join(map(msgspec.json.encode, lines)) + b"\n", b'{"table":"a","key":"b","value":1}\r\n\n\n']


def _change_lines(data: bytes, rng: Random) -> bytes:
    lines: list[Any] = data.split(b"\n")
    for _ in range(rng.randint(1, 3)):
        lines = [each for each in changed_list(lines, rng, changed_json) if isinstance(each, bytes)]
    return b"\n".join(lines)


class _Loading:
    """A store into which all inputs are loaded."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "lines.jsonl"
        self._url = f"sqlite:///{folder}/lines.db"
        self._store: Store | None = None

    def run(self, data: bytes) -> str:
        if self._store is None:
            self._store = Store(self._url)
        self._path.write_bytes(data)
        loaded = bulk_load.Loaded()
        with Reader(str(self._path), self._store.limits) as reader:
            bulk_load.load(self._store, reader, loaded, bulk_load.BATCH, 1, lambda: None)
        return f"{min(loaded.lines, 4)} lines"

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


def targets(folder: Path) -> Sequence[Target]:
    """Those of this module; their files are in ``folder``."""
    loading = _Loading(folder)
    damaged = (JournalError,)
    return [
        Target("journal", lambda: [_journal()], _change_journal, partial(_read_journal, folder), damaged),
        Target("parquet", lambda: [_parquet(folder)], changed_bytes, partial(_read_parquet, folder), damaged),
        Target("ini", _ini_seeds, _change_ini, partial(_read_ini, folder), (PubSubError,)),
        Target("json_lines", _line_seeds, _change_lines, loading.run, (PubSubError,), loading.close),
    ]
