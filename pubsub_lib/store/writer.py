"""The commit sequence, inside a transaction that the caller begins and ends (the store, or a user's session).

Order (rule S1): read, lock and check the objects; then lock the counter, as late as possible, because it is locked
until the end; then write objects, links and heads. Every read here locks, so that it sees committed rows at any
isolation of a user's session: a plain read of InnoDB's REPEATABLE READ would show an old head and break the chain.
Objects that were absent are looked up again when the counter is locked, in general without a lock (:mod:`.absent`).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Table, func, select

from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import Head, Point
from pubsub_lib.errors import OutcomeUnknown
from pubsub_lib.failpoints import armed, hit
from pubsub_lib.store import absent, changelog, rows, schema, statements, verbs
from pubsub_lib.store.absent import Absent
from pubsub_lib.store.executor import Executor, Row, listed
from pubsub_lib.store.links import Commit, Rows, assemble
from pubsub_lib.store.prepared import Call
from pubsub_lib.store.verbs import Effect, Encode, Identity, Operation, Stored

_CHANGES: Final = itemgetter(2)
_VERB: Final = attrgetter("verb")

_Draft = tuple[int, Sequence[Effect], int]
"""A work that changes something: its number, its effects, and how many changes they are."""
Review = Callable[[Sequence[Effect]], Sequence[Effect]]
"""Gets the effects of the verbs, returns those to write."""


class Work(msgspec.Struct, frozen=True):
    """A recorded transaction: verbs, the versions that its reads returned (0: absent), nonce and origin. ``publish``:
    a publisher service that commits it is also to publish its links.
    """

    operations: Sequence[Operation]
    reads: Mapping[Identity, int]
    nonce: int
    origin: str
    publish: bool = False


class Outcome(msgspec.Struct, frozen=True):
    """The result of one work: its ``commit`` (None: it changes nothing), or the ``error`` because of which it is not
    written.
    """

    commit: Commit | None = None
    error: Exception | None = None


def write_together(
    executor: Executor, works: Sequence[Work], encode: Encode, limits: Limits, review: Review = list
) -> list[Outcome]:
    """Execute several works, of which no two name the same object, as one transaction after the other. The caller
    commits, or rolls back after any exception.

    ``review`` gets the effects of the verbs, while the objects are locked and before the counter is, and returns the
    effects to write. An error of one work leaves the others: those of :func:`.verbs.fold` and ``review``,
    VersionMismatch when a read object was changed, StoreError for an update of a value that was altered in the
    database. Raises SQLAlchemy's errors of this database, and StoreError when the changelog has no link of a topic
    whose row was lost: then nothing is written.
    """
    outcomes, drafts, topics, missing = _draft(executor, works, encode, limits, review)
    if not drafts:
        return outcomes
    if armed:
        hit("writer.after_lock")
    step = executor.advance(sum(map(_CHANGES, drafts)), works[drafts[-1][0]].nonce, sorted(topics), missing)
    if armed:
        hit("writer.after_counter")
    heads = step.heads
    if topics - heads.keys():
        heads |= _lost_heads(executor, sorted(topics - heads.keys()))
    last, now, changed = step.before, time.time(), Rows([], [], [])
    head_rows: dict[str, dict[str, Any]] = {}
    link_rows: list[Row] = []
    for number, effects, changes in drafts:
        work = works[number]
        point = Point(last.position + changes, work.nonce)
        made, written = assemble(effects, last, point, heads, work.origin, now)
        for link in made:
            heads[link.topic] = Head(link.point, link.count, link.digest)
            head_rows[link.topic] = row = rows.head_row(link)
            link_rows.append(rows.link_row(link, step.now, row))
        outcomes[number] = Outcome(Commit(point, work.nonce, made, step.store_id))
        changed.created += written.created
        changed.changed += written.changed
        changed.removed += written.removed
        last = point
    executor.write_rows(changed, list(head_rows.values()), link_rows)
    if armed:
        hit("writer.before_commit")
    return outcomes


def _draft(
    executor: Executor, works: Sequence[Work], encode: Encode, limits: Limits, review: Review
) -> tuple[list[Outcome], list[_Draft], set[str], Absent]:
    """Lock the objects of these works, and check and fold each work. Returns the outcome of each work as far as it is
    known, the works that change something, their topics, and the objects that must still be absent when the counter is
    locked.
    """
    max_size = max_bytes(executor, limits)
    stored = _lock(executor, works)
    outcomes: list[Outcome] = [Outcome()] * len(works)
    drafts: list[_Draft] = []
    topics: set[str] = set()
    missing: dict[Identity, bool] = {}
    for number, work in enumerate(works):
        try:
            if work.reads:
                _check_reads(work.reads, stored)
            if "update" in map(_VERB, work.operations):
                _check_merged(work.operations, stored)
            effects = review(verbs.fold(work.operations, stored, encode))
            changes = verbs.check_size(effects, limits, max_size)
        except Exception as error:  # noqa: BLE001 - of a user's type or hook, also SQLAlchemy's; it belongs to this work
            outcomes[number] = Outcome(error=error)
        else:
            if effects:
                drafts.append((number, effects, changes))
                if executor.dialect.name != "sqlite" and (work.reads or "delete" in map(_VERB, work.operations)):
                    missing |= absent.of(work.operations, work.reads, stored, effects)
            for effect in effects:
                topics.add(effect.topic)
                if effect.before is not None:
                    topics.add(effect.before.topic)
    return outcomes, drafts, topics, missing


def _check_reads(reads: Mapping[Identity, int], stored: Mapping[Identity, Stored]) -> None:
    for identity, version in reads.items():
        now = stored.get(identity)
        if (now.version if now is not None else 0) != version:
            raise verbs.read_changed(identity)


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
    in_order = {table: sorted(by_table[table], key=str.encode) for table in sorted(by_table)}
    stored: dict[Identity, Stored] = {}
    for row in executor.locked(in_order):
        item = rows.stored(row)
        stored[item.table, item.key] = item
    return stored


def hold_counter(connection: Connection) -> None:
    """Lock the counter without moving it: until the caller commits, no other writer writes objects."""
    connection.execute(select(schema.store.c.position).where(statements.COUNTER).with_for_update())


def _lost_heads(executor: Executor, topics: Sequence[str]) -> dict[str, Head]:
    """Of topics without a row: the heads of those that were written before and whose row was lost, from their newest
    link. Starting again from no head would produce a changelog that lacks all older objects. Raises StoreError when the
    changelog has no link of such a topic.
    """
    made = executor.made
    found: dict[str, Head] = {}
    for part in rows.chunks(topics):
        (written,) = executor.run(Call(made.written_topics(len(part)), [listed(made, "topic", part)]))
        for (topic,) in written:
            head = changelog.newest(executor, topic)
            if head is None:
                raise rows.lost_head(topic)
            found[topic] = head
    return found


def upsert(executor: Executor, table: Table, row: Row) -> None:
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


def is_in(connection: Connection, point: Point, *, lock: bool = True) -> bool | None:
    """Whether the transaction with this point is committed; None when the changelog no longer reaches back to it.

    Waits for the counter first (``lock``; not in a read-only store): a COMMIT whose connection was lost may still be
    running in the server.
    """
    store, links = schema.store.c, schema.links.c
    counter = select(store.position, store.nonce).where(statements.COUNTER)
    head = connection.execute(counter.with_for_update() if lock else counter).one()
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


def is_committed(connection: Connection, nonce: int, position: int | None, *, lock: bool) -> bool:
    """As ``Store.committed``. ``lock``: as of ``is_in``. Raises OutcomeUnknown."""
    if position is not None:
        answer = is_in(connection, Point(position, nonce), lock=lock)
        if answer is None:
            raise OutcomeUnknown(
                f"the changelog was trimmed past the position {position} of the transaction that is looked up; read "
                "its objects, and compare them with what it wrote",
                nonce,
                position,
            )
        return answer
    store = schema.store.c
    query = select(store.nonce).where(statements.COUNTER)
    if connection.execute(query.with_for_update() if lock else query).scalar_one() == nonce:
        return True
    return any(
        connection.execute(select(func.count()).select_from(table).where(table.c.nonce == nonce)).scalar_one()
        for table in (schema.links, schema.topics)
    )
