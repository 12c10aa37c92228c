"""Accepting the current rows of a topic: an operator's choice where the changelog cannot prove the right values.

A repair needs a proof, and a trimmed changelog has none. Then the operator decides. A row whose table or key the
library rejects is deleted without a link: no link ever named it, and such a link could not be decoded. Every other row
that does not match its fingerprint is written again with a new version, like any writer's change: the change is in the
changelog, and publishers send it.

The head and the link get the count and digest of the rows, computed under the counter's lock. A replica that applies
the link and reaches another digest compares its buckets with the store, and reads the buckets that differ.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from sqlalchemy import Connection, and_, select, update

from pubsub_lib.core import digest, values
from pubsub_lib.core.limits import Limits, check_key, check_name
from pubsub_lib.core.model import EMPTY, Change, Head, Link
from pubsub_lib.errors import InvalidValueError, StoreBusy
from pubsub_lib.store import changelog, repair_plan, repair_write, rows, schema, snapshot, writer
from pubsub_lib.store.connection_executor import ConnectionExecutor
from pubsub_lib.store.links import Rows
from pubsub_lib.store.verbs import Identity, Stored

BATCH: Final = 100
"""Maximum number of objects that one transaction changes."""

Batch = Callable[[Connection, str, Sequence[Identity]], int]
"""Changes these objects of a topic, and returns the number of changed objects."""


class Accepted(msgspec.Struct, frozen=True):
    """The result: ``objects`` exist now; ``repaired`` from the changelog first; ``rewritten`` with their current
    values; ``deleted``, because the library rejects their table, key or value. ``position`` of the topic's head; None:
    the head's position did not change.
    """

    topic: str
    objects: int
    repaired: int
    rewritten: int
    deleted: int
    position: int | None


class Written(msgspec.Struct, frozen=True):
    """The result of one transaction. ``link`` None: the topic has no objects, so only its head was set. An object that
    only carries the link counts as neither rewritten nor deleted. ``postponed``: objects that were left out, because
    the transaction would exceed its maximum size with them.
    """

    link: Link | None = None
    rewritten: int = 0
    deleted: int = 0
    postponed: Sequence[Identity] = ()


class Damaged(msgspec.Struct, frozen=True):
    """The damage in a topic: ``objects`` that do not match their fingerprint or bucket, those of them that are
    ``misplaced`` (in a wrong bucket), and ``refused`` objects, whose table or key the library rejects.
    """

    objects: Sequence[Identity]
    misplaced: Sequence[Identity]
    refused: Sequence[Identity]


def damaged(connection: Connection, page: int, topic: str) -> Damaged:
    """Find the damaged objects of a topic, in one snapshot."""
    objects: list[Identity] = []
    misplaced: list[Identity] = []
    refused: list[Identity] = []
    for each in snapshot.seen(connection, page, topic):
        ident = each.item.ident
        if _refused(ident):
            refused.append(ident)
        elif _wrong(each):
            objects.append(ident)
            if each.misplaced:
                misplaced.append(ident)
    return Damaged(objects, misplaced, refused)


def place(connection: Connection, topic: str, idents: Sequence[Identity]) -> int:
    """Set the bucket of these objects from their table and key, which needs no proof. The caller commits. Returns how
    many of them match their fingerprint, and so are undamaged now.
    """
    columns = schema.objects.c
    fit = 0
    for each in repair_write.lock(connection, idents):
        if each.item.topic != topic or not each.misplaced:
            continue
        table, key = each.item.ident
        one = and_(columns.table_name == table, columns.object_key == key)
        connection.execute(update(schema.objects).where(one).values(bucket=digest.bucket_of(table, key)))
        fit += each.item.is_sound
    return fit


def discard(connection: Connection, topic: str, idents: Sequence[Identity]) -> int:
    """Delete rows whose table or key the library rejects. The caller commits. Locks as writers do. Returns how many."""
    locked = [each.item for each in repair_write.lock(connection, idents)]
    found = [item.ident for item in locked if item.topic == topic and _refused(item.ident)]
    writer.hold_counter(connection)
    ConnectionExecutor(connection).write_rows(Rows([], [], found), [], [])
    return len(found)


def write(
    connection: Connection, topic: str, idents: Sequence[Identity], nonce: int, origin: str, limits: Limits
) -> Written:
    """Write the current values of these objects again, of those that are still damaged, and set the head. The caller
    commits. When none is damaged, any object of the topic carries the link. Locks as writers do. Raises StoreBusy.
    """
    batch = [each for each in repair_write.lock(connection, idents) if each.item.topic == topic and _wrong(each)]
    carried = not batch
    if carried:
        columns = schema.objects.c
        first = select(columns.table_name, columns.object_key).where(columns.topic == topic).limit(1)
        carrier = [(table, key) for table, key in connection.execute(first)]
        batch = [each for each in repair_write.lock(connection, carrier) if not _refused(each.item.ident)]
        if carrier and not batch:
            raise StoreBusy(f"an object of the topic {topic!r} was changed at the same moment; run it again")
    if not batch:
        writer.hold_counter(connection)
        _set_empty(connection, topic)
        return Written()
    executor = ConnectionExecutor(connection)
    selected, postponed = _cut(batch, limits, writer.max_bytes(executor, limits))
    step = executor.advance(len(selected), nonce, [topic])
    head = _head(connection, topic, step.heads)
    # When the head is unknown, the link connects to no link of the topic: a link whose previous point is zero would
    # mean to replicas and repairs that the topic had no earlier history.
    prev = step.before if head == EMPTY else head.point
    changed = Rows([], [], [])
    changes = []
    for version, (ident, value) in enumerate(selected, step.before.position + 1):
        changes.append(_change(ident, version, value, topic, changed))
    executor.write_rows(changed, [], [])
    count, total = repair_plan.sums(connection, [topic]).get(topic, (0, 0))
    link = Link(topic, prev, step.point, changes, count, total, step.before, 1, origin, time.time())
    executor.write_rows(Rows([], [], []), [rows.head_row(link)], [rows.link_row(link, step.now)])
    return Written(link) if carried else Written(link, len(changed.changed), len(changed.removed), postponed)


def _wrong(each: rows.Seen) -> bool:
    return bool(each.complaint) or not each.item.is_sound


def _refused(ident: Identity) -> bool:
    table, key = ident
    try:
        check_name("table", table)
        check_key(key)
    except InvalidValueError:
        return True
    return False


def _cut(
    batch: Sequence[rows.Seen], limits: Limits, max_bytes: int
) -> tuple[list[tuple[Identity, bytes | None]], list[Identity]]:
    """Select the objects that fit into one transaction, at least one, each with the value to write (None: delete the
    object); and the objects that are left for the next transaction. Counts bytes as writers do.
    """
    selected: list[tuple[Identity, bytes | None]] = []
    size = 0
    for at, each in enumerate(batch):
        value = _value(each.item.value, limits)
        size += len(each.item.key.encode()) + len(value or b"")
        if selected and (size > max_bytes or len(selected) == limits.max_transaction_changes):
            return selected, [left.item.ident for left in batch[at:]]
        selected.append((each.item.ident, value))
    return selected, []


def _value(value: bytes, limits: Limits) -> bytes | None:
    try:
        return values.encode(values.decode(value), limits)
    except InvalidValueError:
        return None


def _head(connection: Connection, topic: str, heads: Mapping[str, Head]) -> Head:
    """The topic's head; when the topic's row is lost, the head of its newest link."""
    return heads.get(topic) or changelog.newest(ConnectionExecutor(connection), topic) or EMPTY


def _set_empty(connection: Connection, topic: str) -> None:
    """Set the head of a topic without objects, and so without a link. Replicas detect the new head by the count and
    digest in the next hello reply.
    """
    executor = ConnectionExecutor(connection)
    head = _head(connection, topic, executor.heads_of([topic]))
    if repair_plan.sums(connection, [topic]):
        raise StoreBusy(f"an object of the topic {topic!r} was created at the same moment; run it again")
    if head != EMPTY:
        writer.upsert(executor, schema.topics, rows.topic_row(topic, Head(head.point, 0, 0)))


def _change(ident: Identity, version: int, value: bytes | None, topic: str, changed: Rows) -> Change:
    table, key = ident
    if value is None:
        changed.removed.append(ident)
        return Change(table, key, "delete", version, None)
    fingerprint = digest.fingerprint(table, key, version, value)
    changed.changed.append(rows.object_row(Stored(table, key, topic, version, value, fingerprint)))
    return Change(table, key, "set", version, value)
