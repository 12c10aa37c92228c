"""The target of rows: a database whose rows another program altered, read by a store."""

import sqlite3
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from _fuzz.mutation import changed_list, changed_tree, edge
from _fuzz.target import Target
from pubsub_lib import Store
from pubsub_lib.core.model import ALL, ZERO, Point, Want
from pubsub_lib.errors import PubSubError

Alteration = list[Any]
"""[table, column, row, value], the first three as numbers of any size."""


class _Altered:
    """A store of some objects. Each run alters rows, reads everything, and restores them."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "rows.db"
        self._store: Store | None = None
        self._raw: sqlite3.Connection | None = None
        self._columns: list[tuple[str, list[str]]] = []
        self._points: list[Point] = []
        """The points of the topic "t"."""

    def _open(self) -> tuple[Store, sqlite3.Connection]:
        if self._store is None or self._raw is None:
            self._store = Store(f"sqlite:///{self._path}")
            for number in range(4):
                with self._store.transaction() as tx:
                    tx.set("port", f"p{number % 2}", {"n": number}, topic="t")
                    tx.set("net", "é", [number], topic="u")
                self._points.append(self._store.read_heads(["t"]).topics["t"].point)
            self._store.unique_id("x")
            self._raw = sqlite3.connect(self._path, isolation_level=None)
            self._raw.execute("PRAGMA synchronous = OFF")
            names = [row[0] for row in self._raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            for name in sorted(each for each in names if each.startswith("pubsub_") and each != "pubsub_version"):
                self._columns.append((name, [row[1] for row in self._raw.execute(f"PRAGMA table_info({name})")]))
        return self._store, self._raw

    def run(self, data: bytes) -> str:
        store, raw = self._open()
        before = {name: raw.execute(f"SELECT rowid, * FROM {name}").fetchall() for name, _ in self._columns}
        try:
            for alteration in msgspec.msgpack.decode(data):
                self._alter(raw, alteration)
            return self._read(store)
        finally:
            self._restore(raw, before)

    def _restore(self, raw: sqlite3.Connection, before: dict[str, list[Any]]) -> None:
        raw.execute("BEGIN")
        for name, rows in before.items():
            if raw.execute(f"SELECT rowid, * FROM {name}").fetchall() == rows:
                continue
            raw.execute(f"DELETE FROM {name}")
            columns = ["rowid", *dict(self._columns)[name]]
            marks = ", ".join("?" * len(columns))
            raw.executemany(f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({marks})", rows)
        raw.execute("COMMIT")

    def _alter(self, raw: sqlite3.Connection, alteration: Alteration) -> None:
        table, column, row, value = alteration
        name, columns = self._columns[table % len(self._columns)]
        chosen = columns[column % len(columns)]
        try:
            number = raw.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
            one = f"SELECT rowid FROM {name} LIMIT 1 OFFSET {row % max(1, number)}"
            if value == "delete":
                raw.execute(f"DELETE FROM {name} WHERE rowid = ({one})")
            else:
                raw.execute(f"UPDATE {name} SET {chosen} = ? WHERE rowid = ({one})", (value,))
        except (sqlite3.Error, OverflowError):
            pass  # a constraint: no program can make such a row

    def _read(self, store: Store) -> str:
        """All that replicas, services and commands read. The first typed error ends one reading, not the others."""
        failed = 0
        for read in (
            lambda: store.topics(),
            lambda: store.read_heads(["t", "u"]),
            lambda: list(store.objects()),
            lambda: list(store.records()),
            lambda: store.record("port", "p1"),
            lambda: store.read_links(None, 100),
            lambda: store.read_links(ZERO, 2),
            lambda: store.read_sync({ALL: Want()}),
            lambda: store.read_sync({"t": Want(), "u": Want(after=ZERO)}),
            lambda: store.read_sync({"t": Want(buckets={0: 1}, known=ZERO)}),
            lambda: [store.read_sync({ALL: Want(known=ZERO, judged=("t", each))}) for each in self._points],
            lambda: store.recount("t"),
            lambda: store.bucket_digests("t"),
            lambda: store.unfit(["t", "u"]),
            lambda: list(store.directory.live()),
        ):
            try:
                read()
            except PubSubError:
                failed += 1
        return f"{failed} of the readings failed"

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
        if self._raw is not None:
            self._raw.close()


def _seeds() -> list[bytes]:
    return [msgspec.msgpack.encode([[table, column, 0, 1]]) for table in range(7) for column in range(3)]


def _change(data: bytes, rng: Random) -> bytes:
    alterations = msgspec.msgpack.decode(data)
    for _ in range(rng.randint(1, 3)):
        changed = changed_list(alterations, rng, _change_one)
        alterations = [each for each in changed if isinstance(each, list) and len(each) == 4][:6]
    return msgspec.msgpack.encode(alterations)


def _change_one(alteration: Alteration, rng: Random) -> Alteration:
    value = alteration[3]
    values = (edge(rng), edge(rng), b'{"n":1}', '{"n":1}', "delete", changed_tree(value, rng))
    plain = [each for each in values if each is None or isinstance(each, int | float | str | bytes)]
    plain = [each for each in plain if not isinstance(each, int) or -(2**63) <= each < 2**63]
    return [rng.randrange(40), rng.randrange(40), rng.randrange(8), rng.choice(plain)]


def targets(folder: Path) -> list[Target]:
    """That of this module; its database is in ``folder``."""
    altered = _Altered(folder)
    return [Target("store_rows", _seeds, _change, altered.run, (PubSubError,), altered.close)]
