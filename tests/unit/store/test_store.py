"""The rules of the store, through its facade, on each of the three database systems."""

import multiprocessing
import os
import threading
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from sqlalchemy import create_engine, text, update

from pubsub_lib import Replica, Settings, Table
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import ALL, EMPTY, ZERO, Delta, Full, Incomplete, Link, Want
from pubsub_lib.errors import (
    AlreadyExists,
    ClosedError,
    ConfigError,
    HandoffRejectedError,
    InvalidValueError,
    NotFound,
    SchemaError,
    StoreReadOnly,
    StoreUnavailable,
    UsageError,
    VersionMismatch,
)
from pubsub_lib.store import DEFAULT_TOPIC, Store, StoreSettings, administration, schema
from tests.e2e.store_checks import assert_consistent
from tests.unit.store.conftest import Opener


class Port(msgspec.Struct):
    switch: str


def put(store: Store, key: str, value: object = 1, *, topic: str | None = None) -> Link:
    with store.transaction() as tx:
        tx.set("t", key, value, topic=topic)
    assert tx.commit is not None
    return tx.commit.links[-1]


# -- position, version, point --


def test_position_of_a_change_is_unique_and_the_objects_version(store: Store) -> None:
    with store.transaction() as tx:
        tx.create("t", "a", 1)
        tx.create("t", "b", 2)
    with store.transaction() as tx:
        tx.set("t", "a", 3)
    a, b = store.get_record("t", "a"), store.get_record("t", "b")
    assert a is not None
    assert b is not None
    assert (a.version, b.version) == (3, 2)
    assert tx.commit is not None
    assert tx.commit.point.position == 3
    assert tx.commit.nonce == tx.nonce == store.read_heads([]).store.nonce
    assert_consistent(store)


def test_position_version_grows_over_delete_and_create(store: Store) -> None:
    put(store, "a")
    with store.transaction() as tx:
        tx.delete("t", "a")
    put(store, "a")
    record = store.get_record("t", "a")
    assert record is not None
    assert record.version == 3


def test_topic_rows_link_chains_its_topic_and_its_transaction(store: Store) -> None:
    first, second, third = put(store, "a", topic="x"), put(store, "b", topic="y"), put(store, "a", 2, topic="x")
    assert (first.prev, second.prev, third.prev) == (ZERO, ZERO, first.point)
    assert (first.tx_prev, second.tx_prev, third.tx_prev) == (ZERO, first.point, second.point)
    assert store.read_heads(["x", "never"]).topics["never"] == EMPTY


def test_between_commit_and_publish_origin_is_the_stores_or_the_transactions(open_store: Opener) -> None:
    store = open_store(origin="api")
    assert put(store, "a").origin == "api"
    with store.transaction(origin="other") as tx:
        tx.set("t", "a", 2)
    assert [link.origin for link in store.read_links(None, 10)[0]] == ["api", "other"]


# -- keys as bytes, values verbatim --


@pytest.mark.parametrize(("one", "other"), [("A", "a"), ("b", "b "), ("é", "e\u0301"), ("ß", "ss"), ("k\u200b", "k")])
def test_keys_and_topics_are_compared_as_bytes(one: str, other: str, store: Store) -> None:
    with store.transaction() as tx:
        tx.create("t", one, "one", topic=one)
        tx.create("t", other, "other", topic=other)
        tx.create(one, "k", 1)
        tx.create(other, "k", 2)
    assert (store.get("t", one), store.get("t", other)) == ("one", "other")
    assert (store.get(one, "k"), store.get(other, "k")) == (1, 2)
    answer = store.read_sync({one: Want()}).chains[one]
    assert isinstance(answer, Full)
    assert [record.key for record in answer.topics[one].records] == [one]


