"""Consistent readings: heads, objects and links of one snapshot.

Every function takes a connection inside one read-only REPEATABLE READ transaction; so all its pages show one state of
the store, while writers go on.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from sqlalchemy import Connection, func, select

from pubsub_lib.core import digest
from pubsub_lib.core.contents import ReadObjects, read_contents, read_records
from pubsub_lib.core.model import (
    ALL,
    EMPTY,
    Change,
    Delta,
    Full,
    Head,
    Heads,
    Incomplete,
    Point,
    Recorded,
    SyncAnswer,
    TopicSnapshot,
    Want,
)
from pubsub_lib.errors import StoreError
from pubsub_lib.store import changelog, object_pages, rows, schema
from pubsub_lib.store.settings import StoreSettings
from pubsub_lib.store.verbs import Stored


def store_point(connection: Connection) -> Point:
    """The store's head. Raises SchemaError when the counter is gone."""
    return identity(connection)[0]


def identity(connection: Connection) -> tuple[Point, bytes]:
    """The store's head and id, read together. Raises SchemaError when the counter is gone, or the id."""
    store = schema.store.c
    query = select(store.position, store.nonce, store.store_id).where(store.id == 1)
    return rows.identity(connection.execute(query).all())


def heads(connection: Connection, topics: Collection[str]) -> dict[str, Head]:
    """The heads of these topics, and of all topics that were ever written, when ``ALL`` is among them."""
    if ALL in topics:
        found = {row.topic: rows.head(row) for row in connection.execute(select(schema.topics))}
    else:
        found = {}
        for part in rows.chunks(sorted(set(topics))):
            query = select(schema.topics).where(schema.topics.c.topic.in_(part))
            found.update((row.topic, rows.head(row)) for row in connection.execute(query))
    return found | {topic: EMPTY for topic in topics if topic != ALL and topic not in found}


def read_heads(connection: Connection, topics: Collection[str]) -> Heads:
    """The store's point and the heads of these topics."""
    point, store_id = identity(connection)
    return Heads(point, heads(connection, topics), store_id, everything=ALL in topics)


def everything(connection: Connection, page: int) -> Full:
    """All objects."""
    current = heads(connection, {ALL})
    return Full(_snapshots(connection, None, _written(current), page, read_contents), store_point(connection))


def read_sync(
    connection: Connection, wants: Mapping[str, Want], settings: StoreSettings, read: ReadObjects | None = None
) -> SyncAnswer:
    """Answer all wants from this snapshot. ``read`` makes the objects; None: of a first sync entries, and else records,
    which take less memory in a replica that has most of these objects.
    """
    point, store_id = identity(connection)
    current = heads(connection, wants.keys())
    page = settings.page_size
    chains: dict[str, Delta | Incomplete | Full] = {}
    whole: dict[bool, list[str]] = {True: [], False: []}
    """The chains whose objects are read for the first time, and the others."""
    contains = _contain_known(connection, wants, current, point)
    recorded = _recorded(connection, wants, current, point)
    for chain, want in wants.items():
        if want.after is not None:
            chains[chain] = _delta(connection, chain, want.after, current, point, settings)
        elif want.buckets is not None:
            topics = _repair(connection, chain, want, current, point, settings, read)
            chains[chain] = Full(topics, _head(chain, current, point), contains.get(chain), recorded.get(chain))
        elif chain == ALL:
            topics = _snapshots(connection, None, _written(current), page, read or _reads(first=want.known is None))
            chains[ALL] = Full(topics, point, contains.get(ALL), recorded.get(ALL))
        else:
            whole[want.known is None].append(chain)
    for first, names in whole.items():
        for part in _parcels(names, current, page):
            heads_of = {topic: current[topic] for topic in part}
            found = _snapshots(connection, part, heads_of, page, read or _reads(first=first))
            for topic, each in found.items():
                chains[topic] = Full({topic: each}, each.head.point, contains.get(topic), recorded.get(topic))
    return SyncAnswer(point, chains, store_id)


def _head(chain: str, current: Mapping[str, Head], store: Point) -> Point:
    return store if chain == ALL else current[chain].point


def _contain_known(
    connection: Connection, wants: Mapping[str, Want], current: Mapping[str, Head], store: Point
) -> dict[str, bool | None]:
    """For each chain whose objects are requested with a known point: whether its history contains that point."""
    asked = [
        (chain, want.known, _head(chain, current, store))
        for chain, want in wants.items()
        if want.after is None and want.known is not None
    ]
    return dict(zip([chain for chain, _, _ in asked], changelog.holds(connection, asked), strict=True))


def _recorded(
    connection: Connection, wants: Mapping[str, Want], current: Mapping[str, Head], store: Point
) -> dict[str, Recorded | None]:
    """For each chain with a point that is to be judged: what the store has there."""
    judged = {chain: want.judged for chain, want in wants.items() if want.after is None and want.judged is not None}
    asked = [(topic, point, current.get(topic, EMPTY)) for topic, point in judged.values()]
    return dict(zip(judged, changelog.recorded(connection, asked, store), strict=True)) if asked else {}


def _written(current: Mapping[str, Head]) -> dict[str, Head]:
    """The heads of written topics: topics that were requested besides ``ALL`` and never written are not part of it."""
    return {topic: head for topic, head in current.items() if head != EMPTY}


def _parcels(topics: Sequence[str], current: Mapping[str, Head], page: int) -> Iterator[list[str]]:
    """The topics in groups that one statement reads: small ones together, up to about a page of objects. For a replica
    with 10,000 small topics, a statement for each topic would take most of the full sync.
    """
    parcel: list[str] = []
    left = page
    for topic in topics:
        count = current[topic].count
        if parcel and (count > left or len(parcel) == rows.CHUNK):
            yield parcel
            parcel, left = [], page
        parcel.append(topic)
        left -= count
    if parcel:
        yield parcel


