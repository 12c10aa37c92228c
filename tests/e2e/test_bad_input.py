"""Every kind of invalid input gets a typed error with one clear sentence, and no partial write.

This module shows all of them side by side; the details of each are tested beside the code.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pubsub_lib import Replica, Settings, Store, loader
from pubsub_lib.core import codec
from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import (
    AlreadyExists,
    ConfigError,
    DriverError,
    FrameError,
    InvalidValueError,
    NotFound,
    NotSubscribedError,
    PubSubError,
    SchemaError,
    StoreBusy,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    UsageError,
    VersionMismatch,
)
from pubsub_lib.store import StoreSettings

HASTY = StoreSettings(retry_attempts=1, lock_timeout=0.1, connect_timeout=1.0)


class Port(msgspec.Struct):
    switch: str


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Store]:
    with Store(sqlite_url, settings=HASTY, limits=Limits(max_transaction_changes=100), tables={"lport": Port}) as store:
        with store.transaction() as tx:
            tx.set("lport", "p1", Port("s1"), topic="t")
        yield store
        assert store.get("lport", "p1") == Port("s1"), "a part of a transaction was written"
        assert store.recount("t") == store.topics()["t"]


def assert_error(kind: type[PubSubError], naming: str, wrong: Callable[[], object]) -> None:
    """Check that the call raises this error, with one sentence of a readable length that names the cause."""
    with pytest.raises(kind) as caught:
        wrong()
    sentence = str(caught.value)
    assert naming in sentence
    assert "\n" not in sentence
    assert "Traceback" not in sentence
    assert 20 <= len(sentence) <= 500, sentence


def write(store: Store, *verbs: Callable[[Any], object]) -> Callable[[], None]:
    def run() -> None:
        with store.transaction() as tx:
            tx.set("lport", "half", Port("written"))
            for verb in verbs:
                verb(tx)

    return run


DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]

VERBS: dict[str, tuple[type[PubSubError], str, Callable[[Any], object]]] = {
    "unknown table": (InvalidValueError, "'router'", lambda tx: tx.set("router", "r", {})),
    "key empty": (InvalidValueError, "key", lambda tx: tx.set("lport", "", Port("x"))),
    "key over-long": (InvalidValueError, "at most", lambda tx: tx.set("lport", "k" * 513, Port("x"))),
    "key with NUL": (InvalidValueError, "NUL", lambda tx: tx.set("lport", "a\0b", Port("x"))),
    "key no text": (InvalidValueError, "bytes", lambda tx: tx.set("lport", b"k", Port("x"))),
    "key half a surrogate": (InvalidValueError, "Unicode", lambda tx: tx.set("lport", "\ud800", Port("x"))),
    "topic empty": (InvalidValueError, "topic", lambda tx: tx.set("lport", "p", Port("x"), topic="")),
    "topic over-long": (InvalidValueError, "topic", lambda tx: tx.set("lport", "p", Port("x"), topic="t" * 256)),
    "topic with NUL": (InvalidValueError, "NUL", lambda tx: tx.set("lport", "p", Port("x"), topic="t\0")),
    "value against its type": (InvalidValueError, "switch", lambda tx: tx.set("lport", "p", {"switch": 7})),
    "value no JSON": (InvalidValueError, "lport", lambda tx: tx.set("lport", "p", {"switch": object()})),
    "value not finite": (InvalidValueError, "lport", lambda tx: tx.set("lport", "p", {"switch": float("nan")})),
    "value too large": (InvalidValueError, "262144", lambda tx: tx.set("lport", "p", Port("x" * 300_000))),
    "value too deep": (InvalidValueError, "lport", lambda tx: tx.set("lport", "p", {"switch": DEEP})),
    "version no position": (InvalidValueError, "'one'", lambda tx: tx.set("lport", "p", Port("x"), version="one")),
    "create of what exists": (AlreadyExists, "'p1'", lambda tx: tx.create("lport", "p1", Port("x"))),
    "update of what is missing": (NotFound, "'p2'", lambda tx: tx.update("lport", "p2", {"switch": "x"})),
    "delete of what is missing": (NotFound, "'p2'", lambda tx: tx.delete("lport", "p2")),
    "another version": (VersionMismatch, "'p1'", lambda tx: tx.set("lport", "p1", Port("x"), version=99)),
    "transaction too large": (
        InvalidValueError,
        "100",
        lambda tx: [tx.set("lport", f"n{number}", Port("x")) for number in range(101)],
    ),
}


@pytest.mark.parametrize("case", VERBS)
def test_verbs(case: str, store: Store) -> None:
    kind, naming, verb = VERBS[case]
    assert_error(kind, naming, write(store, verb))
    assert store.get("lport", "half") is None, "the rest of the transaction was written"


@pytest.mark.parametrize(
    ("url", "naming"),
    [
        ("nonsense", "database URL"),  # not the value: it may hold a password
        ("oracle://host/db", "oracle"),
        ("postgresql://user:secret@host:port/db", "database URL"),
        ("", "URL"),
    ],
)
def test_wrong_urls(url: str, naming: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Store(url)
    assert "secret" not in str(caught.value)
    assert_error(ConfigError, naming, lambda: Store(url))


@pytest.mark.parametrize("url", ["postgresql+psycopg://u:p@127.0.0.1:1/db", "mysql+pymysql://u:p@127.0.0.1:1/db"])
def test_an_unreachable_database(url: str) -> None:
    assert_error(StoreUnavailable, "127.0.0.1", lambda: Store(url, settings=HASTY).read_heads([""]))


def test_missing_database_folder(tmp_path: Path) -> None:
    assert_error(StoreUnavailable, "nowhere", lambda: Store(f"sqlite:///{tmp_path}/nowhere/net.db", settings=HASTY))


def test_a_read_only_store(store: Store, sqlite_url: str) -> None:
    with Store(sqlite_url, read_only=True) as reader:
        assert_error(StoreReadOnly, "read", lambda: reader.unique_id("x"))


def test_a_locked_database(store: Store, sqlite_url: str) -> None:
    holder = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        assert_error(StoreBusy, "lock", write(store))
    finally:
        holder.close()


def test_a_full_database(store: Store, sqlite_url: str) -> None:
    large = [f"n{number}" for number in range(50)]
    with store._writers.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
    try:
        assert_error(
            StoreFull, "room", write(store, lambda tx: [tx.set("lport", key, Port("x" * 50_000)) for key in large])
        )
    finally:
        with store._writers.connect() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count=1000000")
    assert store.get("lport", "half") is None


def test_unknown_schema(tmp_path: Path) -> None:
    path = tmp_path / "foreign.db"
    with sqlite3.connect(path) as foreign:
        foreign.execute("CREATE TABLE pubsub_objects (mine TEXT)")
    foreign.close()
    assert_error(SchemaError, "pubsub_objects", lambda: Store(f"sqlite:///{path}"))


def test_file_that_is_not_a_database(tmp_path: Path) -> None:
    path = tmp_path / "photo.db"
    path.write_bytes(os.urandom(4096))
    assert_error(PubSubError, "database", lambda: Store(f"sqlite:///{path}", settings=HASTY))


def test_drivers(sqlite_url: str) -> None:
    assert_error(DriverError, "'zeromq'", lambda: Replica(Settings(store_url=sqlite_url, driver="zeromq")))
    assert_error(
        DriverError, "cross_host", lambda: loader.load("memory", {"cross_host": "the address tcp://10.0.0.1:8866"})
    )


@pytest.mark.parametrize("topic", ["", "t\0", "t" * 300])
def test_a_replicas_topics(topic: str, sqlite_url: str) -> None:
    assert_error(InvalidValueError, "topic", lambda: Replica(Settings(store_url=sqlite_url), topics=["fine", topic]))


def test_unsubscribed_topic_and_unknown_index(store: Store, sqlite_url: str) -> None:
    with Replica(Settings(store_url=sqlite_url), topics=["t"]) as replica:
        assert_error(NotSubscribedError, "'other'", lambda: replica.records(topic="other"))
        assert_error(NotSubscribedError, "'colour'", lambda: replica.lookup("colour", "red"))
        assert_error(UsageError, "no_function", lambda: replica.on("lport", "no_function"))  # type: ignore[arg-type]


FRAMES = {
    "random bytes": ((b"\x8f\x02garbage", b"\xff\xfe\x00"), "foreign"),
    "truncated": ((b"Dt\0", b"\x97\x01"), "truncated"),
    "one frame": ((b"Dt\0",), "truncated"),
    "oversized": ((b"Dt\0", b"\x97" * 2_000_000), "oversized"),
    "another major version": ((b"Dt\0", b"\x97\x02\x00"), "version"),
    "four frames": ((b"", b"", b"", b""), "foreign"),
}


@pytest.mark.parametrize("case", FRAMES)
def test_frames(case: str) -> None:
    frames, reason = FRAMES[case]
    assert_error(FrameError, "", lambda: codec.decode(frames))
    with pytest.raises(FrameError) as caught:
        codec.decode(frames)
    assert caught.value.reason == reason
