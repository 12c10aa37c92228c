"""Finds rows that were altered in the database without the library, and plans their repair.

Every row stores the fingerprint of its table, key, version and value, and every topic's head stores the number and the
sum of its rows' fingerprints. So a row whose value does not match its fingerprint was altered, and a topic whose rows
do not sum up to its head has lost, gained or altered rows. The right state of an object is its last change in the
changelog. A repair is written only with a proof: the row's own fingerprint, the topic's head, or a changelog that
reaches back to the topic's first change. Versions and heads do not change, so correct replicas need no update.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec
from sqlalchemy import Connection, func, select

from pubsub_lib.core import digest
from pubsub_lib.core.model import ZERO, Head, Link, Point
from pubsub_lib.store import changelog, object_pages, rows, schema, snapshot
from pubsub_lib.store.connection_executor import ConnectionExecutor
from pubsub_lib.store.engine import BINARY_RESULT
from pubsub_lib.store.verbs import Identity, Stored

PAGE: Final = 1000
"""Links that one statement reads."""

Mark = tuple[str, str, int, int]
"""Identifies one damage, also when it is found again: table, key, version and real fingerprint of an object, or without
table and key the difference between a head and its rows.
"""
Cursor = tuple[str, int, str, str]
"""A place between two rows: after this topic, bucket, table and key."""


class Page(msgspec.Struct, frozen=True):
    """A page of checked rows: their number, the rows that do not match their fingerprint or bucket, and the cursor to
    continue from (None: this was the last page).
    """

    looked: int
    altered: Sequence[Stored]
    behind: Cursor | None
    topics: frozenset[str] = frozenset()
    """The topics of these rows."""


class Last(msgspec.Struct, frozen=True, gc=False):
    """The last change of an object in a topic's changelog. ``fingerprint`` None: it was deleted there."""

    version: int
    fingerprint: int | None
    position: int
    """The position of the link that holds the change."""


class Fix(msgspec.Struct, frozen=True):
    """One row to write: from its current state (None: no row) to its right state (None: no row)."""

    ident: Identity
    now: Stored | None
    right: Stored | None


class Plan(msgspec.Struct, frozen=True):
    """The damage of a topic in one snapshot of the store, and the provable part of the repair: ``fixes``, and the
    correction of the head by ``count`` and ``digest``.
    """

    store: Point
    """The store's point in the snapshot of the plan."""
    head: Head
    """The topic's head in that snapshot."""
    wrong: Mapping[Identity, Stored | None]
    """The damaged objects with their current rows (None: the row is missing)."""
    fixes: Sequence[Fix] = ()
    count: int = 0
    digest: int = 0
    lost_head: Head | None = None
    """The head to write when the topic's row is lost."""
    read: int = 0
    """Number of objects that were read for the plan."""

    @property
    def moves_head(self) -> bool:
        """Whether the head itself is wrong, and is to be corrected."""
        return bool(self.count or self.digest) or self.lost_head is not None

    def mark(self, ident: Identity) -> Mark:
        """The mark of a damaged object."""
        now = self.wrong[ident]
        return (*ident, 0, 0) if now is None else (*ident, now.version, now.real_fingerprint)

    @property
    def size(self) -> int:
        """Number of damaged objects; the head counts as one."""
        return len(self.wrong) + self.moves_head


def page(connection: Connection, after: Cursor | None, maximum: int) -> Page:
    """Check the next rows, in the order of topic, bucket, table and key."""
    columns = schema.objects.c
    order = (columns.topic, columns.bucket, columns.table_name, columns.object_key)
    query = select(schema.objects).order_by(*order).limit(maximum)
    if after is not None:
        query = query.where(object_pages.behind(connection, order, after))
    got = connection.execute(query, execution_options=BINARY_RESULT).all()
    found = [rows.seen(row) for row in got]
    altered = [each.item for each in found if each.complaint or not each.item.is_sound]
    last = got[-1] if len(got) == maximum else None
    behind = None if last is None else (last.topic, last.bucket, last.table_name, last.object_key)
    return Page(len(got), altered, behind, frozenset(each.item.topic for each in found))


def unfit(connection: Connection, topics: Collection[str]) -> list[str]:
    """Those of these topics whose rows do not sum up to their head. In one snapshot; reads no values."""
    heads = snapshot.heads(connection, topics)
    found = sums(connection, topics)
    return [topic for topic in topics if found.get(topic, (0, 0)) != (heads[topic].count, heads[topic].digest)]


