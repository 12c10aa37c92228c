"""The commit sequence, inside a transaction that the caller begins and ends (the store, or a user's session).

Order (rule S1): read, lock and check the objects; then lock the counter, as late as possible, because it is locked
until the end; then write objects, links and heads. Every read here locks, so that it sees committed rows at any
isolation of a user's session: a plain read of InnoDB's REPEATABLE READ would show an old head and break the chain.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NoReturn

import msgspec
from sqlalchemy import Connection, Table, func, select
from sqlalchemy.exc import SQLAlchemyError

from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import Head, Link, Point
from pubsub_lib.errors import SchemaError, VersionMismatch
from pubsub_lib.failpoints import armed, hit
from pubsub_lib.store import changelog, rows, schema, statements, verbs
from pubsub_lib.store.executor import Call, Executor
from pubsub_lib.store.links import Commit, Rows, assemble
from pubsub_lib.store.statements import Statements
from pubsub_lib.store.verbs import Effect, Encode, Identity, Operation, Stored

Review = Callable[[Sequence[Effect]], Sequence[Effect]]
"""Gets the effects of the verbs, returns those to write."""


class Work(msgspec.Struct, frozen=True):
    """A recorded transaction: verbs, the versions that its reads returned (0: absent), nonce and origin."""

    operations: Sequence[Operation]
    reads: Mapping[Identity, int]
    nonce: int
    origin: str


class Outcome(msgspec.Struct, frozen=True):
    """The result of one work: its ``commit`` (None: it changes nothing), or the ``error`` because of which it is not
    written.
    """

    commit: Commit | None = None
    error: Exception | None = None


def write(executor: Executor, work: Work, encode: Encode, limits: Limits, review: Review = list) -> Commit | None:
    """Execute recorded verbs; None when they change nothing. The caller commits, or rolls back after any exception.

    ``review`` gets the effects of the verbs, while the objects are locked and before the counter is, and returns the
    effects to write. Raises the errors of :func:`.verbs.fold` and ``review``, VersionMismatch when a read object was
    changed, StoreError for an update of a value that was altered in the database, and SQLAlchemy's errors.
    """
    (outcome,) = write_together(executor, [work], encode, limits, review)
    if outcome.error is not None:
        raise outcome.error
    return outcome.commit


def write_together(
    executor: Executor, works: Sequence[Work], encode: Encode, limits: Limits, review: Review = list
) -> list[Outcome]:
    """Execute several works, of which no two name the same object, as one transaction after the other.

    An error of one work, as :func:`write` raises it, leaves the others. Raises SQLAlchemy's errors, and StoreError when
    the changelog has no link of a topic whose row was lost: then nothing is written.
    """
    stored = _lock(executor, works)
    max_size = max_bytes(executor, limits)
    outcomes: list[Outcome] = [Outcome()] * len(works)
    drafts: list[tuple[int, Sequence[Effect], int]] = []
    for number, work in enumerate(works):
        try:
            effects = _effects(work, stored, encode, review)
            changes = verbs.check_size(effects, limits, max_size)
        except SQLAlchemyError:
            raise
        except Exception as error:  # noqa: BLE001 - of a user's type or hook; it belongs to this work
            outcomes[number] = Outcome(error=error)
        else:
            if effects:
                drafts.append((number, effects, changes))
    if not drafts:
        return outcomes
    if armed:
        hit("writer.after_lock")
    topics = {topic for _, effects, _ in drafts for topic in _topics(effects)}
    step = advance(executor, sum(changes for *_, changes in drafts), works[drafts[-1][0]].nonce, sorted(topics))
    if armed:
        hit("writer.after_counter")
    heads = step.heads | _lost_heads(executor, sorted(topics - step.heads.keys()))
    last, now, changed, links = step.before, time.time(), Rows([], [], []), list[Link]()
    for number, effects, changes in drafts:
        work = works[number]
        point = Point(last.position + changes, work.nonce)
        made, written = assemble(effects, last, point, heads, work.origin, now)
        heads |= {link.topic: Head(link.point, link.count, link.digest) for link in made}
        outcomes[number] = Outcome(Commit(point, work.nonce, made))
        changed.add(written)
        links += made
        last = point
    write_rows(executor, changed, links, step.now)
    if armed:
        hit("writer.before_commit")
    return outcomes


def _topics(effects: Sequence[Effect]) -> Iterator[str]:
    for effect in effects:
        yield effect.topic
        if effect.before is not None:
            yield effect.before.topic


def _effects(work: Work, stored: Mapping[Identity, Stored], encode: Encode, review: Review) -> Sequence[Effect]:
    for (table, key), version in work.reads.items():
        now = stored.get((table, key))
        if (now.version if now is not None else 0) != version:
            raise ReadChanged(
                f"{table} {key!r} was changed by another writer since this transaction read it; run it again"
            )
    _check_merged(work.operations, stored)
    return review(verbs.fold(work.operations, stored, encode))


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


def _lock(executor: Executor, works: Sequence[Work]) -> dict[Identity, Stored]:
    if executor.dialect.name == "sqlite" and not executor.locks_at_begin:
        # A user's session may not have written yet; its reads would then be checked against an old state.
        executor.run(Call(executor.made.touch_counter))
    by_table: dict[str, set[str]] = {}
    for work in works:
        for operation in work.operations:
            by_table.setdefault(operation.table, set()).add(operation.key)
        for table, key in work.reads:
            by_table.setdefault(table, set()).add(key)
    # Sorted as bytes, as the databases do: all writers lock in one order, so they cannot deadlock here.
    parts = [
        (table, keys) for table in sorted(by_table) for keys in rows.chunks(sorted(by_table[table], key=str.encode))
    ]
    return {item.ident: item for row in locked(executor, parts) for item in (rows.stored(row),)}


def locked(executor: Executor, parts: Sequence[tuple[str, Sequence[str]]]) -> Iterator[Sequence[Any]]:
    """Lock the objects with these tables and keys that exist; their rows. Each part has at most ``rows.CHUNK`` keys."""
    made = executor.made
    calls = [
        Call(made.lock_objects(len(keys)), [{"table": table, **made.listed("key", keys)}]) for table, keys in parts
    ]
    return chain.from_iterable(executor.run(*calls))


class Step(msgspec.Struct, frozen=True):
    """A transaction's place in the history: the point ``before`` it, its own, the database's clock in microseconds, and
    the heads of those of its topics that have a row.
    """

    before: Point
    point: Point
    now: int
    heads: dict[str, Head]


def advance(executor: Executor, by: int, nonce: int, topics: Sequence[str]) -> Step:
    """Lock the counter, take ``by`` positions, and lock the heads of these topics."""
    made = executor.made
    step = Call(made.advance, [{"by": by, "new_nonce": nonce}])
    lock = _lock_heads(made, topics)
    if made.returning:
        counter, *found = executor.run(step, *lock)
        ((position, before, now),) = counter or _no_counter()
        position -= by
    else:
        counter, *found = executor.run(Call(made.read_counter), *lock, step)
        ((position, before, now),) = counter or _no_counter()
    return Step(Point(position, before), Point(position + by, nonce), int(now), _by_topic(found))


def hold_counter(connection: Connection) -> None:
    """Lock the counter without moving it: until the caller commits, no other writer writes objects."""
    connection.execute(select(schema.store.c.position).where(statements.COUNTER).with_for_update())


def _no_counter() -> NoReturn:
    raise SchemaError("the table pubsub_store has lost its row; restore the database from a backup")


def heads_of(executor: Executor, topics: Sequence[str]) -> dict[str, Head]:
    """The heads of those of these topics that were ever written, locked."""
    return _by_topic(executor.run(*_lock_heads(executor.made, topics)))


def _lock_heads(made: Statements, topics: Sequence[str]) -> list[Call]:
    return [Call(made.lock_heads(len(part)), [made.listed("topic", part)]) for part in rows.chunks(topics)]


def _by_topic(found: Iterable[Sequence[Sequence[Any]]]) -> dict[str, Head]:
    return {row[0]: rows.head(row) for row in chain.from_iterable(found)}


def _lost_heads(executor: Executor, topics: Sequence[str]) -> dict[str, Head]:
    """Of topics without a row: the heads of those that were written before and whose row was lost, from their newest
    link. Starting again from no head would produce a changelog that lacks all older objects. Raises StoreError when the
    changelog has no link of such a topic.
    """
    made = executor.made
    found: dict[str, Head] = {}
    for part in rows.chunks(topics):
        (written,) = executor.run(Call(made.written_topics(len(part)), [made.listed("topic", part)]))
        for (topic,) in written:
            head = changelog.newest(executor, topic)
            if head is None:
                raise rows.lost_head(topic)
            found[topic] = head
    return found


def write_rows(executor: Executor, changed: Rows, links: Sequence[Link], now: int) -> None:
    """Write transactions: new rows, changed rows and removed rows of objects, their links, and their topics' heads.

    ``now``: the database's clock in microseconds. Raises StoreBusy when another writer created one of the objects.
    """
    made = executor.made
    calls = []
    if changed.created:
        calls.append(Call(made.create_objects, made.listed_rows(changed.created)))
    if changed.changed:
        calls.append(Call(made.replace_objects, made.listed_rows(changed.changed)))
    by_table: dict[str, list[str]] = {}
    for table, key in changed.removed:
        by_table.setdefault(table, []).append(key)
    for table, keys in by_table.items():
        calls += [
            Call(made.delete_objects(len(part)), [{"table": table, **made.listed("key", part)}])
            for part in rows.chunks(keys)
        ]
    if links:
        newest = {link.topic: link for link in links}
        calls.append(Call(made.upsert(schema.topics), [rows.head_row(link) for link in newest.values()]))
        calls.append(Call(made.insert_links, [rows.link_row(link, now) for link in links]))
    executor.write(*calls)


def upsert(executor: Executor, table: Table, row: Mapping[str, Any]) -> None:
    """Insert or replace a whole row by primary key."""
    executor.run(Call(executor.made.upsert(table), [row]))


def max_bytes(executor: Executor, limits: Limits) -> int:
    """The maximum size of a transaction. MySQL rejects a statement over max_allowed_packet, and escaping may double the
    size of a literal.
    """
    if executor.dialect.name != "mysql":
        return limits.max_transaction_bytes
    info = executor.info
    if "max_allowed_packet" not in info:
        ((info["max_allowed_packet"],),) = executor.run(Call(executor.made.max_packet))[0]
    return min(limits.max_transaction_bytes, int(info["max_allowed_packet"]) // 2 - 65536)


def is_in(connection: Connection, point: Point) -> bool | None:
    """Whether the transaction with this point is committed; None when the changelog no longer reaches back to it.

    Waits for the counter first: a COMMIT whose connection was lost may still be running in the server.
    """
    store, links = schema.store.c, schema.links.c
    head = connection.execute(select(store.position, store.nonce).where(statements.COUNTER).with_for_update()).one()
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
