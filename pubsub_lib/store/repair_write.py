"""Writes a planned repair without undoing later writes of other writers.

The plan was made in a snapshot. Here the counter is locked, so no writer changes objects, and the changelog since the
plan's point names all objects written in between. A fix whose object is named there is skipped, even when the row looks
unchanged: an object that was lost, then created and deleted by a writer, is absent again and must stay absent.
"""

from collections import Counter
from collections.abc import Collection
from typing import Final

import msgspec
from sqlalchemy import Connection, and_, select, update

from pubsub_lib.core import digest
from pubsub_lib.core.model import EMPTY, ZERO, Link, Point
from pubsub_lib.store import changelog, rows, schema, snapshot, writer
from pubsub_lib.store.connection_executor import ConnectionExecutor
from pubsub_lib.store.repair_plan import Fix, Plan, by_table, sums
from pubsub_lib.store.verbs import Identity, Stored

PAGE: Final = 1000
"""Links that one statement reads."""
MAX_LINKS: Final = 10_000
"""Maximum number of links since the plan that are read while writers wait. With more links the plan is too old."""


class Written(msgspec.Struct, frozen=True):
    """The written part of a plan: ``idents`` of the objects, whether the ``head`` too, and how many fixes were skipped
    because they were ``overtaken``.
    """

    idents: frozenset[Identity] = frozenset()
    head: bool = False
    overtaken: int = 0

    @property
    def total(self) -> int:
        """Number of fixes that were written; the head counts as one."""
        return len(self.idents) + self.head


def write(connection: Connection, topic: str, plan: Plan) -> Written:
    """Write the planned fixes, except those of objects written since the plan. The caller commits.

    Locks as writers do: objects, then the counter, then the head. While the counter is locked no writer writes objects.
    """
    found = _locked(connection, [fix.ident for fix in plan.fixes])
    writer.hold_counter(connection)
    found |= _locked(connection, [fix.ident for fix in plan.fixes if fix.ident not in found])
    since = _since(connection, plan.store, snapshot.store_point(connection))
    if since is None:
        return Written(overtaken=len(plan.fixes) + plan.moves_head)
    named = {(change.table, change.key) for link in since for change in link.changes}
    done = set()
    for fix in plan.fixes:
        if fix.ident in named or found.get(fix.ident) != fix.now:
            continue
        _write_one(connection, fix)
        done.add(fix.ident)
    overtaken = len(plan.fixes) - len(done)
    if not plan.moves_head:
        return Written(frozenset(done), overtaken=overtaken)
    # The head's difference was computed with all of the fixes.
    moved = not overtaken and _move_head(connection, topic, plan, since)
    return Written(frozenset(done), moved, overtaken + (not moved))


def _since(connection: Connection, planned: Point, now: Point) -> list[Link] | None:
    """The links of all topics after the plan, up to the counter's point. None when they do not connect: another history
    was restored, the changelog was trimmed or damaged, or there are more than ``MAX_LINKS`` links.
    """
    links: list[Link] = []
    known = planned
    while known != now:
        got, connects = changelog.follow(connection, known, PAGE, now)
        if not connects or not got or len(links) > MAX_LINKS:
            return None
        for link in got:
            if link.point != known and link.tx_prev != known:
                return None
            known = link.point
        links += got
    many = Counter(link.point for link in links)
    return links if all(many[link.point] == link.tx_links for link in links) else None


def lock(connection: Connection, idents: Collection[Identity]) -> list[rows.Seen]:
    """Lock those of these objects that exist, in the order of every writer; damaged ones too."""
    return [rows.seen(row) for row in ConnectionExecutor(connection).locked(by_table(idents))]


def _locked(connection: Connection, idents: Collection[Identity]) -> dict[Identity, Stored]:
    return {each.item.ident: each.item for each in lock(connection, idents)}


def _write_one(connection: Connection, fix: Fix) -> None:
    table, key = fix.ident
    objects = schema.objects.c
    if fix.right is None:
        connection.execute(schema.objects.delete().where(and_(objects.table_name == table, objects.object_key == key)))
        return
    writer.upsert(ConnectionExecutor(connection), schema.objects, rows.object_row(fix.right))


def _move_head(connection: Connection, topic: str, plan: Plan, since: Collection[Link]) -> bool:
    """Move the head by the planned difference, unless another repair did so already. Writers move a head by the same
    amount as its rows, so after links of this topic the rows must sum up to the new head.
    """
    topics = schema.topics.c
    row = connection.execute(select(schema.topics).where(topics.topic == topic).with_for_update()).one_or_none()
    head = EMPTY if row is None else rows.head(row)
    if plan.lost_head is not None:
        if head.point != ZERO:
            return False
        writer.upsert(ConnectionExecutor(connection), schema.topics, rows.topic_row(topic, plan.lost_head))
        return True
    if row is None:
        return False  # lost after the plan: the next one sees it
    count, total = head.count + plan.count, digest.add(head.digest, plan.digest)
    if head != plan.head and not any(link.topic == topic for link in since):
        return False
    if head != plan.head and sums(connection, [topic]).get(topic, (0, 0)) != (count, total):
        return False
    low, high = rows.split(total)
    values = {"count": count, "digest_lo": low, "digest_hi": high}
    connection.execute(update(schema.topics).where(topics.topic == topic).values(values))
    return True
