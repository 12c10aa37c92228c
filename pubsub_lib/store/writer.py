"""The commit sequence, inside a transaction that the caller begins and ends (the store, or a user's session).

Order (rule S1): read, lock and check the objects; then lock the counter, as late as possible, because it is locked
until the end; then write objects, links and heads. Every read here locks, so that it sees committed rows at any
isolation of a user's session: a plain read of InnoDB's REPEATABLE READ would show an old head and break the chain.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, Table, func, select

from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import Head, Link, Point
from pubsub_lib.errors import SchemaError, StoreBusy, VersionMismatch
from pubsub_lib.failpoints import hit
from pubsub_lib.store import changelog, rows, schema, statements, verbs
from pubsub_lib.store.links import Commit, Rows, assemble
from pubsub_lib.store.prepared import NOTHING
from pubsub_lib.store.verbs import Effect, Encode, Identity, Operation, Stored

_COUNTER = statements.COUNTER


class Work(msgspec.Struct, frozen=True):
    """A recorded transaction: verbs, the versions that its reads returned (0: absent), nonce and origin."""

    operations: Sequence[Operation]
    reads: Mapping[Identity, int]
    nonce: int
    origin: str


def write(
    connection: Connection,
    work: Work,
    encode: Encode,
    limits: Limits,
    review: Callable[[Sequence[Effect]], Sequence[Effect]] = lambda effects: effects,
) -> Commit | None:
    """Execute recorded verbs; None when they change nothing. The caller commits, or rolls back after any exception.

    ``review`` gets the effects of the verbs, while the objects are locked and before the counter is, and returns the
    effects to write. Raises the errors of :func:`.verbs.fold` and ``review``, VersionMismatch when a read object was
    changed, StoreError for an update of a value that was altered in the database, and SQLAlchemy's errors.
    """
    stored = _lock(connection, work)
    for (table, key), version in work.reads.items():
        now = stored.get((table, key))
        if (now.version if now is not None else 0) != version:
            raise ReadChanged(
                f"{table} {key!r} was changed by another writer since this transaction read it; run it again"
            )
    _check_merged(work.operations, stored)
    effects = review(verbs.fold(work.operations, stored, encode))
    if not effects:
        return None
    verbs.check_size(effects, limits, max_bytes(connection, limits))
    hit("writer.after_lock")
    tx_prev, point, now_stamp = advance(connection, sum(effect.changes for effect in effects), work.nonce)
    hit("writer.after_counter")
    topics = {effect.topic for effect in effects} | {effect.before.topic for effect in effects if effect.before}
    heads = heads_of(connection, sorted(topics))
    heads |= _lost_heads(connection, sorted(topics - heads.keys()))
    links, changed = assemble(effects, tx_prev, point, heads, work.origin, time.time())
    write_objects(connection, changed)
    write_links(connection, links, now_stamp)
    hit("writer.before_commit")
    return Commit(point, point.nonce, links)


class ReadChanged(VersionMismatch):
    """An object that a transaction had read was changed before the commit."""


def _check_merged(operations: Sequence[Operation], stored: Mapping[Identity, Stored]) -> None:
    """Refuse to merge new members into a value that was altered without the library: the next version would contain the
    alteration, too. Raises StoreError.
    """
    for operation in operations:
        item = stored.get((operation.table, operation.key)) if operation.verb == "update" else None
        if item is not None and not item.is_sound:
            raise rows.damaged(item.table, item.key, item.topic, "its value does not fit its fingerprint")


def _lock(connection: Connection, work: Work) -> dict[Identity, Stored]:
    made = statements.of(connection)
    if connection.dialect.name == "sqlite":
        # A user's session may not have written yet; its reads would then be checked against an old state.
        made.touch_counter.run(connection, [NOTHING])
    by_table: dict[str, set[str]] = {}
    for operation in work.operations:
        by_table.setdefault(operation.table, set()).add(operation.key)
    for table, key in work.reads:
        by_table.setdefault(table, set()).add(key)
    found: dict[Identity, Stored] = {}
    for table in sorted(by_table):
        # Sorted as bytes, as the databases do: all writers lock in one order, so they cannot deadlock here.
        for keys in rows.chunks(sorted(by_table[table], key=str.encode)):
            for row in made.lock_objects(len(keys)).rows(connection, {"table": table, **made.listed("key", keys)}):
                item = rows.stored(row)
                found[item.table, item.key] = item
    return found


def advance(connection: Connection, by: int, nonce: int) -> tuple[Point, Point, int]:
    """Take ``by`` positions: (the point before, the transaction's point, the database's clock in microseconds)."""
    made = statements.of(connection)
    values = {"by": by, "new_nonce": nonce}
    if made.returning:
        found = made.advance.rows(connection, values)
        if not found:
            raise _no_counter()
        ((position, before, now),) = found
        return Point(position - by, before), Point(position, nonce), int(now)
    found = made.read_counter.rows(connection)
    if not found:
        raise _no_counter()
    ((position, before, now),) = found
    made.advance.run(connection, [values])
    return Point(position, before), Point(position + by, nonce), int(now)


def hold_counter(connection: Connection) -> None:
    """Lock the counter without moving it: until the caller commits, no other writer writes objects."""
    connection.execute(select(schema.store.c.position).where(_COUNTER).with_for_update())


def _no_counter() -> SchemaError:
    return SchemaError("the table pubsub_store has lost its row; restore the database from a backup")


def heads_of(connection: Connection, topics: Sequence[str]) -> dict[str, Head]:
    """The heads of those of these topics that were ever written, locked."""
    made = statements.of(connection)
    found: dict[str, Head] = {}
    for part in rows.chunks(topics):
        for row in made.lock_heads(len(part)).rows(connection, made.listed("topic", part)):
            found[row[0]] = rows.head_of(row)
    return found


def _lost_heads(connection: Connection, topics: Sequence[str]) -> dict[str, Head]:
    """Of topics without a row: the heads of those that were written before and whose row was lost, from their newest
    link. Starting again from no head would produce a changelog that lacks all older objects. Raises StoreError when the
    changelog has no link of such a topic.
    """
    found: dict[str, Head] = {}
    for part in rows.chunks(topics):
        written = [select(each.c.topic).where(each.c.topic.in_(part)) for each in (schema.objects, schema.links)]
        for topic in connection.execute(written[0].union(written[1])).scalars():
            head = changelog.newest(connection, topic)
            if head is None:
                raise rows.lost_head(topic)
            found[topic] = head
    return found


def write_objects(connection: Connection, changed: Rows) -> None:
    """Write new rows and changed rows, and remove rows."""
    if changed.created:
        _create(connection, changed.created)
    if changed.changed:
        upsert(connection, schema.objects, changed.changed)
    made = statements.of(connection)
    by_table: dict[str, list[str]] = {}
    for table, key in changed.removed:
        by_table.setdefault(table, []).append(key)
    for table, keys in by_table.items():
        for part in rows.chunks(keys):
            made.delete_objects(len(part)).run(connection, [{"table": table, **made.listed("key", part)}])


def _create(connection: Connection, created: Sequence[Mapping[str, Any]]) -> None:
    """Insert objects that did not exist when they were read. Another writer may have created one since; then the
    transaction must be retried."""
    made = statements.of(connection)
    if connection.dialect.name != "postgresql":
        made.insert_objects.run(connection, created)
        return
    # psycopg sends many rows as a pipeline, and logs a warning when one of them fails: ON CONFLICT avoids the failure.
    # One array per column, not one parameter per value: the statement is short and equal for any number of rows.
    arrays = {f"all_{name}": [row[name] for row in created] for name in created[0]}
    if len(made.create_objects().rows(connection, arrays)) != len(created):
        raise StoreBusy("another writer created one of these objects at the same moment; run the transaction again")


def write_links(connection: Connection, links: Sequence[Link], now_stamp: int) -> None:
    """Write the links of a transaction, and their topics' heads."""
    upsert(connection, schema.topics, [rows.head_row(link) for link in links])
    statements.of(connection).insert_links.run(connection, [rows.link_row(link, now_stamp) for link in links])


