"""The statements of the commit sequence for one dialect, each prepared at its first use.

SQLAlchemy's modules of a dialect are imported where they are used, because each takes as long as the rest of it.
"""

from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    ColumnElement,
    Dialect,
    Integer,
    LargeBinary,
    Select,
    Table,
    Text,
    and_,
    any_,
    bindparam,
    cast,
    column,
    func,
    insert,
    literal_column,
    select,
    text,
    true,
    type_coerce,
    update,
)
from sqlalchemy.types import NullType

from pubsub_lib.store import schema
from pubsub_lib.store.prepared import Prepared
from pubsub_lib.store.types import Name, NowMicroseconds

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite

COUNTER: Final = schema.store.c.id == literal_column("1")
_DIALECTS: Final = 16
"""Dialects whose statements are kept: one for each engine, so that many engines of a test do not add up."""
_BEGIN: Final = {"sqlite": "BEGIN IMMEDIATE", "postgresql": "BEGIN ISOLATION LEVEL READ COMMITTED"}


class Statements:
    """The statements by purpose. Any thread may use them: two threads may prepare the same one, with one result."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.returning = dialect.update_returning
        self.json = dialect.name == "postgresql"
        """Whether lists and rows are given as one JSON text."""
        store = schema.store.c
        self.touch_counter = self._made(update(schema.store).where(COUNTER).values(position=store.position))
        step = (
            update(schema.store)
            .where(COUNTER)
            .values(position=store.position + bindparam("by"), prev_nonce=store.nonce, nonce=bindparam("new_nonce"))
        )
        before = store.prev_nonce if self.returning else store.nonce
        counter = store.position, before, NowMicroseconds().label("now"), store.store_id
        self.advance = self._made(step.returning(*counter) if self.returning else step)
        self.read_counter = self._made(select(*counter).where(COUNTER).with_for_update())
        begin = _BEGIN.get(dialect.name)
        self.begin = None if begin is None else self._made(text(begin))
        """Begins a writer's transaction; None where the driver begins by itself."""
        self.commit = self._made(text("COMMIT"))
        self.rollback = self._made(text("ROLLBACK"))
        self.max_packet = self._made(text("SELECT @@max_allowed_packet").columns(column("size", Integer)))
        self.create_objects = self._create_objects()
        self.replace_objects = self._replace_objects()
        self.insert_links = self._made(insert(schema.links))
        if self.json:
            # For several rows: psycopg and the server take as long for each row of a statement as for a statement.
            self.insert_listed_links = self._made(_from_json(schema.links))
            self.replace_heads = self._made(_replaced(_from_json(schema.topics), schema.topics))
        self.upsert = cache(self._upsert)
        self.lock_objects = self._by_count(self._lock_objects)
        self.find_objects = self._by_count(self._find_objects)
        self.lock_heads = self._by_count(self._lock_heads)
        self.delete_objects = self._by_count(self._delete_objects)
        self.written_topics = self._by_count(self._written_topics)
        links = schema.links.c
        head = [links[each.name] for each in schema.topics.columns]
        newest = select(*head).where(links.topic == bindparam("of_topic", type_=links.topic.type))
        self.newest_head = self._made(newest.order_by(links.position.desc()).limit(1))
        self.identity = self._made(select(store.position, store.nonce, store.store_id).where(COUNTER))
        # Drivers return numbers and bytes as they are, and SQLAlchemy's conversion of Double needs the driver's type.
        columns = [each if isinstance(each.type, Name) else type_coerce(each, NullType()) for each in links]
        self.next_links = self._made(next_links(columns))
        self.bounded_links = self._made(bounded_links(columns))

    def _by_count(self, make: Callable[[int], Prepared]) -> Callable[[int], Prepared]:
        """The statements by number of values. PostgreSQL gets one JSON text of all, so it needs one statement."""
        kept = lru_cache(64)(make)
        return (lambda count: kept(1)) if self.json else kept

    def _made(self, statement: Any) -> Prepared:
        return Prepared(statement, self._dialect)

    def _lock_objects(self, count: int) -> Prepared:
        """The objects of one table with these keys, locked, in the order in which every writer locks them.

        PostgreSQL gets one index lookup per key, forced by LATERAL. Without it, PostgreSQL reads the whole table for an
        IN list with an order while its statistics lag behind, as they do during a bulk load; then the time of a
        statement grows with the table.
        """
        objects = schema.objects.c
        if self.json:
            wanted = _wanted_keys()
            found = (
                select(schema.objects)
                .where(objects.table_name == bindparam("table"), objects.object_key == wanted.c.key)
                .with_for_update()
                .lateral("found")
            )
            return self._made(select(found).select_from(wanted.join(found, true())))
        query = (
            select(schema.objects)
            .where(objects.table_name == bindparam("table"), self._among(objects.object_key, "key", count))
            .order_by(objects.object_key)
        )
        return self._made(query.with_for_update())

    def _find_objects(self, count: int) -> Prepared:
        """Tables and keys of those of these objects that exist, without a lock. OFFSET 0 forces one index lookup per
        key, as the lock does in :meth:`_lock_objects`.
        """
        objects = schema.objects.c
        query = select(objects.table_name, objects.object_key).where(objects.table_name == bindparam("table"))
        if self.json:
            wanted = _wanted_keys()
            found = query.where(objects.object_key == wanted.c.key).offset(literal_column("0")).lateral("found")
            return self._made(select(found).select_from(wanted.join(found, true())))
        return self._made(query.where(self._among(objects.object_key, "key", count)))

    def _lock_heads(self, count: int) -> Prepared:
        topics = schema.topics
        return self._made(select(topics).where(self._among(topics.c.topic, "topic", count)).with_for_update())

    def _written_topics(self, count: int) -> Prepared:
        """Those of these topics that have an object or a link."""
        objects, links = (
            select(each.c.topic).where(self._among(each.c.topic, "topic", count))
            for each in (schema.objects, schema.links)
        )
        return self._made(objects.union(links))

    def _delete_objects(self, count: int) -> Prepared:
        objects = schema.objects.c
        of_table = objects.table_name == bindparam("table")
        return self._made(schema.objects.delete().where(and_(of_table, self._among(objects.object_key, "key", count))))

    def _among(self, column: Any, name: str, count: int) -> Any:
        """The condition that a column has one of ``count`` values. PostgreSQL gets them as one JSON text."""
        if self.json:
            return column == any_(func.array(select(func.json_array_elements_text(_json(name))).scalar_subquery()))
        return column.in_([bindparam(f"{name}_{number}", type_=column.type) for number in range(count)])

    def _create_objects(self) -> Prepared:
        """Insert objects; an error when one of them exists."""
        return self._made(_from_json(schema.objects) if self.json else insert(schema.objects))

    def _replace_objects(self) -> Prepared:
        """Insert or replace objects."""
        if not self.json:
            return self._upsert(schema.objects)
        return self._made(_replaced(_from_json(schema.objects), schema.objects))

    def _upsert(self, table: Table) -> Prepared:
        """Insert or replace a whole row by primary key."""
        if self._dialect.name == "mysql":
            from sqlalchemy.dialects import mysql

            statement = mysql.insert(table)
            others = [each.name for each in table.columns if not each.primary_key]
            return self._made(statement.on_duplicate_key_update({name: statement.inserted[name] for name in others}))
        if self.json:
            from sqlalchemy.dialects import postgresql

            return self._made(_replaced(postgresql.insert(table), table))
        from sqlalchemy.dialects import sqlite

        return self._made(_replaced(sqlite.insert(table), table))


