"""HTTP routes that show the contents of a replica's topic, computed from the objects, for a comparison with the store.

``GET /verify?topic=T``: the topic's objects, digest and bucket digests at a point. ``GET /objects?topic=T&bucket=N``
(``bucket`` may be repeated): tables, keys, versions and fingerprints of these buckets. ``POST /resync?topic=T``: read
the topic again (without a topic: all subscribed topics). ``GET /quarantined``: the publishers that are not used. No
route returns values.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Protocol

import msgspec

from pubsub_lib.core import digest
from pubsub_lib.core.model import Point, Record
from pubsub_lib.errors import InvalidValueError, NotSubscribedError, UsageError
from pubsub_lib.http_routes import Answered, Query, Route
from pubsub_lib.replica.status import Status

JSON = "application/json"


class Contents(msgspec.Struct, frozen=True):
    """One topic's own chain in a replica, at one moment.

    ``known`` is the point up to which the replica has every change: the topic's point, or the store's point in a
    replica of everything. ``records`` are all objects of the chain, also those hidden by a newer one of another topic.
    """

    topic: str
    state: str
    known: Point | None
    staleness: float
    records: Sequence[Record]


class InspectedReplica(Protocol):
    """The methods of a replica that the routes need."""

    def contents(self, topic: str) -> Contents:
        """The topic's current contents. Raises NotSubscribedError, ClosedError."""

    def resync(self, *topics: str) -> None:
        """Read topics again (none named: all). Raises NotSubscribedError, ClosedError."""

    def status(self) -> Status:
        """The replica's current status. Raises ClosedError."""


def routes(replica: InspectedReplica) -> Mapping[str, Route]:
    """The routes by method and path."""
    return {
        "GET /verify": lambda query: _answer(lambda: _verify(replica.contents(_topic(query)))),
        "GET /objects": lambda query: _answer(lambda: _objects(replica.contents(_topic(query)), _buckets(query))),
        "GET /quarantined": lambda query: _answer(lambda: {"quarantined": replica.status().quarantined}),
        "POST /resync": lambda query: _answer(lambda: _resync(replica, query.get("topic", ()))),
    }


def _answer(make: Callable[[], Mapping[str, Any]]) -> Answered:
    try:
        return HTTPStatus.OK, msgspec.json.encode(make()), JSON
    except NotSubscribedError as error:
        return HTTPStatus.NOT_FOUND, f"{error}\n".encode(), "text/plain; charset=utf-8"
    except (UsageError, InvalidValueError) as error:
        return HTTPStatus.BAD_REQUEST, f"{error}\n".encode(), "text/plain; charset=utf-8"


def _verify(contents: Contents) -> dict[str, Any]:
    """Computed from the values and not from stored digests, so that faults in memory are found too."""
    total = 0
    buckets: dict[int, int] = {}
    for record in contents.records:
        print_ = _fingerprint(record)
        total = digest.add(total, print_)
        bucket = digest.bucket_of(record.table, record.key)
        buckets[bucket] = digest.add(buckets.get(bucket, 0), print_)
    return {**_where(contents), "objects": len(contents.records), "digest": total, "buckets": buckets}


def _objects(contents: Contents, buckets: Collection[int]) -> dict[str, Any]:
    found = [
        (record.table, record.key, record.version, _fingerprint(record))
        for record in contents.records
        if digest.bucket_of(record.table, record.key) in buckets
    ]
    return {**_where(contents), "objects": found}


def _resync(replica: InspectedReplica, topics: Sequence[str]) -> dict[str, Any]:
    replica.resync(*topics)
    return {"topics": list(topics)}


def _where(contents: Contents) -> dict[str, Any]:
    known = contents.known
    return {
        "topic": contents.topic,
        "state": contents.state,
        "position": None if known is None else known.position,
        "nonce": None if known is None else known.nonce,
        "staleness": None if contents.staleness == float("inf") else contents.staleness,
    }


def _fingerprint(record: Record) -> int:
    return digest.fingerprint(record.table, record.key, record.version, record.value)


def _topic(query: Query) -> str:
    found = query.get("topic", ())
    if len(found) != 1:
        raise UsageError("name one topic: ?topic=NAME")
    return found[0]


def _buckets(query: Query) -> frozenset[int]:
    try:
        found = frozenset(map(int, query.get("bucket", ())))
    except ValueError:
        found = frozenset()
    if not found or not found <= set(range(digest.BUCKETS)):
        raise UsageError(f"name buckets by numbers from 0 to {digest.BUCKETS - 1}: &bucket=0&bucket=1")
    return found
