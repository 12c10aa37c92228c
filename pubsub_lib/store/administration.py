"""Administration of a whole database, besides migrating it: reading its schema's revision, and dropping its tables."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy import Connection, MetaData, Table, column, inspect, select, text
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