def test_values_are_canonical_json_verbatim(store: Store) -> None:
    put(store, "a", {"b": 1, "a": [1.5, None, "ü\u0000"], "c": {"z": True, "y": 2**63}})
    record = store.get_record("t", "a")
    assert record is not None
    assert record.value == '{"a":[1.5,null,"ü\\u0000"],"b":1,"c":{"y":9223372036854775808,"z":true}}'.encode()


def test_values_over_64_kib_are_kept(store: Store) -> None:
    put(store, "a", "x" * 200_000)
    assert store.get("t", "a") == "x" * 200_000
    link = store.read_links(None, 1)[0][0]
    assert link.changes[0].value == b'"' + b"x" * 200_000 + b'"'


# -- verbs --


def test_verbs_create_must_not_exist(store: Store) -> None:
    put(store, "a")
    with pytest.raises(AlreadyExists, match="t 'a'"), store.transaction() as tx:
        tx.set("t", "b", 1)
        tx.create("t", "a", 2)
    assert store.get("t", "b") is None
    assert store.read_heads([]).store.position == 1


def test_verbs_update_merges_into_an_existing_object(store: Store) -> None:
    put(store, "a", {"x": 1, "y": 2}, topic="here")
    with store.transaction() as tx:
        tx.update("t", "a", {"y": 3, "z": 4})
    assert store.get("t", "a") == {"x": 1, "y": 3, "z": 4}
    record = store.get_record("t", "a")
    assert record is not None
    assert record.topic == "here"
    with pytest.raises(NotFound), store.transaction() as tx:
        tx.update("t", "b", {})
    put(store, "list", [1])
    with pytest.raises(InvalidValueError, match="use set"), store.transaction() as tx:
        tx.update("t", "list", {"x": 1})


def test_verbs_delete_must_exist_unless_missing_ok(store: Store) -> None:
    with pytest.raises(NotFound, match="missing_ok"), store.transaction() as tx:
        tx.delete("t", "a")
    with store.transaction() as tx:
        tx.delete("t", "a", missing_ok=True)
    assert tx.commit is None


def test_verbs_compare_and_set(store: Store) -> None:
    version = put(store, "a").point.position
    with store.transaction() as tx:
        tx.set("t", "a", 2, version=version)
    with pytest.raises(VersionMismatch, match=r"expects version 1, but it is 2"), store.transaction() as tx:
        tx.set("t", "a", 3, version=version)
    with pytest.raises(VersionMismatch), store.transaction() as tx:
        tx.update("t", "a", {}, version=7)
    with pytest.raises(VersionMismatch), store.transaction() as tx:
        tx.delete("t", "a", version=version)
    with pytest.raises(NotFound), store.transaction() as tx:
        tx.delete("t", "none", version=1)
    assert store.get("t", "a") == 2


def test_version_zero_means_absent(store: Store) -> None:
    with store.transaction() as tx:
        tx.set("t", "a", 1, version=0)
    with pytest.raises(VersionMismatch), store.transaction() as tx:
        tx.set("t", "a", 2, version=0)


def test_verbs_on_the_same_key_are_folded(store: Store) -> None:
    put(store, "old", 1)
    with store.transaction() as tx:
        tx.create("t", "a", 1)
        tx.set("t", "old", 2)
        tx.set("t", "a", 2)
        tx.delete("t", "old")
        tx.create("t", "old", 3)
        tx.create("t", "gone", 1)
        tx.delete("t", "gone")
    assert tx.commit is not None
    (link,) = tx.commit.links
    assert [(c.key, c.action, c.value, c.version) for c in link.changes] == [
        ("a", "create", b"2", 2),
        ("old", "set", b"3", 3),
    ]


def test_values_equal_bytes_write_and_publish_nothing(store: Store) -> None:
    put(store, "a", {"x": 1, "y": 2})
    seen: list[Sequence[Link]] = []
    store.on_commit(seen.append)
    with store.transaction() as tx:
        tx.set("t", "a", {"y": 2, "x": 1})
        tx.update("t", "a", {"x": 1})
    assert tx.commit is None
    assert seen == []
    assert store.read_heads([]).store.position == 1


