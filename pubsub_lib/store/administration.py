"""Administration of a whole database: its schema's revision, migrating it, its id, and dropping its tables."""

import uuid
from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy import Connection, MetaData, Table, column, inspect, select, text, update
from sqlalchemy import table as table_clause

from pubsub_lib.errors import ConfigError
from pubsub_lib.store import engine, error_mapping, migration, schema, sqlite, url
from pubsub_lib.store.settings import StoreSettings, checked

T = TypeVar("T")


def revision(
    database: str,
    *,
    settings: StoreSettings = StoreSettings(),  # noqa: B008 - frozen
) -> str | None:
    """The schema's revision in a database, also an unknown one; None when it has none of our tables, or no file exists.

    Any thread; blocks for the timeouts. Raises ConfigError, StoreUnavailable, StoreBusy.
    """
    parsed = url.parse(database)
    if parsed.get_backend_name() == "sqlite" and not sqlite.path_of(parsed).exists():
        return None
    return _with(database, settings, False, f"reading the schema of {url.shown(parsed)}", _revision)


def require_create(
    database: str,
    *,
    settings: StoreSettings = StoreSettings(),  # noqa: B008 - frozen
) -> None:
    """Reject (ConfigError) a PostgreSQL role that may not create tables. Other databases report that on creation.

    Changes nothing. Any thread; blocks for the timeouts. Raises StoreUnavailable, StoreBusy, StoreReadOnly (a standby).
    """
    parsed = url.parse(database)
    if parsed.get_backend_name() != "postgresql":
        return

    def do(connection: Connection) -> None:
        asked = text("SELECT current_schema(), has_schema_privilege(current_schema(), 'CREATE'), current_user")
        schema_name, allowed, role = connection.execute(asked).one()
        if not allowed:  # None: no schema of the search_path exists
            where = "any schema of its search_path" if schema_name is None else f"the schema {schema_name}"
            raise ConfigError(
                f"the role {role!r} may not make tables in {where} of {url.shown(parsed)}; GRANT CREATE ON SCHEMA to "
                "it, or make the tables as another role by pubsub-db init"
            )

    _with(database, settings, True, f"reading the rights on {url.shown(parsed)}", do)


def drop(
    database: str,
    *,
    settings: StoreSettings = StoreSettings(),  # noqa: B008 - frozen
) -> Sequence[str]:
    """Drop this library's tables with all their rows; returns their names. A SQLite file stays, without the tables.

    Nothing is published: where replicas are to receive deletes, delete the objects first. Any thread; blocks for the
    timeouts. Raises ConfigError, SchemaError (no tables, foreign tables, a newer version), StoreUnavailable, StoreBusy.
    """
    parsed = url.parse(database)

    def do(connection: Connection) -> Sequence[str]:
        try:
            migration.require(connection)
        except migration.Older:
            pass  # ours all the same
        present = set(inspect(connection).get_table_names())
        names = sorted(present & {*schema.metadata.tables, schema.VERSION_TABLE})
        doomed = MetaData()
        for name in names:
            Table(name, doomed)
        doomed.drop_all(connection)
        connection.commit()
        return names

    return _with(database, settings, True, f"dropping the tables of {url.shown(parsed)}", do)


def migrate(
    database: str,
    *,
    settings: StoreSettings = StoreSettings(),  # noqa: B008 - frozen
) -> None:
    """Bring a database of an older version of this library (or an empty one) to the current schema.

    Stop its writers first. Raises ConfigError, SchemaError (newer, foreign), StoreUnavailable, StoreBusy.
    """
    parsed = url.parse(database)
    checked("settings", settings)
    writers = engine.make(parsed, settings, writes=True, primary=True)
    try:
        with error_mapping.translated(f"migrating {url.shown(parsed)}"):
            if parsed.get_backend_name() == "sqlite":
                sqlite.create(parsed)
            migration.upgrade(writers, settings.lock_timeout)
    finally:
        writers.dispose()


def new_id(
    database: str,
    *,
    settings: StoreSettings = StoreSettings(),  # noqa: B008 - frozen
) -> tuple[str, str]:
    """Give a store another id; returns the previous one and the new one. For a copy of a database, which has the id of
    the original.

    Running programs take the new id with their next commit or reading. Any thread; blocks for the timeouts. Raises
    ConfigError, SchemaError, StoreUnavailable, StoreBusy.
    """
    fresh = uuid.uuid4().hex

    def do(connection: Connection) -> tuple[str, str]:
        migration.require(connection)
        store = schema.store
        before = connection.execute(select(store.c.store_id).where(store.c.id == 1).with_for_update()).scalar_one()
        connection.execute(update(store).where(store.c.id == 1).values(store_id=fresh))
        connection.commit()
        return before, fresh

    return _with(database, settings, True, f"giving {url.shown(url.parse(database))} a new id", do)


def _revision(connection: Connection) -> str | None:
    if schema.VERSION_TABLE not in inspect(connection).get_table_names():
        return None
    versions = table_clause(schema.VERSION_TABLE, column("version_num"))
    return ", ".join(sorted(connection.execute(select(versions.c.version_num)).scalars())) or None


def _with(database: str, settings: StoreSettings, writes: bool, doing: str, fn: Callable[[Connection], T]) -> T:
    checked("settings", settings)
    made = engine.make(url.parse(database), settings, writes=writes, primary=writes)
    try:
        with error_mapping.translated(doing), made.connect() as connection:
            return fn(connection)
    finally:
        made.dispose()
