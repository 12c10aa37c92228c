"""The check of the option ``paranoid``: the cache must hold exactly the store's objects."""

from collections.abc import Collection

from pubsub_lib.core.cache import Cache
from pubsub_lib.core.model import ALL, Full, Point, SyncAnswer, TopicSnapshot, Want
from pubsub_lib.core.replica_state import ReplicaState
from pubsub_lib.errors import StoreError
from pubsub_lib.replica.sync_reader import SyncReader


def read_whole(reader: SyncReader, chains: Collection[str]) -> SyncAnswer | None:
    """All objects of these chains; None when the store cannot be read: the next sync will report that. Blocks."""
    try:
        return reader.read_sync({name: Want() for name in chains})
    except StoreError:
        return None


def found_differences(state: ReplicaState, answer: SyncAnswer) -> list[str]:
    """The first difference of each chain that is at the point of the answer. The caller holds the replica's lock."""
    found = [
        differences(state.cache, name, part)
        for name, part in answer.chains.items()
        if isinstance(part, Full) and _is_at(state, name, part.head)
    ]
    return [each[0] for each in found if each]


def _is_at(state: ReplicaState, name: str, head: Point) -> bool:
    tracker = state.tracker
    return name in tracker.topics and tracker.chain(name).known == head and not tracker.chain(name).frozen


def differences(cache: Cache, chain: str, full: Full) -> list[str]:
    """One sentence for each object that differs. The caller holds the cache's lock, and the cache is at ``full.head``
    of this chain.
    """
    topics = cache.topics() if chain == ALL else [chain]
    found = [
        f"topic {topic!r} is in the replica but not in the store"
        for topic in topics
        if topic not in full.topics and cache.head(topic)[0]
    ]
    for topic, snapshot in full.topics.items():
        found.extend(_in_topic(cache, topic, snapshot))
    return found


def _in_topic(cache: Cache, topic: str, snapshot: TopicSnapshot) -> list[str]:
    here = {(record.table, record.key): record for record in cache.topic_records(topic)}
    found = []
    for there in snapshot.records:
        mine = here.pop((there.table, there.key), None)
        name = f"{there.table} {there.key!r} of topic {topic!r}"
        if mine is None:
            found.append(f"{name} is missing")
        elif mine.version != there.version:
            found.append(f"{name} has version {mine.version} instead of {there.version}")
        elif mine.value != there.value:
            found.append(f"{name} has another value in version {there.version}")
    found.extend(f"{table} {key!r} of topic {topic!r} does not exist in the store" for table, key in here)
    return found