def test_verbs_without_topic_use_the_default_or_the_objects_topic(store: Store) -> None:
    assert put(store, "a").topic == DEFAULT_TOPIC
    put(store, "b", topic="own")
    assert put(store, "b", 2).topic == "own"


def test_verbs_move_is_a_delete_in_the_old_and_a_create_in_the_new_topic(store: Store) -> None:
    put(store, "a", {"n": 1}, topic="old")
    with store.transaction() as tx:
        tx.update("t", "a", {}, topic="new")
    assert tx.commit is not None
    old, new = sorted(tx.commit.links, key=lambda link: link.topic, reverse=True)
    assert [(c.action, c.version, c.value) for c in old.changes] == [("delete", 2, None)]
    assert [(c.action, c.version, c.value) for c in new.changes] == [("create", 3, b'{"n":1}')]
    assert (old.count, old.digest, new.count) == (0, 0, 1)
    assert {old.tx_links, new.tx_links} == {2}
    assert store.topics()["old"].count == 0
    assert_consistent(store)


def test_invalid_origin_of_a_transaction_is_rejected(store: Store) -> None:
    with pytest.raises(InvalidValueError, match="service"), store.transaction(origin="x" * 256):
        pass


def test_exception_in_the_block_writes_nothing(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), store.transaction() as tx:
        tx.set("t", "a", 1)
        raise ZeroDivisionError
    assert store.get("t", "a") is None
    assert tx.commit is None
    with pytest.raises(ClosedError):
        tx.set("t", "a", 1)


def test_verbs_of_a_transaction_are_bounded(open_store: Opener) -> None:
    store = open_store(limits=Limits(max_transaction_changes=3, max_transaction_bytes=100))
    with pytest.raises(InvalidValueError, match="4 changes"), store.transaction() as tx:
        for i in range(4):
            tx.set("t", f"k{i}", i)
    with pytest.raises(InvalidValueError, match="bytes of keys"), store.transaction() as tx:
        tx.set("t", "k", "x" * 100)
    assert store.read_heads([]).store == ZERO


def test_large_transaction_is_written(store: Store) -> None:
    """More keys than one IN list or page contains."""
    with store.transaction() as tx:
        for i in range(1200):
            tx.create("t", f"k{i}", i, topic=f"topic-{i % 3}")
    with store.transaction() as tx:
        for i in range(1200):
            tx.set("t", f"k{i}", -i) if i % 2 else tx.delete("t", f"k{i}")
    assert assert_consistent(store) == 2


# -- reads in a transaction --


def test_get_in_a_transaction_sees_its_own_verbs(store: Store) -> None:
    put(store, "a", {"n": 1})
    with store.transaction() as tx:
        tx.update("t", "a", {"m": 2})
        assert tx.get("t", "a") == {"n": 1, "m": 2}
        tx.delete("t", "a")
        assert tx.get("t", "a") is None


def test_transaction_rejects_commit_after_overtaken_get(store: Store) -> None:
    put(store, "a", 1)
    with pytest.raises(VersionMismatch, match="run it again"), store.transaction() as tx:
        value = tx.get("t", "a")
        put(store, "a", 10)
        tx.set("t", "b", value)
    assert store.get("t", "b") is None