def upsert(connection: Connection, table: Table, many: Sequence[Mapping[str, Any]]) -> None:
    """Insert or replace whole rows by primary key, in as few round trips as the dialect allows."""
    statements.of(connection).upsert(table).run(connection, many)


def max_bytes(connection: Connection, limits: Limits) -> int:
    """The maximum size of a transaction. MySQL rejects a statement over max_allowed_packet, and escaping may double the
    size of a literal.
    """
    if connection.dialect.name != "mysql":
        return limits.max_transaction_bytes
    info = connection.connection.info
    if "max_allowed_packet" not in info:
        info["max_allowed_packet"] = int(connection.exec_driver_sql("SELECT @@max_allowed_packet").scalar_one())
    return min(limits.max_transaction_bytes, int(info["max_allowed_packet"]) // 2 - 65536)


def is_in(connection: Connection, point: Point) -> bool | None:
    """Whether the transaction with this point is committed; None when the changelog no longer reaches back to it.

    Waits for the counter first: a COMMIT whose connection was lost may still be running in the server.
    """
    store, links = schema.store.c, schema.links.c
    head = connection.execute(select(store.position, store.nonce).where(_COUNTER).with_for_update()).one()
    if head.position < point.position:
        return False
    if head.nonce == point.nonce:
        return True
    first = connection.execute(
        select(links.position, links.nonce, links.tx_prev_position)
        .where(links.position >= point.position)
        .order_by(links.position)
        .limit(1)
    ).one_or_none()
    if first is not None and first.position == point.position:
        return bool(first.nonce == point.nonce)
    if first is not None and first.tx_prev_position < point.position:
        return False  # another transaction took that position
    topics = schema.topics.c
    if connection.execute(select(func.count()).where(topics.nonce == point.nonce)).scalar_one():
        return True
    return None
