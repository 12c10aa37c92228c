"""Schema checks, creation and migration."""

import importlib.resources
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, inspect, make_url, text

from pubsub_lib.errors import SchemaError
from pubsub_lib.store import Store, StoreSettings, migrate, migration, schema
from pubsub_lib.store.migration import KNOWN

pytestmark = pytest.mark.empty_database


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = create_engine(database_url)
    yield made
    made.dispose()


def script() -> Config:
    config = Config()
    config.set_main_option("path_separator", "os")
    folder = Path(str(importlib.resources.files("pubsub_lib.store") / "migrations"))
    config.set_main_option("script_location", str(folder))
    return config


def run(engine: Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


def upgraded(engine: Engine, revision: str) -> None:
    """Build the schema of an older revision in an empty database."""
    with engine.connect() as connection:
        config = script()
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        connection.commit()


def test_known_revisions_are_alembics() -> None:
    revisions = [each.revision for each in ScriptDirectory.from_config(script()).walk_revisions()]
    assert tuple(reversed(revisions)) == KNOWN
    assert KNOWN[-1] == schema.REVISION


def test_migrations_build_the_tables_of_the_schema(database_url: str, engine: Engine) -> None:
    Store(database_url).close()
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": schema.VERSION_TABLE})
        differences = compare_metadata(context, schema.metadata)
    assert differences == []


def test_mysql_tables_are_transactional_with_any_default_engine(mariadb_url: str) -> None:
    url = make_url(mariadb_url).update_query_dict({"init_command": "SET SESSION default_storage_engine = 'Aria'"})
    Store(url.render_as_string(hide_password=False)).close()
    made = create_engine(url)
    query = "SELECT table_name, engine FROM information_schema.tables WHERE table_schema = DATABASE()"
    with made.connect() as connection:
        assert connection.execute(text("SELECT @@default_storage_engine")).scalar_one() == "Aria"
        engines = {each[0]: each[1] for each in connection.execute(text(query))}
    made.dispose()
    assert {name: engines[name] for name in schema.metadata.tables} == dict.fromkeys(schema.metadata.tables, "InnoDB")


def test_older_schema_is_rejected_until_migrated(database_url: str, engine: Engine) -> None:
    upgraded(engine, "0001")
    with pytest.raises(SchemaError, match=r"0001.*needs 0005.*pubsub-db migrate"):
        Store(database_url)
    migrate(database_url)
    migrate(database_url)
    with Store(database_url) as store:
        assert store.unique_id("x") == 1


def test_store_id_is_made_by_creation_and_by_migration(database_url: str, engine: Engine) -> None:
    upgraded(engine, "0002")
    migrate(database_url)
    with Store(database_url) as store:
        first = store.store_id
    assert len(first) == 16
    # An interrupted migration left the column without an id.
    run(engine, "UPDATE pubsub_store SET store_id = ''", f"UPDATE {schema.VERSION_TABLE} SET version_num = '0002'")
    migrate(database_url)
    with Store(database_url) as store:
        second = store.store_id
        assert len(second) == 16
    assert second != first
    migrate(database_url)  # changes nothing
    with Store(database_url) as store:
        assert store.store_id == second


@pytest.mark.mariadb
def test_opening_waits_for_a_running_migration(mariadb_url: str) -> None:
    """MariaDB commits every statement of a migration by itself, so other processes can read in between."""
    engine = create_engine(mariadb_url)
    opened: list[Store] = []
    opener = threading.Thread(target=lambda: opened.append(Store(mariadb_url)))
    try:
        with engine.connect() as connection, migration._locked(connection, 10.0):
            config = script()
            config.attributes["connection"] = connection
            command.upgrade(config, "0001")
            opener.start()
            _wait_until_a_process_waits_for_the_lock(engine)
            command.upgrade(config, "head")
            connection.commit()
        opener.join()
        assert opened[0].unique_id("x") == 1
        opened[0].close()
    finally:
        engine.dispose()


def _wait_until_a_process_waits_for_the_lock(engine: Engine) -> None:
    deadline = time.monotonic() + 20.0
    waiting = text("SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock'")
    while True:
        with engine.connect() as connection:
            if connection.execute(waiting).scalar_one():
                return
        assert time.monotonic() < deadline, "no process waits for the lock"


@pytest.mark.parametrize(
    ("database", "query", "before", "during"),
    [
        ("postgres_url", "SELECT setting FROM pg_settings WHERE name LIKE 'idle_in_tr%'", 4000, 120000),
        ("mariadb_url", "SELECT @@idle_transaction_timeout", 4, 120),
    ],
)
def test_server_waits_longer_for_a_migration_than_for_a_writer(
    database: str,
    query: str,
    before: int,
    during: int,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []
    shown = text(query)

    def run(connection: Connection) -> None:
        seen.append(int(connection.execute(shown).scalar_one()))
        run_alembic(connection)

    run_alembic = migration._run_alembic
    monkeypatch.setattr(migration, "_run_alembic", run)
    settings = StoreSettings(idle_in_transaction_timeout=4.0)
    url = request.getfixturevalue(database)
    with Store(url, settings=settings) as store, store._writers.connect() as connection:
        assert int(connection.execute(shown).scalar_one()) == before
    assert seen == [during]


def test_newer_schema_is_rejected(database_url: str, engine: Engine) -> None:
    Store(database_url).close()
    run(engine, f"UPDATE {schema.VERSION_TABLE} SET version_num = '0099'")
    for refused in (lambda: Store(database_url), lambda: migrate(database_url)):
        with pytest.raises(SchemaError, match="0099"):
            refused()


def test_foreign_table_with_our_name_is_rejected(database_url: str, engine: Engine) -> None:
    run(engine, "CREATE TABLE pubsub_topics (something INTEGER)")
    for refused in (lambda: Store(database_url), lambda: migrate(database_url)):
        with pytest.raises(SchemaError, match="pubsub_topics"):
            refused()
    assert inspect(engine).get_table_names() == ["pubsub_topics"]


def test_foreign_tables_with_other_names_are_ignored(database_url: str, engine: Engine) -> None:
    run(engine, "CREATE TABLE topics (something INTEGER)")
    Store(database_url).close()


def test_missing_table_is_named(database_url: str, engine: Engine) -> None:
    Store(database_url).close()
    run(engine, "DROP TABLE pubsub_links")
    with pytest.raises(SchemaError, match="pubsub_links"):
        Store(database_url)


def test_interrupted_creation_is_finished(database_url: str, engine: Engine) -> None:
    """MariaDB commits every DDL statement by itself: a creation that was killed leaves tables and an empty version."""
    Store(database_url).close()
    run(engine, f"DELETE FROM {schema.VERSION_TABLE}", "DROP TABLE pubsub_counters", "DROP TABLE pubsub_links")
    with Store(database_url) as store:
        assert store.unique_id("x") == 1
        assert store.read_links(None, 1)[0] == []


def test_isolation_sqlite_is_in_wal_mode(sqlite_url: str) -> None:
    Store(sqlite_url).close()
    engine = create_engine(sqlite_url)
    with engine.connect() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar_one() == "wal"
    engine.dispose()


def test_file_that_is_not_a_database_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "net.db"
    path.write_bytes(b"not a database, but long enough to be checked for a header" * 50)
    with pytest.raises(SchemaError, match="not a SQLite database"):
        Store(f"sqlite:///{path}")