def test_write_runs_its_function_again_after_an_overtaken_read(store: Store) -> None:
    put(store, "n", 0)

    def count() -> None:
        for _ in range(5):
            store.write(lambda tx: tx.set("t", "n", tx.get("t", "n") + 1))

    threads = [threading.Thread(target=count) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.get("t", "n") == 15
    assert assert_consistent(store) == 16


# -- after commit --


def test_between_commit_and_publish_on_commit_gets_the_links_after_the_commit(store: Store) -> None:
    seen: list[tuple[int, object]] = []
    end = store.on_commit(lambda links: seen.append((links[0].point.position, store.get("t", "a"))))
    put(store, "a", "x")
    end()
    put(store, "a", "y")
    assert seen == [(1, "x")]


def test_on_commit_exception_is_counted_and_undoes_nothing(store: Store) -> None:
    seen: list[object] = []

    def bad(_links: object) -> None:
        raise RuntimeError

    store.on_commit(bad)
    store.on_commit(seen.append)
    put(store, "a")
    assert (store.callback_errors, len(seen), store.get("t", "a")) == (1, 1, 1)


def refusing(store: Store) -> list[object]:
    """Register a callback of a full hop, and another one that records its calls."""
    seen: list[object] = []

    def full(_links: object) -> None:
        raise HandoffRejectedError("the buffer is full")

    store.on_commit(full)
    store.on_commit(seen.append)
    return seen


def test_writer_gets_handoff_rejected_error_after_commit(store: Store) -> None:
    seen = refusing(store)
    with pytest.raises(HandoffRejectedError, match="the buffer is full"), store.transaction() as tx:
        tx.set("t", "a", 1)
    assert tx.commit is not None
    assert store.committed(tx.nonce)
    assert (store.callback_errors, len(seen), store.get("t", "a")) == (1, 1, 1)


def test_committed_looks_up_a_nonce(store: Store) -> None:
    with store.transaction() as tx:
        assert not store.committed(tx.nonce)
        tx.set("t", "a", 1)
    put(store, "b")
    assert store.committed(tx.nonce)
    assert not store.committed(tx.nonce + 1)
    assert store.committed(tx.nonce, 1)
    assert not store.committed(tx.nonce + 1, 1), "another transaction took its position"
    assert not store.committed(tx.nonce + 1, 7), "nothing was committed there"
    position: Any = "1"
    with pytest.raises(UsageError, match="position"):
        store.committed(tx.nonce, position)


# -- opening --


@pytest.mark.parametrize(
    "url",
    ["", "nonsense", "oracle://x/y", "sqlite://", "sqlite:///:memory:", "postgresql+psycopg2://h/d", "mysql://h/"],
)
def test_wrong_url_is_rejected(url: str) -> None:
    with pytest.raises(ConfigError, match=r"URL|SQLite"):
        Store(url)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("postgresql://postgres@127.0.0.1:1/x", "unreachable"),
        ("mysql://root@127.0.0.1:1/x", "unreachable"),
        ("sqlite:////no/such/folder/net.db", "see its path, and the rights on it and on its folder"),
    ],
)
def test_unreachable_database_is_named(url: str, sentence: str) -> None:
    with pytest.raises(StoreUnavailable, match=sentence):
        Store(url)


@pytest.mark.empty_database
def test_missing_database_is_named(database_url: str) -> None:
    if database_url.startswith("sqlite"):
        return  # it would be created
    wrong = database_url.replace("/db", "/nosuch")
    with pytest.raises(ConfigError, match="database name"):
        Store(wrong)


@pytest.mark.empty_database
def test_read_only_store_rejects_writes(open_store: Opener) -> None:
    # SQLite: no file exists; the others: no tables exist
    with pytest.raises((SchemaError, StoreUnavailable), match=r"or create (it|them) by pubsub-db init"):
        open_store(read_only=True)
    writer = open_store()
    put(writer, "a")
    store = open_store(read_only=True)
    assert store.get("t", "a") == 1
    head = writer.read_heads([]).store
    assert store.committed(head.nonce)
    assert store.committed(head.nonce, head.position)
    assert len(store.read_links(None, 10)[0]) == 1
    for refused in (store.transaction().__enter__, lambda: store.unique_id("x"), store.directory.collect_garbage):
        with pytest.raises(StoreReadOnly):
            refused()


