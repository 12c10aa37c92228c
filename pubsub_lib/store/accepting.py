"""Accepting the rows of a topic as they stand: an operator's way out where nothing tells what is right.

A repair needs a proof, and a trimmed changelog has none. Then the operator decides. Every row that does not fit its
fingerprint is written anew with a new version, as any writer's change: it is in the changelog, and publishers send it.
The head, and so the link, gets the count and digest of the rows under the counter's lock. A replica that applies the
link and does not get there compares its buckets with the store, and reads those that differ.
"""

import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, select

from pubsub_lib.core import digest, values
from pubsub_lib.core.limits import Limits
from pubsub_lib.core.model import EMPTY, Change, Head, Link
from pubsub_lib.errors import StoreBusy, ValueRefused
from pubsub_lib.store import repair_plan, rows, schema, snapshot, writer
from pubsub_lib.store.links import Rows
from pubsub_lib.store.verbs import Identity

BATCH: Final = 100
"""Objects that one transaction writes anew, at most."""


class Accepted(msgspec.Struct, frozen=True):
    """What was done: ``objects`` are there now; ``repaired`` from the changelog first; ``rewritten`` as they stood;
    ``deleted``, because their value was no JSON. ``position`` of the topic's head; None: the head's position stayed.
    """

    topic: str
    objects: int
    repaired: int
    rewritten: int
    deleted: int
    position: int | None


class Written(msgspec.Struct, frozen=True):
    """What one transaction did. ``link`` None: the topic has no objects, so only its head was set. An object that only
    carries the link counts as neither rewritten nor deleted.
    """

    link: Link | None = None
    rewritten: int = 0
    deleted: int = 0


def damaged(connection: Connection, page: int, topic: str) -> list[Identity]:
    """The objects of a topic that do not fit their fingerprint or bucket, in one snapshot."""
    return [each.item.ident for each in snapshot.seen(connection, page, topic) if _wrong(each)]


def write(
    connection: Connection, topic: str, idents: Sequence[Identity], nonce: int, origin: str, limits: Limits
) -> Written:
    """Write these objects anew as they stand, those of them that are damaged still, and set the head. The caller
    commits. Without one, any object of the topic carries the link. Locks as writers do. Raises StoreBusy.
    """
    batch = [each for each in _locked(connection, idents) if each.item.topic == topic and _wrong(each)]
    carried = not batch
    if carried:
        columns = schema.objects.c
        first = select(columns.table_name, columns.object_key).where(columns.topic == topic).limit(1)
        carrier = [(table, key) for table, key in connection.execute(first)]
        batch = _locked(connection, carrier)
        if carrier and not batch:
            raise StoreBusy(f"an object of the topic {topic!r} was deleted at the same moment; run it again")
    if not batch:
        connection.execute(select(schema.store.c.position).where(schema.store.c.id == 1).with_for_update())
        _set_empty(connection, topic)
        return Written()
    tx_prev, point, stamp = writer.advance(connection, len(batch), nonce)
    head = _head(connection, topic)
    changed = Rows([], [], [])
    changes = []
    for version, each in enumerate(batch, tx_prev.position + 1):
        changes.append(_anew(each.item.ident, version, each.item.value, topic, limits, changed))
    writer.write_objects(connection, changed)
    count, total = repair_plan.sums(connection, [topic]).get(topic, (0, 0))
    link = Link(topic, head.point, point, changes, count, total, tx_prev, 1, origin, time.time())
    writer.write_links(connection, [link], stamp)
    return Written(link) if carried else Written(link, len(changed.changed), len(changed.removed))


def _wrong(each: rows.Seen) -> bool:
    item = each.item
    return bool(each.complaint) or digest.fingerprint(*item.ident, item.version, item.value) != item.fingerprint


def _locked(connection: Connection, idents: Sequence[Identity]) -> list[rows.Seen]:
    found = []
    for table, keys in repair_plan.by_table(idents).items():
        for part in rows.chunks(keys):
            query = rows.lock_objects(connection.dialect.name, table, part)
            found += [rows.seen(row) for row in connection.execute(query)]
    return found


def _head(connection: Connection, topic: str) -> Head:
    """The topic's head; of a topic whose row is lost as its newest link tells it."""
    found = writer.heads_of(connection, [topic]).get(topic)
    return found or repair_plan.newest(connection, topic) or EMPTY


def _set_empty(connection: Connection, topic: str) -> None:
    """Nothing carries a link. Replicas notice by the count and digest of the next own hello."""
    head = _head(connection, topic)
    if repair_plan.sums(connection, [topic]):
        raise StoreBusy(f"an object of the topic {topic!r} was created at the same moment; run it again")
    if head != EMPTY:
        writer.upsert(connection, schema.topics, [rows.topic_row(topic, Head(head.point, 0, 0))])


def _anew(ident: Identity, version: int, value: bytes, topic: str, limits: Limits, changed: Rows) -> Change:
    table, key = ident
    try:
        value = values.encode(values.decode(value), limits)
    except ValueRefused:
        changed.removed.append(ident)
        return Change(table, key, "delete", version, None)
    low, high = digest.split(digest.fingerprint(table, key, version, value))
    row: dict[str, Any] = {
        "table_name": table,
        "object_key": key,
        "topic": topic,
        "version": version,
        "value": value,
        "fp_lo": low,
        "fp_hi": high,
        "bucket": digest.bucket_of(table, key),
    }
    changed.changed.append(row)
    return Change(table, key, "set", version, value)