def difference(connection: Connection, topic: str) -> frozenset[Mark]:
    """The mark of the difference between a topic's head and its rows, which writers keep; empty when they are equal."""
    head = snapshot.heads(connection, [topic])[topic]
    count, total = sums(connection, [topic]).get(topic, (0, 0))
    if (count, total) == (head.count, head.digest):
        return frozenset()
    return frozenset({("", "", head.count - count, digest.subtract(head.digest, total))})


def plan(connection: Connection, topic: str, suspects: Collection[Identity]) -> Plan:
    """Plan the repair of a topic, in one snapshot. ``suspects``: objects that do not match their fingerprint."""
    store = snapshot.store_point(connection)
    head = snapshot.heads(connection, [topic])[topic]
    count, total = sums(connection, [topic]).get(topic, (0, 0))
    seen = {each.item.ident: each for each in _read(connection, topic, suspects)}
    found = {ident: each.item for ident, each in seen.items()}
    altered = {ident: row for ident, row in found.items() if not row.is_sound}
    fixes = [fix for row in altered.values() if (fix := _by_version(connection, topic, row)) is not None]
    fits = (count, total) == (head.count, head.digest)
    if head.point == ZERO and not fits:
        # The topic's row is lost. It proves nothing about the objects; only a link that matches them proves the head.
        newest = changelog.newest(ConnectionExecutor(connection), topic)
        proved = newest if newest is not None and (newest.count, newest.digest) == (count, total) else None
        return _with_forms(Plan(store, head, altered, fixes, lost_head=proved, read=len(found)), seen)
    if fits and len(fixes) == len(altered):
        return _with_forms(Plan(store, head, altered, fixes, read=len(found)), seen)
    last, complete = _changelog(connection, topic, head.point)
    wrong: dict[Identity, Stored | None] = dict(altered)
    moved: set[Identity] = set()
    if not fits or complete:
        # A renamed row keeps its bucket and its fingerprint: its topic seems complete.
        present, missing = _differing(connection, topic, last, complete, by_buckets=not altered)
        moved, elsewhere = _elsewhere(connection, topic, missing, last)
        seen |= {
            each.item.ident: each for each in _read(connection, topic, [each for each in present if each not in found])
        }
        found = {ident: each.item for ident, each in seen.items()}
        wrong |= {ident: found[ident] for ident in present if ident in found}
        wrong |= {ident: elsewhere.get(ident) for ident in missing if ident not in moved}
    candidates = [_by_changelog(connection, topic, ident, now, last, complete) for ident, now in wrong.items()]
    fixes = [fix for fix in candidates if fix is not None]
    after = _after(topic, count, total, fixes)
    if after == (head.count, head.digest):
        return _with_forms(Plan(store, head, wrong, fixes, read=len(found)), seen)
    if complete:
        # A row that matches its fingerprint, at the changelog's version, may be right: then the link is wrong.
        kept = [fix for fix in fixes if not _fits_itself(fix)]
        after = _after(topic, count, total, kept)
        by_changelog = _expected({ident: change for ident, change in last.items() if ident not in moved}, fixes)
        if after == by_changelog:
            # The changelog names every object, so the head is wrong: a writer changed an object that was damaged.
            by = after[0] - head.count, digest.subtract(after[1], head.digest)
            return _with_forms(Plan(store, head, wrong, kept, *by, read=len(found)), seen)
    fixes = [fix for fix in fixes if _proves_itself(fix)]
    return _with_forms(Plan(store, head, wrong, fixes, read=len(found)), seen)


def _with_forms(plan: Plan, seen: Mapping[Identity, rows.Seen]) -> Plan:
    """Add to the plan the rows that match their fingerprint but have text in place of bytes, or a wrong bucket: their
    right form is known without a changelog, and no sum changes.
    """
    known = {fix.ident for fix in plan.fixes}
    forms = {
        ident: each.item for ident, each in seen.items() if each.complaint and ident not in known and each.item.is_sound
    }
    fixes = [*plan.fixes, *(Fix(ident, item, item) for ident, item in forms.items())]
    return msgspec.structs.replace(plan, wrong={**plan.wrong, **forms}, fixes=fixes)


# -- current rows ----------------------------------------------------------------------------------------------------