def test_close_closes_a_used_connection_when_it_is_returned(store: Store) -> None:
    for engine in (store._readers, store._writers):
        with engine.connect() as connection:
            connection.execute(text("SELECT 1"))
            driver = connection.connection.driver_connection
            assert driver is not None
            store.close()
            connection.execute(text("SELECT 1"))  # the thread that uses it goes on
        assert engine.dialect.dbapi is not None
        with pytest.raises(engine.dialect.dbapi.Error):
            driver.cursor().execute("SELECT 1")


def test_closed_store_rejects_calls(store: Store) -> None:
    store.close()
    store.close()
    for refused in (store.topics, lambda: store.get("t", "k"), store.transaction().__enter__):
        with pytest.raises(ClosedError):
            refused()


@pytest.mark.parametrize(
    ("table", "key", "topic", "word"),
    [
        ("", "k", "t", "table"),
        ("t", "", "t", "key"),
        ("t", "k", "", "topic"),
        ("t\0", "k", "t", "NUL"),
        ("t", "k\0", "t", "NUL"),
        ("t", "k", "t\0", "NUL"),
        ("t" * 256, "k", "t", "256 bytes"),
        ("t", "k" * 513, "t", "513 bytes"),
        ("t", "k", "ü" * 128, "256 bytes"),
        ("t", "\ud800", "t", "Unicode"),
    ],
)
def test_store_rejects_invalid_names(table: str, key: str, topic: str, word: str, store: Store) -> None:
    with pytest.raises(InvalidValueError, match=word), store.transaction() as tx:
        tx.set(table, key, 1, topic=topic)
    assert store.read_heads([]).store == ZERO


def test_keys_and_topics_of_maximum_length_fit(store: Store) -> None:
    with store.transaction() as tx:
        tx.set("t" * 255, "k" * 512, 1, topic="ü" * 127)
    assert store.get("t" * 255, "k" * 512) == 1
    assert assert_consistent(store) == 1


# -- threads, forks, processes --


def test_forked_child_uses_the_store_without_the_parents_connections(store: Store) -> None:
    put(store, "a", "parent")
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            put(store, "b", store.get("t", "a"))
            store.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    assert store.get("t", "b") == "parent"
    put(store, "c")
    assert assert_consistent(store) == 3


def _open_and_write(url: str, number: int) -> None:
    with Store(url, settings=StoreSettings(retry_attempts=50)) as store:
        put(store, f"k{number}")


@pytest.mark.quick_variants("postgresql")
@pytest.mark.empty_database
def test_empty_database_is_created_by_several_processes_at_once(database_url: str) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_open_and_write, args=(database_url, i)) for i in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    with Store(database_url) as store:
        assert assert_consistent(store) == 4


def test_threads_share_a_store(store: Store) -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(6):
                put(store, f"k{i}", f"{number} {i}", topic=f"topic-{number}")
                store.read_sync({ALL: Want()})
        except BaseException as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert assert_consistent(store) == 36


def test_history_of_another_database_is_incomplete(store: Store) -> None:
    point = put(store, "a").point
    wrong = type(point)(point.position, point.nonce ^ 1)
    answer = store.read_sync({ALL: Want(after=wrong), DEFAULT_TOPIC: Want(after=wrong)})
    assert answer.chains == {ALL: Incomplete(), DEFAULT_TOPIC: Incomplete()}
    right = store.read_sync({ALL: Want(after=point)}).chains[ALL]
    assert right == Delta([], point, store.read_heads([DEFAULT_TOPIC]).topics)