_BASE64: Final[ColumnElement[str]] = literal_column("'base64'")


def next_links(columns: Iterable[ColumnElement[Any]]) -> Select[Any]:
    """The links after the position ``after`` in commit order, at most ``maximum``."""
    links = schema.links.c
    found = select(*columns).where(links.position > bindparam("after", type_=BigInteger))
    return found.order_by(links.position, links.topic).limit(bindparam("maximum", type_=BigInteger))


def bounded_links(columns: Iterable[ColumnElement[Any]]) -> Select[Any]:
    """Of :func:`next_links` the transactions that begin within the first ``max_bytes`` bytes of changes. Only the sizes
    of the others are read.
    """
    links = schema.links.c
    sizes = next_links((links.position, links.topic, func.length(links.changes).label("size"))).subquery("sizes").c
    before = func.sum(sizes.size).over(order_by=(sizes.position, sizes.topic)) - sizes.size
    begins = select(sizes.position, before.label("bytes_before")).subquery("begins").c
    last = select(func.max(begins.position)).where(begins.bytes_before < bindparam("max_bytes", type_=BigInteger))
    return next_links(columns).where(links.position <= last.scalar_subquery())


def _json(name: str) -> Any:
    """A parameter of PostgreSQL. psycopg makes an array of a list in Python, which takes eight times as long as a JSON
    text of all values.
    """
    return cast(bindparam(name, type_=Text), JSON)


def _wanted_keys() -> Any:
    """The keys of PostgreSQL's JSON text, as a table."""
    return func.json_array_elements_text(_json("key")).table_valued("key", name="wanted").render_derived()


def _from_json(table: Table) -> "postgresql.Insert":
    """An insert of all rows of one JSON text: the statement is short, and equal for any number of rows.

    msgspec writes bytes as base64.
    """
    from sqlalchemy.dialects import postgresql

    columns = [
        column(each.name, Text() if _is_bytes(each) or isinstance(each.type, Name) else each.type)
        for each in table.columns
    ]
    given = func.json_to_recordset(_json("rows")).table_valued(*columns, name="given").render_derived(with_types=True)
    found = [
        func.decode(given.c[each.name], _BASE64) if _is_bytes(each) else given.c[each.name] for each in table.columns
    ]
    return postgresql.insert(table).from_select([each.name for each in table.columns], select(*found))


def _is_bytes(column: Column[Any]) -> bool:
    return isinstance(column.type, LargeBinary)


Conflicting = TypeVar("Conflicting", "postgresql.Insert", "sqlite.Insert")


def _replaced(statement: Conflicting, table: Table) -> Conflicting:
    keys = [each.name for each in table.primary_key]
    others = {each.name: statement.excluded[each.name] for each in table.columns if each.name not in keys}
    return statement.on_conflict_do_update(index_elements=keys, set_=others)


@lru_cache(_DIALECTS)
def of(dialect: Dialect) -> Statements:
    """The statements for this database."""
    return Statements(dialect)