def sums(connection: Connection, topics: Collection[str]) -> dict[str, tuple[int, int]]:
    """Per topic that has rows: their number, and the sum of their stored fingerprints."""
    objects = schema.objects.c
    found: dict[str, tuple[int, int]] = {}
    for part in rows.chunks(sorted(topics)):
        query = (
            select(objects.topic, func.count().label("many"), func.sum(objects.fp_lo), func.sum(objects.fp_hi))
            .where(objects.topic.in_(part))
            .group_by(objects.topic)
        )
        for topic, many, low, high in connection.execute(query):
            found[topic] = int(many), rows.sums(low, high)
    return found


def _read(connection: Connection, topic: str, idents: Collection[Identity]) -> list[rows.Seen]:
    return [each for each in _anywhere(connection, idents) if each.item.topic == topic]


def _anywhere(connection: Connection, idents: Collection[Identity]) -> list[rows.Seen]:
    found = []
    for table, keys in by_table(idents).items():
        for part in rows.chunks(keys):
            found += [rows.seen(row) for row in connection.execute(rows.select_objects(table, part))]
    return found


def _elsewhere(
    connection: Connection, topic: str, missing: Sequence[Identity], last: Mapping[Identity, Last]
) -> tuple[set[Identity], dict[Identity, Stored]]:
    """Returns the objects that a writer created on another topic after they were lost from this one (they may have been
    deleted there again); and correct rows on another topic, whose topic column was altered.
    """
    found = [each.item for each in _anywhere(connection, missing) if each.item.topic != topic]
    moved = {each.ident for each in found if each.version > last[each.ident].version}
    left = {ident: last[ident].version for ident in missing if ident not in moved}
    moved |= _written_elsewhere(connection, topic, left)
    misplaced = {
        each.ident: each
        for each in found
        if each.ident not in moved
        and (each.version, each.fingerprint) == (last[each.ident].version, last[each.ident].fingerprint)
    }
    return moved, misplaced


def _written_elsewhere(connection: Connection, topic: str, versions: Mapping[Identity, int]) -> set[Identity]:
    """Those of these objects that links of other topics name after the object's version. Reads all these links."""
    if not versions:
        return set()
    links = schema.links.c
    order = (links.position, links.topic)
    base = select(schema.links).where(links.topic != topic).order_by(*order).limit(PAGE)
    query = base.where(links.position > min(versions.values()))
    found: set[Identity] = set()
    while True:
        got = [rows.link(row) for row in connection.execute(query)]
        for link in got:
            for change in link.changes:
                ident = change.table, change.key
                if change.version > versions.get(ident, change.version):
                    found.add(ident)
        if len(got) < PAGE:
            return found
        query = base.where(object_pages.behind(connection, order, (got[-1].point.position, got[-1].topic)))


def _differing(
    connection: Connection, topic: str, last: Mapping[Identity, Last], complete: bool, *, by_buckets: bool
) -> tuple[list[Identity], list[Identity]]:
    """Differences to the changelog: objects that exist, and objects that are missing. Reads no values. A complete
    changelog gives the bucket digests too: with ``by_buckets`` only buckets that differ are searched.
    """
    objects = schema.objects.c
    query = select(objects.table_name, objects.object_key, objects.fp_lo, objects.fp_hi).where(objects.topic == topic)
    expected = {ident: change.fingerprint for ident, change in last.items() if change.fingerprint is not None}
    if complete and by_buckets:
        buckets = _differing_buckets(connection, topic, expected)
        query = query.where(objects.bucket.in_(sorted(buckets)))
        expected = {ident: print_ for ident, print_ in expected.items() if digest.bucket_of(*ident) in buckets}
    present = []
    for table, key, low, high in connection.execute(query):
        ident = table, key
        right = expected.pop(ident, None)
        if (not isinstance(low, int) or not isinstance(high, int) or right != rows.join(low, high)) and (
            complete or ident in last
        ):
            present.append(ident)
    return present, list(expected)


def _differing_buckets(connection: Connection, topic: str, expected: Mapping[Identity, int]) -> set[int]:
    sums: dict[int, int] = {}
    for ident, print_ in expected.items():
        bucket = digest.bucket_of(*ident)
        sums[bucket] = digest.add(sums.get(bucket, 0), print_)
    stored = snapshot.bucket_digests(connection, topic)
    return {each for each in {*sums, *stored} if sums.get(each, 0) != stored.get(each, 0)}