def test_store_takes_its_options_from_settings(database_url: str) -> None:
    limits = Limits(max_value_bytes=1000, max_transaction_changes=3)
    kept = StoreSettings(pool_size=2, lock_timeout=0.5)
    settings = Settings(store_url=database_url, service_name="api-1", limits=limits, store=kept)
    with Store(settings) as store:
        assert (store.limits, store.settings, store.origin) == (limits, kept, "api-1")
        with pytest.raises(InvalidValueError, match="1000"), store.transaction() as tx:
            tx.set("lport", "p1", "x" * 5000)
        with pytest.raises(InvalidValueError, match="at most 3"), store.transaction() as tx:
            for number in range(4):
                tx.set("lport", f"p{number}", number)
        with store.transaction() as tx:
            tx.set("lport", "p1", 1)
        assert tx.commit is not None
        assert {link.origin for link in tx.commit.links} == {"api-1"}
    with Store(settings, origin="other") as store:
        assert store.origin == "other"


def test_settings_with_single_options_are_rejected(sqlite_url: str) -> None:
    settings: Any = Settings(store_url=sqlite_url)
    for more in ({"limits": Limits()}, {"settings": StoreSettings()}):
        with pytest.raises(ConfigError, match="takes its settings and limits from there"):
            Store(settings, **more)


def test_store_and_replica_return_equal_objects(database_url: str) -> None:
    ports = Table("lport", Port)
    settings = Settings(store_url=database_url)
    with Store(settings, tables=[ports]) as store:
        with store.transaction() as tx:
            for number in range(3):
                tx.set(ports, f"p{number}", Port(f"s{number}"), topic=f"t{number % 2}")
        with Replica(settings, tables=[ports]) as replica:
            replica.wait_synced(60)
            theirs = {each.key: each for each in replica.records(ports)}
            assert theirs["p1"].value == Port("s1")
        for found in store.records(ports):
            like = theirs.pop(found.key)
            assert (found.table, found.topic, found.version) == (like.table, like.topic, like.version)
            assert (found.json, found.value) == (like.json, Port(f"s{found.key[1:]}"))
            one = store.record(ports, found.key)
            assert one is not None
            assert (one.value, one.version) == (found.value, found.version)
        assert theirs == {}
        assert [each.key for each in store.records(topic="t1")] == ["p1"]
        assert len(list(store.records())) == 3
        assert store.record(ports, "missing") is None


def test_record_with_mismatching_value_raises_on_reading_it(database_url: str) -> None:
    with Store(database_url) as store, store.transaction() as tx:
        tx.set("lport", "p1", {"switch": 5})
    with Store(database_url, tables=[Table("lport", Port)]) as store:
        (found,) = store.records("lport")
        assert found.json == b'{"switch":5}'
        with pytest.raises(InvalidValueError, match="does not fit Port"):
            _ = found.value


def test_store_id_is_the_same_in_commits_and_in_every_reading(store: Store) -> None:
    own = store.read_heads([]).store_id
    assert len(own) == 16
    with store.transaction() as tx:
        tx.set("t", "k", 1, topic="a")
    assert tx.commit is not None
    assert tx.commit.store_id == store.read_sync({"a": Want()}).store_id == store.store_id == own


def test_store_id_follows_the_database(open_store: Opener, database_url: str) -> None:
    reads, writes, syncs, follows = (open_store() for _ in range(4))
    for each in (reads, writes, syncs, follows):
        each.read_heads([])
    before, after = (bytes.fromhex(each) for each in administration.new_id(database_url))
    assert reads.store_id == before != after
    reads.read_heads([])
    syncs.read_sync({})
    follows.read_links(None, 1)
    with writes.transaction() as tx:
        tx.set("t", "k", 1)
    assert [each.store_id for each in (reads, syncs, follows, writes)] == [after] * 4


def test_lost_store_id_is_named(store: Store, database_url: str) -> None:
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(update(schema.store).values(store_id="abc"))
    engine.dispose()
    with pytest.raises(SchemaError, match="holds no store id but 'abc'; make one by pubsub-db new-id"):
        store.read_heads([])
    with pytest.raises(SchemaError, match="holds no store id"), store.transaction() as tx:
        tx.set("t", "k", 1)
    administration.new_id(database_url)
    assert store.read_heads([]).store == ZERO
