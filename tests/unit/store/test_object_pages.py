"""The rows of a full sync, as each statement reads them."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from _processes import poll
from sqlalchemy import Engine, create_engine, event, text

from pubsub_lib.core.contents import Contents
from pubsub_lib.core.model import ALL, Full, Point, TopicSnapshot, Want
from pubsub_lib.errors import StoreError
from pubsub_lib.store import Store, StoreSettings
from pubsub_lib.store.object_pages import behind_prefix


def full(store: Store, chain: str = ALL, known: Point | None = None) -> dict[str, TopicSnapshot]:
    answer = store.read_sync({chain: Want(known=known)}).chains[chain]
    assert isinstance(answer, Full)
    return dict(answer.topics)


def filled(store: Store, *tables: str) -> dict[tuple[str, str], bytes]:
    """The objects of the topic ``a``; each table has an object of the topic ``b``, too."""
    with store.transaction() as tx:
        for table in tables:
            for i in range(7):  # the page size is 3
                tx.set(table, f"{table} {i}", i, topic="a")
            tx.set(table, "other", 1, topic="b")
    return {(table, f"{table} {i}"): b"%d" % i for table in tables for i in range(7)}


def test_full_sync_reads_each_row_once_before_the_server_has_statistics(postgres_url: str) -> None:
    size, page = 6_000, 500
    engine = create_engine(postgres_url)
    with Store(postgres_url, settings=StoreSettings(page_size=page), bulk=True) as store:
        with engine.begin() as connection:
            connection.execute(text("ALTER TABLE pubsub_objects SET (autovacuum_enabled = false)"))
        for first in range(0, size, page):
            with store.transaction() as tx:
                for number in range(first, first + page):
                    tx.set("t", f"key-{number}", number, topic=f"topic-{number % 2}")
        # The server counts a connection's reads when the connection ends.
        store._readers.dispose()
        before = _rows_read(engine)
        assert len(full(store, "topic-1")["topic-1"].records) == size // 2
        store._readers.dispose()
        assert poll(lambda: _rows_read(engine) >= before + size // 2, 30.0)
        assert _rows_read(engine) <= before + size // 2 + page
        plan = text("EXPLAIN (ANALYZE) SELECT * FROM pubsub_services ORDER BY service, uuid")
        with store._readers.connect() as connection:
            assert not any("JIT" in row[0] for row in connection.execute(plan)), "no statement is compiled for a sort"
    engine.dispose()


def _rows_read(engine: Engine) -> int:
    """Rows of objects that the server has read since its start, as far as it has counted them."""
    query = text("SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'pubsub_objects'")
    with engine.connect() as connection:
        return int(connection.execute(query).scalar_one())


def test_full_sync_reads_each_row_once_while_mariadb_has_the_statistics_of_an_empty_table(mariadb_url: str) -> None:
    size, page = 6_000, 500
    engine = create_engine(mariadb_url)
    with Store(mariadb_url, settings=StoreSettings(page_size=page), bulk=True) as store:
        with engine.begin() as connection:
            connection.execute(text("ALTER TABLE pubsub_objects STATS_AUTO_RECALC = 0"))
        for first in range(0, size, page):
            with store.transaction() as tx:
                for number in range(first, first + page):
                    tx.set("t", f"key-{number}", number, topic=f"topic-{number % 2}")
        before = _rows_handled(engine)
        assert len(full(store, "topic-1")["topic-1"].records) == size // 2
        read = _rows_handled(engine) - before
    engine.dispose()
    assert size // 2 <= read <= size // 2 + page


def _rows_handled(engine: Engine) -> int:
    """Rows that all connections of a MariaDB server have read since its start, also by an index."""
    kinds = "'HANDLER_READ_KEY', 'HANDLER_READ_NEXT', 'HANDLER_READ_PREV', 'HANDLER_READ_RND', 'HANDLER_READ_RND_NEXT'"
    query = f"SELECT SUM(VARIABLE_VALUE) FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME IN ({kinds})"
    with engine.connect() as connection:
        return int(connection.execute(text(query)).scalar_one())


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path}/objects.db") as store:
        yield store


def damage(store: Store, change: str) -> None:
    """Alter the object with the key "t 3", as a program other than this library may do."""
    with sqlite3.connect(str(store._readers.url.database)) as connection:
        connection.execute(f"UPDATE pubsub_objects SET {change} WHERE object_key = 't 3'")
    connection.close()


@pytest.mark.parametrize("tables", [("t",), ("t", "u")])
@pytest.mark.parametrize("chain", [ALL, "a"])
@pytest.mark.parametrize("later", [False, True])
def test_full_sync_has_each_row_with_its_table(store: Store, tables: tuple[str, ...], chain: str, later: bool) -> None:
    expected = filled(store, *tables)
    records = full(store, chain, store.read_heads([]).store if later else None)["a"].records
    assert {(each.table, each.key): each.value for each in records} == expected
    assert len(records) == len(expected)
    # A first sync hands over entries. A replica that has these objects gets records, which take less memory.
    assert isinstance(records, Contents) is not later


@pytest.mark.parametrize(("tables", "columns"), [(("t",), 4), (("t", "u"), 5)])
def test_sqlite_does_not_read_the_name_of_the_only_table(sqlite: Store, tables: tuple[str, ...], columns: int) -> None:
    filled(sqlite, *tables)
    widths: list[int] = []

    def executed(connection: object, cursor: object, statement: str, *args: object) -> None:
        if "pubsub_objects.value" in statement:
            widths.append(statement.partition("FROM")[0].count("pubsub_objects."))

    event.listen(sqlite._readers, "after_cursor_execute", executed)
    full(sqlite)
    assert widths == [columns]


@pytest.mark.parametrize("tables", [("t",), ("t", "u")])
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("topic = 'lost'", "row of the topic 'lost'"),
        ("topic = CAST(topic AS BLOB)", "row of the topic b'a'"),
        ("value = 'text'", "its value is str"),
    ],
)
@pytest.mark.parametrize("later", [False, True])
def test_full_sync_refuses_damaged_rows(
    sqlite: Store, tables: tuple[str, ...], change: str, complaint: str, later: bool
) -> None:
    filled(sqlite, *tables)
    known = sqlite.read_heads([]).store if later else None
    damage(sqlite, change)
    with pytest.raises(StoreError, match=complaint):
        full(sqlite, ALL, known)


def test_table_of_another_type_is_not_the_only_table(sqlite: Store) -> None:
    expected = filled(sqlite, "t")
    damage(sqlite, "table_name = CAST(table_name AS BLOB)")
    snapshot = full(sqlite)["a"]
    assert isinstance(snapshot.records, Contents)
    assert {("t", each.key) for each in snapshot.records if each.table == "t"} == expected.keys() - {("t", "t 3")}
    assert snapshot.records.digest != snapshot.head.digest


@pytest.mark.parametrize(
    ("prefix", "end"),
    [
        ("a", "b"),
        ("a\U0010ffff", "b"),
        ("\ud7ff", "\ue000"),  # no surrogate
        ("ab\x7f", "ab\x80"),
        ("\U0010ffff\U0010ffff", None),
    ],
)
def test_end_of_a_prefix_is_behind_all_keys_that_begin_with_it(prefix: str, end: str | None) -> None:
    assert behind_prefix(prefix) == end
    if end is not None:
        assert f"{prefix}\U0010ffff\U0010ffff".encode() < end.encode()