def _changelog(connection: Connection, topic: str, head: Point) -> tuple[dict[Identity, Last], bool]:
    """The last change of each object in a topic's changelog, and whether the changelog is complete: then its links
    connect from the first one to the head, and no object is older than the first. Links may have been lost, too, and a
    topic whose row was lost may have started again from no head.
    """
    found: dict[Identity, Last] = {}
    known, complete = ZERO, True
    while True:
        got = _links(connection, topic, known.position + 1, PAGE)
        if got and known == ZERO:
            complete = not _is_older(connection, topic, got[0].tx_prev.position)
        for link in got:
            for change in link.changes:
                ident, version, value = (change.table, change.key), change.version, change.value
                print_ = None if value is None else digest.fingerprint(*ident, version, value)
                found[ident] = Last(version, print_, link.point.position)
            complete = complete and link.prev == known
            known = link.point
        if len(got) < PAGE:
            return found, complete and known == head


def _is_older(connection: Connection, topic: str, position: int) -> bool:
    """Whether the topic has a sound row that no link after this position can have written."""
    objects = schema.objects.c
    query = select(schema.objects).where(objects.topic == topic, objects.version <= position).limit(PAGE)
    found = [rows.seen(row).item for row in connection.execute(query)]
    return len(found) == PAGE or any(each.is_sound for each in found)


def _links(connection: Connection, topic: str, first: int, maximum: int) -> list[Link]:
    links = schema.links.c
    query = select(schema.links).where(links.topic == topic, links.position >= first).order_by(links.position)
    return [rows.link(row) for row in connection.execute(query.limit(maximum))]


# -- right rows ------------------------------------------------------------------------------------------------------


def _by_version(connection: Connection, topic: str, row: Stored) -> Fix | None:
    """The right value of a row whose version is right, proved by its fingerprint: one look-up in the changelog."""
    for link in _links(connection, topic, row.version, 1):
        for change in link.changes:
            if (change.table, change.key, change.version) == (*row.ident, row.version) and change.value is not None:
                right = msgspec.structs.replace(row, value=change.value)
                if right.real_fingerprint == row.fingerprint:
                    return Fix(row.ident, row, right)
    return None


def _by_changelog(
    connection: Connection,
    topic: str,
    ident: Identity,
    now: Stored | None,
    last: Mapping[Identity, Last],
    complete: bool,
) -> Fix | None:
    known = last.get(ident)
    if known is None and not complete:
        # Perhaps only its fingerprint was altered; only the head can prove that.
        return None if now is None else Fix(ident, now, msgspec.structs.replace(now, fingerprint=now.real_fingerprint))
    if known is None or known.fingerprint is None:
        # A row that matches its fingerprint was written by a writer. Only a later delete proves its removal.
        older = known is not None and now is not None and now.version < known.version
        return None if now is not None and now.is_sound and not older else Fix(ident, now, None)
    for link in _links(connection, topic, known.position, 1):
        for change in reversed(link.changes):
            if (change.table, change.key) == ident and change.value is not None:
                return Fix(ident, now, Stored(*ident, topic, known.version, change.value, known.fingerprint))
    return None


def _proves_itself(fix: Fix) -> bool:
    """True when the row's own fingerprint is that of the right version and value."""
    now, right = fix.now, fix.right
    return now is not None and right is not None and now.fingerprint == right.fingerprint == right.real_fingerprint


def _fits_itself(fix: Fix) -> bool:
    """True when the row matches its own fingerprint and has the link's version: only the head proves which is right."""
    now, right = fix.now, fix.right
    if now is None or right is None or now.version != right.version:
        return False
    return now.is_sound


def _expected(last: Mapping[Identity, Last], fixes: Sequence[Fix]) -> tuple[int, int]:
    """Count and digest of the objects in the changelog, with the rows that may be right in place of links."""
    prints = {ident: change.fingerprint for ident, change in last.items() if change.fingerprint is not None}
    prints |= {fix.ident: fix.now.fingerprint for fix in fixes if fix.now is not None and _fits_itself(fix)}
    total = 0
    for each in prints.values():
        total = digest.add(total, each)
    return len(prints), total


def _after(topic: str, count: int, total: int, fixes: Sequence[Fix]) -> tuple[int, int]:
    for fix in fixes:
        if fix.now is not None and fix.now.topic == topic:
            count, total = count - 1, digest.subtract(total, fix.now.fingerprint)
        if fix.right is not None:
            count, total = count + 1, digest.add(total, fix.right.fingerprint)
    return count, total


def by_table(idents: Collection[Identity]) -> dict[str, list[str]]:
    """The keys of each table, in the order in which every writer locks them."""
    found: dict[str, list[str]] = {}
    for table, key in sorted(idents, key=lambda ident: (ident[0].encode(), ident[1].encode())):
        found.setdefault(table, []).append(key)
    return found