def _delta(
    connection: Connection,
    chain: str,
    after: Point,
    current: Mapping[str, Head],
    store: Point,
    settings: StoreSettings,
) -> Delta | Incomplete:
    page, maximum = settings.page_size, settings.max_delta_links
    if chain == ALL:
        return changelog.store_delta(connection, after, store, _written(current), page, maximum)
    return changelog.topic_delta(connection, chain, after, current[chain], page, maximum)


def _repair(
    connection: Connection,
    chain: str,
    want: Want,
    current: Mapping[str, Head],
    store: Point,
    settings: StoreSettings,
    read: ReadObjects | None,
) -> dict[str, TopicSnapshot]:
    """The buckets that differ. Of buckets that differ because of later writes than the replica's digests, only those
    writes, unless no other bucket differs: otherwise each transaction meanwhile would cost a whole bucket.
    """
    topics = None if chain == ALL else [chain]
    asked = _written(current) if chain == ALL else {chain: current[chain]}
    assert want.buckets is not None
    differing = _differing(bucket_digests(connection, None if chain == ALL else chain), want.buckets)
    changes: dict[str, list[Change]] = {}
    if want.known is not None and len(differing) > 1:
        delta = _delta(connection, chain, want.known, current, store, settings)
        if isinstance(delta, Delta):
            last = {(link.topic, each.table, each.key): each for link in delta.links for each in link.changes}
            written = {digest.bucket_of(table, key) for _, table, key in last}
            if differing - written:
                differing -= written
                for (topic, _, _), change in last.items():
                    changes.setdefault(topic, []).append(change)
    found = _snapshots(connection, topics, asked, settings.page_size, read or read_records, differing)
    return {
        topic: TopicSnapshot(each.head, each.records, differing, changes.get(topic, ()))
        for topic, each in found.items()
    }


def holds(connection: Connection, asked: Sequence[tuple[str, Point]]) -> list[bool | None]:
    """For each (topic, point), whether the point is in the history of the topic (``ALL``: of the store), as
    :func:`.changelog.holds`.
    """
    topics = {topic for topic, _ in asked} - {ALL}
    found = {topic: head.point for topic, head in heads(connection, sorted(topics)).items()} if topics else {}
    if any(topic == ALL for topic, _ in asked):
        found[ALL] = store_point(connection)
    return changelog.holds(connection, [(topic, point, found[topic]) for topic, point in asked])


def bucket_digests(connection: Connection, topic: str | None) -> dict[int, int]:
    """Digest per non-empty bucket, of one topic or (None) of all objects together. Raises StoreError for a bucket that
    is not a number, which SQLite accepts.
    """
    objects = schema.objects.c
    query = select(objects.bucket, func.sum(objects.fp_lo).label("lo"), func.sum(objects.fp_hi).label("hi"))
    if topic is not None:
        query = query.where(objects.topic == topic)
    found = {}
    for bucket, low, high in connection.execute(query.group_by(objects.bucket)):
        if type(bucket) is not int:
            raise _no_bucket(connection, topic, bucket)
        found[bucket] = rows.sums(low, high)
    return found


def _no_bucket(connection: Connection, topic: str | None, bucket: object) -> StoreError:
    columns = schema.objects.c
    query = select(schema.objects).where(columns.bucket == bucket).limit(1)
    row = connection.execute(query if topic is None else query.where(columns.topic == topic)).one()
    return rows.damaged(row.table_name, row.object_key, row.topic, rows.seen(row).complaint)


def objects(
    connection: Connection,
    page: int,
    *,
    topic: str | None = None,
    table: str | None = None,
    buckets: Collection[int] | None = None,
) -> Iterator[Stored]:
    """The objects, in the order of (topic, bucket, table, key), read page by page. StoreError for a damaged one."""
    topics = None if topic is None else [topic]
    base = select(schema.objects)
    for got in object_pages.pages(connection, base, page, topics=topics, table=table, buckets=buckets):
        yield from map(rows.stored, got)


def seen(connection: Connection, page: int, topic: str) -> Iterator[rows.Seen]:
    """The objects of a topic, damaged ones too, in the same order."""
    for got in object_pages.pages(connection, select(schema.objects), page, topics=[topic]):
        yield from map(rows.seen, got)


def _reads(*, first: bool) -> ReadObjects:
    return read_contents if first else read_records


def _snapshots(
    connection: Connection,
    topics: Collection[str] | None,
    current: Mapping[str, Head],
    page: int,
    read: ReadObjects,
    buckets: frozenset[int] | None = None,
) -> dict[str, TopicSnapshot]:
    """A snapshot for each head, of these topics, or (None) of all topics; of these buckets, or (None) of all."""
    table, pages = object_pages.placed(connection, page, topics, buckets)
    found = read(current, pages, table, rows.content, rows.lost_head)
    return {name: TopicSnapshot(head, found[name], buckets) for name, head in current.items()}


def _differing(mine: Mapping[int, int], theirs: Mapping[int, int]) -> frozenset[int]:
    return frozenset(bucket for bucket in range(digest.BUCKETS) if mine.get(bucket, 0) != theirs.get(bucket, 0))


def recount(connection: Connection, topic: str, page: int) -> Head:
    """The expected head: the topic's point, with count and digest computed again from the values."""
    head = heads(connection, [topic])[topic]
    count = total = 0
    for item in objects(connection, page, topic=topic):
        count += 1
        total = digest.add(total, digest.fingerprint(item.table, item.key, item.version, item.value))
    return Head(head.point, count, total)
